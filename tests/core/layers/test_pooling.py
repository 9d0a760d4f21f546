"""Tests of Pooling and SPP."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import GraphError
from layer_nets import net_text, run_layer
from layer_suite import BATCH, IMAGE, Case, layer_case, properties, recorded


def pooling(param: str, *shape: int, name: str, **options: Any) -> Case:
    return layer_case("Pooling", f"pooling_param {{ {param} }}", (BATCH, *shape), name=name, **options)


test_recorded = recorded("Pooling", "SPP")
test_properties = properties(
    pooling("pool: MAX kernel_size: 3 stride: 2 pad: 1", 3, 7, 6, name="max"),
    pooling("pool: AVE kernel_size: 3 stride: 2 pad: 1", 3, 7, 6, name="ave"),
    pooling("pool: MAX kernel_size: 2 stride: 2", 3, 6, 5, name="mask", tops=2),
    pooling("pool: AVE global_pooling: true", 3, 5, 6, name="global_ave"),
    pooling("pool: MAX global_pooling: true", 3, 5, 6, name="global_max"),
    pooling(
        "pool: STOCHASTIC kernel_size: 2 stride: 2", 3, 6, 5, name="stochastic", distribution="positive", random=True
    ),
    layer_case("SPP", "spp_param { pyramid_height: 2 pool: MAX }", IMAGE, name="max"),
    layer_case("SPP", "spp_param { pyramid_height: 2 pool: AVE }", IMAGE, name="ave"),
)


def test_single_kernel_h_or_kernel_w_is_ignored_with_kernel_size() -> None:
    """Caffe checks for `kernel_size` or both `kernel_h` and `kernel_w`; one of the two alone passes the check."""
    x = np.random.default_rng(0).normal(size=(1, 2, 7, 8))
    (expected,) = run_layer("Pooling", "kernel_size: 3 stride: 2", x)
    for fields in ("kernel_h: 2", "kernel_w: 2"):
        np.testing.assert_array_equal(run_layer("Pooling", f"kernel_size: 3 {fields} stride: 2", x)[0], expected)
    for fields in ("kernel_h: 2 kernel_w: 2", "stride: 2 stride_h: 2", "pad: 1 pad_w: 1"):
        with pytest.raises(GraphError, match="not both"):
            Net(net_text("Pooling", f"pooling_param {{ kernel_size: 3 {fields} }}", [x.shape]))


def make_stochastic_net(
    phase: Any, shape: tuple[int, ...], text: str = "kernel_size: 2 stride: 2", backward: Any = "rules"
) -> Net:
    layers = net_text("Pooling", f"pooling_param {{ pool: STOCHASTIC {text} }}", [shape])
    return Net(f"force_backward: true\n{layers}", phase, backward=backward)


def compute_stochastic_top(model: Net, x: Any, seed: int = 0) -> jax.Array:
    return model.apply({}, {}, {"b0": jnp.asarray(x)}, key=jax.random.key(seed))[0]["t0"]


def test_training_samples_cells_in_proportion_to_their_values() -> None:
    window = np.array([[1, 2], [0, 5]], np.float32)
    x = np.tile(window, (4, 4, 50, 50))
    samples = np.asarray(compute_stochastic_top(make_stochastic_net("TRAIN", x.shape), x))
    for value in window.ravel():
        assert abs((samples == value).mean() - value / window.sum()) < 0.01
    assert not np.array_equal(samples, compute_stochastic_top(make_stochastic_net("TRAIN", x.shape), x, seed=1))


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_training_gives_the_gradient_to_the_sampled_cell(backward: str) -> None:
    x = jax.random.uniform(jax.random.key(3), (2, 3, 7, 7), minval=0.1)
    model = make_stochastic_net("TRAIN", x.shape, "kernel_size: 3 stride: 2", backward)
    y, vjp = jax.vjp(lambda x: compute_stochastic_top(model, x), x)
    dy = 1 + jax.random.uniform(jax.random.key(4), y.shape)
    (dx,) = vjp(dy)
    assert np.isin(y, x).all()
    np.testing.assert_allclose(dx.sum(), dy.sum(), rtol=1e-5)
    np.testing.assert_allclose((dx * x).sum(), (dy * y).sum(), rtol=1e-5)


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_test_phase_computes_the_expectation(backward: str) -> None:
    x = np.zeros((1, 1, 3, 4), np.float32)
    x[0, 0, :2, :2] = [[1, 2], [0, 5]]
    x[0, 0, 2] = [0, 3, 1, 1]  # the last row of windows hangs over the plane
    model = make_stochastic_net("TEST", x.shape, backward=backward)
    y, vjp = jax.vjp(lambda x: compute_stochastic_top(model, x), jnp.asarray(x))
    np.testing.assert_allclose(y[0, 0], [[30 / 8, 0], [3, 1]], rtol=1e-6)
    (dx,) = vjp(jnp.ones_like(y))
    mean = 30 / 8
    expected = [[(2 * v - mean) / 8 for v in row] for row in ([1, 2], [0, 5])]
    np.testing.assert_allclose(dx[0, 0, :2, :2], expected, rtol=1e-5)
    np.testing.assert_array_equal(dx[0, 0, :2, 2:], 0)


def test_windows_of_zeros_and_beyond_the_plane() -> None:
    text = "kernel_size: 3 stride: 2"
    zeros = compute_stochastic_top(make_stochastic_net("TRAIN", (1, 1, 5, 5), text), np.zeros((1, 1, 5, 5)))
    np.testing.assert_array_equal(zeros, np.zeros((1, 1, 2, 2)))
    ones = np.ones((3, 2, 4, 4), np.float32)  # the last windows hang over
    assert np.all(compute_stochastic_top(make_stochastic_net("TRAIN", ones.shape, text), ones) == 1)


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_stochastic_spp_of_a_divisible_plane(phase: Any) -> None:
    text = net_text("SPP", "spp_param { pool: STOCHASTIC pyramid_height: 2 }", [(2, 3, 4, 4)])
    x = jax.random.uniform(jax.random.key(0), (2, 3, 4, 4))
    y = compute_stochastic_top(Net(text, phase), x)
    assert y.shape == (2, 15)
    quarters = compute_stochastic_top(make_stochastic_net("TEST", x.shape), x)
    if phase == "TEST":
        np.testing.assert_allclose(y[:, 3:], quarters.reshape(2, -1), rtol=1e-6)
    else:
        assert np.isin(y, x).all()

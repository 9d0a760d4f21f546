"""Implementations for other platforms, run on this one: recorded cases, and nets compared with the default."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.core.ops import platform_dispatch
from caffejax.core.ops.normalization_op import normalize_channels
from caffejax.core.ops.pooling_op import max_pool
from caffejax.core.ops.window import Window
from caffejax.core.program.net import Net
from golden_cases import ACCEPTED_CASES, format_case_id
from layer_nets import assert_as_recorded

CONFIGS = Path(__file__).parents[3] / "configs"

# the types whose kernels have several implementations, and the recorded case that all platforms run
CASE_BY_TYPE = {
    "BatchNorm": "train",
    "Concat": "axis1",
    "Convolution": "basic",
    "Deconvolution": "basic",
    "InnerProduct": "basic",
    "LRN": "across_default",
    "Pooling": "max_overlap",
    "ReLU": "basic",
    "Scale": "bias_term",
}
TYPES_BY_PLATFORM = {  # for each platform
    "plain": tuple(CASE_BY_TYPE),
    "cuda": ("Convolution", "Deconvolution", "Pooling"),
    "tpu": ("Convolution",),
}


@pytest.fixture(scope="module", params=TYPES_BY_PLATFORM)
def platform(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the implementations of this platform in a test."""
    original_select = platform_dispatch.select_implementation

    def select(*args: Any, single_device: bool) -> Any:
        return original_select(*args[:2], request.param, single_device=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platform_dispatch, "select_implementation", select)
        jax.clear_caches()
        yield request.param
    jax.clear_caches()


def list_marks(case: dict[str, Any]) -> list[pytest.MarkDecorator]:
    return [] if case["case"] == CASE_BY_TYPE[case["type"]] else [pytest.mark.long]


@pytest.mark.parametrize(
    ("platform", "case"),
    [
        pytest.param(platform, case, id=f"{platform}-{format_case_id(case)}", marks=list_marks(case))
        for platform, types in TYPES_BY_PLATFORM.items()
        for case in ACCEPTED_CASES
        if case["type"] in types
    ],
    indirect=["platform"],
)
def test_recorded_case_in_every_implementation(platform: str, case: dict[str, Any]) -> None:
    assert_as_recorded(case)


def test_implementations_of_the_platform_are_selected(platform: str) -> None:
    """The other tests of this file rely on this."""
    numbers = {"plain": 1, "cpu": 2, "gpu": 3, "tpu": 4}
    operation = platform_dispatch.PlatformOp(**{name: lambda x, n=n: (x * n,) for name, n in numbers.items()})
    expected = {"plain": 1, "cuda": 3, "tpu": 4}[platform]
    assert operation(jnp.float32(1))[0] == jax.jit(operation)(jnp.float32(1))[0] == expected
    assert jax.jit(jax.grad(lambda x: operation(x)[0]))(jnp.float32(1)) == expected


BATCH_NORM_NET = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 6 dim: 3 dim: 9 dim: 8 } } }
    layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 6 } } }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
      convolution_param { num_output: 4 kernel_size: 3 bias_term: false weight_filler { type: "msra" } } }
    layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
    layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
    layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
    layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { kernel_size: 3 stride: 2 } }
    layer { name: "norm" type: "LRN" bottom: "pool" top: "norm" }
    layer { name: "ip" type: "InnerProduct" bottom: "norm" top: "ip"
      inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def compute_loss_and_gradients(model: Any, kernels: Any) -> Any:
    net = Net(model, "TRAIN", kernels=kernels)
    params, state = net.init(jax.random.key(0))
    data = np.random.default_rng(0).normal(size=(6, *net.graph.blobs["data"].shape[1:])).astype(np.float32)
    inputs = {"data": data, "label": np.arange(6, dtype=np.float32) % 5}
    return net.jit(jax.value_and_grad(net.loss, has_aux=True))(params, state, inputs, jax.random.key(1))


@pytest.mark.parametrize(
    "model", [CONFIGS / "lenet" / "train_val.prototxt", BATCH_NORM_NET], ids=["lenet", "batch norm"]
)
def test_net_in_every_implementation(platform: str, model: Any) -> None:
    result, expected = (
        jax.tree.flatten(compute_loss_and_gradients(model, kernels)) for kernels in ("fast", "reference")
    )
    assert result[1] == expected[1]
    for a, b in zip(result[0], expected[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max(initial=1e-6))


def test_first_maximum_gets_the_gradient_in_every_implementation(platform: str) -> None:
    window = Window((3, 2), (2, 1), ((1, 1), (0, 1)), (1, 1))
    x = np.random.default_rng(0).integers(0, 3, (2, 3, 7, 6)).astype(np.float32)
    y, vjp = jax.vjp(jax.jit(lambda x: max_pool(x, window)), x)
    dy = np.arange(1, y.size + 1, dtype=np.float32).reshape(y.shape)
    padded = np.pad(x, [(0, 0), (0, 0), *window.padding], constant_values=-np.inf)
    expected = np.zeros_like(padded)
    for *plane, i, j in np.ndindex(*y.shape):
        window_index = (*plane, slice(2 * i, 2 * i + 3), slice(j, j + 2))
        first_index = np.unravel_index(padded[window_index].argmax(), window.kernel)
        assert y[*plane, i, j] == padded[window_index].max()
        expected[window_index][first_index] += dy[*plane, i, j]
    np.testing.assert_array_equal(vjp(dy)[0], expected[:, :, 1:-1, :-1])


@pytest.mark.parametrize("relu", [False, True])
def test_batch_with_large_means_is_normalized_in_every_implementation(platform: str, relu: bool) -> None:
    """This is why the stored mean is subtracted: unshifted sums would lose four digits of the variance."""
    random = np.random.default_rng(0)
    x = (random.normal(size=(8, 3, 10, 10)) + np.reshape([100, -100, 0], (3, 1, 1))).astype(np.float32)
    exact = x.astype(np.float64)
    mean, variance = exact.mean((0, 2, 3)), exact.var((0, 2, 3))
    factor, bias = jnp.asarray([1.0, 2.0, -3.0]), jnp.asarray([0.0, 0.5, -1.0])
    mean_estimate = jnp.asarray(mean + 0.3, jnp.float32)
    y, *statistics = normalize_channels(x, factor, bias, mean_estimate, 1e-5, relu=relu)
    np.testing.assert_allclose(statistics, [mean, variance], rtol=1e-5, atol=1e-6)
    means, factors, biases = (a.reshape(-1, 1, 1) for a in (mean, np.asarray(factor), np.asarray(bias)))
    expected = (exact - means) / np.sqrt(variance + 1e-5).reshape(-1, 1, 1) * factors + biases
    np.testing.assert_allclose(y, np.maximum(expected, 0) if relu else expected, atol=1e-4)

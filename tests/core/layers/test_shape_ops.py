"""Settings of shape and index layers that the recorded cases do not cover."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.core.program.net import Net
from layer_nets import net_text


def compute_tops(layer_type: str, text: str, arrays: list[Any], n_tops: int = 1) -> list[np.ndarray]:
    model = Net(net_text(layer_type, text, [np.shape(a) for a in arrays], n_tops))
    names = [f"t{i}" for i in range(n_tops)]
    blobs, _ = model.apply({}, {}, {f"b{i}": jnp.asarray(a) for i, a in enumerate(arrays)}, blobs=names)
    return [np.asarray(blobs[name]) for name in names]


X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("layer_type", "text", "shape"),
    [
        ("Flatten", "flatten_param { axis: 2 end_axis: 1 }", (2, 3, 1, 4)),  # an axis is new
        ("Flatten", "flatten_param { axis: -2 end_axis: -2 }", (2, 3, 4)),
        ("Reshape", "reshape_param { shape { dim: 2 dim: -1 } axis: -2 num_axes: 1 }", (2, 3, 2, 2)),
        ("Reshape", "reshape_param { shape { dim: -1 dim: 0 } axis: 1 }", (2, 3, 4)),
        ("Tile", "tile_param { axis: -3 tiles: 2 }", (4, 3, 4)),
        ("ArgMax", "argmax_param { axis: -2 top_k: 2 }", (2, 2, 4)),
        ("ArgMax", "argmax_param { top_k: 12 out_max_val: true }", (2, 2, 12)),
        ("Im2col", "convolution_param { axis: 0 kernel_size: 2 stride: 2 }", (8, 1, 2)),
    ],
)
def test_top_shapes(layer_type: str, text: str, shape: tuple[int, ...]) -> None:
    assert compute_tops(layer_type, text, [X])[0].shape == shape


def test_argmax_treats_minus_0_as_0() -> None:
    (top,) = compute_tops("ArgMax", "", [np.array([[0.0, -0.0, -1.0], [-0.0, 0.0, -1.0]], np.float32)])
    np.testing.assert_array_equal(top.ravel(), [1, 1])


def test_batch_reindex_returns_nan_for_indices_out_of_range() -> None:
    (top,) = compute_tops("BatchReindex", "", [X, np.array([1, -1, 2, 0.9], np.float32)])
    np.testing.assert_array_equal(top[0], X[1])
    assert np.isnan(top[1:3]).all()
    np.testing.assert_array_equal(top[3], X[0])


def test_a_slice_may_be_empty() -> None:
    full_slice, empty_slice = compute_tops("Slice", "slice_param { slice_point: 3 }", [X], 2)
    np.testing.assert_array_equal(full_slice, X)
    assert empty_slice.shape == (2, 0, 4)


def test_crop_ignores_the_sizes_of_other_axes() -> None:
    (top,) = compute_tops("Crop", "crop_param { axis: -1 offset: 2 }", [X, np.zeros((7, 9, 2))])
    np.testing.assert_array_equal(top, X[:, :, 2:])


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "num_output: 4 kernel_size: 3 stride: 2 pad: 1 group: 2 dilation: 2",
        "num_output: 2 kernel_h: 1 kernel_w: 4 stride_h: 1 stride_w: 3 pad_w: 2",
        "num_output: 2 kernel_size: 2 stride: 3 pad: 3",  # more padding than kernel
    ],
)
def test_deconvolution_equals_the_bottom_gradient_of_convolution(text: str) -> None:
    x = jax.random.normal(jax.random.key(0), (2, 4, 5, 4))
    param = f'convolution_param {{ {text} bias_term: false weight_filler {{ type: "gaussian" std: 1 }} }}'
    deconvolution_net = Net(net_text("Deconvolution", param, [x.shape]))
    params, _ = deconvolution_net.init(jax.random.key(1))
    y = deconvolution_net.apply(params, {}, {"b0": x})[0]["t0"]
    convolution_fields = text.replace(f"num_output: {y.shape[1]}", "num_output: 4")
    convolution_net = Net(
        "force_backward: true\n"
        + net_text("Convolution", f"convolution_param {{ {convolution_fields} bias_term: false }}", [y.shape])
    )
    _, vjp = jax.vjp(lambda y: convolution_net.apply(params, {}, {"b0": y})[0]["t0"], jnp.zeros_like(y))
    np.testing.assert_allclose(y, vjp(x)[0], rtol=1e-4, atol=1e-5)

"""Tests of Convolution3D, Deconvolution3D, Pooling3D and others."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from c3d.cases import run_with_gradient
from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text
from layer_suite import BATCH, fork_properties, layer_case, recorded

VOLUME = (BATCH, 2, 4, 5, 6)

test_recorded = recorded("Convolution3D", "Deconvolution3D", "Pooling3D", family="c3d")
test_properties = fork_properties(
    layer_case(
        "Convolution3D",
        "convolution3d_param { num_output: 3 kernel_size: 3 kernel_depth: 2 stride: 2 pad: 1 temporal_pad: 1 }",
        VOLUME,
    ),
    layer_case(
        "Convolution3D",
        "convolution_param { num_output: 3 kernel_size: 3 kernel_depth: 3 pad: 1 temporal_pad: 1 bias_term: false }",
        VOLUME,
        name="first_version",
    ),
    layer_case(
        "Deconvolution3D",
        "convolution3d_param { num_output: 3 kernel_size: 4 kernel_depth: 2 stride: 2 temporal_stride: 2 pad: 1 }",
        VOLUME,
    ),
    layer_case(
        "Deconvolution3D",
        "convolution_param { num_output: 3 kernel_size: 2 kernel_depth: 2 stride: 2 temporal_stride: 2 }",
        VOLUME,
        name="first_version",
    ),
    layer_case("Pooling3D", "pooling3d_param { kernel_size: 2 kernel_depth: 2 stride: 2 temporal_stride: 2 }", VOLUME),
    layer_case(
        "Pooling3D",
        "pooling_param { pool: AVE kernel_size: 3 kernel_depth: 1 stride: 2 pad: 1 }",
        VOLUME,
        name="ave_first_version",
    ),
    layer_case("VoxelSoftmax", "", VOLUME),
    layer_case("VoxelSoftmaxLoss", "", VOLUME, (BATCH, 1, 4, 5, 6)),
)


RANDOM = np.random.default_rng(0)

VOLUME_SHAPE = (2, 2, 5, 7, 6)

WINDOW = "kernel_size: 3 kernel_depth: 2 stride: 2 temporal_stride: 1 pad: 1"

WEIGHT_FILLER = 'weight_filler { type: "gaussian" std: 1 }'


@pytest.mark.parametrize(
    ("layer_type", "caffe_param", "fork_param", "text"),
    [
        (
            "Convolution3D",
            "convolution_param",
            "convolution3d_param",
            f"{WINDOW} temporal_pad: 1 num_output: 3 {WEIGHT_FILLER}",
        ),
        ("Deconvolution3D", "convolution_param", "convolution3d_param", f"{WINDOW} num_output: 3 {WEIGHT_FILLER}"),
        ("Pooling3D", "pooling_param", "pooling3d_param", f"pool: AVE {WINDOW}"),
    ],
)
def test_both_param_messages_give_equal_results(layer_type: str, caffe_param: str, fork_param: str, text: str) -> None:
    x = RANDOM.normal(size=VOLUME_SHAPE)
    results = (run_with_gradient(layer_type, f"{name} {{ {text} }}", x) for name in (caffe_param, fork_param))
    for caffe_array, fork_array in zip(*results, strict=True):
        np.testing.assert_array_equal(caffe_array, fork_array)


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(("depth", "size", "temporal_stride", "stride"), [(2, 3, 2, 2), (1, 2, 2, 2), (3, 3, 1, 1)])
def test_pooling3d_equals_a_loop(method: str, depth: int, size: int, temporal_stride: int, stride: int) -> None:
    x = np.round(RANDOM.normal(size=VOLUME_SHAPE))  # with equal maxima
    text = f"kernel_size: {size} kernel_depth: {depth} stride: {stride} temporal_stride: {temporal_stride}"
    top, diff = run_with_gradient("Pooling3D", f"pooling3d_param {{ pool: {method} {text} }}", x)
    kernel, strides = (depth, size, size), (temporal_stride, stride, stride)
    out = [-(-(n - k) // s) + 1 for n, k, s in zip(VOLUME_SHAPE[2:], kernel, strides, strict=True)]
    expected, expected_diff = np.zeros((*VOLUME_SHAPE[:2], *out)), np.zeros(VOLUME_SHAPE)
    for position in itertools.product(*map(range, out)):
        window_index = (..., *(slice(i * s, i * s + k) for i, s, k in zip(position, strides, kernel, strict=True)))
        window = x[window_index]
        if method == "MAX":
            value = window.max((2, 3, 4), keepdims=True)
            expected_diff[window_index] += 2 * value * (window == value)
        else:
            value = window.mean((2, 3, 4), keepdims=True)
            expected_diff[window_index] += 2 * value / window[0, 0].size
        expected[(..., *position)] = value[..., 0, 0, 0]
    np.testing.assert_allclose(top, expected, atol=1e-5)
    np.testing.assert_allclose(diff, expected_diff, atol=1e-4)


def test_deconvolution3d_has_a_bias_unless_convolution_param_disables_it() -> None:
    settings = f"convolution3d_param {{ {WINDOW} num_output: 3 bias_term: false }}"
    shapes = [VOLUME_SHAPE]
    assert len(Net(net_text("Deconvolution3D", settings, shapes)).graph.layer("layer").params) == 2
    settings_without_bias = f"{settings} convolution_param {{ bias_term: false }}"
    assert len(Net(net_text("Deconvolution3D", settings_without_bias, shapes)).graph.layer("layer").params) == 1
    assert len(Net(net_text("Convolution3D", settings, shapes)).graph.layer("layer").params) == 1


def test_voxels_without_a_class_only_affect_the_divisor() -> None:
    scores = RANDOM.normal(size=(1, 2, 1, 2, 2))
    prob = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    labels = np.array([0, 1, 2, 255.0]).reshape(1, 1, 1, 2, 2)
    net = Net(net_text("VoxelSoftmaxLoss", "", [scores.shape, labels.shape]))

    def loss(x: Any) -> Any:
        return net.apply({}, {}, {"b0": x, "b1": jnp.asarray(labels, jnp.float32)})[0]["t0"]

    value, diff = jax.value_and_grad(loss)(jnp.asarray(scores, jnp.float32))
    np.testing.assert_allclose(value, -(np.log(prob[0, 0, 0, 0, 0]) + np.log(prob[0, 1, 0, 0, 1])) / 4, rtol=1e-5)
    expected = prob.copy()
    expected[0, 0, 0, 0, 0] -= 1
    expected[0, 1, 0, 0, 1] -= 1
    np.testing.assert_allclose(diff, expected / 4, atol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        (
            "Convolution3D",
            "convolution3d_param { num_output: 2 kernel_size: 3 }",
            [VOLUME_SHAPE],
            "kernel_depth must be set",
        ),
        ("Convolution3D", f"convolution3d_param {{ {WINDOW} num_output: 2 }}", [VOLUME_SHAPE[1:]], "5 axes"),
        (
            "Convolution3D",
            f"convolution3d_param {{ {WINDOW} num_output: 2 filter_group: 3 }}",
            [VOLUME_SHAPE],
            "num_output 2 must be a multiple of filter_group 3",
        ),
        (
            "Convolution3D",
            "convolution_param { num_output: 2 kernel_h: 3 kernel_w: 3 }",
            [VOLUME_SHAPE],
            "kernel_h does not apply",
        ),
        ("Convolution3D", f"convolution_param {{ {WINDOW} num_output: 2 kernel_size: 2 }}", [VOLUME_SHAPE], "set once"),
        (
            "Pooling3D",
            "pooling3d_param { kernel_size: 2 kernel_depth: 2 stride: 0 }",
            [VOLUME_SHAPE],
            "must be positive",
        ),
        (
            "Pooling3D",
            "pooling3d_param { kernel_size: 2 kernel_depth: 2 pad: 1 }",
            [VOLUME_SHAPE],
            "padding, but pad is 1",
        ),
        ("Pooling3D", "pooling3d_param { kernel_size: 8 kernel_depth: 2 }", [VOLUME_SHAPE], "begins|does not fit"),
        (
            "Pooling3D",
            "pooling3d_param { pool: STOCHASTIC kernel_size: 2 kernel_depth: 2 }",
            [VOLUME_SHAPE],
            "STOCHASTIC",
        ),
        (
            "Pooling3D",
            "pooling3d_param { kernel_size: 2 kernel_depth: 2 stride_d: 2 }",
            [VOLUME_SHAPE],
            "stride_d does not apply",
        ),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))

"""Tests of NdConvolution and NdPooling."""

import itertools

import numpy as np
import pytest

from c3d.cases import run_with_gradient
from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text
from layer_suite import BATCH, fork_properties, layer_case

VOLUME = (BATCH, 2, 4, 5, 6)

test_properties = fork_properties(
    layer_case(
        "NdConvolution",
        "convolution_param { num_output: 4 group: 2 kernel_shape { dim: 2 dim: 3 dim: 3 } "
        "stride_shape { dim: 1 dim: 2 dim: 1 } pad_shape { dim: 1 dim: 1 dim: 0 } }",
        VOLUME,
    ),
    layer_case(
        "NdPooling",
        "pooling_param { kernel_shape { dim: 2 dim: 2 dim: 3 } stride_shape { dim: 2 dim: 2 dim: 2 } "
        "pad_shape { dim: 0 dim: 1 dim: 1 } }",
        VOLUME,
    ),
    layer_case("NdPooling", "pooling_param { pool: AVE kernel_shape { dim: 2 dim: 2 } }", (BATCH, 2, 4, 5), name="ave"),
)


RANDOM = np.random.default_rng(0)

VOLUME_SHAPE = (2, 2, 5, 7, 6)

WEIGHT_FILLER = 'weight_filler { type: "gaussian" std: 1 }'


def format_dims(name: str, numbers: tuple[int, ...]) -> str:
    return f"{name} {{ {' '.join(f'dim: {n}' for n in numbers)} }}"


def test_nd_convolution_equals_convolution() -> None:
    x, kernel, stride, pad = RANDOM.normal(size=(2, 4, 5, 7, 6)), (2, 3, 1), (1, 2, 3), (1, 0, 2)
    settings = (
        f"{format_dims('kernel_shape', kernel)} {format_dims('stride_shape', stride)} {format_dims('pad_shape', pad)}"
    )
    fields = zip(("kernel_size", "stride", "pad"), (kernel, stride, pad), strict=True)
    caffe_settings = " ".join(f"{name}: {n}" for name, numbers in fields for n in numbers)
    text = "convolution_param {{ num_output: 6 group: 2 {} {} }}"
    result = run_with_gradient("NdConvolution", text.format(settings, WEIGHT_FILLER), x)
    for nd_array, caffe_array in zip(
        result, run_with_gradient("Convolution", text.format(caffe_settings, WEIGHT_FILLER), x), strict=True
    ):
        np.testing.assert_array_equal(nd_array, caffe_array)


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "expected_size"),
    [
        ((1, 2, 2), (1, 2, 2), (0, 0, 0), (5, 4, 3)),
        ((2, 2, 2), (2, 2, 2), (0, 1, 1), (3, 4, 4)),
        ((5, 7, 6), (1, 1, 1), (0, 0, 0), (1, 1, 1)),
    ],
)
def test_nd_pooling_equals_a_loop(
    kernel: tuple[int, ...], stride: tuple[int, ...], pad: tuple[int, ...], expected_size: tuple[int, ...], method: str
) -> None:
    x = RANDOM.normal(size=VOLUME_SHAPE)
    text = (
        f"{format_dims('kernel_shape', kernel)} {format_dims('stride_shape', stride)} {format_dims('pad_shape', pad)}"
    )
    top, diff = run_with_gradient("NdPooling", f"pooling_param {{ pool: {method} {text} }}", x)
    assert top.shape == (2, 2, *expected_size)
    expected = np.zeros(VOLUME_SHAPE)
    for position in itertools.product(*map(range, expected_size)):
        ranges, num_cells = [], 1
        for i, k, s, a, n in zip(position, kernel, stride, pad, VOLUME_SHAPE[2:], strict=True):
            begin = i * s - a
            ranges.append(slice(max(begin, 0), min(begin + k, n)))
            num_cells *= min(begin + k, n + a) - begin
        window, top_index = x[(..., *ranges)], (..., *position)
        value = window.max((2, 3, 4)) if method == "MAX" else window.sum((2, 3, 4)) / num_cells
        np.testing.assert_allclose(top[top_index], value, rtol=1e-5, atol=1e-6)
        cell_weights = (window == value[..., None, None, None]) if method == "MAX" else np.ones_like(window) / num_cells
        expected[(..., *ranges)] += 2 * value[..., None, None, None] * cell_weights
    np.testing.assert_allclose(diff, expected, rtol=1e-4, atol=1e-5)


def test_global_nd_pooling_equals_the_maximum() -> None:
    x = RANDOM.normal(size=VOLUME_SHAPE)
    top, _ = run_with_gradient("NdPooling", "pooling_param { global_pooling: true }", x)
    np.testing.assert_allclose(top[..., 0, 0, 0], x.max((2, 3, 4)), rtol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "text", "match"),
    [
        ("NdConvolution", "num_output: 2", "kernel_shape must have 3 values"),
        ("NdConvolution", f"num_output: 2 {format_dims('kernel_shape', (2, 2))}", "3 values of dim, .* not 2"),
        ("NdConvolution", f"num_output: 3 group: 2 {format_dims('kernel_shape', (2, 2, 2))}", "group 2 must divide"),
        ("NdConvolution", f"num_output: 2 {format_dims('kernel_shape', (2, 9, 2))}", "kernel|fit|larger"),
        ("NdConvolution", f"{format_dims('kernel_shape', (2, 2, 2))}", "num_output must be positive"),
        ("NdPooling", format_dims("kernel_shape", (0, 2, 2)), "must be positive"),
        ("NdPooling", format_dims("kernel_shape", (9, 2, 2)), "does not fit the volume"),
        (
            "NdPooling",
            f"{format_dims('kernel_shape', (1, 2, 2))} {format_dims('pad_shape', (1, 0, 0))}",
            "must be less than",
        ),
        (
            "NdPooling",
            f"{format_dims('kernel_shape', (1, 1, 1))} {format_dims('stride_shape', (3, 1, 1))}",
            "begins beyond",
        ),
        ("NdPooling", f"pool: STOCHASTIC {format_dims('kernel_shape', (1, 1, 1))}", "use MAX or AVE"),
    ],
)
def test_nd_windows_that_do_not_fit_are_refused(layer_type: str, text: str, match: str) -> None:
    param = "convolution_param" if layer_type == "NdConvolution" else "pooling_param"
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, f"{param} {{ {text} }}", [(2, 2, 5, 7, 6)]))

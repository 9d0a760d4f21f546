"""Tests of Interp, ResizeBilinear and Padding."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.base.errors import CaffejaxError, GraphError
from caffejax.core.program.net import Net
from layer_nets import draw_normal, first_top, net_text, run_layer
from layer_suite import BATCH, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("Interp", family="segmentation")
test_properties = fork_properties(
    layer_case(
        "ResizeBilinear",
        'resize_bilinear_param { data_format: "NCHW" output_height: 7 scale_width: 0.5 half_pixel_centers: true }',
        (BATCH, 3, 5, 6),
    ),
    layer_case(
        "ResizeBilinear", "resize_bilinear_param { scale_height: 2 scale_width: 3 }", (BATCH, 3, 4, 2), name="last"
    ),
    layer_case("Interp", "interp_param { zoom_factor: 2 pad_beg: -1 }", MAPS, name="zoom"),
    layer_case("Interp", "interp_param { shrink_factor: 2 }", MAPS, name="shrink"),
    layer_case("Interp", "interp_param { height: 7 width: 3 }", MAPS, name="size"),
    layer_case("Interp", "", MAPS, (BATCH, 2, 7, 3), name="second_bottom"),
    layer_case("Interp", "interp_param { pad_end: -2 }", MAPS, (1, 1, 3, 9), name="second_bottom_of_one_image"),
    layer_case("Padding", "padding_param { pad_beg: 2 pad_end: -1 }", MAPS),
)


Shape = tuple[int, ...]


def interpolate(line: np.ndarray, position: float) -> np.ndarray:
    """Return the linear interpolation along the first axis at a position."""
    position = min(max(position, 0), len(line) - 1)
    low = min(int(position), len(line) - 2) if len(line) > 1 else 0
    return line[low] * (low + 1 - position) + (line[low + 1] * (position - low) if len(line) > 1 else 0)


@pytest.mark.parametrize("mode", ["", "align_corners", "half_pixel_centers", "pytorch_half_pixel"])
@pytest.mark.parametrize("size", [(7, 9), (3, 2), (1, 1), (4, 5)])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_resize_bilinear_equals_a_loop(data_format: str, size: tuple[int, int], mode: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 3))
    expected = np.zeros((2, *size, 3))

    def source_position(i: int, n: int, out: int) -> float:
        if mode == "align_corners" and out > 1:
            return i * (n - 1) / (out - 1)
        if mode == "pytorch_half_pixel" and out == 1:
            return -0.5
        return (i + 0.5) * n / out - 0.5 if "half" in mode else i * n / out

    for i, j in np.ndindex(*size):
        rows = np.stack([interpolate(image, source_position(i, 4, size[0])) for image in x])
        expected[:, i, j] = np.stack([interpolate(row, source_position(j, 5, size[1])) for row in rows])
    text = f'data_format: "{data_format}" output_height: {size[0]} output_width: {size[1]} {mode and mode + ": true"}'
    axis_order = (0, 3, 1, 2) if data_format == "NCHW" else (0, 1, 2, 3)
    (result,) = run_layer("ResizeBilinear", f"resize_bilinear_param {{ {text} }}", x.transpose(axis_order))
    np.testing.assert_allclose(result, expected.transpose(axis_order), atol=2e-6)


def test_resize_bilinear_output_size_by_scale() -> None:
    text = "resize_bilinear_param { scale_height: 1.7 scale_width: 0.5 }"
    assert run_layer("ResizeBilinear", text, np.zeros((1, 4, 5, 3)))[0].shape == (1, 6, 2, 3)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        (
            "ResizeBilinear",
            "resize_bilinear_param { output_height: 0 output_width: 2 }",
            [(1, 4, 5, 3)],
            "1 pixel or more",
        ),
        (
            "ResizeBilinear",
            "resize_bilinear_param { scale_height: 0.1 }",
            [(1, 4, 5, 3)],
            "scale_height of a size of 4",
        ),
        ("ResizeBilinear", 'resize_bilinear_param { data_format: "NCHWD" }', [(1, 4, 5, 3)], "use NHWC or NCHW"),
        ("ResizeBilinear", "resize_bilinear_param { saturate: Signed }", [(1, 4, 5, 3)], "saturate: quantized"),
        (
            "ResizeBilinear",
            "resize_bilinear_param { align_corners: true half_pixel_centers: true }",
            [(1, 4, 5, 3)],
            "align_corners and half_pixel_centers cannot be combined",
        ),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))


IMAGE_SHAPE = (2, 4, 5, 6)

RANDOM = np.random.default_rng(0)


@settings(max_examples=8)
@given(st.tuples(*[st.integers(1, 7)] * 4))
def test_interp_equals_loops(sizes: tuple[int, ...]) -> None:
    h, w, out_h, out_w = sizes
    x = draw_normal(1, 1, h, w)
    expected = np.zeros((out_h, out_w))
    for i in range(out_h):
        for j in range(out_w):
            y, z = (a * (n - 1) / (m - 1) if m > 1 else 0.0 for a, n, m in ((i, h, out_h), (j, w, out_w)))
            rows, columns = (np.maximum(0, 1 - np.abs(np.arange(n) - position)) for n, position in ((h, y), (w, z)))
            expected[i, j] = rows @ x[0, 0] @ columns
    result = first_top("Interp", f"interp_param {{ height: {out_h} width: {out_w} }}", x)
    np.testing.assert_allclose(result[0, 0], expected, atol=1e-5)


@settings(max_examples=8)
@given(st.tuples(*[st.integers(1, 7)] * 4))
def test_a_second_bottom_gives_the_size_of_interp(sizes: tuple[int, ...]) -> None:
    h, w, out_h, out_w = sizes
    x, reference = draw_normal(2, 3, h, w), np.full((1, 5, out_h, out_w), np.nan)
    expected = first_top("Interp", f"interp_param {{ height: {out_h} width: {out_w} }}", x)
    np.testing.assert_array_equal(first_top("Interp", "", x, reference), expected)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("shrink_factor: 2", (513, 1025)),  # ICNet's first layers
        ("zoom_factor: 2", (2049, 4097)),
        ("shrink_factor: 4 zoom_factor: 2", (513, 1025)),
        ("shrink_factor: 4 zoom_factor: 2 height: 33 width: 65", (33, 65)),
        ("shrink_factor: 8 pad_beg: -1", (128, 256)),
    ],
)
def test_output_sizes_of_interp(text: str, size: tuple[int, int]) -> None:
    net = Net(net_text("Interp", f"interp_param {{ {text} }}", [(1, 3, 1025, 2049)]))
    assert net.graph.blobs["t0"].shape == (1, 3, *size)


def test_integers_are_interpolated_as_floats() -> None:
    x = np.arange(12, dtype=np.int32).reshape(1, 1, 3, 4)
    result = first_top("Interp", "interp_param { height: 5 width: 4 }", x)
    np.testing.assert_allclose(result[0, 0, :, 0], [0, 2, 4, 6, 8])


def test_negative_padding_inverts_padding() -> None:
    x = draw_normal(*IMAGE_SHAPE)
    padded = first_top("Padding", "padding_param { pad_beg: 2 pad_end: 1 }", x)
    np.testing.assert_array_equal(padded, np.pad(x, [(0, 0), (0, 0), (2, 1), (2, 1)]))
    np.testing.assert_array_equal(first_top("Padding", "padding_param { pad_beg: -2 pad_end: -1 }", padded), x)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("Interp", "", [IMAGE_SHAPE], "needs height and width, a shrink_factor, a zoom_factor or a second bottom"),
        ("Interp", "interp_param { zoom_factor: 0 }", [IMAGE_SHAPE], "zoom_factor must be at least 1, not 0"),
        ("Interp", "interp_param { zoom_factor: 2 pad_beg: 1 }", [IMAGE_SHAPE], "must not be positive"),
        ("Interp", "interp_param { zoom_factor: 2 pad_beg: -5 }", [IMAGE_SHAPE], r"crop all of the plane \(5, 6\)"),
        ("Interp", "interp_param { height: -1 width: 3 }", [IMAGE_SHAPE], "height -1 and width 3 must be positive"),
        ("Interp", "", [IMAGE_SHAPE, (2, 3)], r"needs a second bottom with 4 axes .*, not \(2, 3\)"),
        ("Interp", "", [IMAGE_SHAPE, (2, 1, 3, 0)], "a size is 0, but the layer needs at least one element"),
        (
            "Interp",
            "interp_param { zoom_factor: 2 width: 3 }",
            [IMAGE_SHAPE, (2, 1, 3, 3)],
            "the second bottom gives the size; remove it, or remove width, zoom_factor",
        ),
        ("Padding", "padding_param { pad_beg: -5 }", [IMAGE_SHAPE], "crop all of the plane"),
    ],
)
def test_further_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")


def test_enum_types_of_old_nets() -> None:
    """DeconvNet's and DeepLab's V1 nets name their types by enum values."""
    text = """
        input: "x" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
        input: "label" input_dim: 1 input_dim: 1 input_dim: 15 input_dim: 15
        layers { name: "pool" type: POOLING bottom: "x" top: "max" top: "mask"
          pooling_param { kernel_size: 2 stride: 2 } }
        layers { name: "unpool" type: UNPOOLING bottom: "max" bottom: "mask" top: "up"
          unpooling_param { unpool: MAX kernel_size: 2 stride: 2 unpool_size: 8 } }
        layers { name: "interp" type: INTERP bottom: "up" top: "wide" interp_param { zoom_factor: 3 } }
        layers { name: "crop" type: PADDING bottom: "wide" top: "score" padding_param { pad_beg: -3 pad_end: -4 } }
        layers { name: "seg" type: SEG_ACCURACY bottom: "score" bottom: "label" top: "seg" }
        layers { name: "right" type: ELTWISE_ACCURACY bottom: "score" bottom: "label" top: "right"
          eltwise_accuracy_param { ignore_label: 255 } }
        layers { name: "near" type: EUCLIDEAN_DISTANCE bottom: "score" bottom: "score" top: "near" }
        layers { name: "soft" type: SPATIAL_SOFTMAX bottom: "score" top: "soft" }
    """
    shapes = {name: blob.shape for name, blob in Net(text).graph.blobs.items()}
    assert shapes["up"] == (1, 3, 8, 8)
    assert shapes["soft"] == (1, 3, 15, 15)
    assert (shapes["seg"], shapes["right"], shapes["near"]) == ((1, 1, 1, 3), (1, 1, 1, 1), (1, 1, 1, 1))

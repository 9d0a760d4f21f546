"""Shapes of large layers of forks are inferred without arrays of their sizes."""

import tracemalloc

import pytest

from caffejax import Net, summarize


@pytest.mark.parametrize(
    ("shape", "layer"),
    [
        ((1, 2, 8_000_000, 3, 3), 'type: "Pooling3D" pooling3d_param { pool: AVE kernel_size: 2 kernel_depth: 2 }'),
        ((1, 2, 16_000_000, 3), 'type: "MaskResize" mask_resize_param { output_height: 40 output_width: 11 }'),
        ((1, 2, 16_000_000, 3), 'type: "Resample" resample_param { height: 40 width: 11 type: NEAREST }'),
        ((1, 2, 3_000_000, 3), 'type: "PriorBox" bottom: "x" prior_box_param { min_size: 2 }'),
        (
            (1, 21, 4, 3_000_000),
            """type: "Yolov3DetectionOutput" yolov3_detection_output_param { num_classes: 2 anchors_scale: 32 num_box: 3
            mask_group_num: 1 mask: 0 mask: 1 mask: 2 biases: 1 biases: 2 biases: 3 biases: 4 biases: 5 biases: 6 }""",
        ),
    ],
)
def test_shapes_of_large_layers_are_inferred_without_arrays(shape: tuple[int, ...], layer: str) -> None:
    dims = " ".join(f"dim: {n}" for n in shape)
    text = f"""layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}
        layer {{ name: "l" bottom: "x" top: "y" {layer} }}"""
    tracemalloc.start()
    try:
        str(summarize(Net(text, "TEST")))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < max(shape), "something as long as a side"

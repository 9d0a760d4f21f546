"""Forks' types on batches without rows, and with blobs of too many values."""

import jax
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text

Shape = tuple[int, ...]


YOLOV3_PARAM = "yolov3_param { num_class: 2 num: 1 mask: 0 biases: 10 biases: 14 }"


PRIOR_AND_TRUTH_SHAPES = [(1, 2, 16), (1, 1, 3, 8)]  # four, and boxes of images that are not there


EMPTY_LOSS_CASES = [
    ("MultiBoxLoss", "multibox_loss_param { num_classes: 2 }", [(0, 16), (0, 8), *PRIOR_AND_TRUTH_SHAPES]),
    (
        "MultiBoxLoss",
        "multibox_loss_param { num_classes: 2 mining_type: NONE }",
        [(0, 16), (0, 8), *PRIOR_AND_TRUTH_SHAPES],
    ),
    ("TripletLoss", "", [(0, 4)] * 3),
    ("SmoothL1Loss", "", [(0, 4)] * 2),
    ("SmoothL1Loss", "loss_weight: 1", [(0, 4)] * 3),
    ("SmoothL1Loss", "smooth_l1_loss_param { sigma: 3 } loss_weight: 1", [(0, 4)] * 4),
    ("L1Loss", "", [(0, 4)] * 2),
    ("L1Loss", "l1_loss_param { }", [(0, 2, 3, 4)] * 2),
    ("WeightedEuclideanLoss", "", [(0, 4), (0, 4), (0, 4, 4)]),
    ("VoxelSoftmaxLoss", "", [(0, 3, 2, 4, 5), (0, 1, 2, 4, 5)]),
    ("YoloSeg", "", [(0, 2, 3, 4)] * 2),
    ("Yolov3", YOLOV3_PARAM, [(0, 7, 3, 4), (0, 1, 5, 5)]),
]


@pytest.mark.parametrize(("layer_type", "text", "shapes"), EMPTY_LOSS_CASES)
def test_loss_of_an_empty_batch_is_0(layer_type: str, text: str, shapes: list[Shape]) -> None:
    net = Net(net_text(layer_type, text, shapes), "TRAIN")
    first_bottom, *other_bottoms = (np.zeros(shape, np.float32) for shape in shapes)
    inputs = {f"b{i}": bottom for i, bottom in enumerate(other_bottoms, start=1)}
    loss, gradient = net.jit(jax.value_and_grad(lambda x: net.loss({}, {}, {"b0": x, **inputs})[0]))(first_bottom)
    assert loss == 0
    assert gradient.shape == shapes[0]


MAX_UINT32 = 2**32 - 1


@pytest.mark.parametrize(
    ("layer_type", "text"),
    [
        ("Accum", f"accum_param {{ top_height: {MAX_UINT32} top_width: {MAX_UINT32} }}"),
        ("Accum", f"accum_param {{ size_divisible_by: {MAX_UINT32} }}"),
        ("Downsample", f"downsample_param {{ top_height: {MAX_UINT32} top_width: 2 }}"),
        ("MaskResize", f"mask_resize_param {{ output_height: {MAX_UINT32} output_width: {MAX_UINT32} }}"),
        ("MaskResize", f"mask_resize_param {{ output_height: 3 output_width: {MAX_UINT32} }}"),
        ("Resample", f"resample_param {{ height: {MAX_UINT32} width: {MAX_UINT32} type: NEAREST }}"),
        ("Resample", "resample_param { height: 40000 width: 40000 type: CUBIC }"),
        ("Interp", "interp_param { zoom_factor: 2147483647 }"),
    ],
)
def test_tops_with_too_many_elements_are_refused(layer_type: str, text: str) -> None:
    with pytest.raises(GraphError, match=r"a top of height .* a blob has at most 2147483647"):
        Net(net_text(layer_type, text, [(1, 2, 5, 6)]))


def test_empty_batch_without_a_loss_is_refused() -> None:
    with pytest.raises(GraphError, match=r"shapes \(0, 5\), \(0,\): a size is 0, but the layer needs"):
        Net(net_text("CenterLoss", "center_loss_param { num_output: 4 }", [(0, 5), (0,)]))

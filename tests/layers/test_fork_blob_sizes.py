"""Forks' types over no rows, and asked for more numbers than a blob can have."""

import jax
import numpy as np
import pytest
from layer_nets import net_text

from caffejax.errors import GraphError
from caffejax.net import Net

Shape = tuple[int, ...]


V3 = "yolov3_param { num_class: 2 num: 1 mask: 0 biases: 10 biases: 14 }"


PRIORS = [(1, 2, 16), (1, 1, 3, 8)]  # four, and boxes of images that are not there


NONE = [
    ("MultiBoxLoss", "multibox_loss_param { num_classes: 2 }", [(0, 16), (0, 8), *PRIORS]),
    ("MultiBoxLoss", "multibox_loss_param { num_classes: 2 mining_type: NONE }", [(0, 16), (0, 8), *PRIORS]),
    ("TripletLoss", "", [(0, 4)] * 3),
    ("SmoothL1Loss", "", [(0, 4)] * 2),
    ("SmoothL1Loss", "loss_weight: 1", [(0, 4)] * 3),
    ("SmoothL1Loss", "smooth_l1_loss_param { sigma: 3 } loss_weight: 1", [(0, 4)] * 4),
    ("L1Loss", "", [(0, 4)] * 2),
    ("L1Loss", "l1_loss_param { }", [(0, 2, 3, 4)] * 2),
    ("WeightedEuclideanLoss", "", [(0, 4), (0, 4), (0, 4, 4)]),
    ("VoxelSoftmaxLoss", "", [(0, 3, 2, 4, 5), (0, 1, 2, 4, 5)]),
    ("YoloSeg", "", [(0, 2, 3, 4)] * 2),
    ("Yolov3", V3, [(0, 7, 3, 4), (0, 1, 5, 5)]),
]


@pytest.mark.parametrize(("kind", "text", "shapes"), NONE)
def test_a_loss_of_no_rows_is_0(kind: str, text: str, shapes: list[Shape]) -> None:
    built = Net(net_text(kind, text, shapes), "TRAIN")
    first, *others = (np.zeros(shape, np.float32) for shape in shapes)
    inputs = {f"b{i}": other for i, other in enumerate(others, start=1)}
    loss, gradient = built.jit(jax.value_and_grad(lambda x: built.loss({}, {}, {"b0": x, **inputs})[0]))(first)
    assert loss == 0
    assert gradient.shape == shapes[0]


MOST = 2**32 - 1


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("Accum", f"accum_param {{ top_height: {MOST} top_width: {MOST} }}"),
        ("Accum", f"accum_param {{ size_divisible_by: {MOST} }}"),
        ("Downsample", f"downsample_param {{ top_height: {MOST} top_width: 2 }}"),
        ("MaskResize", f"mask_resize_param {{ output_height: {MOST} output_width: {MOST} }}"),
        ("MaskResize", f"mask_resize_param {{ output_height: 3 output_width: {MOST} }}"),
        ("Resample", f"resample_param {{ height: {MOST} width: {MOST} type: NEAREST }}"),
        ("Resample", "resample_param { height: 40000 width: 40000 type: CUBIC }"),
        ("Interp", "interp_param { zoom_factor: 2147483647 }"),
    ],
)
def test_tops_that_cannot_be(kind: str, text: str) -> None:
    with pytest.raises(GraphError, match=r"a top of height .* a blob has at most 2147483647"):
        Net(net_text(kind, text, [(1, 2, 5, 6)]))


def test_refused_for_want_of_numbers() -> None:
    with pytest.raises(GraphError, match=r"shapes \(0, 5\), \(0,\): a size is 0, but the layer needs"):
        Net(net_text("CenterLoss", "center_loss_param { num_output: 4 }", [(0, 5), (0,)]))

"""Tests of MaskPooling and MaskResize."""

import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError
from layer_suite import BATCH, fork_properties, layer_case, recorded
from rcnn.cases import MAP_SHAPE, ROIS, draw_image_info, draw_rois_of_one_image, make_net, python_case

test_recorded = recorded("MaskPooling", "MaskResize", family="rcnn")
test_properties = fork_properties(
    layer_case("MaskPooling", "", (BATCH, 3, 4, 5), (BATCH, 1, 4, 5)),
    layer_case("MaskResize", "mask_resize_param { output_height: 3 output_width: 7 }", (BATCH, 2, 5, 6)),
    python_case("pylayer.mask_layer", "MaskLayer", "", (BATCH, 9), phase="TEST"),
    python_case(
        "pylayer.stage_bridge_layer",
        "StageBridgeLayer",
        "",
        ROIS,
        (BATCH, 12),
        (BATCH, 3),
        (1, 3),
        phase="TEST",
        samplers={"b0": draw_rois_of_one_image, "b3": draw_image_info},
    ),
)


STAGE_BRIDGE_PARAM = 'python_param { module: "pylayer.stage_bridge_layer" layer: "StageBridgeLayer" }'

NUM_CLASSES = 3


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "words"),
    [
        ("MaskResize", "mask_resize_param { output_height: 3 }", [MAP_SHAPE], "must be > 0"),
    ],
)
def test_invalid_settings_and_bottoms_are_rejected(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], words: str
) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{words}"):
        make_net(layer_type, text, shapes, 2 if layer_type == "BoxAnnotatorOHEM" else 1)


def test_computed_masks_must_have_the_shape_of_the_features() -> None:
    """Masks from Input layers are reshaped instead."""
    shape = " ".join(f"dim: {n}" for n in MAP_SHAPE)
    text = f"""layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {shape} }} }} }}
      layer {{ name: "made" type: "Power" bottom: "x" top: "mask" }}
      layer {{ name: "layer" type: "MaskPooling" bottom: "x" bottom: "mask" top: "y" }}"""
    with pytest.raises(CaffejaxError, match=r"must have shape \(2, 1, 6, 7\)"):
        Net(text)


def test_stage_bridge_moves_each_region_by_the_deltas_of_its_best_class() -> None:
    random, height, width = np.random.default_rng(0), 50, 80
    corners = random.uniform(0, 40, (7, 2))
    rois = np.concatenate([np.zeros((7, 1)), corners, corners + random.uniform(0, 30, (7, 2))], axis=1)
    rois[-2:] = [-1, 0, 0, 0, 0]  # padding
    deltas, scores = random.normal(scale=0.4, size=(7, 4 * NUM_CLASSES)), random.uniform(size=(7, NUM_CLASSES))
    inputs = {"b0": rois, "b1": deltas, "b2": scores, "b3": np.array([[height, width, 1.5]])}
    bridge_net = make_net("Python", STAGE_BRIDGE_PARAM, [a.shape for a in inputs.values()])
    top = bridge_net.apply({}, {}, {name: np.float32(a) for name, a in inputs.items()})[0]["t0"]
    assert len(bridge_net.strip_padding({"t0": top})["t0"]) == 5
    for row, (_, x1, y1, x2, y2), score, delta in zip(top[:5], rois, scores, deltas, strict=False):
        k = max(range(NUM_CLASSES), key=lambda k: score[k])
        dx, dy, dw, dh = delta[4 * k : 4 * k + 4]
        w, h = x2 - x1 + 1, y2 - y1 + 1
        x, y, w, h = x1 + w / 2 + dx * w, y1 + h / 2 + dy * h, w * np.exp(dw), h * np.exp(dh)
        clip_functions = (lambda v: min(max(v, 0), width - 1)), (lambda v: min(max(v, 0), height - 1))
        expected = [
            0,
            clip_functions[0](x - w / 2),
            clip_functions[1](y - h / 2),
            clip_functions[0](x + w / 2),
            clip_functions[1](y + h / 2),
        ]
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ([(7, 4), (7, 12), (7, 3), (1, 3)], r"five values in each row, not shape \(7, 4\)"),
        ([(7, 5), (7, 12), (6, 3), (1, 3)], r"a row for each of 7 ROIs, not shape \(6, 3\)"),
        ([(7, 5), (7, 8), (7, 3), (1, 3)], r"4 deltas for each of 3 classes, \(7, 12\), not shape \(7, 8\)"),
        ([(7, 5), (7, 12), (7, 3), (2, 3)], "for one image"),
    ],
)
def test_stage_bridge_rejects_invalid_bottoms(shapes: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(CaffejaxError, match=words):
        make_net("Python", STAGE_BRIDGE_PARAM, shapes)

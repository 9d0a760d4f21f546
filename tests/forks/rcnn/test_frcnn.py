"""Tests of caffe-faster-rcnn's layers, beside its rules in plain loops."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import jax
import numpy as np
import pytest

from caffejax import Net, Solver
from caffejax.base.errors import CaffejaxError
from layer_suite import fork_properties, layer_case
from rcnn.cases import ROIS, draw_image_info, draw_rois_of_one_image, draw_truth

CONFIG = json.loads(Path(__file__).with_name("frcnn_config.json").read_text(), strict=False)
CONFIG_PARAM = f'window_data_param {{ config: "{Path(__file__).with_name("frcnn_config.json")}" }}'
ANCHORS = np.array([float(x) for x in CONFIG["anchors"].split(",")]).reshape(-1, 4)


test_properties = fork_properties(
    layer_case(
        "FrcnnAnchorTarget",
        CONFIG_PARAM,
        (1, 6, 8, 8),
        (2, 5),
        (1, 3),
        tops=4,
        random=True,
        samplers={"b1": draw_truth, "b2": draw_image_info},
    ),
    layer_case("FrcnnProposal", CONFIG_PARAM, (1, 6, 8, 8), (1, 12, 8, 8), (1, 3), samplers={"b2": draw_image_info}),
    layer_case(
        "FrcnnProposalTarget",
        CONFIG_PARAM,
        ROIS,
        (2, 5),
        tops=5,
        random=True,
        samplers={"b0": draw_rois_of_one_image, "b1": draw_truth},
    ),
)


def write_data(folder: Path, images: list[np.ndarray], boxes: list[Any], **changes: str) -> str:
    """Write a list of images with boxes (class, x1, y1, x2, y2, difficult); return the settings of the data layer."""
    lines = []
    for i, (image, rows) in enumerate(zip(images, boxes, strict=True)):
        cv2.imwrite(str(folder / f"{i}.png"), image)
        lines += [f"# {i}", f"{i}.png", f"{len(rows)}  ", *("   ".join(map(str, row)) for row in rows)]
    (folder / "list").write_text("\n".join(lines) + "\n")
    text = json.dumps(CONFIG | changes, indent=0).replace("\\n", "\n")  # the fork's files have line ends in texts
    (folder / "config.json").write_text(text)
    return f'source: "{folder}/list" config: "{folder}/config.json" root_folder: "{folder}/" cache_images: true'


def data_layer(settings: str) -> str:
    return f"""layer {{ name: "input-data" type: "FrcnnRoiData" top: "data" top: "im_info" top: "gt_boxes"
      window_data_param {{ {settings} }} }}"""


def draw_image(seed: int, size: tuple[int, int] = (40, 60)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)


def read_by_loops(image: np.ndarray, boxes: Any, mirror: bool, short_side: float, max_side: float) -> tuple[Any, ...]:
    rows, cols = image.shape[:2]
    pixels = image.astype(np.float32)
    if mirror:
        pixels = cv2.flip(pixels, 1)
    pixels = pixels - np.float32([102.9801, 115.9465, 122.7717])
    scale = np.float32(short_side) / np.float32(min(rows, cols))
    if scale * max(rows, cols) > max_side:
        scale = np.float32(max_side) / np.float32(max(rows, cols))
    pixels = cv2.resize(pixels, None, fx=float(scale), fy=float(scale))
    result = []
    for kind, x1, y1, x2, y2, difficult in boxes:
        if difficult == 1:
            continue
        x1, y1, x2, y2 = max(0, x1), max(0, y1), min(cols - 1, x2), min(rows - 1, y2)
        if mirror:
            x1, x2 = cols - x2 - 1, cols - x1 - 1
        box = [np.float32(x) * scale for x in (x1, y1, x2, y2)]
        if box[3] >= pixels.shape[0]:
            box[3] = np.float32(pixels.shape[0] - 1)
        if box[2] >= pixels.shape[1]:
            box[2] = np.float32(pixels.shape[1] - 1)
        result.append([*box, kind])
    return pixels.transpose(2, 0, 1), [*pixels.shape[:2], scale], result


BOXES = [[1, 3, 4, 30, 35, 0], [2, -2, 10, 70, 45, 0], [2, 1, 1, 5, 5, 1]]


@pytest.mark.parametrize(("size", "max_side"), [((40, 60), 80), ((40, 60), 60), ((100, 120), 30)])
def test_images_and_boxes_equal_loops(
    size: tuple[int, int], max_side: int, tmp_path: Path, open_source: Callable[..., Any]
) -> None:
    image = draw_image(1, size)
    settings = write_data(tmp_path, [image], [BOXES], max_size=str(max_side))
    source = open_source(data_layer(settings), "TRAIN", seed=2)
    mirrored = set()
    for _ in range(6):
        data, info, boxes = (np.asarray(x) for x in next(source))
        expected = [read_by_loops(image, BOXES, mirror, 48, max_side) for mirror in (False, True)]
        k = int(np.abs(data[0] - expected[1][0]).max() < np.abs(data[0] - expected[0][0]).max())
        mirrored.add(k)
        np.testing.assert_array_equal(data[0], expected[k][0])
        np.testing.assert_array_equal(info.ravel(), np.float32(expected[k][1]))
        valid = boxes[boxes[:, 4, 0, 0] > 0, :, 0, 0]
        np.testing.assert_allclose(valid, expected[k][2], rtol=1e-6)
        assert np.all(boxes[len(valid) :, :, 0, 0] == [-1, 0, 0, 0, 0])
    assert mirrored == {0, 1}
    test_data = np.asarray(next(open_source(data_layer(settings), "TEST", seed=2))[0])
    np.testing.assert_array_equal(test_data[0], expected[0][0])


def test_each_epoch_has_all_images_of_any_size(tmp_path: Path, open_source: Callable[..., Any]) -> None:
    images = [np.full((40 + 8 * i, 60, 3), 20 * i, np.uint8) for i in range(4)]
    source = open_source(data_layer(write_data(tmp_path, images, [BOXES[:1]] * 4, scales="40, 48")))
    shapes = [np.asarray(next(source)[0]).shape for _ in range(40)]
    levels = {shape[2:] for shape in shapes}
    assert len(levels) > 4  # of images and scales


def run_layer_of_net(text: str, inputs: dict[str, np.ndarray], phase: Any, tops: list[str]) -> list[np.ndarray]:
    names = " ".join(f'top: "{name}"' for name in inputs)
    shapes = " ".join(f"shape {{ {' '.join(f'dim: {n}' for n in x.shape)} }}" for x in inputs.values())
    net = Net(f'layer {{ name: "in" type: "Input" {names} input_param {{ {shapes} }} }} {text}', phase)
    blobs = net.apply({}, {}, inputs, key=jax.random.key(1), blobs=tops)[0]
    return [np.asarray(blobs[top]) for top in tops]


def compute_iou(a: Any, b: Any) -> float:
    sides = [max(0.0, min(a[k + 2], b[k + 2]) - max(a[k], b[k]) + 1) for k in (0, 1)]
    areas = [(x[2] - x[0] + 1) * (x[3] - x[1] + 1) for x in (a, b)]
    return sides[0] * sides[1] / (sum(areas) - sides[0] * sides[1])


def propose_by_loops(scores: np.ndarray, deltas: np.ndarray, info: Any, prefix: str) -> np.ndarray:
    number = {name: float(CONFIG[f"{prefix}rpn_{name}"]) for name in ("nms_thresh", "pre_nms_top_n", "post_nms_top_n")}
    min_size, n, boxes = info[2] * float(CONFIG[f"{prefix}rpn_min_size"]), len(ANCHORS), []
    for j in range(scores.shape[1]):
        for i in range(scores.shape[2]):
            for k in range(n):
                anchor = ANCHORS[k] + np.array([i, j, i, j]) * 8
                d = deltas[4 * k : 4 * k + 4, j, i]
                w, h = anchor[2] - anchor[0] + 1, anchor[3] - anchor[1] + 1
                x, y = d[0] * w + anchor[0] + 0.5 * w, d[1] * h + anchor[1] + 0.5 * h
                w, h = np.exp(d[2]) * w, np.exp(d[3]) * h
                box = np.array([x - 0.5 * w, y - 0.5 * h, x + 0.5 * w, y + 0.5 * h])
                box = np.clip(box, 0, [info[1] - 1, info[0] - 1] * 2)
                if box[2] - box[0] + 1 >= min_size and box[3] - box[1] + 1 >= min_size:
                    boxes.append((scores[n + k, j, i], len(boxes), box))
    boxes = sorted(boxes, key=lambda x: (x[0], x[1]), reverse=True)[: int(number["pre_nms_top_n"])]
    selected: list[Any] = []
    for _, _, box in boxes:
        if len(selected) < number["post_nms_top_n"] and all(
            compute_iou(other, box) <= number["nms_thresh"] for other in selected
        ):
            selected.append(box)
    return np.array(selected)


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_proposals_equal_loops(phase: str, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    write_data(tmp_path, [draw_image(2)], [BOXES])
    scores = random.integers(0, 8, (1, 6, 5, 6)).astype(np.float32) / 8  # many are equal
    deltas = random.normal(0, 0.2, (1, 12, 5, 6)).astype(np.float32)
    info = np.float32([38, 46, 1.2]).reshape(1, 3, 1, 1)
    text = f"""layer {{ name: "proposal" type: "FrcnnProposal" bottom: "a" bottom: "b" bottom: "c" top: "rois"
      window_data_param {{ config: "{tmp_path}/config.json" }} }}"""
    (rois,) = run_layer_of_net(text, {"a": scores, "b": deltas, "c": info}, phase, ["rois"])
    expected = propose_by_loops(scores[0], deltas[0], info.ravel(), "" if phase == "TRAIN" else "test_")
    valid = rois[rois[:, 0] >= 0]
    np.testing.assert_allclose(valid[:, 1:], expected, rtol=1e-4, atol=1e-3)


NET = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 8 kernel_size: 8
  stride: 8 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "rpn_cls_score" type: "Convolution" bottom: "conv" top: "rpn_cls_score" convolution_param { num_output: 6
  kernel_size: 1 weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "rpn_bbox_pred" type: "Convolution" bottom: "conv" top: "rpn_bbox_pred" convolution_param {
  num_output: 12 kernel_size: 1 weight_filler { type: "gaussian" std: 0.001 } } }
layer { name: "reshape" type: "Reshape" bottom: "rpn_cls_score" top: "rpn_cls_score_reshape"
  reshape_param { shape { dim: 0 dim: 2 dim: -1 dim: 0 } } }
layer { name: "rpn-data" type: "FrcnnAnchorTarget" bottom: "rpn_cls_score" bottom: "gt_boxes" bottom: "im_info"
  top: "rpn_labels" top: "rpn_bbox_targets" top: "rpn_bbox_inside_weights" top: "rpn_bbox_outside_weights"
  propagate_down: 0 propagate_down: 0 propagate_down: 0 }
layer { name: "rpn_loss_cls" type: "SoftmaxWithLoss" bottom: "rpn_cls_score_reshape" bottom: "rpn_labels"
  propagate_down: 1 propagate_down: 0 top: "rpn_cls_loss" loss_weight: 1
  loss_param { ignore_label: -1 normalize: true } }
layer { name: "rpn_loss_bbox" type: "SmoothL1Loss" bottom: "rpn_bbox_pred" bottom: "rpn_bbox_targets"
  bottom: "rpn_bbox_inside_weights" bottom: "rpn_bbox_outside_weights" top: "rpn_loss_bbox" loss_weight: 1
  smooth_l1_loss_param { sigma: 3.0 } }
layer { name: "rpn_cls_prob" type: "Softmax" bottom: "rpn_cls_score_reshape" top: "rpn_cls_prob" }
layer { name: "rpn_cls_prob_reshape" type: "Reshape" bottom: "rpn_cls_prob" top: "rpn_cls_prob_reshape"
  reshape_param { shape { dim: 0 dim: 6 dim: -1 dim: 0 } } }
layer { name: "proposal" type: "FrcnnProposal" bottom: "rpn_cls_prob_reshape" bottom: "rpn_bbox_pred"
  bottom: "im_info" top: "rpn_rois" propagate_down: 0 propagate_down: 0 propagate_down: 0 }
layer { name: "roi-data" type: "FrcnnProposalTarget" bottom: "rpn_rois" bottom: "gt_boxes" top: "rois" top: "labels"
  top: "bbox_targets" top: "bbox_inside_weights" top: "bbox_outside_weights" propagate_down: 0 propagate_down: 0 }
layer { name: "pool" type: "ROIPooling" bottom: "conv" bottom: "rois" top: "pool"
  roi_pooling_param { pooled_w: 2 pooled_h: 2 spatial_scale: 0.125 } }
layer { name: "cls_score" type: "InnerProduct" bottom: "pool" top: "cls_score"
  inner_product_param { num_output: 3 weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "bbox_pred" type: "InnerProduct" bottom: "pool" top: "bbox_pred"
  inner_product_param { num_output: 12 weight_filler { type: "gaussian" std: 0.001 } } }
layer { name: "loss_cls" type: "SoftmaxWithLoss" bottom: "cls_score" bottom: "labels" propagate_down: 1
  propagate_down: 0 top: "loss_cls" loss_weight: 1 }
layer { name: "loss_bbox" type: "SmoothL1Loss" bottom: "bbox_pred" bottom: "bbox_targets" bottom: "bbox_inside_weights"
  bottom: "bbox_outside_weights" top: "loss_bbox" loss_weight: 1 }
"""


def test_the_forks_net_in_small_trains(tmp_path: Path) -> None:
    """The end-to-end net of its examples, whose layers find their settings in the config of the data layer."""
    image = np.full((48, 72, 3), 60, np.uint8)
    image[8:40, 16:48] = 230
    settings = write_data(tmp_path, [image], [[[1, 16, 8, 47, 39, 0]]], use_flipped="0")
    text = data_layer(settings) + NET
    solver = Solver(f'net_param {{ {text} }} base_lr: 0.0005 lr_policy: "fixed" max_iter: 30 random_seed: 1')
    losses = []
    for num_steps in (1, 29):
        solver.step(num_steps)
        losses.append(float(solver.smoothed_loss))
    solver.close()
    assert losses[1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# 0 0.png 1 1 2 3 4", "list:1:.*image 0 of the window file is malformed: the file ends"),
        ("# 0 0.png 0\n# 1 0.png 1\n3 1 1 2 2 0", "list:3:.*a class is not above 0, or not below n_classes 3"),
        ("# 0 0.png 1\n1 5 1 2 2 0", "list:2:.*a box ends before it begins"),
        ("# 0 0.png -1", "a number of boxes is negative"),
        ("# 0 other.png 0", "there is no image"),
        ("", "the window file is empty"),
    ],
)
def test_wrong_lists_raise(text: str, message: str, tmp_path: Path) -> None:
    settings = write_data(tmp_path, [draw_image(3)], [BOXES])
    (tmp_path / "list").write_text(text)
    with pytest.raises(CaffejaxError, match=message):
        Net(data_layer(settings), "TRAIN")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scales": "60, x"}, r"config.json:2:.*scales must be numbers with commas between them, not '60, x'"),
        ({"pixel_means": "1, 2"}, "pixel_means must be 3 numbers, not '1, 2'"),
        ({"max_size": "1e300"}, r"max_size must be a number, not '1e300' \(at most 1e\+09\)"),
        ({"max_size": "0"}, "scales and max_size of the config must be 1 or more"),
        ({"data_jitter": "0.2"}, "data_jitter is not supported; set it to -1"),
    ],
)
def test_wrong_configs_raise(changes: dict[str, str], message: str, tmp_path: Path) -> None:
    settings = write_data(tmp_path, [draw_image(3)], [BOXES], **changes)
    with pytest.raises(CaffejaxError, match=message):
        Net(data_layer(settings), "TRAIN")


def test_missing_configs_and_settings_raise(tmp_path: Path) -> None:
    settings = write_data(tmp_path, [draw_image(3)], [BOXES])
    config = tmp_path / "config.json"
    for text, message in (
        ("{\n 1 }", "config.json:2:.*is not JSON"),
        (f'{{"scales": {"9" * 5000}}}', "is not JSON: too many brackets, or a number of thousands of digits"),
        ("[]", "not a JSON object"),
        ("{}", "has no"),
    ):
        config.write_text(text)
        with pytest.raises(CaffejaxError, match=message):
            Net(data_layer(settings), "TRAIN")
    config.unlink()
    with pytest.raises(CaffejaxError, match=r"config\.json"):
        Net(data_layer(settings), "TRAIN")
    text = """layer { name: "in" type: "Input" top: "a" top: "b" top: "c" }
    layer { name: "p" type: "FrcnnProposal" bottom: "a" bottom: "b" bottom: "c" top: "rois" }"""
    with pytest.raises(CaffejaxError, match="has no settings, because the net has no FrcnnRoiData layer"):
        Net(text, "TEST")

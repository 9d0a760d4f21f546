"""Tests of BoxData, beside caffe-yolo's rule in plain loops."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from caffejax import Net, Solver, caffe_pb2
from caffejax.base.errors import CaffejaxError
from caffejax.core.data.database import WRITERS
from caffejax.forks.yolo.box_data import crop_at_random

# class, difficult, x, y, width and height of an object
OBJECTS = [[[1, 0, 0.1, 0.2, 0.2, 0.3], [2, 1, 0.55, 0.9, 0.1, 0.1], [0, 0, 0.58, 0.95, 0.3, 0.1], [1, 0, 1, 1, 1, 1]]]


def write_database(folder: Path, images: list[np.ndarray], objects: list[Any], **fields: Any) -> Path:
    with WRITERS["lmdb"](folder / "lmdb") as put:
        for i, (image, rows) in enumerate(zip(images, objects, strict=True)):
            data = cv2.imencode(".png", image)[1].tobytes()
            datum = caffe_pb2.Datum(data=data, encoded=True, float_data=np.ravel(rows).tolist())
            datum.MergeFrom(caffe_pb2.Datum(**fields))
            put(b"%04d" % i, datum.SerializeToString())
    return folder / "lmdb"


def layer_text(source: Path, settings: str = "side: 7", transform: str = "", num_tops: int = 2) -> str:
    tops = " ".join(f'top: "t{i}"' for i in range(num_tops))
    return f"""layer {{ name: "d" type: "BoxData" {tops} transform_param {{ {transform} }}
      data_param {{ source: "{source}" batch_size: 1 backend: LMDB {settings} }} }}"""


def label_by_loops(objects: list[list[float]], side: int) -> np.ndarray:
    n = side * side
    label = np.zeros(7 * n)
    label[2 * n : 3 * n] = -1
    for kind, difficult, *box in np.array(objects, np.float32).tolist():
        column, row = (min(math.floor(z * side), side - 1) for z in box[:2])
        cell = side * row + column
        label[cell], label[n + cell], label[2 * n + cell] = difficult, 1, kind
        for j in range(4):
            label[3 * n + 4 * cell + j] = box[j]
    return label


def draw_image(seed: int, size: tuple[int, int] = (20, 30)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)


def test_images_and_labels_in_the_test_phase_equal_loops(tmp_path: Path, open_source: Callable[..., Any]) -> None:
    image = draw_image(1)
    source = write_database(tmp_path, [image], OBJECTS)
    transform = "mean_value: 104 mean_value: 117 mean_value: 123 scale: 0.5"
    data, *labels = next(open_source(layer_text(source, "side: 7 side: 3", transform, 3)))
    expected = (image.astype(np.float32) - np.float32([104, 117, 123])) / 2
    np.testing.assert_array_equal(np.asarray(data)[0], expected.transpose(2, 0, 1))
    for label, side in zip(labels, (7, 3), strict=True):
        np.testing.assert_array_equal(np.asarray(label)[0], label_by_loops(OBJECTS[0], side).astype(np.float32))


def test_a_single_top_is_the_complete_image(tmp_path: Path, open_source: Callable[..., Any]) -> None:
    image = draw_image(2)
    source = write_database(tmp_path, [image], OBJECTS)
    (data,) = next(open_source(layer_text(source, num_tops=1), "TRAIN"))
    np.testing.assert_array_equal(np.asarray(data)[0], image.transpose(2, 0, 1))


class ScriptedRng:
    """The random integers that a test has chosen, in the order in which the fork draws them."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def integers(self, high: Any) -> Any:
        drawn = [self.values.pop(0) % int(n) for n in np.ravel(high)]
        return np.array(drawn) if np.ndim(high) else drawn[0]


def crop_by_loops(image: np.ndarray, objects: Any, draws: list[int]) -> tuple[np.ndarray, np.ndarray]:
    height, width = image.shape[:2]
    result: list[list[float]] = []
    while not result:
        scale = np.float32(1 - draws.pop(0) % 30 / 100)
        w, h = int(np.float32(width) * scale) - 1, int(np.float32(height) * scale) - 1
        x, y = draws.pop(0) % (width - w), draws.pop(0) % (height - h)
        for kind, difficult, *box in np.array(objects, np.float32):
            bx, by, bw, bh = (int(z * np.float32(n)) for z, n in zip(box, (width, height) * 2, strict=True))
            if x <= bx < x + w and y <= by < y + h:
                result.append([kind, difficult, (bx - x) / w, (by - y) / h, bw / w, bh / h])
    return cv2.resize(image[y : y + h, x : x + w], (width, height)), np.array(result)


@pytest.mark.parametrize("seed", range(20))
def test_crops_equal_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    image = draw_image(seed, (57, 83))
    objects = np.concatenate([random.integers(0, 2, (3, 2)), random.uniform(0, 1, (3, 4))], 1).astype(np.float32)
    objects[:, 2:4] = objects[:, 2:4] * 0.2 + random.integers(0, 2) * 0.8  # near a corner, so that some are cut off
    draws = random.integers(0, 1 << 30, 3000).tolist()
    expected_image, expected_objects = crop_by_loops(image, objects, list(draws))
    rng: Any = ScriptedRng(draws)
    pixels, visible = crop_at_random(image.transpose(2, 0, 1), objects, rng, 10**6)
    np.testing.assert_array_equal(pixels.transpose(1, 2, 0), expected_image)
    np.testing.assert_allclose(visible, expected_objects, rtol=1e-6)


@pytest.mark.parametrize(("size", "center"), [((40, 40), 1.0), ((1, 1), 0.5)], ids=["beyond", "tiny"])
def test_images_of_which_no_part_shows_an_object_are_unchanged(size: tuple[int, int], center: float) -> None:
    image, objects = draw_image(3, size).transpose(2, 0, 1), np.array([[0, 0, center, center, 1, 1]], np.float32)
    pixels, visible = crop_at_random(image, objects, np.random.default_rng(1), 10**6)
    np.testing.assert_array_equal(pixels, image)
    np.testing.assert_array_equal(visible, objects)


@pytest.mark.parametrize(
    ("objects", "fields", "message"),
    [
        ([], {}, "a compressed image and 0 values in float_data"),
        ([[1, 0, 0.5]], {}, "3 values in float_data"),
        ([[-1, 0, 0.5, 0.5, 1, 1]], {}, "negative class or center"),
        ([[1, 0, -0.5, 0.5, 1, 1]], {}, "negative class or center"),
        ([[1, 0, 0.5, np.nan, 1, 1]], {}, "not finite"),
        ([[1, 0, 0.5, 0.5, 1, 1e38]], {}, "not finite and below 1e\\+09"),
        ([[1, 0, 1e38, 0.5, 1, 1]], {}, "not finite and below 1e\\+09"),
        ([[1, 0, 0.5, 0.5, 1, 1]], {"encoded": False}, "an uncompressed image"),
        ([[1, 0, 0.5, 0.5, 1, 1]], {"data": b"x"}, "cannot be decoded|not an image"),
    ],
)
def test_wrong_records_raise(objects: Any, fields: Any, message: str, tmp_path: Path) -> None:
    source = write_database(tmp_path, [draw_image(4)], [objects], **fields)
    with pytest.raises(CaffejaxError, match=f"record '0000'.*({message})"):
        Net(layer_text(source), "TRAIN")


@pytest.mark.parametrize(
    ("settings", "transform", "num_tops", "message"),
    [
        ("side: 7", "mirror: true", 2, "transform_param.mirror is not supported"),
        ("side: 7", "crop_size: 8", 2, "transform_param.crop_size is not supported"),
        ("side: 0", "", 2, "side must be 1 to 1000"),
        ("side: 7 side: 3", "", 2, "needs a top for images, and one for each of the 2 data_param.side, but has 2"),
    ],
)
def test_wrong_settings_raise(settings: str, transform: str, num_tops: int, message: str, tmp_path: Path) -> None:
    source = write_database(tmp_path, [draw_image(5)], OBJECTS)
    with pytest.raises(CaffejaxError, match=message):
        Net(layer_text(source, settings, transform, num_tops), "TRAIN")


def test_images_of_several_sizes_raise(tmp_path: Path, open_source: Callable[..., Any]) -> None:
    source = write_database(tmp_path, [draw_image(6), draw_image(7, (24, 24))], OBJECTS * 2)
    with pytest.raises(CaffejaxError, match="record '0001' becomes 3x24x24"):
        next(open_source(layer_text(source).replace("batch_size: 1", "batch_size: 2")))


def test_the_forks_net_in_small_trains(tmp_path: Path) -> None:
    """caffe-yolo's layers after the convolutions, with its settings and the evaluation, on one image."""
    image = np.full((64, 64, 3), 40, np.uint8)
    image[16:48, 24:40] = 230
    source = write_database(tmp_path, [image], [[[3, 0, 0.5, 0.5, 0.25, 0.5]]])
    data = layer_text(
        source, "side: 7", "mirror: false force_color: true mean_value: 104 mean_value: 117 mean_value: 123 scale: 0.01"
    )
    net = f"""{data.replace('"t0"', '"data"').replace('"t1"', '"label"')}
    layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param {{ num_output: 16
      kernel_size: 10 stride: 9 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param {{ negative_slope: 0.1 }} }}
    layer {{ name: "conv_reg" type: "Convolution" bottom: "conv" top: "conv_reg" convolution_param {{ num_output: 30
      kernel_size: 3 pad: 1 weight_filler {{ type: "gaussian" std: 0.001 }} }} }}
    layer {{ name: "reg_reshape" type: "Reshape" bottom: "conv_reg" top: "regression"
      reshape_param {{ axis: 1 shape {{ dim: 1470 }} }} }}
    layer {{ name: "det_loss" type: "DetectionLoss" bottom: "regression" bottom: "label" top: "det_loss" loss_weight: 1
      detection_loss_param {{ side: 7 num_class: 20 num_object: 2 object_scale: 1.0 noobject_scale: 0.5
      class_scale: 1.0 coord_scale: 5.0 sqrt: true constriant: true }} }}
    layer {{ name: "eval_det" type: "EvalDetection" bottom: "regression" bottom: "label" top: "eval_det"
      include {{ phase: TEST }}
      eval_detection_param {{ side: 7 num_class: 20 num_object: 2 threshold: 0.5 nms: 0.7 }} }}
    """
    solver = Solver(f'net_param {{ {net} }} base_lr: 0.0002 lr_policy: "fixed" max_iter: 40 random_seed: 1')
    losses = []
    for num_steps in (1, 39):
        solver.step(num_steps)
        losses.append(float(solver.smoothed_loss))
    solver.close()
    assert losses[1] < 0.5 * losses[0]

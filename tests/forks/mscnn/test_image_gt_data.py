"""Tests of ImageGtData, beside MS-CNN's rule in plain loops."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from caffejax import Net, Solver
from caffejax.base.errors import CaffejaxError, DataError
from caffejax.forks.mscnn.image_gt_data import read_images

GRIDS = [(8, 24, 16), (8, 32, 40), (16, 60, 60)]  # rate, field_h, field_w
OPTIONS = " ".join(f"downsample_rate: {r} field_h: {h} field_w: {w}" for r, h, w in GRIDS)


def write_images(folder: Path, images: list[tuple[np.ndarray, list[list[int]], list[list[int]]]]) -> Path:
    """Write images with their boxes (class, ignore, x1, y1, x2, y2) and regions of no interest, and the window file."""
    lines = []
    for i, (image, boxes, excluded) in enumerate(images):
        cv2.imwrite(str(folder / f"{i}.png"), image)
        lines += [f"# {i}", f"{i}.png", "3", *(str(n) for n in image.shape[:2])]
        for rows in (boxes, excluded):
            lines += [str(len(rows)), *(" ".join(map(str, row)) for row in rows)]
    (folder / "windows.txt").write_text("\n".join(lines) + "\n")
    return folder / "windows.txt"


def layer_text(source: Path, settings: str = "", transform: str = "mean_value: 100", num_tops: int = 5) -> str:
    tops = " ".join(f'top: "t{i}"' for i in range(num_tops))
    return f"""layer {{ name: "d" type: "ImageGtData" {tops} transform_param {{ {transform} }}
      image_gt_data_param {{ source: "{source}" root_folder: "{source.parent}/" batch_size: 1 output_gt_boxes: true
      {OPTIONS} {settings} }} }}"""


def c_round(x: float) -> int:
    return int(math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1))


def overlap_by_rule(a: list[float], b: list[float], mode: str) -> float:
    """Return the overlap of two boxes x, y, width, height, as a fraction of the union (IOU) or of the first (IOFU)."""
    if min(a[2], a[3], b[2], b[3]) <= 0:
        return 0.0
    sides = [min(a[k] + a[k + 2], b[k] + b[k + 2]) - max(a[k], b[k]) for k in (0, 1)]
    common = sides[0] * sides[1] if min(sides) > 0 else 0.0
    return common / (a[2] * a[3] if mode == "IOFU" else a[2] * a[3] + b[2] * b[3] - common)


def corner_form(box: list[float]) -> list[float]:
    return [box[0], box[1], box[2] - box[0], box[3] - box[1]]


def label_by_loops(
    size: tuple[int, int],
    boxes: list[list[float]],
    excluded: list[list[float]],
    offset: tuple[int, int],
    copied: tuple[int, int],
    fg_threshold: float,
    min_sides: tuple[float, float],
) -> tuple[list[np.ndarray], list[bool]]:
    """Return the label maps, and which boxes (class, ignore, x1, y1, x2, y2) are ignored."""
    height, width = size
    ignored = []
    for _, ignore, x1, y1, x2, y2 in boxes:
        xc, yc = (x1 + x2) / 2, (y1 + y2) / 2
        outside = xc < 0 or xc >= width or yc < 0 or yc >= height
        ignored.append(bool(ignore) or outside or x2 - x1 + 1 < min_sides[0] or y2 - y1 + 1 < min_sides[1])
    matches, best, best_grid = [0] * len(boxes), [0.0] * len(boxes), [0] * len(boxes)
    maps = []
    for g, (rate, field_h, field_w) in enumerate(GRIDS):
        labels = np.zeros((6, c_round(height / rate), c_round(width / rate)))
        top, left, rows, columns = (c_round(n / rate) for n in (*offset, *copied))
        for h in range(labels.shape[1]):
            for w in range(labels.shape[2]):
                field = [(w + 0.5) * rate - field_w / 2, (h + 0.5) * rate - field_h / 2, field_w, field_h]
                covered = sum(overlap_by_rule(field, corner_form(box), "IOFU") for box in excluded)
                if not (left <= w < left + columns and top <= h < top + rows) or covered >= 0.4:
                    labels[5, h, w] = 1
                    continue
                largest, match = 0.0, -1
                for i, box in enumerate(boxes):
                    overlap = overlap_by_rule(corner_form(box[2:]), field, "IOU")
                    if overlap > largest:
                        largest, match = overlap, i
                    if overlap > best[i]:
                        best[i], best_grid[i] = overlap, g
                if match >= 0 and largest > fg_threshold:
                    _, _, x1, y1, x2, y2 = boxes[match]
                    label = 0 if ignored[match] else boxes[match][0]
                    labels[:5, h, w] = [label, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]
                    matches[match] += 1
                labels[5, h, w] = largest
        maps.append(labels)
    for i, (label, _, x1, y1, x2, y2) in enumerate(boxes):
        if ignored[i] or matches[i] or best[i] < 0.2:
            continue
        labels, rate = maps[best_grid[i]], GRIDS[best_grid[i]][0]
        h = min(max(math.floor((y1 + y2) / 2 / rate), 0), labels.shape[1] - 1)
        w = min(max(math.floor((x1 + x2) / 2 / rate), 0), labels.shape[2] - 1)
        if labels[0, h, w] <= 0:
            labels[:5, h, w] = [label, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]
    return maps, ignored


@pytest.mark.parametrize("seed", range(12))
def test_maps_and_boxes_equal_loops(seed: int, tmp_path: Path, open_source: Callable[..., Any]) -> None:
    """Images with the size of the top, or narrower, do not move; some are resized first."""
    rng = np.random.default_rng(seed)
    height, width = 64, 96
    image = rng.integers(0, 256, (height, width, 3), np.uint8)
    corners = rng.integers(0, 50, (rng.integers(0, 5), 2))
    boxes = [[int(rng.integers(1, 4)), int(rng.random() < 0.3), *c, *(c + rng.integers(4, 50, 2))] for c in corners]
    excluded = [[*c, *(c + rng.integers(10, 60, 2))] for c in rng.integers(0, 60, (seed % 3, 2)).tolist()]
    source = write_images(tmp_path, [(image, boxes, excluded)])
    settings, factor = "fg_threshold: 0.4 min_gt_width: 6 min_gt_height: 8", (1.0, 1.0)
    if seed % 2:
        settings += " resize_width: 48 resize_height: 64"
        factor, width = (1.0, 0.5), 48
    data, *maps, rows = map(np.asarray, next(open_source(layer_text(source, settings))))
    expected_image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR) if seed % 2 else image
    np.testing.assert_array_equal(data[0], expected_image.transpose(2, 0, 1).astype(np.float32) - 100)
    scale = np.array([*factor[::-1], *factor[::-1]])
    scaled_boxes = [[*box[:2], *(np.array(box[2:]) * scale)] for box in boxes]
    scaled_excluded = [list(np.array(box) * scale) for box in excluded]
    size = height, width
    expected, ignored = label_by_loops(size, scaled_boxes, scaled_excluded, (0, 0), size, 0.4, (6, 8))
    for actual, labels in zip(maps, expected, strict=True):
        np.testing.assert_allclose(actual[0], labels, rtol=1e-5, atol=1e-6)
    expected_rows = [[0, *b[2:], b[0], i] for b, i in zip(scaled_boxes, ignored, strict=True)]
    valid = rows[rows[:, 0, 0, 0] >= 0, :, 0, 0]
    np.testing.assert_allclose(valid, expected_rows or [[0, 1, 1, 2, 2, 1, 1]])
    assert np.all(rows[len(valid) :] == -1)


def find_rectangle(image: np.ndarray, level: int) -> list[int]:
    """Return x1, y1, x2, y2 of the pixels above a level."""
    y, x = np.nonzero(image.min(axis=0) > level)
    return [x.min(), y.min(), x.max() + 1, y.max() + 1]


@pytest.mark.parametrize("size", [(60, 90), (200, 150), (40, 300)], ids=["small", "large", "wide"])
def test_boxes_follow_the_random_changes_of_images(
    size: tuple[int, int], tmp_path: Path, open_source: Callable[..., Any]
) -> None:
    """A white rectangle is found where its box is, in mirrored, enlarged, reduced and shifted images."""
    image = np.full((*size, 3), 40, np.uint8)
    image[10:30, 40:64] = 255
    last = np.zeros((400, 400, 3), np.uint8), [], []  # the fork asks that it is not smaller than the crop
    source = write_images(tmp_path, [(image, [[1, 0, 40, 10, 64, 30]], []), last])
    settings = "crop_width: 128 crop_height: 96 do_multiple_scale: true min_scale: 12 max_scale: 60 min_whaspect: 0.6 "
    text = layer_text(source, settings + "max_whaspect: 2", "mirror: true").replace("batch_size: 1", "batch_size: 80")
    data, first_map, *_, rows = map(np.asarray, next(open_source(text, seed=3)))
    sides = set()
    for n in range(0, 80, 2):
        row = rows[n // 2, :, 0, 0]
        assert row[0] == n
        part = find_rectangle(data[n], 0)  # of an image that is enlarged, the fork first cuts off a part
        visible = [*np.maximum(row[1:3], part[:2]), *np.minimum(row[3:5], part[2:])]
        np.testing.assert_allclose(find_rectangle(data[n], 128), visible, atol=2)
        sides.add(tuple(np.round(row[3:5] - row[1:3])))
        is_beyond = cv2.erode((data[n].max(axis=0) == 0).astype(np.uint8), np.ones((25, 25), np.uint8))[4::8, 4::8] > 0
        assert np.all(first_map[n, 5][is_beyond] == 1)  # cells far beyond the image do not count
    assert len(sides) > 8


def test_foreground_images_occur_several_times(tmp_path: Path, open_source: Callable[..., Any]) -> None:
    images = [(np.full((64, 64, 3), 10 * i, np.uint8), [[1, i % 2, 10, 10, 40, 40]], []) for i in range(4)]
    source = write_images(tmp_path, images)
    text = layer_text(source, "fg_img_multiple: 3", "").replace("batch_size: 1", "batch_size: 16")
    data = np.asarray(next(open_source(text))[0])
    assert data[:, 0, 0, 0].tolist() == [0, 0, 0, 10, 20, 20, 20, 30] * 2
    shuffled = np.asarray(next(open_source(text.replace("fg_img", "shuffle: true fg_img")))[0])[:, 0, 0, 0]
    assert sorted(shuffled[:8]) == sorted(data[:8, 0, 0, 0])
    assert shuffled[:8].tolist() != shuffled[8:].tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("field_h: 3", "equal numbers of downsample_rate, field_h and field_w"),
        ("coord_num: 5", "coord_num must be 4, not 5"),
        ("batch_size: 0", "batch_size must be 1 or more"),
        ("resize_width: 9", "only one of resize_height and resize_width"),
        ("do_multiple_scale: true min_scale: 5 max_scale: 3", "0 < min_scale <= max_scale, not 5 and 3"),
        ("min_whaspect: 2 max_whaspect: 2", "min_whaspect < max_whaspect"),
        ("crop_width: 300 crop_height: 64", "crop_width is 300, more than the 64 pixels"),
        (
            "resize_width: 60 resize_height: 64",
            "the side of 60 pixels does not fit image_gt_data_param.downsample_rate",
        ),
        ("output_gt_boxes: false", "needs 4 tops, for data, 3 label maps, but has 5"),
    ],
)
def test_invalid_settings_raise(settings: str, message: str, tmp_path: Path) -> None:
    source = write_images(tmp_path, [(np.zeros((64, 64, 3), np.uint8), [], [])])
    name = settings.partition(":")[0]
    text = layer_text(source, "") if name in ("batch_size", "output_gt_boxes") else layer_text(source, settings)
    text = text.replace("batch_size: 1", settings) if name == "batch_size" else text
    text = text.replace("output_gt_boxes: true", settings) if name == "output_gt_boxes" else text
    with pytest.raises(CaffejaxError, match=message):
        Net(text, "TRAIN")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the window file is empty"),
        ("# 0 a.png 3 4", "image 0 of the window file is malformed: the file ends"),
        ("# 0 a.png 3 4 4 0 0 * 1", r"image 1 of the window file is malformed: '\*' is there instead of '#'"),
        ("# 0 a.png 3 4 4 1 0 0 1 1 2 2 0", "a class is not above 0"),
        (f"# 0 a.png 3 4 4 1 1 0 0 0 {2**31} 9 0", "image 0 of the window file is malformed: a number does not fit 32"),
        (f"# 0 a.png 3 4 4 {10**30} 1", "image 0 of the window file is malformed: a number does not fit 32 bits"),
        ("# 0 a.png 3 4 x 0 0", "image 0 of the window file is malformed: invalid literal"),
        ("# 0 a.png 3 0 4 0 0", "not positive"),
        ("# 0 a.png 3 4 4 999999999 1 2", "the file ends"),
    ],
)
def test_malformed_window_files_raise(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "windows.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        read_images(tmp_path / "windows.txt")


def test_a_small_net_of_ms_cnn_trains(tmp_path: Path) -> None:
    """The loss of a detection branch on one image falls, which has an object and a region of no interest."""
    image = np.full((64, 96, 3), 60, np.uint8)
    image[20:44, 40:56] = 250
    source = write_images(tmp_path, [(image, [[1, 0, 40, 20, 56, 44]], [[0, 0, 16, 16]])])
    data = layer_text(source, "", "mean_value: 100", 2)
    data = data.replace(OPTIONS, "downsample_rate: 8 field_h: 24 field_w: 16").replace("output_gt_boxes: true", "")
    net = f"""{data}
    layer {{ name: "c" type: "Convolution" bottom: "t0" top: "c" convolution_param {{ num_output: 8 kernel_size: 8
      stride: 8 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "r" type: "ReLU" bottom: "c" top: "c" }}
    layer {{ name: "s" type: "Convolution" bottom: "c" top: "s" convolution_param {{ num_output: 6 kernel_size: 1
      weight_filler {{ type: "gaussian" std: 0.01 }} }} }}
    layer {{ name: "loss" type: "DetectionLoss" bottom: "s" bottom: "t1" top: "loss" loss_weight: 1
      detection_loss_param {{ cls_num: 2 coord_num: 4 field_h: 24 field_w: 16 downsample_rate: 8 }} }}"""
    solver_text = f'net_param {{ {net} }} base_lr: 0.0005 lr_policy: "fixed" momentum: 0.9 max_iter: 60 random_seed: 1'
    solver = Solver(solver_text)
    losses = []
    for num_steps in (1, 59):
        solver.step(num_steps)
        losses.append(float(solver.smoothed_loss))
    solver.close()
    assert losses[1] < 0.5 * losses[0]

"""Every transform of AnnotatedData against the SSD fork's rules, ported to loops over boxes and pixels."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from google.protobuf import text_format

from caffejax.core.data.database import WRITERS
from caffejax.core.data.transform import Transform
from caffejax.core.layers.row_padding import strip_padding
from caffejax.core.schema import caffe_pb2
from caffejax.core.schema.caffe_pb2 import BatchSampler, ResizeParameter, TransformationParameter
from caffejax.forks.detection.data.annotated_datum import serialize_annotated_datum
from caffejax.forks.detection.data.annotated_image import AnnotatedImage
from caffejax.forks.detection.data.color_changes import add_noise, distort
from caffejax.forks.detection.data.ssd_augmentation import (
    _sample_windows,
    _satisfies,
    describe_ignored_limits,
    expand,
    sample_window,
    sampler_windows,
    select_objects,
    slice_window,
)

F = np.float32
Box = list[Any]
INTERPOLATIONS = {"LINEAR": cv2.INTER_LINEAR, "AREA": cv2.INTER_AREA, "NEAREST": cv2.INTER_NEAREST}
BORDERS = {"CONSTANT": cv2.BORDER_CONSTANT, "MIRRORED": cv2.BORDER_REFLECT_101, "REPEAT_NEAREST": cv2.BORDER_REPLICATE}


def size_of(box: Box) -> Any:
    return F(0) if box[2] < box[0] or box[3] < box[1] else (box[2] - box[0]) * (box[3] - box[1])


def intersect(a: Box, b: Box) -> Box:
    if b[0] > a[2] or b[2] < a[0] or b[1] > a[3] or b[3] < a[1]:
        return [F(0)] * 4
    return [max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])]


def coverage(a: Box, b: Box) -> Any:
    size = size_of(intersect(a, b))
    return size / size_of(a) if size > 0 else F(0)


def jaccard(a: Box, b: Box) -> Any:
    common = size_of(intersect(a, b))
    return common / (size_of(a) + size_of(b) - common) if common > 0 else F(0)


def project(source: Box, box: Box) -> Box | None:
    """Port of ProjectBBox."""
    if box[0] >= source[2] or box[2] <= source[0] or box[1] >= source[3] or box[3] <= source[1]:
        return None
    width, height = source[2] - source[0], source[3] - source[1]
    corners = [(box[0] - source[0]) / width, (box[1] - source[1]) / height]
    corners += [(box[2] - source[0]) / width, (box[3] - source[1]) / height]
    clipped = [max(min(x, F(1)), F(0)) for x in corners]
    return clipped if size_of(clipped) > 0 else None


def is_emitted(param: Any, window: Box, box: Box) -> bool:
    """Port of MeetEmitConstraint."""
    if not param.HasField("emit_constraint"):
        return True
    if param.emit_constraint.emit_type == caffe_pb2.EmitConstraint.CENTER:
        x, y = (box[0] + box[2]) / F(2), (box[1] + box[3]) / F(2)
        return bool(window[0] <= x <= window[2] and window[1] <= y <= window[3])
    return bool(coverage(box, window) > F(param.emit_constraint.emit_overlap))


def update_box(p: Any, width: int, height: int, box: Box) -> Box:
    """Port of UpdateBBoxByResizePolicy."""
    new_w, new_h, aspect = F(p.width), F(p.height), F(width) / F(height)
    x1, y1, x2, y2 = box[0] * F(width), box[1] * F(height), box[2] * F(width), box[3] * F(height)
    is_wide, pad = aspect > new_w / new_h, p.resize_mode == ResizeParameter.FIT_LARGE_SIZE_AND_PAD
    if p.resize_mode == ResizeParameter.FIT_SMALL_SIZE:
        new_w, new_h = (new_w, new_w / aspect) if aspect < new_w / new_h else (aspect * new_h, new_h)
    if pad and is_wide:
        padding = (new_h - new_w / aspect) / F(2)
        y1 = padding + max(F(0), y1 * (new_h - 2 * padding) / F(height))
        y2 = padding + min(new_h, y2 * (new_h - 2 * padding) / F(height))
    else:
        y1, y2 = max(F(0), y1 * new_h / F(height)), min(new_h, y2 * new_h / F(height))
    if pad and not is_wide:
        padding = (new_w - aspect * new_h) / F(2)
        x1 = padding + max(F(0), x1 * (new_w - 2 * padding) / F(width))
        x2 = padding + min(new_w, x2 * (new_w - 2 * padding) / F(width))
    else:
        x1, x2 = max(F(0), x1 * new_w / F(width)), min(new_w, x2 * new_w / F(width))
    return [x1 / new_w, y1 / new_h, x2 / new_w, y2 / new_h]


def extrapolate(p: Any, width: int, height: int, window: Box, box: Box) -> Box:
    """Port of ExtrapolateBBox."""
    if not (p.height_scale and p.width_scale and p.resize_mode == ResizeParameter.FIT_SMALL_SIZE):
        return box
    aspect, new_w, new_h = F(width) / F(height), F(p.width), F(p.height)
    new_w, new_h = (new_w, new_w / aspect) if aspect < new_w / new_h else (new_h * aspect, new_h)
    x, y = new_w * (window[2] - window[0]) / F(p.width_scale), new_h * (window[3] - window[1]) / F(p.height_scale)
    return [box[0] * x, box[1] * y, box[2] * x, box[3] * y]


def resize(image: np.ndarray, p: Any) -> np.ndarray:
    """Port of ApplyResize, for one interp_mode."""
    name = ResizeParameter.Interp_mode.Name(p.interp_mode[0]) if p.interp_mode else "LINEAR"
    h, w = image.shape[:2]
    aspect = F(w) / F(h)
    scale = partial(cv2.resize, image, interpolation=INTERPOLATIONS[name])
    by_width, by_height = (p.width, int(F(p.width) / aspect)), (int(aspect * F(p.height)), p.height)
    is_wide = aspect > F(p.width) / F(p.height)
    if p.resize_mode == ResizeParameter.WARP:
        return np.asarray(scale((p.width, p.height)))
    if p.resize_mode == ResizeParameter.FIT_SMALL_SIZE:
        return np.asarray(scale(by_width if aspect < F(p.width) / F(p.height) else by_height))
    scaled = scale(by_width if is_wide else by_height)
    top, left = (p.height - scaled.shape[0]) // 2, (p.width - scaled.shape[1]) // 2
    values = [*p.pad_value] * 3 if len(p.pad_value) == 1 else [*p.pad_value] or [0, 0, 0]
    border = BORDERS[ResizeParameter.Pad_mode.Name(p.pad_mode)]
    bottom, right = p.height - scaled.shape[0] - top, p.width - scaled.shape[1] - left
    return np.asarray(cv2.copyMakeBorder(scaled, top, bottom, left, right, border, value=values))


@dataclass
class Draw:
    """The random choices of one image."""

    row: int
    column: int
    mirror: bool


def transform(p: Any, image: np.ndarray, mean: np.ndarray | None, draw: Draw, is_encoded: bool) -> np.ndarray:
    """Port of DataTransformer::Transform: of a cv::Mat if the image is encoded, otherwise of a Datum."""
    height, width = image.shape[:2]
    crop_h, crop_w = (p.crop_size or p.crop_h) or height, (p.crop_size or p.crop_w) or width
    out = np.empty((3, crop_h, crop_w), F)
    for h in range(crop_h):
        for w in range(crop_w):
            target = crop_w - 1 - w if draw.mirror else w
            mean_column = target if is_encoded else w
            for c in range(3):
                pixel = F(image[draw.row + h, draw.column + w, c])
                if mean is not None:
                    pixel -= mean[c, draw.row + h, draw.column + mean_column]
                elif p.mean_value:
                    pixel -= F(p.mean_value[c % len(p.mean_value)])
                out[c, h, target] = pixel * F(p.scale)
    return out


def transform_objects(p: Any, size: tuple[int, int], window: Box, mirror: bool, objects: np.ndarray) -> list[Box]:
    """Port of TransformAnnotation with do_resize; `size` is the height and width before resizing."""
    result = []
    for label, instance, *box, difficult in objects:
        resized = update_box(p.resize_param[0], size[1], size[0], box) if p.resize_param else box
        if not is_emitted(p, window, resized) or (projected := project(window, resized)) is None:
            continue
        if mirror:
            projected[0], projected[2] = F(1) - projected[2], F(1) - projected[0]
        if p.resize_param:
            projected = extrapolate(p.resize_param[0], size[1], size[0], window, projected)
        result.append([label, instance, *projected, difficult])
    return result


RESIZE = "height: 9 width: 12"
CASES = {
    "warp": f"resize_param {{ {RESIZE} interp_mode: AREA }} mirror: true mean_value: 104 mean_value: 117 mean_value: 3",
    "scale": f"resize_param {{ {RESIZE} }} mirror: true mean_value: 100 scale: 0.017",
    "fit and pad": f"resize_param {{ {RESIZE} resize_mode: FIT_LARGE_SIZE_AND_PAD pad_value: 9 }} mirror: true",
    "pad values": f"resize_param {{ {RESIZE} resize_mode: FIT_LARGE_SIZE_AND_PAD pad_value: 1 pad_value: 2 "
    "pad_value: 3 interp_mode: NEAREST } crop_size: 7 mirror: true",
    "pad mirrored": f"resize_param {{ {RESIZE} resize_mode: FIT_LARGE_SIZE_AND_PAD pad_mode: MIRRORED }}",
    "pad nearest": f"resize_param {{ {RESIZE} resize_mode: FIT_LARGE_SIZE_AND_PAD pad_mode: REPEAT_NEAREST }}",
    "fit small": "resize_param { height: 8 width: 8 resize_mode: FIT_SMALL_SIZE } crop_h: 7 crop_w: 6 mirror: true",
    "box scale": "resize_param { height: 8 width: 8 resize_mode: FIT_SMALL_SIZE height_scale: 5 width_scale: 6 } "
    "crop_size: 8 mirror: true",
    "center": f"resize_param {{ {RESIZE} }} crop_size: 6 emit_constraint {{ emit_type: CENTER }} mirror: true",
    "overlap": f"resize_param {{ {RESIZE} }} crop_size: 6 "
    "emit_constraint { emit_type: MIN_OVERLAP emit_overlap: 0.4 } mirror: true",
    "mean file": f"resize_param {{ {RESIZE} }} mirror: true mean_file: 'mean.binaryproto'",
    "mean file, crop": f"resize_param {{ {RESIZE} }} crop_h: 5 crop_w: 7 mirror: true mean_file: 'mean.binaryproto' "
    "scale: 0.5",
    "mean file, noise": f"resize_param {{ {RESIZE} }} noise_param {{ inverse: true }} mirror: true "
    "mean_file: 'mean.binaryproto'",
}
SIZES = [(10, 14), (14, 10), (9, 12), (11, 9)]


def make_example(i: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(i)
    image = rng.integers(0, 256, (*SIZES[i], 3), np.uint8)
    corners = rng.uniform(-0.1, 0.8, (4, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.1, 0.6, (4, 2))], axis=1)
    boxes[3, [0, 2]] = boxes[3, [2, 0]]  # an inverted box
    labels = np.array([[1, 0], [1, 1], [2, 0], [3, 0]])
    return image, np.concatenate([labels, boxes, [[0], [1], [0], [0]]], axis=1).astype(F)


def write_database(path: Path, examples: Iterable[tuple[np.ndarray, np.ndarray]], *, is_encoded: bool) -> None:
    with WRITERS["lmdb"](path) as put:
        for i, (image, objects) in enumerate(examples):
            height, width, channels = image.shape
            data = cv2.imencode(".png", image)[1] if is_encoded else np.ascontiguousarray(image.transpose(2, 0, 1))
            datum = caffe_pb2.Datum(
                channels=channels, height=height, width=width, data=data.tobytes(), encoded=is_encoded
            )
            put(b"%08d" % i, serialize_annotated_datum(datum, objects))


def write_mean(path: Path, mean: np.ndarray) -> None:
    channels, height, width = mean.shape
    message = caffe_pb2.BlobProto(num=1, channels=channels, height=height, width=width, data=mean.ravel().tolist())
    path.write_bytes(message.SerializeToString())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("port")
    for name in ("raw", "png"):
        write_database(folder / name, map(make_example, range(len(SIZES))), is_encoded=name == "png")
    mean = np.random.default_rng(5).uniform(0, 255, (3, 9, 12)).astype(F)
    write_mean(folder / "mean.binaryproto", mean)
    np.save(folder / "mean.npy", mean)
    return folder


@pytest.mark.parametrize("storage", ["png", "raw"])
@pytest.mark.parametrize("name", CASES)
def test_batches_follow_the_forks_rules(
    folder: Path, open_source: Any, monkeypatch: pytest.MonkeyPatch, name: str, storage: str
) -> None:
    """Pixels and labels of a training batch, position by position."""
    drawn: dict[int, Any] = {}  # by the number of the batch's first example: batches are read in threads

    def sample_crops(self: Transform, images: Any, start: int) -> Any:
        drawn[start] = original(self, images, start)
        return drawn[start]

    original = Transform.sample_crops
    monkeypatch.setattr(Transform, "sample_crops", sample_crops)
    text = CASES[name]
    param = text_format.Parse(text, TransformationParameter())
    source = open_source(
        f"layer {{ name: 'd' type: 'AnnotatedData' top: 'data' top: 'label' transform_param {{ {text} }} "
        f"data_param {{ source: '{storage}' backend: LMDB batch_size: {len(SIZES)} }} }}",
        "TRAIN",
        folder,
        seed=3,
    )
    mirrored = 0
    for start in (0, len(SIZES)):
        data, label = next(source)
        crops, rows = drawn[start], []
        for i, pixels in enumerate(data):
            image, objects = make_example(i)
            size = image.shape[:2]
            image = resize(image, param.resize_param[0])
            image = 255 - image if param.noise_param.inverse else image
            row, column = crops.origins[i].tolist()
            draw = Draw(row, column, bool(crops.flips[i]))
            mirrored += draw.mirror
            mean = np.load(folder / "mean.npy") if param.mean_file else None
            expected = transform(param, image, mean, draw, is_encoded=storage == "png")
            np.testing.assert_allclose(pixels, expected, rtol=1e-6, atol=1e-5)
            height, width = (F(n) for n in image.shape[:2])
            h, w = expected.shape[1:]
            window = [F(draw.column) / width, F(draw.row) / height]
            window += [F(draw.column + w) / width, F(draw.row + h) / height]
            rows += [[i, *row] for row in transform_objects(param, size, window, draw.mirror, objects)]
        np.testing.assert_allclose(strip_padding(label)[0, 0], np.array(rows, F).reshape(-1, 8), rtol=1e-5, atol=1e-6)
    assert bool(mirrored) == param.mirror


def test_the_mean_of_a_mirrored_image_keeps_its_columns(open_source: Any, tmp_path: Path) -> None:
    """The mean's columns are 0, 10, 20, 30, and the image is 100 everywhere."""
    image, mean = np.full((2, 4, 3), 100, np.uint8), np.tile(np.arange(0, 40, 10, dtype=F), (3, 2, 1))
    write_mean(tmp_path / "mean.binaryproto", mean)
    for is_encoded, expected in ((True, {(100, 90, 80, 70)}), (False, {(100, 90, 80, 70), (70, 80, 90, 100)})):
        path = tmp_path / f"db{is_encoded}"
        write_database(path, [(image, np.array([[1, 0, 0, 0, 0.5, 1, 0]], F))], is_encoded=is_encoded)
        source = open_source(
            f"layer {{ name: 'd' type: 'AnnotatedData' top: 'data' transform_param {{ mirror: true "
            f"mean_file: 'mean.binaryproto' }} data_param {{ source: '{path}' backend: LMDB batch_size: 16 }} }}",
            "TRAIN",
            tmp_path,
        )
        assert {tuple(row) for row in next(source)[0][:, 0, 0].tolist()} == expected


def satisfies(constraint: Any, window: Box, boxes: list[Box]) -> bool:
    """Port of SatisfySampleConstraint."""
    measures = {"jaccard_overlap": jaccard, "sample_coverage": coverage, "object_coverage": lambda a, b: coverage(b, a)}
    active = [n for n in measures if constraint.HasField(f"min_{n}") or constraint.HasField(f"max_{n}")]
    if not active:
        return True
    is_found = False
    for box in boxes:
        for name in active:
            value = measures[name](window, box)
            if constraint.HasField(f"min_{name}") and value < F(getattr(constraint, f"min_{name}")):
                break
            if constraint.HasField(f"max_{name}") and value > F(getattr(constraint, f"max_{name}")):
                break
            is_found = True
        else:
            if is_found:
                return True
    return is_found


OBJECTS = np.array([[0.1, 0.1, 0.5, 0.6], [0.4, 0.3, 0.9, 0.9]], F)
SAMPLER = "min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("min_jaccard_overlap: 0.3 min_object_coverage: 0.9", 3357),
        ("", 4000),
        ("max_jaccard_overlap: 0.2", None),
        ("min_sample_coverage: 0.3 max_sample_coverage: 0.5", None),
        ("min_sample_coverage: 0.3 max_object_coverage: 0.1", None),
        ("min_object_coverage: 0.9", None),
        ("min_jaccard_overlap: 0.1 max_jaccard_overlap: 0.4 min_sample_coverage: 0.5 min_object_coverage: 1", None),
    ],
)
def test_windows_are_taken_where_the_fork_takes_them(text: str, count: int | None) -> None:
    sampler = text_format.Parse(f"sampler {{ {SAMPLER} }} sample_constraint {{ {text} }}", BatchSampler())
    windows = _sample_windows(sampler.sampler, 4000, np.random.default_rng(0))
    is_taken = _satisfies(sampler.sample_constraint, windows, OBJECTS)
    assert count is None or int(is_taken.sum()) == count
    expected = [
        satisfies(sampler.sample_constraint, [*window], [[*box] for box in OBJECTS]) for window in windows[:500]
    ]
    np.testing.assert_array_equal(is_taken[:500], expected)
    assert 0 < is_taken.sum() <= 4000
    assert len(list(describe_ignored_limits([sampler]))) == (
        sum(n in text for n in ("jaccard", "sample", "object")) > 1
    )


def crop_objects(param: Any, window: Box, objects: np.ndarray) -> np.ndarray:
    """Port of TransformAnnotation without resizing."""
    projected = [(o, project(window, list(o[2:6]))) for o in objects if is_emitted(param, window, list(o[2:6]))]
    return np.array([[*o[:2], *box, o[6]] for o, box in projected if box is not None], F).reshape(-1, 7)


@pytest.mark.parametrize("emit", ["", "emit_constraint { emit_type: CENTER }", "emit_constraint { emit_overlap: 0.5 }"])
@pytest.mark.parametrize("seed", range(4))
def test_samples_and_expansions_move_pixels_and_boxes(emit: str, seed: int) -> None:
    param = text_format.Parse(f"{emit} expand_param {{ prob: 1 max_expand_ratio: 3 }}", TransformationParameter())
    select = partial(select_objects, param.emit_constraint if emit else None)
    pixels, objects = make_example(seed)
    image = AnnotatedImage(np.minimum(pixels, 250), objects)
    height, width = pixels.shape[:2]

    sampler = text_format.Parse(f"sampler {{ {SAMPLER} }} max_trials: 5", BatchSampler())
    rng = np.random.default_rng(seed)
    windows = sampler_windows(sampler, image.boxes, rng)
    window = [max(min(x, F(1)), F(0)) for x in windows[rng.integers(len(windows))]]
    sampled_window = sample_window([sampler], image.boxes, np.random.default_rng(seed))
    assert sampled_window is not None
    np.testing.assert_array_equal(sampled_window, window)
    part = image.pixels[slice_window(sampled_window, image.pixels.shape)]
    sample = select(image, sampled_window).crop(sampled_window, part)
    x, y = int(window[0] * F(width)), int(window[1] * F(height))
    w, h = int(window[2] * F(width) - window[0] * F(width)), int(window[3] * F(height) - window[1] * F(height))
    np.testing.assert_array_equal(sample.pixels, image.pixels[y : y + h, x : x + w])
    np.testing.assert_allclose(sample.objects, crop_objects(param, window, objects), atol=1e-6)

    canvas = expand(image, param.expand_param, np.array([251.6, 252, 253]), select, np.random.default_rng(seed))
    is_image = (canvas.pixels < 251).all(axis=2)
    top, left = np.argwhere(is_image)[0]
    np.testing.assert_array_equal(canvas.pixels[top : top + height, left : left + width], image.pixels)
    assert {tuple(p) for p in canvas.pixels[~is_image].tolist()} <= {(252, 252, 253)}
    outer_h, outer_w = canvas.pixels.shape[:2]
    window = [F(-left) / F(width), F(-top) / F(height), F(outer_w - left) / F(width), F(outer_h - top) / F(height)]
    np.testing.assert_allclose(canvas.objects, crop_objects(param, window, objects), atol=1e-6)
    assert 1 <= outer_h / height <= 3


class Draws:
    """Random numbers that a test has chosen: `random` from a list, and `uniform` at 3/4 of its range."""

    def __init__(self, *values: float) -> None:
        self._values = list(values)

    def random(self) -> float:
        return self._values.pop(0)

    def uniform(self, low: float, high: float) -> float:
        return low + 0.75 * (high - low)

    def permutation(self, n: int) -> np.ndarray:
        return np.array([2, 0, 1])


def change_hsv(image: np.ndarray, channel: int, factor: float, shift: float) -> np.ndarray:
    hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    hsv[:, :, channel] = cv2.convertScaleAbs(hsv[:, :, channel], alpha=factor, beta=shift)
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR))


def change_linearly(image: np.ndarray, factor: float, shift: float) -> np.ndarray:
    return np.clip(np.rint(image.astype(F) * F(factor) + F(shift)), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("is_contrast_first", [True, False])
@pytest.mark.parametrize("hue_delta", [18, 0])
def test_colors_are_distorted_in_the_forks_order(is_contrast_first: bool, hue_delta: float) -> None:
    names = ("brightness", "contrast", "saturation", "hue", "random_order")
    limits = "contrast_lower: 0.5 contrast_upper: 1.5 saturation_lower: 0.5 saturation_upper: 1.5"
    text = " ".join(f"{name}_prob: 1" for name in names) + f" {limits} brightness_delta: 32 hue_delta: {hue_delta}"
    param = text_format.Parse(text, caffe_pb2.DistortionParameter())
    image = np.random.default_rng(1).integers(0, 256, (8, 9, 3), np.uint8)
    draws: Any = Draws(0.1 if is_contrast_first else 0.9, *[0.5] * 5)
    expected = change_linearly(image, 1, 16)
    expected = change_linearly(expected, 1.25, 0) if is_contrast_first else expected
    expected = change_hsv(expected, 1, 1.25, 0)
    expected = change_hsv(expected, 0, 1, 9) if hue_delta else expected
    expected = expected if is_contrast_first else change_linearly(expected, 1.25, 0)
    np.testing.assert_array_equal(distort(image, param, draws), expected[:, :, [2, 0, 1]])


def test_noise_is_added_in_the_forks_order() -> None:
    image = np.random.default_rng(1).integers(0, 256, (16, 17, 3), np.uint8)
    param = caffe_pb2.NoiseParameter(
        decolorize=True, gauss_blur=True, hist_eq=True, clahe=True, jpeg=70, erode=True, posterize=True, inverse=True,
        convert_to_hsv=True,
    )  # fmt: skip
    expected = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    expected = cv2.GaussianBlur(expected, (7, 7), 1.5)
    clahe = cv2.createCLAHE()
    clahe.setClipLimit(4)
    for change in (cv2.equalizeHist, clahe.apply):
        y, cr, cb = cv2.split(cv2.cvtColor(expected, cv2.COLOR_BGR2YCrCb))
        expected = cv2.cvtColor(cv2.merge([change(y), cr, cb]), cv2.COLOR_YCrCb2BGR)
    expected = cv2.imdecode(cv2.imencode(".jpg", expected, [cv2.IMWRITE_JPEG_QUALITY, 70])[1], cv2.IMREAD_COLOR)
    expected = cv2.erode(expected, cv2.getStructuringElement(2, (3, 3), (1, 1)))
    expected = 255 - (expected // 64 * 64 + 32)
    expected = cv2.cvtColor(expected, cv2.COLOR_BGR2HSV)
    np.testing.assert_array_equal(add_noise(image, param, np.random.default_rng(0)), expected)
    salted = add_noise(
        image,
        text_format.Parse("saltpepper: true saltpepper_param { fraction: 0.1 value: 7 }", caffe_pb2.NoiseParameter()),
        np.random.default_rng(0),
    )
    assert 1 <= ((salted != image).any(axis=2)).sum() <= int(0.1 * 16 * 17)
    assert set(salted[(salted != image).any(axis=2)].ravel().tolist()) == {7}

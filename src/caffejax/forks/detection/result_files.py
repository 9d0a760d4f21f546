"""Files of detections that DetectionOutput writes (VOC, COCO or ILSVRC), and the file of image sizes that it reads."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...base.atomic_write import replace_path
from ...base.errors import DataError, Problem, require
from ...core.layers.context import LayerDefinition
from ...core.layers.position_values import decode_array, decode_count, encode_array
from ...core.layers.types import OutputFiles
from ...core.schema.caffe_pb2 import LabelMap
from ...core.schema.text import parse_text

log = logging.getLogger("caffejax.layers")


class ImageInfo(NamedTuple):
    """An image's name, and its height and width in pixels."""

    name: str
    height: int
    width: int


def read_image_infos(path: Path) -> list[ImageInfo]:
    """Return the names and sizes of images from a file that has a line 'name height width' for each image.

    Raises:
        DataError: if the file cannot be read, is empty, or has an invalid line.
    """
    image_infos = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(Problem(f"cannot be read: {error}", str(path))) from error
    for line_number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            name, height, width = line.split()
            image_infos.append(ImageInfo(name, int(height), int(width)))
        except ValueError as error:
            raise DataError(
                Problem(f"each line must be 'name height width', not '{line}'", str(path), line_number)
            ) from error
    if not image_infos:
        raise DataError(Problem("is empty", str(path)))
    return image_infos


def read_resize_param(param: Any) -> Any:
    """Return the field `resize_param` of a layer's parameter message, or None if it is not set.

    It describes how images were resized, so that boxes can be mapped to the original images.

    Raises:
        LayerError: if the height or the width is missing, and the mode is not WARP.
    """
    if not param.HasField("resize_param"):
        return None
    p = param.resize_param
    is_valid = p.resize_mode == p.WARP or (p.height > 0 and p.width > 0)
    require(is_valid, f"resize_param needs height and width for its resize_mode, but has {p.height} and {p.width}")
    return p


def is_in_units(resize: Any) -> bool:
    """Return whether the unit of box coordinates is (width_scale, height_scale) pixels; `resize` may be None."""
    return (
        resize is not None
        and resize.resize_mode == resize.FIT_SMALL_SIZE
        and resize.height_scale * resize.width_scale > 0
    )


def scale_to_pixels(boxes: np.ndarray, image: ImageInfo, resize: Any) -> np.ndarray:
    """Return boxes in pixels of the original image, clipped to it, as float32 (..., 4).

    Args:
        boxes: (..., 4), boxes (x1, y1, x2, y2) as fractions of the resized image.
        image: the original image.
        resize: the message that `read_resize_param` returns, or None.
    """
    boxes, size = boxes.astype(np.float32), np.asarray([image.width, image.height] * 2, np.float32)
    if is_in_units(resize):
        return np.clip(boxes * np.asarray([resize.width_scale, resize.height_scale] * 2, np.float32), 0, size)
    if resize is not None and resize.resize_mode == resize.FIT_LARGE_SIZE_AND_PAD:
        boxes = _remove_padding(boxes, image, resize)
    return np.clip(boxes, 0, 1) * size


def _remove_padding(boxes: np.ndarray, image: ImageInfo, resize: Any) -> np.ndarray:
    """Return boxes (..., 4) of a padded image as fractions of the region without padding.

    Boxes that do not intersect this region are returned unchanged.
    """
    width, height = np.float32(resize.width), np.float32(resize.height)
    aspect = np.float32(image.width) / np.float32(image.height)
    x_margin = y_margin = np.float32(0)
    if aspect > width / height:
        y_margin = (height - width / aspect) / 2 / height
    else:
        x_margin = (width - height * aspect) / 2 / width
    low = np.array([x_margin, y_margin], np.float32)
    high = 1 - low
    is_inside = np.all((boxes[..., :2] < high) & (boxes[..., 2:] > low), axis=-1, keepdims=True)
    return np.where(is_inside, (boxes - np.tile(low, 2)) / np.tile(high - low, 2), boxes)


class Detection(NamedTuple):
    """A detection in an image.

    Attributes:
        image: the name of the image.
        label: the class.
        score: the score.
        box: (x1, y1, width, height) in pixels.
    """

    image: str
    label: int
    score: float
    box: tuple[float, float, float, float]


_NUM_COLUMNS = 7
_MAX_STORED = 60_000  # detections in a snapshot, 2 MB


def writes_files(p: Any) -> bool:
    """Return whether the layer writes files: output_directory, label_map_file and name_size_file are all set."""
    return bool(p.output_directory and p.label_map_file and p.name_size_file)


class ResultFiles:
    """The result files of one layer. They are rewritten after each pass over the test images.

    The label map and the image sizes are read when the first detections are added. The position is the number of
    images that have been added since the files were last written, and their detections. If these are more than
    `_MAX_STORED`, the position leaves them out, and the files are not written after the pass that it belongs to.
    """

    def __init__(self, p: Any, definition: LayerDefinition) -> None:
        self._param, self._definition = p, definition
        require(
            p.save_output_param.output_format in ("VOC", "COCO", "ILSVRC"),
            f"output_format must be VOC, COCO or ILSVRC, not '{p.save_output_param.output_format}'",
        )
        self._resize = read_resize_param(p.save_output_param)
        self._image_infos: list[ImageInfo] = []
        self._label_names: dict[int, str] = {}
        self._rows: list[np.ndarray] = []  # (detections, 7) of each image: the image's index, label, score and box
        self._next_index = 0
        self._is_complete = True  # whether there are the detections of all images before the next one

    def get_state(self) -> dict[str, Any]:
        """Return the number of images since the files were last written, and their detections."""
        state: dict[str, Any] = {"images": self._next_index}
        if self._is_complete and sum(map(len, self._rows)) <= _MAX_STORED:
            state["detections"] = encode_array(_join(self._rows))
        return state

    def set_state(self, state: Any) -> None:
        """Continue after the images of a state that `get_state` returned.

        Raises:
            DataError: if the state is damaged.
        """
        next_index = decode_count(state, "images")
        is_complete, rows = "detections" in state, np.zeros((0, _NUM_COLUMNS), np.float32)
        if is_complete:
            try:
                rows = decode_array(state["detections"])
                if rows.shape[1:] != (_NUM_COLUMNS,):
                    raise ValueError(f"the rows have shape {rows.shape}")
            except (TypeError, ValueError, KeyError) as error:
                raise DataError(f"its detections are damaged in the snapshot: {error}") from error
        self._next_index, self._is_complete, self._rows = next_index, is_complete, [rows]

    @property
    def output(self) -> OutputFiles:
        """The files' names, and their folder, which is created for them."""
        p = self._param.save_output_param
        folder = Path(p.output_directory).expanduser().absolute()
        return OutputFiles(f"{folder}/{p.output_name_prefix}*", folder, creates_folder=True)

    def add(self, rows: np.ndarray, num_images: int) -> None:
        """Add the detections of the next `num_images` images; `rows`, (rows, 7), is a top of DetectionOutput."""
        if not self._image_infos:
            self._read()
        if self._next_index >= len(self._image_infos):
            raise DataError(
                f"{self._next_index} images were added before the snapshot, but "
                f"{self._param.save_output_param.name_size_file} has {len(self._image_infos)} now; set it as it was"
            )
        for image_index in range(num_images):
            image = self._image_infos[self._next_index]
            image_rows = rows[(rows[:, 0] == image_index) & (rows[:, 1] >= 0)]
            boxes = scale_to_pixels(image_rows[:, 3:7], image, self._resize)
            sized_boxes = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
            rounded_boxes = np.round(sized_boxes * np.float32(100)) / np.float32(100)
            indices = np.full((len(boxes), 1), self._next_index, np.float32)
            self._rows.append(np.concatenate([indices, image_rows[:, 1:3], rounded_boxes], axis=1, dtype=np.float32))
            self._next_index += 1
            if self._next_index == len(self._image_infos):
                self._end_pass()

    def _end_pass(self) -> None:
        """Write the files, if all detections of the pass are there, and start the next pass over the test images."""
        if self._is_complete:
            self._write_files([self._make_detection(row) for row in _join(self._rows).tolist()])
        else:
            log.warning(
                "The result files in %s are not written after this pass over the test images: the snapshot has no "
                "detections of the images before it, because they were more than %d; the next pass writes the files",
                self._param.save_output_param.output_directory,
                _MAX_STORED,
            )
        self._next_index, self._is_complete, self._rows = 0, True, []

    def _make_detection(self, row: list[float]) -> Detection:
        index, label, score, *box = row
        return Detection(self._image_infos[int(index)].name, int(label), score, (box[0], box[1], box[2], box[3]))

    def _read(self) -> None:
        p = self._param.save_output_param
        path = self._definition.path(p.label_map_file)
        try:
            label_map = parse_text(path.read_text(), LabelMap, file=str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(Problem(f"cannot be read: {error}", str(path))) from error
        self._label_names = {item.label: item.name for item in label_map.item}
        if missing_labels := [label for label in self._labels if label not in self._label_names]:
            raise DataError(Problem(f"has no entry for label {missing_labels[0]}", str(path)))
        image_infos = read_image_infos(self._definition.path(p.name_size_file))
        if p.num_test_image > len(image_infos):
            raise DataError(
                Problem(f"names {len(image_infos)} images, but num_test_image is {p.num_test_image}", p.name_size_file)
            )
        self._image_infos = image_infos[: p.num_test_image] if p.HasField("num_test_image") else image_infos

    @property
    def _labels(self) -> list[int]:
        return [label for label in range(self._param.num_classes) if label != self._param.background_label_id]

    def _write_files(self, detections: Sequence[Detection]) -> None:
        p = self._param.save_output_param
        folder = Path(p.output_directory).expanduser()
        for name, text in self._format_texts(detections, p.output_format).items():
            path = folder / f"{p.output_name_prefix}{name}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with replace_path(path, DataError) as partial:
                    Path(partial).write_text(text)
            except OSError as error:
                raise DataError(Problem(f"cannot be written: {error}", str(path))) from error

    def _format_texts(self, detections: Sequence[Detection], output_format: str) -> dict[str, str]:
        """Return the text of each file, keyed by the part of the file name that follows output_name_prefix."""
        if output_format == "VOC":
            return {
                f"{self._label_names[label]}.txt": "".join(
                    f"{d.image} {d.score:g} {_format_corners(d)}\n" for d in detections if d.label == label
                )
                for label in self._labels
            }
        if output_format == "ILSVRC":
            return {".txt": "".join(f"{d.image} {d.label} {d.score:g} {_format_corners(d)}\n" for d in detections)}
        records = [
            {
                "image_id": _parse_digits(d.image),
                "category_id": _parse_digits(self._label_names[d.label]),
                "bbox": list(d.box),
                "score": d.score,
            }
            for d in detections
        ]
        return {".json": json.dumps(records, indent=4) + "\n"}


def _join(rows: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros((0, _NUM_COLUMNS), np.float32), *rows])


def _format_corners(detection: Detection) -> str:
    x, y, width, height = map(int, detection.box)
    return f"{x} {y} {x + width} {y + height}"


def _parse_digits(text: str) -> int | str:
    return int(text) if text.isdigit() else text

"""Reading of annotation files: Pascal VOC's XML, COCO's JSON, or lines of text.

The readers return the objects of an image in the form of `AnnotatedImage`. Coordinates in the files are in pixels.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np
from google.protobuf import text_format

from ....base.errors import DataError, Problem, locate_errors, raise_if_any
from ....base.paths import read_bytes
from ....core.schema.caffe_pb2 import LabelMap

Size = tuple[float, float]  # height and width

_MAX_CLASS_ID, _MAX_DIGITS = 2**24, 20
_MAX_COORDINATE = 1e18  # pixels


class _Object(NamedTuple):
    name: str
    box: tuple[float, float, float, float]  # xmin, ymin, xmax, ymax in pixels
    difficult: bool


BOX_PROBLEMS = ("a size that contradicts the image", "boxes beyond the image", "inverted or empty boxes")


def find_box_problems(boxes: np.ndarray, stated_size: Size, size: Size) -> dict[str, str]:
    """Return what is suspicious in an annotation, as `{one of BOX_PROBLEMS: description}`.

    As in the fork, boxes are compared with the size that the file states, because they are stored relative to it.

    Args:
        boxes: (G, 4), xmin, ymin, xmax and ymax in pixels.
        stated_size: the height and width in the file.
        size: the height and width of the image.
    """
    problems = {}
    if stated_size != size:
        is_exchanged = stated_size == size[::-1]
        problems[BOX_PROBLEMS[0]] = (
            f"states that the image is {stated_size[0]:g} x {stated_size[1]:g} (HxW), but it is {size[0]:g} x "
            f"{size[1]:g}{': height and width are exchanged' if is_exchanged else ''}"
        )
    limits = np.array([stated_size[1], stated_size[0]] * 2)
    is_beyond = ((boxes < 0) | (boxes > limits)).any(axis=1)
    is_inverted = (boxes[:, :2] >= boxes[:, 2:]).any(axis=1)
    for name, mask, text in (
        (BOX_PROBLEMS[1], is_beyond, "beyond the image"),
        (BOX_PROBLEMS[2], is_inverted, "inverted or empty"),
    ):
        if mask.any():
            box = ", ".join(f"{x:g}" for x in boxes[mask][0])
            problems[name] = f"{mask.sum()} of {len(boxes)} boxes {text}: ({box})"
    return problems


def read_annotation(
    path: str,
    file_format: str,
    size: Size,
    class_ids: Mapping[str, int] | None = None,
    on_problems: Callable[[str, Mapping[str, str]], object] | None = None,
) -> np.ndarray:
    """Read the objects of an image, float32 (G, 7), in the form of `AnnotatedImage`.

    Args:
        path: the file.
        file_format: the format of the file, one of `FORMATS`.
        size: the height and width of the image, for which the file may have others.
        class_ids: the numbers of the classes by name, or None if the names in the file are numbers.
        on_problems: a function `on_problems(path, problems)` that is called with the result of `find_box_problems` if
            there are any, or None.

    Raises:
        DataError: if the file cannot be read, does not have that format, or names an unknown class. The message names
            the file.
    """
    content = read_bytes(path, DataError)
    with locate_errors(file=str(path)):
        objects, (height, width) = FORMATS[file_format](content, size)
        if not (height > 0 and width > 0):
            raise DataError(f"states that the image is {height:g} x {width:g} (HxW), but both must be positive")
        boxes = np.array([box for _, box, _ in objects]).reshape(-1, 4)
        if on_problems is not None and (problems := find_box_problems(boxes, (height, width), size)):
            on_problems(path, problems)
        scale = np.array([width, height] * 2, np.float32)
        rows: list[tuple[float, ...]] = []
        instances: dict[int, int] = {}
        for name, box, difficult in objects:
            label = _find_class_id(name, class_ids)
            instances[label] = instance = instances.get(label, -1) + 1
            rows.append((label, instance, *(np.array(box, np.float32) / scale).tolist(), difficult))
    return np.array(rows, np.float32).reshape(-1, 7)


def _find_class_id(name: str, class_ids: Mapping[str, int] | None) -> int:
    if class_ids is None and not name.isdecimal():
        raise DataError(f"class '{name}' is not a number; a label map assigns numbers to names")
    if class_ids is not None and name not in class_ids:
        raise DataError(f"class '{name}' is not in the label map")
    class_id = class_ids[name] if class_ids is not None else int(name[:_MAX_DIGITS])
    if abs(class_id) >= _MAX_CLASS_ID or (class_ids is None and len(name) > _MAX_DIGITS):
        raise DataError(
            f"class '{name}' has a number of {_MAX_CLASS_ID} or more, which float32 labels cannot represent exactly"
        )
    return class_id


def _parse_voc_xml(content: bytes, size: Size) -> tuple[list[_Object], Size]:
    root = _parse_xml(content)
    objects = []
    for object_index, element in enumerate(root.findall("object")):
        box = element.find("bndbox")
        name = element.findtext("name")
        if name is None or box is None:
            raise DataError(f"object {object_index} has no {'name' if name is None else 'bndbox'}")
        corners = _parse_box(
            (box.findtext(side) for side in ("xmin", "ymin", "xmax", "ymax")), f"object {object_index}"
        )
        objects.append(_Object(name.strip(), corners, (element.findtext("difficult") or "").strip() == "1"))
    if (size_element := root.find("size")) is None:
        return objects, size
    height, width = (size_element.findtext(side) for side in ("height", "width"))
    return objects, (_parse_float(height, "size.height"), _parse_float(width, "size.width"))


def _parse_xml(content: bytes) -> ET.Element:
    """Parse XML. Refuse a DOCTYPE, because its entities could exhaust memory or read other files."""
    builder, parser = ET.TreeBuilder(), expat.ParserCreate()

    def refuse(*_: Any) -> None:
        raise DataError("has a DOCTYPE, which is refused: annotations need none")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # LookupError and ValueError for wrong encodings
        raise DataError(f"is not XML: {error}") from error
    return builder.close()


def _parse_coco_json(content: bytes, size: Size) -> tuple[list[_Object], Size]:
    try:
        root = json.loads(content)
        annotations, image = root["annotation"], root.get("image", {})
        objects = []
        for annotation_index, annotation in enumerate(annotations):
            x, y, w, h = _parse_box(annotation["bbox"], f"annotation {annotation_index}")
            is_crowd = bool(annotation.get("iscrowd", False))
            objects.append(_Object(str(annotation["category_id"]), (x, y, x + w, y + h), is_crowd))
        height, width = image.get("height", size[0]), image.get("width", size[1])
        return objects, (_parse_float(height, "image.height"), _parse_float(width, "image.width"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        cause = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DataError(
            "must have the form {image: {height, width}, annotation: [{category_id, bbox: [x, y, w, h]}]}: "
            f"{cause}"
        ) from error


def read_lanes(path: str, size: Size) -> list[np.ndarray]:
    """Read the lanes of an image from TuSimple's JSON: nodes (G, 2), x and y as fractions of the image's sides.

    Args:
        path: the file, `{"h_samples": [y, ...], "lanes": [[x, ...], ...]}` in pixels. An x below 0 means no node.
        size: the height and width of the image, for which the file may have others.

    Raises:
        DataError: if the file cannot be read or does not have that format. The message names the file.
    """
    content = read_bytes(path, DataError)
    with locate_errors(file=str(path)):
        try:
            root = json.loads(content)
            image, rows = root.get("image", {}), [_parse_float(y, "h_samples") for y in root["h_samples"]]
            lanes = [[_parse_float(x, f"lane {n}") for x in lane] for n, lane in enumerate(root["lanes"])]
            height, width = (
                _parse_float(image.get(side, n), f"image.{side}")
                for side, n in zip(("height", "width"), size, strict=True)
            )
        except (ValueError, RecursionError) as error:
            raise DataError(f"is not JSON: {error}") from error
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError('must have the form {"h_samples": [y, ...], "lanes": [[x, ...], ...]}') from error
        if not (height > 0 and width > 0):
            raise DataError(f"states that the image is {height:g} x {width:g} (HxW), but both must be positive")
        for n, lane in enumerate(lanes):
            if len(lane) != len(rows):
                raise DataError(f"lane {n} has {len(lane)} numbers, but there are {len(rows)} h_samples")
    scale = np.array([width, height], np.float32)
    return [np.array([lane, rows], np.float32).T / scale for lane in lanes]


def _parse_txt(content: bytes, size: Size) -> tuple[list[_Object], Size]:
    objects = []
    for line_number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        if words := line.split():
            if len(words) != 5:
                raise DataError(f"line {line_number} is '{line.strip()}', not 'label xmin ymin xmax ymax'")
            objects.append(_Object(words[0], _parse_box(words[1:], f"line {line_number}"), False))
    return objects, size


def _parse_box(values: Iterable[Any], location: str) -> tuple[float, float, float, float]:
    corners = [_parse_float(value, location) for value in values]
    if len(corners) != 4:
        raise DataError(f"{location} has a box of {len(corners)} numbers, not 4")
    return corners[0], corners[1], corners[2], corners[3]


def _parse_float(value: Any, location: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not abs(number) < _MAX_COORDINATE:
        raise DataError(f"{location} has '{value}' where a number should be")
    return number


FORMATS: Mapping[str, Callable[[bytes, Size], tuple[list[_Object], Size]]] = {
    "xml": _parse_voc_xml,
    "json": _parse_coco_json,
    "txt": _parse_txt,
}


def read_label_map(path: Path) -> Mapping[str, int]:
    """Read a label map, a LabelMap message in text form, and return the classes' numbers by name.

    Raises:
        DataError: if it cannot be read, or a name or a number occurs twice.
    """
    try:
        message = text_format.Parse(read_bytes(path, DataError, "the label map").decode(), LabelMap())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise DataError(Problem(f"is not a label map: {error}", str(path))) from error
    problems: list[str] = [] if message.item else ["the label map has no items"]
    names, labels = (Counter(getattr(item, field) for item in message.item) for field in ("name", "label"))
    problems += [f"name '{name}' occurs twice" for name, count in names.items() if count > 1]
    problems += [f"label {label} occurs twice" for label, count in labels.items() if count > 1]
    raise_if_any(DataError, problems, str(path))
    return {item.name: item.label for item in message.item}

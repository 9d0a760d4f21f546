"""Reading and writing of AnnotatedDatums: images with boxes, as the SSD fork's convert_annoset stores them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from ....base.config import MAX_IMAGE_PIXELS
from ....base.errors import DataError, locate_errors
from ....base.paths import read_bytes
from ....core.data.database import WRITERS
from ....core.data.image_decoding import BadImageError, decode_file, resize
from ....core.data.import_cv2 import cv2
from ....core.data.write_imageset import make_datum
from ....core.schema import caffe_pb2
from ....core.schema.caffe_pb2 import AnnotatedDatum, LaneInfo
from .annotated_image import BOX
from .annotation_files import Size

Shape = tuple[int, ...]

_MAX_COORDINATE = 1e9  # as a fraction of the image's side; float32 cannot represent the areas of larger boxes


class Annotations(NamedTuple):
    """The content of an AnnotatedDatum without its image.

    Attributes:
        objects: the objects; see `AnnotatedImage`.
        label: the label of the image.
        type: the type of annotation, or None if the field is not set.
        encoded: whether the image is stored compressed.
        segmentation: a compressed image of the pixels' labels, or b"" if there is none.
        lanes: the nodes of each lane, float32 (G, 2), x and y as fractions of the image's sides.
    """

    objects: np.ndarray
    label: int
    type: int | None
    encoded: bool
    segmentation: bytes = b""
    lanes: tuple[np.ndarray, ...] = ()


def parse_annotated_datum(data: bytes) -> AnnotatedDatum:
    """Parse an AnnotatedDatum.

    Raises:
        BadImageError: if the data is not an AnnotatedDatum.
    """
    try:
        message = AnnotatedDatum.FromString(data)
    except DecodeError as error:
        raise BadImageError("is not an AnnotatedDatum, or is damaged") from error
    if not message.HasField("datum"):
        raise BadImageError("contains no image: it is not an AnnotatedDatum, which is what convert_annoset writes")
    return message


def read_annotations(message: AnnotatedDatum) -> Annotations:
    """Return the content of an AnnotatedDatum without its image.

    Raises:
        BadImageError: if a box or lane has infinite, very large or NaN coordinates.
    """
    has_type = message.HasField("type") and message.type != AnnotatedDatum.NONE
    type_ = message.type if has_type else None
    datum, has_lanes = message.datum, type_ == AnnotatedDatum.LANE
    lanes = tuple(
        np.array([(a.lanes.x, a.lanes.y) for a in group.annotation], np.float32).reshape(-1, 2)
        for group in message.annotation_group
        if has_lanes
    )
    boxes = [
        (group.group_label, a.instance_id, a.bbox.xmin, a.bbox.ymin, a.bbox.xmax, a.bbox.ymax, a.bbox.difficult)
        for group in message.annotation_group
        for a in group.annotation
        if not has_lanes
    ]
    objects = np.array(boxes, np.float32).reshape(-1, 7)
    nodes = np.concatenate([np.zeros((0, 2), np.float32), *lanes])
    for points, name, fields in (
        (objects[:, BOX], "box", "xmin, ymin, xmax and ymax"),
        (nodes, "node of a lane", "x and y"),
    ):
        if len(invalid := points[~(np.abs(points) < _MAX_COORDINATE).all(axis=1)]):
            values = ", ".join(f"{x:g}" for x in invalid[0])
            raise BadImageError(
                f"has an invalid {name} ({values}): {fields} must be fractions of the width and height, usually "
                "between 0 and 1"
            )
    return Annotations(objects, datum.label, type_, datum.encoded, datum.seg_label, lanes)


def serialize_annotated_datum(datum: caffe_pb2.Datum, objects: np.ndarray | Sequence[np.ndarray]) -> bytes:
    """Serialize a Datum and objects (see `AnnotatedImage`) as an AnnotatedDatum, which groups objects by class.

    A list has lanes instead of objects; see `Annotations`.
    """
    if not isinstance(objects, np.ndarray):
        message = AnnotatedDatum(datum=datum, type=AnnotatedDatum.LANE)
        for nodes in objects:
            group = message.annotation_group.add()
            for n, (x, y) in enumerate(nodes.tolist()):
                group.annotation.add(instance_id=n, lanes=LaneInfo(x=x, y=y))
        return message.SerializeToString()
    message = AnnotatedDatum(datum=datum, type=AnnotatedDatum.BBOXandSeg if datum.seg_label else AnnotatedDatum.BBOX)
    groups: dict[float, Any] = {}
    for label, instance, xmin, ymin, xmax, ymax, difficult in np.asarray(objects, np.float32).reshape(-1, 7).tolist():
        if label not in groups:
            groups[label] = message.annotation_group.add(group_label=int(label))
        box = groups[label].annotation.add(instance_id=int(instance)).bbox
        box.xmin, box.ymin, box.xmax, box.ymax, box.difficult = xmin, ymin, xmax, ymax, bool(difficult)
    return message.SerializeToString()


@dataclass(frozen=True)
class StorageOptions:
    """Options for the storage of images.

    Attributes:
        color: whether images have three channels instead of one.
        height: the height to resize to; 0 for the original size.
        width: the width to resize to; 0 for the original size.
        min_dim: smaller images are enlarged until their shorter side has this length in pixels; 0 for no limit.
        max_dim: larger images are then reduced until their longer side has this length in pixels; 0 for no limit.
        encoding: the format in which images are compressed, such as jpg or png, or "" for no compression. The bytes of
            a file with this suffix are copied if it is not resized and `color` is set.
        max_pixels: the largest number of pixels, before and after resizing to `height` and `width`.
    """

    color: bool = True
    height: int = 0
    width: int = 0
    min_dim: int = 0
    max_dim: int = 0
    encoding: str = ""
    max_pixels: int = MAX_IMAGE_PIXELS


def encode_annotated_datum(
    path: str,
    label: int | Callable[[Size], np.ndarray | Sequence[np.ndarray]],
    options: StorageOptions,
    segmentation: str | None = None,
) -> tuple[bytes, Shape]:
    """Serialize an image file as an AnnotatedDatum.

    Args:
        path: the image.
        label: the image's class, or a function that takes the height and width of the image in the file and returns its
            objects, (G, 7), or a list of its lanes.
        options: the options for storing the image.
        segmentation: an image of the pixels' labels, whose file is stored as it is, or None.

    Returns:
        The AnnotatedDatum, and the shape of the stored image, (C, H, W).

    Raises:
        DataError: if the file cannot be read or is malformed. The message names the file.
    """
    content = read_bytes(path, DataError)
    original = decode_file(path, content, options.color, options.max_pixels)
    with locate_errors(file=str(path)):
        image = _resize(original, options)
    datum = make_datum(path, content if image is original and options.color else None, image, options.encoding)
    datum.channels, datum.height, datum.width = image.shape
    if segmentation is not None:
        datum.seg_label = read_bytes(segmentation, DataError)
        decode_file(segmentation, datum.seg_label, False, options.max_pixels)
    if callable(label):
        datum.label = -1
        return serialize_annotated_datum(datum, label(original.shape[1:])), image.shape
    datum.label = label
    return AnnotatedDatum(datum=datum).SerializeToString(), image.shape


def write_annotated(
    path: str | os.PathLike[str], items: Iterable[tuple[np.ndarray, np.ndarray]], backend: str = "lmdb"
) -> None:
    """Write images with boxes as a new database for AnnotatedData. The folder appears when it is complete.

    Args:
        path: the folder to create.
        items: for each image its pixels, uint8 (H, W, 3) in the order B, G, R, and its objects, (G, 7): the class, the
            number within the class, xmin, ymin, xmax and ymax as fractions of the image's width and height, and whether
            the object is difficult.
        backend: lmdb or leveldb.

    Raises:
        DataError: if the folder exists or cannot be written.
    """
    with WRITERS[backend](path) as put:
        for n, (pixels, objects) in enumerate(items):
            image = pixels.transpose(2, 0, 1)
            datum = make_datum(f"image {n}", None, image, "png")
            datum.channels, datum.height, datum.width = image.shape
            put(b"%08d" % n, serialize_annotated_datum(datum, objects))


def _resize(image: np.ndarray, options: StorageOptions) -> np.ndarray:
    """Resize an image (C, H, W) to the sizes in `options`, or return `image` itself if its size does not change."""
    if not (options.min_dim or options.max_dim):
        return resize(image, options.height, options.width, options.max_pixels)
    shorter_side, longer_side = sorted(image.shape[1:])
    scale = np.float32(max(1.0, options.min_dim / shorter_side))
    if options.max_dim and int(scale * longer_side) > options.max_dim:
        scale = np.float32(options.max_dim / longer_side)
    if scale == 1:
        return image
    try:
        pixels = cv2.resize(image.transpose(1, 2, 0), (0, 0), fx=float(scale), fy=float(scale))
    except (cv2.error, MemoryError) as error:
        raise DataError(
            f"cannot be resized by a factor of {scale:g}: the result would be too large or empty"
        ) from error
    return pixels.reshape(*pixels.shape[:2], len(image)).transpose(2, 0, 1)

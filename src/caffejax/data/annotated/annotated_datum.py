"""Reading and writing of AnnotatedDatums."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from ...schema import caffe_pb2
from ...schema.caffe_pb2 import AnnotatedDatum
from ..image_decoding import BadImageError
from .annotated_image import BOX

_MAX_COORDINATE = 1e9  # as a fraction of the image's side; float32 cannot represent the areas of larger boxes


class Annotations(NamedTuple):
    """The content of an AnnotatedDatum without its image.

    Attributes:
        objects: the objects; see `AnnotatedImage`.
        label: the label of the image.
        type: the type of annotation, or None if the field is not set.
        encoded: whether the image is stored compressed.
    """

    objects: np.ndarray
    label: int
    type: int | None
    encoded: bool


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
        BadImageError: if a box has infinite, very large or NaN coordinates.
    """
    rows = [
        (group.group_label, a.instance_id, a.bbox.xmin, a.bbox.ymin, a.bbox.xmax, a.bbox.ymax, a.bbox.difficult)
        for group in message.annotation_group
        for a in group.annotation
    ]
    objects = np.array(rows, np.float32).reshape(-1, 7)
    if len(invalid_rows := objects[~(np.abs(objects[:, BOX]) < _MAX_COORDINATE).all(axis=1)]):
        box = ", ".join(f"{x:g}" for x in invalid_rows[0, BOX])
        raise BadImageError(
            f"has an invalid box ({box}): xmin, ymin, xmax and ymax must be fractions of the width and height, usually "
            "between 0 and 1"
        )
    has_type = message.HasField("type") and message.type != AnnotatedDatum.NONE
    type_ = message.type if has_type else None
    return Annotations(objects, message.datum.label, type_, message.datum.encoded)


def serialize_annotated_datum(datum: caffe_pb2.Datum, objects: np.ndarray) -> bytes:
    """Serialize a Datum and objects (see `AnnotatedImage`) as an AnnotatedDatum, which groups objects by class."""
    message = AnnotatedDatum(datum=datum, type=AnnotatedDatum.BBOX)
    groups: dict[float, Any] = {}
    for label, instance, xmin, ymin, xmax, ymax, difficult in np.asarray(objects, np.float32).reshape(-1, 7).tolist():
        if label not in groups:
            groups[label] = message.annotation_group.add(group_label=int(label))
        box = groups[label].annotation.add(instance_id=int(instance)).bbox
        box.xmin, box.ymin, box.xmax, box.ymax, box.difficult = xmin, ymin, xmax, ymax, bool(difficult)
    return message.SerializeToString()

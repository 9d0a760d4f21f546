"""AnnotatedDatums: from bytes to a picture, and the other way round."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from ...schema import caffe_pb2
from ...schema.caffe_pb2 import AnnotatedDatum
from ..image_decoding import BadImageError
from .annotated_image import BOX

_FURTHEST = 1e9  # images from the middle; areas of what lies further away no float32 holds


class Annotations(NamedTuple):
    """What an AnnotatedDatum holds besides its image.

    Attributes:
        objects: as `AnnotatedImage` has them.
        label: of the whole image.
        type: the kind of annotation, or None where it says none.
        compressed: whether the image was.
    """

    objects: np.ndarray
    label: int
    type: int | None
    compressed: bool


def parse_annotated(data: bytes) -> AnnotatedDatum:
    """Parse an AnnotatedDatum.

    Raises:
        BadImageError: if it is none.
    """
    try:
        message = AnnotatedDatum.FromString(data)
    except DecodeError as error:
        raise BadImageError("is not an AnnotatedDatum, or is damaged") from error
    if not message.HasField("datum"):
        raise BadImageError("holds no image: it is not an AnnotatedDatum, which convert_annoset makes")
    return message


def read_annotations(message: AnnotatedDatum) -> Annotations:
    """Return what an AnnotatedDatum holds besides its image.

    Raises:
        BadImageError: for a box without end, or of no numbers.
    """
    rows = [
        (group.group_label, a.instance_id, a.bbox.xmin, a.bbox.ymin, a.bbox.xmax, a.bbox.ymax, a.bbox.difficult)
        for group in message.annotation_group
        for a in group.annotation
    ]
    objects = np.array(rows, np.float32).reshape(-1, 7)
    if len(wrong := objects[~(np.abs(objects[:, BOX]) < _FURTHEST).all(axis=1)]):
        box = ", ".join(f"{x:g}" for x in wrong[0, BOX])
        raise BadImageError(f"has a box ({box}); xmin, ymin, xmax and ymax are parts of the image, mostly 0 to 1")
    type_ = message.type if message.HasField("type") else None
    return Annotations(objects, message.datum.label, type_, message.datum.encoded)


def make_annotated(datum: caffe_pb2.Datum, objects: np.ndarray) -> bytes:
    """Serialise an AnnotatedDatum of a Datum, and objects as `AnnotatedImage` has them, grouped by class."""
    message = AnnotatedDatum(datum=datum, type=AnnotatedDatum.BBOX)
    groups: dict[float, Any] = {}
    for label, instance, xmin, ymin, xmax, ymax, difficult in np.asarray(objects, np.float32).reshape(-1, 7).tolist():
        if label not in groups:
            groups[label] = message.annotation_group.add(group_label=int(label))
        box = groups[label].annotation.add(instance_id=int(instance)).bbox
        box.xmin, box.ymin, box.xmax, box.ymax, box.difficult = xmin, ymin, xmax, ymax, bool(difficult)
    return message.SerializeToString()

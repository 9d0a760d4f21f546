"""Writing a net as an ONNX model: checked first, and whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from onnx import ModelProto, checker

from ...atomic import replacing
from ...errors import CaffejaxError, GraphError
from ..batch import any_batch
from ..subject import Subject
from .assembling import Preprocess, assembled

OPSETS = (17, 23)  # the least and the most
_MOST_BYTES = (1 << 31) - 1  # of a protobuf message


def write_onnx(subject: Subject, path: str | os.PathLike[str], **options: object) -> ModelProto:
    """Write a net to a file as an ONNX model, and return that.

    Args:
        subject: the net with its weights.
        path: the file.
        options: as for `export_onnx`.

    Raises:
        CaffejaxError: as `export_onnx` does; if the file cannot be written.
    """
    model = export_onnx(subject, **options)  # type: ignore[arg-type]
    with replacing(path) as file:
        file.write(model.SerializeToString())
    return model


def export_onnx(
    subject: Subject,
    *,
    opset: int = OPSETS[0],
    batch: bool = True,
    batch_axis: int = 0,
    preprocess: Mapping[str, Preprocess] = MappingProxyType({}),
) -> ModelProto:
    """Return a net as an ONNX model, checked.

    Values are called as the net's blobs, nodes as its layers; initializers are the weights. Outputs have no rows of
    padding. Layers that carry something from pass to pass start from what the subject's state holds each time.

    Args:
        subject: the net with its weights.
        opset: the version of ONNX's operators.
        batch: whether it takes any number of rows, or those of the net's shapes.
        batch_axis: the axis of the inputs along which rows lie.
        preprocess: what is done to inputs, by their names, before the net.

    Raises:
        GraphError: naming every layer that cannot be exported.
        BatchError: naming every layer that cannot take any number of rows.
        CaffejaxError: for an opset that is none of those known; if the weights take more than a model can hold.
    """
    if isinstance(opset, bool) or not isinstance(opset, int) or not OPSETS[0] <= opset <= OPSETS[1]:
        raise CaffejaxError(f"opset must be a number from {OPSETS[0]} to {OPSETS[1]}, not {opset!r}")
    if unknown := [name for name in preprocess if name not in subject.inputs]:
        raise CaffejaxError(f"preprocess names {', '.join(unknown)}, but the net is fed {', '.join(subject.inputs)}")
    if host := [layer for layer in subject.layers if layer.type.on_host]:
        raise GraphError(layer.problem("cannot be exported to ONNX: it runs on the host") for layer in host)
    inputs = any_batch(subject, batch_axis) if batch else subject.inputs
    model = assembled(subject, inputs, opset, preprocess)
    if (size := model.ByteSize()) > _MOST_BYTES:
        raise CaffejaxError(
            f"the model would take {size / 1e9:.1f} GB, of which its weights are nearly all; a file of ONNX holds "
            f"{_MOST_BYTES / 1e9:.1f} GB"
        )
    checker.check_model(model, full_check=True)
    return model

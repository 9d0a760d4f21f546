"""Writing a net as an ONNX model: checked first, and whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from onnx import ModelProto, TensorProto, checker, helper
from onnx.external_data_helper import set_external_data

from ...atomic import replacing
from ...errors import CaffejaxError, GraphError
from ..inference_model import Subject, any_batch
from ..preprocessing import Preprocessing
from .build_model import assembled

OPSETS = range(17, 24)  # of ONNX's operators, the versions that models can be written in
OPSET = 18  # the first in which numbers scattered to one place can be compared, as SegNet's layers do
_MOST_BYTES = (1 << 31) - (1 << 24)  # of weights in one protobuf message, less what is not weights


def write_onnx(subject: Subject, path: str | os.PathLike[str], **options: Any) -> ModelProto:
    """Write a net to a file as an ONNX model, and return that.

    Weights of more than 2 GB, which one file of ONNX cannot hold, go to a second one, `<path>.data`; the model that is
    returned then names that file in their place.

    Args:
        subject: the net with its weights.
        path: the file.
        options: as for `export_onnx`.

    Raises:
        CaffejaxError: as `export_onnx` does; if the file cannot be written.
    """
    model = export_onnx(subject, **options)
    with replacing_with_data(path, model) if _is_large(model) else replacing(path) as file:
        file.write(model.SerializeToString())
    return model


def export_onnx(
    subject: Subject,
    *,
    opset: int = OPSET,
    batch: bool = True,
    batch_axis: int = 0,
    preprocessing: Preprocessing | None = None,
) -> ModelProto:
    """Return a net as an ONNX model, checked.

    Values are called as the net's blobs, nodes as its layers; initializers are the weights. Outputs have no rows of
    padding. Layers that carry something from pass to pass start from what the subject's state holds each time.

    Args:
        subject: the net with its weights.
        opset: the version of ONNX's operators.
        batch: whether it takes any number of rows, or those of the net's shapes.
        batch_axis: the axis of the inputs along which rows lie.
        preprocessing: what makes an input of images, which are then taken in its place.

    Raises:
        GraphError: naming every layer that cannot be exported.
        BatchError: naming every layer that cannot take any number of rows.
        CaffejaxError: for an opset that is none of those known.
    """
    if isinstance(opset, bool) or opset not in OPSETS:
        raise CaffejaxError(f"opset must be a number from {OPSETS[0]} to {OPSETS[-1]}, not {opset!r}")
    if host := [layer for layer in subject.layers if layer.type.on_host]:
        raise GraphError(layer.problem("cannot be exported to ONNX: it runs on the host") for layer in host)
    inputs = any_batch(subject, batch_axis) if batch else subject.inputs
    with subject.naming_random_layers():
        model = assembled(subject, inputs, opset, preprocessing)
    if _is_large(model):
        check_program(model)
    else:
        checker.check_model(model, full_check=True)
    return model


def _is_large(model: ModelProto) -> bool:
    return bytes_of_weights(model) > _MOST_BYTES


_APART = 1024  # bytes from which on an initializer is a weight: smaller ones, such as axes, are part of the program


def bytes_of_weights(model: ModelProto) -> int:
    """Return how many bytes a model's initializers take, which is nearly all of it."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def check_program(model: ModelProto) -> None:
    """Check a model with its weights as inputs, since the checker takes no more than one file holds."""
    graph, weights = model.graph, list(_weights(model))
    inputs = [helper.make_tensor_value_info(x.name, x.data_type, x.dims) for x in weights]
    small = [x for x in graph.initializer if len(x.raw_data) < _APART]
    program = helper.make_graph(
        graph.node, graph.name, [*graph.input, *inputs], graph.output, small, value_info=graph.value_info
    )
    checker.check_model(
        helper.make_model(program, opset_imports=model.opset_import, ir_version=model.ir_version), full_check=True
    )


@contextmanager
def replacing_with_data(path: str | os.PathLike[str], model: ModelProto) -> Iterator[BinaryIO]:
    """Write a model's weights to `<path>.data`, and open the file that takes the place of `path`.

    From then on the model's tensors name that file and hold no numbers. Both files appear when all is written; if
    anything goes wrong before, neither does.

    Raises:
        CaffejaxError: if one of them cannot be written.
    """
    data = Path(f"{os.fspath(path)}.data")
    with replacing(path) as file, replacing(data) as numbers:
        for tensor in list(_weights(model)):
            start = numbers.tell()
            length = numbers.write(tensor.raw_data)
            set_external_data(tensor, location=data.name, offset=start, length=length)
            tensor.ClearField("raw_data")
        yield file


def _weights(model: ModelProto) -> Iterator[TensorProto]:
    return (tensor for tensor in model.graph.initializer if len(tensor.raw_data) >= _APART)

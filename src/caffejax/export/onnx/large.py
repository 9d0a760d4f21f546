"""Models whose weights lie in a file beside them: those that are larger than one file of ONNX can be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from onnx import ModelProto, TensorProto, checker, helper
from onnx.external_data_helper import set_external_data

from ...atomic import replacing

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

"""Export to ONNX files, with the model checked, files written atomically, and large weights in a second file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from onnx import ModelProto, TensorProto, checker, helper
from onnx.external_data_helper import set_external_data

from ...base.atomic_write import replace_file
from ...base.errors import CaffejaxError, GraphError
from ..engines import ANY_ENGINE, Engine
from ..inference_model import InferenceModel, symbolic_batch_shapes
from ..uint8_input import Uint8Preprocessing
from .build_model import build_model

SUPPORTED_OPSETS = range(17, 24)  # supported versions of ONNX's operator set
DEFAULT_OPSET = 18  # the first opset with max and min reductions in ScatterElements, which SegNet's layers need
_MAX_BYTES = (1 << 31) - (1 << 24)  # the limit of protobuf messages is 2 GiB; 16 MiB are reserved for the nodes


def write_onnx(model: InferenceModel, path: str | os.PathLike[str], **options: Any) -> ModelProto:
    """Export a net to an ONNX file; return the model.

    The size of an ONNX file is limited to 2 GB. Larger weights are written to a second file, `<path>.data`, to which
    the returned model refers.

    Args:
        model: the net with its weights.
        path: the path of the ONNX file.
        options: the keyword arguments of `export_onnx`.

    Raises:
        CaffejaxError: see `export_onnx`; also if the file cannot be written.
    """
    proto = export_onnx(model, **options)
    with open_with_external_data(path, proto) if _is_large(proto) else replace_file(path) as file:
        file.write(proto.SerializeToString())
    return proto


def export_onnx(
    model: InferenceModel,
    *,
    opset: int = DEFAULT_OPSET,
    symbolic_batch: bool = True,
    batch_axis: int = 0,
    preprocessing: Uint8Preprocessing | None = None,
    pad_rows: bool = False,
    engine: Engine = ANY_ENGINE,
) -> ModelProto:
    """Return the ONNX model of a net, checked by ONNX's checker.

    In the ONNX model, values have the names of the net's blobs, nodes have the names of its layers, and the weights are
    initializers. Recurrent layers that carry state between passes start each call from the state in `model.variables`.

    Args:
        model: the net with its weights.
        opset: the version of ONNX's operator set.
        symbolic_batch: True for a symbolic batch size, which is chosen at run time, or False for the batch size of the
            net.
        batch_axis: the batch axis of the inputs.
        preprocessing: the image preprocessing to include in the model, whose input then takes uint8 images, or None.
        pad_rows: whether outputs whose number of rows depends on the data are padded to the maximum number, such as
            keep_top_k rows per image for DetectionOutput. Some inference engines require this, because their shapes
            cannot depend on data. Padding rows come last and contain -1.
        engine: the engine that will run the model, one of `ENGINES`: operators that it lacks are not written. The other
            arguments do not follow from it.

    Raises:
        GraphError: if layers cannot be exported. The message names each of them.
        BatchError: if layers do not support a symbolic batch size. The message names each of them.
        CaffejaxError: if the opset is not supported.
    """
    if isinstance(opset, bool) or opset not in SUPPORTED_OPSETS:
        raise CaffejaxError(
            f"opset must be a number from {SUPPORTED_OPSETS[0]} to {SUPPORTED_OPSETS[-1]}, not {opset!r}"
        )
    if host_layers := [layer for layer in model.layers if layer.type.on_host]:
        earlier_outputs = [
            ",".join(name for name in layer.bottoms if name not in model.inputs) for layer in host_layers
        ]
        hints = [names and f"; export the layers before it with --outputs={names}" for names in earlier_outputs]
        raise GraphError(
            layer.make_problem(f"cannot be exported to ONNX: it runs on the host{hint}")
            for layer, hint in zip(host_layers, hints, strict=True)
        )
    blobs = symbolic_batch_shapes(model, batch_axis) if symbolic_batch else model.net.graph.blobs
    with model.report_random_layers():
        proto = build_model(model, blobs, opset, preprocessing, pad_rows, engine)
    if _is_large(proto):
        check_without_weights(proto)
    else:
        checker.check_model(proto, full_check=True)
    return proto


def _is_large(proto: ModelProto) -> bool:
    return count_weight_bytes(proto) > _MAX_BYTES


_MIN_WEIGHT_BYTES = 1024  # smaller initializers, such as axes, stay in the model file


def count_weight_bytes(proto: ModelProto) -> int:
    """Return the total size in bytes of a model's initializers, which are its weights and other constants."""
    return sum(len(tensor.raw_data) for tensor in proto.graph.initializer)


def check_without_weights(proto: ModelProto) -> None:
    """Check a model with ONNX's checker.

    The checker is limited to models of 2 GB, so it gets a copy of the model in which the weights are inputs.
    """
    graph, weights = proto.graph, list(_large_initializers(proto))
    inputs = [helper.make_tensor_value_info(x.name, x.data_type, x.dims) for x in weights]
    small_initializers = [x for x in graph.initializer if len(x.raw_data) < _MIN_WEIGHT_BYTES]
    graph_without_weights = helper.make_graph(
        graph.node, graph.name, [*graph.input, *inputs], graph.output, small_initializers, value_info=graph.value_info
    )
    checker.check_model(
        helper.make_model(graph_without_weights, opset_imports=proto.opset_import, ir_version=proto.ir_version),
        full_check=True,
    )


@contextmanager
def open_with_external_data(path: str | os.PathLike[str], proto: ModelProto) -> Iterator[BinaryIO]:
    """Return a context manager that writes large weights to `<path>.data`, and yields a file that will replace `path`.

    In the context, the model's tensors refer to the data file and contain no values. At the end of the context both
    files appear; after an error, neither does.

    Raises:
        CaffejaxError: if a file cannot be written.
    """
    data_path = Path(f"{os.fspath(path)}.data")
    with replace_file(path) as file, replace_file(data_path) as data_file:
        for tensor in list(_large_initializers(proto)):
            start = data_file.tell()
            length = data_file.write(tensor.raw_data)
            set_external_data(tensor, location=data_path.name, offset=start, length=length)
            tensor.ClearField("raw_data")
        yield file


def _large_initializers(proto: ModelProto) -> Iterator[TensorProto]:
    return (tensor for tensor in proto.graph.initializer if len(tensor.raw_data) >= _MIN_WEIGHT_BYTES)

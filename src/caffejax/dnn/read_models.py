"""Functions that read Caffe's models into a `Net`, from files and from buffers in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UNKNOWN_TYPE, CaffejaxError, GraphError, Problem, SchemaError, WeightsError, shorten_list
from ..human_readable import format_count
from .custom_layers import OwnSettings, is_custom, is_own_setting, read_own_settings, replace_custom_layers
from .net import Net
from .opencv_errors import raises_opencv_errors

if TYPE_CHECKING:
    from ..graph import Graph, Slot
    from ..net import Variables
    from ..schema.caffe_pb2 import NetParameter

_PROTOTXT, _CAFFEMODEL = ".prototxt", ".caffemodel"


@raises_opencv_errors
def readNetFromCaffe(
    prototxt: Any = "", caffeModel: Any = "", *, bufferProto: Any = None, bufferModel: Any = None
) -> Net:
    """Read a net from a prototxt and a .caffemodel.

    Args:
        prototxt: the path of the prototxt, or its content: bytes, a bytearray, or a uint8 array.
        caffeModel: the path of the .caffemodel, or its content. Without it, the net has layers and shapes, but
            `setParam` must set the weights before `forward` can run.
        bufferProto, bufferModel: the contents of the prototxt and the .caffemodel, instead of the first two arguments.

    Raises:
        CaffejaxError: if a file cannot be read, the net cannot be built (an unknown type must be registered first, by
            `registerLayer`), or no layer takes weights from the model.
    """
    from ..net import Net as CaffeNet

    prototxt = prototxt if bufferProto is None else bufferProto
    model = caffeModel if bufferModel is None else bufferModel
    if is_buffer(prototxt):
        text = _to_bytes(prototxt).decode("utf-8-sig", "surrogateescape")
        file, message, own_settings = "bufferProto", *_read_prototxt(f"{text}\n")  # the line break marks a text
    else:
        file = os.fspath(prototxt)
        if any(mark in file for mark in "\n{") and not os.path.exists(file):
            raise CaffejaxError("the prototxt is a text, not the path of a file; give the text as bytes: text.encode()")
        message, own_settings = _read_prototxt(Path(file))
    for layer in message.layer:
        if layer.type == "PriorBox" and not layer.prior_box_param.HasField("clip"):
            layer.prior_box_param.clip = True  # OpenCV's default
    name = "bufferModel" if is_buffer(model) else os.fspath(model)
    stored_blobs = _read_blobs(model, name) if name else {}
    custom_objects = replace_custom_layers(message, stored_blobs, own_settings)
    try:
        net = CaffeNet(message, "TEST", file=file)
    except GraphError as error:
        if not any(problem.message.startswith(UNKNOWN_TYPE) for problem in error.problems):
            raise
        advice = (
            "cv2.dnn_registerLayer, after caffejax.dnn.install(), or caffejax.dnn.registerLayer adds a type in Python"
        )
        raise GraphError([*error.problems, advice]) from None
    arrays = _match_blobs(net.graph, stored_blobs, name) if name else {}
    result = Net()
    result._set_net(net, *_fill_with_zeros(net.graph, arrays), custom_objects)
    return result


def _read_prototxt(source: str | Path) -> tuple[NetParameter, OwnSettings]:
    """Read a net, and the settings of layers of registered types that Caffe's schema does not have.

    Raises:
        SchemaError: if the prototxt has other problems.
    """
    from ..schema import read_valid_part
    from ..schema.load import read_text

    net, problems = read_valid_part(source, name="bufferProto", accepts_old_forms=True)
    other_problems = [problem for problem in problems if not is_own_setting(problem)]
    if other_problems:
        raise SchemaError(other_problems)
    if not problems:
        return net, {}
    return net, read_own_settings(source if isinstance(source, str) else read_text(source))


@raises_opencv_errors
def readNet(
    model: Any = "",
    config: Any = "",
    framework: Any = "",
    *,
    bufferModel: Any = None,
    bufferConfig: Any = None,
) -> Net:
    """Read a net: `readNet(model, config[, framework])`, or `readNet(framework, bufferModel[, bufferConfig])`.

    Args:
        model, config: the .caffemodel and the prototxt, in either order.
        framework: "caffe", for files with other suffixes.
        bufferModel, bufferConfig: the contents of .caffemodel and prototxt.

    Raises:
        CaffejaxError: if the files are not Caffe's; see also `readNetFromCaffe`.
    """
    if is_buffer(config):
        framework, bufferModel, bufferConfig = model, config, bufferConfig or framework
    if bufferModel is not None:
        model, config, framework = bufferModel, bufferConfig, framework or model
    if not is_caffe(model, config, framework):
        raise CaffejaxError(
            f"caffejax.dnn reads a .prototxt and a .caffemodel, not {model!s:.99}, {config!s:.99}; pass "
            'framework="caffe" if these are such files with other suffixes, and use cv2.dnn.readNet for other models'
        )
    if not is_buffer(model) and (_has_suffix(model, _PROTOTXT) or _has_suffix(config, _CAFFEMODEL)):
        model, config = config, model
    return readNetFromCaffe(config, model)


def is_caffe(*arguments: Any) -> bool:
    """Return whether arguments of `readNet` select Caffe, by the framework or by a file's suffix."""
    names = [os.fspath(a) for a in arguments if isinstance(a, str | os.PathLike)]
    return any(name.lower() == "caffe" or name.endswith((_PROTOTXT, _CAFFEMODEL)) for name in names)


def _has_suffix(file: Any, suffix: str) -> bool:
    return isinstance(file, str | os.PathLike) and os.fspath(file).endswith(suffix)


def is_buffer(value: Any) -> bool:
    """Return whether a value is the content of a file, not a path."""
    return isinstance(value, bytes | bytearray | memoryview | np.ndarray)


def _to_bytes(buffer: Any) -> bytes:
    return np.asarray(buffer, np.uint8).tobytes() if isinstance(buffer, np.ndarray) else bytes(buffer)


def _read_blobs(model: Any, name: str) -> Mapping[str, Sequence[np.ndarray | None]]:
    """Return the blobs of a .caffemodel by layer name.

    Raises:
        WeightsError: if the model cannot be read.
    """
    from ..checkpoints.caffemodel import decode_caffemodel, read_caffemodel

    return decode_caffemodel(memoryview(_to_bytes(model)), name) if is_buffer(model) else read_caffemodel(model)


def _match_blobs(
    graph: Graph, stored_blobs: Mapping[str, Sequence[np.ndarray | None]], name: str
) -> Mapping[Slot, np.ndarray]:
    """Return the arrays of a .caffemodel for a net, by slot.

    Raises:
        WeightsError: if the blobs do not fit the net, or the model has no blobs for any layer.
    """
    from ..checkpoints.match_by_name import match_blobs
    from ..paths import is_hdf5

    custom_names = {layer.name for layer in graph.layers if is_custom(layer.definition.layer)}
    stored_blobs = {layer: blobs for layer, blobs in stored_blobs.items() if layer not in custom_names}
    copies = name == "bufferModel" or not is_hdf5(name)
    arrays, report = match_blobs(graph, stored_blobs, name, stores_copies=copies)
    remedy = "use the .caffemodel that was made for this prototxt"
    if report.mismatched:
        layers = {problem.layer: problem for problem in reversed(report.mismatched)}
        examples = "; ".join(
            f"'{layer}', {p.message.partition(';')[0]}" for layer, p in [*reversed(layers.items())][:3]
        )
        count = format_count(len(layers), "layer")
        raise WeightsError(Problem(f"the weights of {count} do not fit the net ({examples}); {remedy}", name))
    if not arrays and graph.variables:
        names = ", ".join(shorten_list([layer for layer, blobs in stored_blobs.items() if blobs])) or "no layer"
        raise WeightsError(Problem(f"contains no weights for layers of this net, only for {names}; {remedy}", name))
    return arrays


def _fill_with_zeros(graph: Graph, arrays: Mapping[Slot, np.ndarray]) -> tuple[Variables, set[Slot]]:
    """Return a net's parameters and state, and the slots of the blobs that `arrays` does not contain.

    Parameters and state have the values in `arrays`; blobs that are not in `arrays` are zero.
    """
    import jax

    from ..checkpoints.match_by_name import find_missing_layers
    from ..net.init import make_initial_variables

    missing_slots = {
        p.owner for layer in find_missing_layers(graph, arrays.keys()) for p in layer.params
    } - arrays.keys()
    zeros = {p.slot: np.zeros(p.spec.shape, np.float32) for p in graph.variables if p.slot in missing_slots}
    values = {slot: jax.device_put(array) for slot, array in {**zeros, **arrays}.items()}
    return make_initial_variables(graph, None, np.float32, {}, values), missing_slots

"""Functions that read Caffe's models into a `Net`, from files and from buffers in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import CaffejaxError, SchemaError, describe_type
from ..base.glog import warn_once
from .custom_layers import OwnSettings, is_own_setting, read_own_settings, replace_custom_layers
from .model_source import ModelSource
from .net import Net
from .nodes import get_rules
from .opencv_errors import raises_opencv_errors

if TYPE_CHECKING:
    from ..core.schema.caffe_pb2 import NetParameter

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
    prototxt = prototxt if bufferProto is None else bufferProto
    model = caffeModel if bufferModel is None else bufferModel
    if is_buffer(prototxt):
        text = _to_bytes(prototxt).decode("utf-8-sig", "surrogateescape")
        file, message, own_settings = "bufferProto", *_read_prototxt(f"{text}\n")  # the line break marks a text
    else:
        if not isinstance(prototxt, str | os.PathLike):
            raise CaffejaxError(f"the prototxt must be a path, or its content as bytes, not {describe_type(prototxt)}")
        file = os.fspath(prototxt)
        if any(mark in file for mark in "\n{") and not os.path.exists(file):
            raise CaffejaxError("the prototxt is a text, not the path of a file; give the text as bytes: text.encode()")
        message, own_settings = _read_prototxt(Path(file))
    for layer in message.layer:
        get_rules(layer.type).set_defaults(layer)
    if not (is_buffer(model) or isinstance(model, str | os.PathLike)):
        raise CaffejaxError(f"the .caffemodel must be a path, or its content as bytes, not {describe_type(model)}")
    name = "bufferModel" if is_buffer(model) else os.fspath(model)
    stored_blobs = _read_blobs(model, name) if name else {}
    custom_objects = replace_custom_layers(message, stored_blobs, own_settings)
    result = Net()
    result._set_source(ModelSource(message, file, stored_blobs, name, custom_objects))
    return result


def _read_prototxt(source: str | Path) -> tuple[NetParameter, OwnSettings]:
    """Read a net, and the settings of layers of registered types that Caffe's schema does not have.

    Raises:
        SchemaError: if the prototxt has other problems.
    """
    from ..core.schema import read_valid_part
    from ..core.schema.load import read_text
    from ..core.schema.text import is_unknown_field

    net, problems = read_valid_part(source, name="bufferProto", accepts_old_forms=True, prepare=_add_unknown_shapes)
    if other_problems := [problem for problem in problems if not is_unknown_field(problem)]:
        raise SchemaError(other_problems)
    own_settings = [problem for problem in problems if is_own_setting(problem)]
    if ignored_fields := [str(problem) for problem in problems if problem not in own_settings]:
        warn_once("\n".join(["fields that Caffe does not have are ignored, as in OpenCV:", *ignored_fields]))
    if not own_settings:
        return net, {}
    return net, read_own_settings(source if isinstance(source, str) else read_text(source))


def _add_unknown_shapes(net: NetParameter) -> None:
    """Add an empty shape for each input of the old form that has none, so that an Input layer replaces it."""
    if not net.input_shape and len(net.input_dim) < 4:
        if _is_input_read(net):
            del net.input_dim[:]
            for _ in net.input:
                net.input_shape.add()
        return
    if not net.input_shape:
        for i in range(0, len(net.input_dim) - 3, 4):
            net.input_shape.add(dim=net.input_dim[i : i + 4])
        del net.input_dim[:]
    for _ in range(len(net.input) - len(net.input_shape)):
        net.input_shape.add()


def _is_input_read(net: NetParameter) -> bool:
    """Return whether a layer reads a name in the net's `input` fields before any layer produces it."""
    produced: set[str] = set()
    for bottoms, tops in ((layer.bottom, layer.top) for layers in (net.layers, net.layer) for layer in layers):
        if any(bottom in net.input and bottom not in produced for bottom in bottoms):
            return True
        produced.update(tops)
    return False


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
    if isinstance(buffer, np.ndarray) and (buffer.dtype.kind not in "iu" or buffer.itemsize != 1):
        raise CaffejaxError(f"a buffer must be bytes, a bytearray or an array of uint8, not of {buffer.dtype}")
    return bytes(buffer.tobytes() if isinstance(buffer, np.ndarray) else buffer)


def _read_blobs(model: Any, name: str) -> Mapping[str, Sequence[np.ndarray | None]]:
    from ..core.checkpoints.caffemodel import decode_caffemodel, read_caffemodel

    return decode_caffemodel(memoryview(_to_bytes(model)), name) if is_buffer(model) else read_caffemodel(model)

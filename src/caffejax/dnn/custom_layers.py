"""Layers that users write in Python for OpenCV, with `cv2.dnn_registerLayer`.

When a net is read, each layer of a registered type is replaced by a Python layer with the class `CustomLayer`, which
calls the user's object.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from ..base.errors import CaffejaxError, LayerError, Problem, describe_type
from .opencv_errors import raises_opencv_errors

if TYPE_CHECKING:
    from ..core.layers.python.blob import Blob
    from ..core.schema.caffe_pb2 import LayerParameter, NetParameter

Array = np.ndarray
Shape = tuple[int, ...]
OwnSettings = Mapping[str, Mapping[str, str]]  # by layer name: settings that Caffe's schema does not have, as text

_METHODS = ("getMemoryShapes", "forward")

_registered_classes: dict[str, list[Any]] = {}  # {type: registered classes}; the last one is used


@raises_opencv_errors
def registerLayer(type: str, cls: Any) -> None:  # OpenCV's name of the argument
    """Compute layers of a type with a class, in nets that are read from now on. The type may be one of Caffe's.

    `cv2.dnn_registerLayer` is this function after `install`.

    Args:
        type: the type in the prototxt.
        cls: a class with OpenCV's methods: `__init__(self, params, blobs)`, where `params` is a dict of the layer's
            settings and `blobs` a tuple of the arrays that the .caffemodel has for it; `getMemoryShapes(self, inputs)`,
            which takes the shapes of the bottoms and returns a list of the shapes of the tops; and
            `forward(self, inputs)`, which takes a list of float32 arrays and returns a list of arrays.

    Raises:
        CaffejaxError: if the class lacks a method.
    """
    if missing_methods := [method for method in _METHODS if not callable(getattr(cls, method, None))]:
        name = getattr(cls, "__name__", describe_type(cls))
        raise CaffejaxError(f"layer type '{type}': {name} has no method {' and no method '.join(missing_methods)}")
    _registered_classes.setdefault(type, []).append(cls)


@raises_opencv_errors
def unregisterLayer(type: str) -> None:
    """Undo the last `registerLayer` of a type. Types that are not registered are ignored, as in OpenCV."""
    if type in _registered_classes:
        _registered_classes[type].pop()
        if not _registered_classes[type]:
            del _registered_classes[type]


class CustomObject:
    """The user's object of one layer, which all graphs of the net share.

    It is made when the shapes of the tops are first needed.

    Attributes:
        type: the layer's type in the prototxt.
    """

    def __init__(
        self, cls: Any, layer: LayerParameter, blobs: tuple[Array, ...], own_settings: Mapping[str, str]
    ) -> None:
        self.type = layer.type
        self._cls, self._params, self._blobs = cls, {**make_opencv_params(layer), **own_settings}, blobs
        self._user_object: Any = None
        self._input_shapes: list[Shape] | None = None
        self._top_shapes: list[Shape] = []

    def get_top_shapes(self, shapes: list[Shape]) -> list[Shape]:
        """Return the shapes of the tops for bottoms of these shapes. The user's method is called for new shapes."""
        if self._user_object is None:
            self._user_object = self._cls(self._params, self._blobs)
        if shapes != self._input_shapes:
            self._top_shapes = [tuple(map(int, shape)) for shape in self._user_object.getMemoryShapes([*shapes])]
            self._input_shapes = shapes
        return self._top_shapes

    def forward(self, arrays: list[Array]) -> list[Array]:
        """Return the tops.

        Raises:
            LayerError: if the tops are not arrays of the shapes that `getMemoryShapes` returned.
        """
        expected = self.get_top_shapes([array.shape for array in arrays])
        tops = self._user_object.forward(arrays)
        shapes = [np.shape(top) for top in tops] if isinstance(tops, list | tuple) else describe_type(tops)
        if shapes != expected:
            name = getattr(self._cls, "__name__", self.type)
            raise LayerError(f"{name}.forward must return a list of arrays of shapes {expected}, not {shapes}")
        return list(tops)


_objects: WeakValueDictionary[int, CustomObject] = WeakValueDictionary()  # each net keeps its objects alive


class CustomLayer:
    """A Python layer whose tops a `CustomObject` computes.

    Attributes:
        param_str: the number of that object and the layer's type in the prototxt, in JSON.
    """

    param_str: str

    def setup(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Find the object."""
        self._object = _objects[json.loads(self.param_str)["object"]]

    def reshape(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Set the shapes of the tops.

        Raises:
            LayerError: if `getMemoryShapes` returns a different number of shapes.
        """
        shapes = self._object.get_top_shapes([blob.shape for blob in bottom])
        if len(shapes) != len(top):
            raise LayerError(f"getMemoryShapes returns {len(shapes)} shapes, but the layer has {len(top)} tops")
        for blob, shape in zip(top, shapes, strict=True):
            blob.reshape(*shape)

    def forward(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Compute the tops."""
        for blob, array in zip(top, self._object.forward([blob.data for blob in bottom]), strict=True):
            blob.data[...] = array


def replace_custom_layers(
    net: NetParameter, stored_blobs: Mapping[str, Sequence[Array | None]], own_settings: OwnSettings
) -> list[CustomObject]:
    """Replace the layers of registered types by Python layers, in place.

    Args:
        net: the net.
        stored_blobs: the blobs of a .caffemodel by layer name, which the users' objects get.
        own_settings: the settings that only the users' objects know.

    Returns:
        The users' objects. The layers work as long as the list exists.
    """
    objects = []
    for layer in net.layer:
        if layer.type in _registered_classes:
            blobs = tuple(np.array(blob) for blob in stored_blobs.get(layer.name, ()) if blob is not None)
            custom_object = CustomObject(
                _registered_classes[layer.type][-1], layer, blobs, own_settings.get(layer.name, {})
            )
            objects.append(custom_object)
            _objects[id(custom_object)] = custom_object
            replacement = type(layer)(name=layer.name, type="Python", bottom=layer.bottom, top=layer.top)
            replacement.include.extend(layer.include)
            replacement.exclude.extend(layer.exclude)
            replacement.python_param.module, replacement.python_param.layer = __name__, CustomLayer.__name__
            replacement.python_param.param_str = json.dumps({"type": custom_object.type, "object": id(custom_object)})
            layer.CopyFrom(replacement)
    return objects


def is_own_setting(problem: Problem) -> bool:
    """Return whether an unknown field of a prototxt is a field of a layer of a registered type."""
    return problem.layer_type in _registered_classes and problem.message.startswith("LayerParameter ")


def read_own_settings(text: str) -> OwnSettings:
    """Return the fields of layers that Caffe's schema does not have, and the fields inside them, from a valid prototxt.

    OpenCV passes their values as text, by the innermost name, without a minus; the last one with a name is used, and
    the first of a list in brackets.
    """
    from ..core.schema.caffe_pb2 import LayerParameter
    from ..core.schema.tokens import CLOSING, END, Tokens

    known_names = LayerParameter.DESCRIPTOR.fields_by_name
    result: dict[str, dict[str, str]] = {}
    path: list[str] = []  # the names of the messages and lists around the token
    brackets: list[str] = []  # their opening brackets
    name, layer_name, settings = "", "", dict[str, str]()
    for token, next_token in itertools.pairwise(Tokens(text)):
        if token in CLOSING:
            path.append(name)
            brackets.append(token)
        elif token in CLOSING.values():
            path.pop()
            brackets.pop()
            if not path:
                result[layer_name], settings = settings, {}
        elif token in (":", ",", ";", "-", END):
            continue
        elif next_token in (":", *CLOSING):
            name = token
        elif brackets[-1:] != [""]:
            value = token.strip("\"'")
            if path == ["layer"] and name == "name":
                layer_name = value
            if path[:1] == ["layer"] and (path[1:2] or [name])[0] not in known_names:
                settings[name] = value
            if brackets[-1:] == ["["]:
                brackets[-1] = ""  # the other values of the list are skipped
    return {layer: values for layer, values in result.items() if values}


def is_custom(layer: LayerParameter) -> bool:
    """Return whether a layer is one of those that `replace_custom_layers` inserts."""
    settings = layer.python_param
    return (settings.module, settings.layer) == (__name__, CustomLayer.__name__)


def get_opencv_type(layer: LayerParameter) -> str:
    """Return a layer's type in the prototxt that was read."""
    return str(json.loads(layer.python_param.param_str)["type"] if is_custom(layer) else layer.type)


def make_opencv_params(layer: LayerParameter) -> dict[str, Any]:
    """Return a layer's settings as OpenCV passes them: those of all messages `..._param` in one dict, by name.

    Enums are their names, booleans are 0 or 1, and a repeated setting with several values is a tuple.
    """
    params: dict[str, Any] = {}
    for field in layer.DESCRIPTOR.fields:
        if field.name.endswith("_param"):
            _add_settings(params, layer, field)
    return dict(sorted(params.items()))


def _add_settings(params: dict[str, Any], message: Any, field: Any) -> None:
    """Add the value of a field to `params` if the field is set. For a message, add the fields that it sets."""
    if field.is_repeated:
        values = list(getattr(message, field.name))
    else:
        values = [getattr(message, field.name)] if message.HasField(field.name) else []
    if not values:
        return
    if field.message_type:
        for inner_field in field.message_type.fields:
            _add_settings(params, values[0], inner_field)
        return
    if field.enum_type:
        values = [field.enum_type.values_by_number[value].name for value in values]
    values = [int(value) if isinstance(value, bool) else value for value in values]
    params[field.name] = values[0] if len(values) == 1 else tuple(values)

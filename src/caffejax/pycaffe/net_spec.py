"""Nets written in Python: each layer is a function call, and each blob is a value.

    n = NetSpec()
    n.data, n.label = L.Data(source="train_lmdb", backend=P.Data.LMDB, batch_size=64, ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    n.loss = L.SoftmaxWithLoss(n.relu1, n.label)
    print(n.to_proto())

A blob has the name of its attribute in the NetSpec, and a layer has the name of its first top. A blob without an
attribute is named after the layer's type, with a number. A keyword sets a field of the type's parameter message if the
message has this field, and otherwise a field of the layer: `kernel_size=5` and `convolution_param=dict(kernel_size=5)`
are equivalent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from google.protobuf.message import Message

from ..base.errors import ArgumentTypeError, GraphError, UnknownAttributeError, did_you_mean
from ..base.glog import log
from ..core.layers import Variants, layer_type
from ..core.schema import caffe_pb2
from ..core.schema.caffe_pb2 import LayerParameter, NetParameter
from ._arguments import as_instance
from ._fork_files import fall_back_to_fork

_SUFFIX = "_param"
_SINGLE_VALUE_TYPES = (str, bytes, Mapping, Message)  # iterable types that are a single value


@cache
def param_name_dict() -> dict[str, str]:
    """Return the name of each type's settings field without `_param`: `{"InnerProduct": "inner_product", ...}`."""
    fields = {
        field.name.removesuffix(_SUFFIX): field.message_type.name.removesuffix("Parameter")
        for field in LayerParameter.DESCRIPTOR.fields[::-1]  # if fields have equal messages, the first remains
        if field.name.endswith(_SUFFIX) and field.message_type
    }
    fields_by_spelling = {name.replace("_", ""): name for name in fields}
    return {kind: fields_by_spelling.get(kind.lower(), name) for name, kind in fields.items()}


@cache
def _find_param_fields(type_name: str) -> tuple[str, ...]:
    """Return the names of the LayerParameter fields that may contain a type's settings, beginning with the most likely.

    First come the field of the type, or the fields of all types with this name in forks. A field whose name resembles
    the type's name follows, then a field whose message is named after the type, as in Caffe.
    """
    names: list[str | None] = []
    with suppress(GraphError):  # an unregistered type
        kind = layer_type(type_name, with_variants=True)
        variants = kind.implementation.types.values() if isinstance(kind.implementation, Variants) else ()
        names += [variant.signature.param for variant in (kind, *variants)]
    fields = LayerParameter.DESCRIPTOR.fields
    names += [f.name for f in fields if f.message_type and f.name.replace("_", "") == f"{type_name.lower()}param"]
    if type_name in param_name_dict():
        names.append(param_name_dict()[type_name] + _SUFFIX)
    return tuple(dict.fromkeys(filter(None, names)))


def assign_proto(proto: Message, name: str, val: Any) -> None:
    """Set a field of a message from plain Python values.

    Args:
        proto: the message.
        name: the field.
        val: a number, string or enum value. For a message, it is a dict; for a repeated field, a list, array or other
            iterable of values, or a single value.

    Raises:
        AttributeError: if the field does not exist; the error suggests the most similar name.
        TypeError: if the field cannot have this value.
    """
    fields = proto.DESCRIPTOR.fields_by_name
    if name not in fields:
        raise UnknownAttributeError(f"{proto.DESCRIPTOR.name} has no setting '{name}'{did_you_mean(name, fields)}")
    field = fields[name]
    if field.is_repeated:
        values = list(val) if isinstance(val, Iterable) and not isinstance(val, _SINGLE_VALUE_TYPES) else [val]
        if field.message_type:
            for value in values:
                _fill_message(getattr(proto, name).add(), name, value)
        else:
            _assign(name, values, lambda: getattr(proto, name).extend([_to_python(v) for v in values]))
    elif field.message_type:
        getattr(proto, name).SetInParent()
        _fill_message(getattr(proto, name), name, val)
    else:
        _assign(name, val, lambda: setattr(proto, name, _to_python(val)))


def _fill_message(message: Message, name: str, value: Any) -> None:
    if isinstance(value, Message):
        message.MergeFromString(value.SerializeToString())  # the message may be of a class of another schema
    elif isinstance(value, Mapping):
        for key, field_value in value.items():
            assign_proto(message, key, field_value)
    else:
        raise ArgumentTypeError(f"{name} takes a dict of settings, not {value!r}")


def _assign(name: str, value: Any, assign: Callable[[], None]) -> None:
    """Call `assign`. If protobuf rejects the value, raise a TypeError that names the setting and the value."""
    try:
        assign()
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"{name} cannot be {value!r}: {error}") from error


def _to_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def fill_layer(layer: LayerParameter, settings: Mapping[str, Any]) -> None:
    """Set fields of a layer: each in the type's parameter message if this has the field, and otherwise in the layer.

    Raises:
        AttributeError, TypeError: see `assign_proto`; the message names the layer.
    """
    prefix = f"layer '{layer.name}' ({layer.type})"
    fields = LayerParameter.DESCRIPTOR.fields_by_name
    fields_by_param = {
        param: getattr(layer, param).DESCRIPTOR.fields_by_name for param in _find_param_fields(layer.type)
    }
    for key, value in settings.items():
        param = next((param for param, names in fields_by_param.items() if key in names), None)
        if param is None and key not in fields:
            names = [*fields, *(name for names in fields_by_param.values() for name in names)]
            raise UnknownAttributeError(f"{prefix}: there is no setting '{key}'{did_you_mean(key, names)}")
        message: Message = layer if param is None else getattr(layer, param)
        try:
            assign_proto(message, key, value)
        except (AttributeError, TypeError) as error:
            raise type(error)(f"{prefix}: {error}") from error


__all__ = [
    "Function",
    "Layers",
    "NetSpec",
    "Parameters",
    "Top",
    "assign_proto",
    "layers",
    "param_name_dict",
    "params",
    "to_proto",
]


class Top:
    """A blob: the `n`-th top of a layer.

    Attributes:
        fn: the layer.
        n: the index of the top in the layer.
    """

    def __init__(self, fn: Function, n: int) -> None:
        self.fn = fn
        self.n = n

    def to_proto(self) -> NetParameter:
        """Return a NetParameter with the layer that computes this blob and all layers that it depends on."""
        return to_proto(self)


class Function:
    """One layer: its type, bottoms and settings.

    Args:
        type_name: the layer's type, registered or not.
        inputs: the layer's bottoms.
        params: the layer's settings, and two keywords: `ntop`, the number of tops (default: 1), and `in_place`, True if
            the tops replace the bottoms (default: False).

    Raises:
        TypeError: if an input is not a Top.
    """

    def __init__(self, type_name: str, inputs: Iterable[Top], params: Mapping[str, Any]) -> None:
        self.type_name = type_name
        self.inputs = tuple(inputs)
        for index, bottom in enumerate(self.inputs):
            if not isinstance(bottom, Top):
                raise _make_type_error(
                    f"{type_name} input {index}",
                    bottom,
                    "a layer with several tops returns a tuple; pass one of its items",
                )
        self.params = dict(params)
        self.ntop: int = self.params.pop("ntop", 1)
        self.in_place: bool = self.params.pop("in_place", False)
        self.tops = tuple(Top(self, n) for n in range(self.ntop))

    def to_proto(self) -> NetParameter:
        """Return a net of this layer and all layers that it depends on."""
        return to_proto(self)


def _make_type_error(name: str, value: object, hint: str) -> ArgumentTypeError:
    """Return a TypeError with Caffe's message, which scripts expect. If `value` is a tuple, also log `hint`."""
    if isinstance(value, tuple):
        log.warning("%s is a tuple: %s", name, hint)
    return ArgumentTypeError(f"{name} is not a Top (type is {type(value)})")


class _NetBuilder:
    """Builds a net from layers, and names unnamed layers and tops by their type and a number, such as `ReLU1`."""

    def __init__(self, names: Mapping[Top | Function, str] | None = None) -> None:
        self.names = dict(names or {})
        self.counts: Counter[str] = Counter()
        self.layers: dict[Function, LayerParameter] = {}

    def add(self, last: Function) -> None:
        """Add the layer `last`, after all layers that it depends on."""
        stack = [last]  # a loop and not recursion, because nets can be deeper than Python's stack
        while stack:
            fn = stack[-1]
            missing_layer = next((bottom.fn for bottom in fn.inputs if bottom.fn not in self.layers), None)
            if missing_layer is not None:
                stack.append(missing_layer)
            else:
                stack.pop()
                if fn not in self.layers:
                    self.layers[fn] = self._make_layer(fn)

    def _make_layer(self, fn: Function) -> LayerParameter:
        layer = LayerParameter(type=fn.type_name)
        layer.bottom.extend(self.layers[bottom.fn].top[bottom.n] for bottom in fn.inputs)
        layer.top.extend(layer.bottom if fn.in_place else [self._name_of(top, fn) for top in fn.tops])
        layer.name = self._name_of(fn.tops[0] if fn.tops else fn, fn)
        fill_layer(layer, fn.params)
        return layer

    def _name_of(self, item: Top | Function, fn: Function) -> str:
        if item not in self.names:
            self.counts[fn.type_name] += 1
            self.names[item] = f"{fn.type_name}{self.counts[fn.type_name]}"
        return self.names[item]

    def to_proto(self) -> NetParameter:
        return NetParameter(layer=self.layers.values())


def to_proto(*tops: Top | Function) -> NetParameter:
    """Return the net of the layers of `tops` and all layers that they depend on, with names such as "ReLU1"."""
    builder = _NetBuilder()
    for top in tops:
        builder.add(top.fn if isinstance(top, Top) else as_instance(top, Function, "a blob of a NetSpec"))
    return builder.to_proto()


class _MissingError(UnknownAttributeError, KeyError):
    """Error for a missing blob of a NetSpec: a KeyError, as in Caffe, and an AttributeError, as Python expects."""

    __str__ = Exception.__str__


class NetSpec:
    """A net under construction. Its attributes or items are the net's blobs: `n.conv1 = L.Convolution(n.data)`.

    Attributes:
        tops: the blobs by name, in the order of assignment.
    """

    tops: dict[str, Top | Function]

    def __init__(self) -> None:
        super().__setattr__("tops", {})

    def __setattr__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __getattr__(self, name: str) -> Any:
        tops = self.__dict__.get("tops", {})
        if name not in tops:
            raise _MissingError(f"this NetSpec has no blob '{name}'{did_you_mean(name, tops)}")
        return tops[name]

    def __delattr__(self, name: str) -> None:
        getattr(self, name)
        del self.tops[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name) if name != "tops" else self.tops[name]

    def __delitem__(self, name: str) -> None:
        self.__delattr__(name)

    def __contains__(self, name: object) -> bool:
        return name in self.tops

    def keys(self) -> list[str]:
        """Return the names of the blobs."""
        return list(self.tops)

    def vals(self) -> list[Top | Function]:
        """Return the blobs."""
        return list(self.tops.values())

    def update(self, other: NetSpec | str, params: Mapping[str, Any] | None = None) -> None:
        """Add the blobs of a different NetSpec, or change the settings of a blob's layer, as in the SSD fork.

        Args:
            other: a NetSpec, or the name of a blob.
            params: settings that are added to the settings of this blob's layer.
        """
        if isinstance(other, NetSpec):
            self.tops.update(other.tops)
        else:
            top = self[other]
            (top.fn if isinstance(top, Top) else top).params.update(params or {})

    def to_proto(self) -> NetParameter:
        """Return the net of all blobs that were assigned, and of the layers that they depend on.

        Raises:
            AttributeError, TypeError: if a setting is unknown or its value is invalid (the message names the layer), or
                an attribute is not a blob.
        """
        for name, top in self.tops.items():
            if not isinstance(top, Top | Function):
                raise _make_type_error(f"'{name}'", top, "give each of the tops a name, as in n.a, n.b = ...")
        builder = _NetBuilder({top: name for name, top in self.tops.items()})
        for top in self.tops.values():
            builder.add(top.fn if isinstance(top, Top) else as_instance(top, Function, "a blob of a NetSpec"))
        return builder.to_proto()


class Layers:
    """`L`: a function for each layer type, which takes bottoms (Tops) and settings and returns a top (a Top).

    With `ntop=2` or more, the function returns a tuple of Tops. With `ntop=0`, it returns the layer's `Function`.
    """

    def __getattr__(self, type_name: str) -> Callable[..., Any]:
        if type_name.startswith("__"):
            raise AttributeError(type_name)

        def layer(*bottoms: Top, **params: Any) -> Function | Top | tuple[Top, ...]:
            fn = Function(type_name, bottoms, params)
            return fn.tops[0] if fn.ntop == 1 else fn.tops or fn

        return layer


class _Enums:
    """The enum values of one parameter message, as attributes."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __getattr__(self, value: str) -> int:
        return getattr(getattr(caffe_pb2, self._message), value)


class Parameters:
    """`P`: the enum values of each type's settings, for example `P.Pooling.MAX`."""

    def __getattr__(self, name: str) -> _Enums:
        message = f"{name}Parameter"
        if not hasattr(caffe_pb2, message):
            raise UnknownAttributeError(
                f"caffe_pb2 has no message type '{message}'{did_you_mean(message, vars(caffe_pb2))}"
            )
        return _Enums(message)


layers = Layers()
params = Parameters()


__getattr__ = fall_back_to_fork(__name__)

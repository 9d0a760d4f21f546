"""Settings of layers from plain Python values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from google.protobuf.message import Message

from ..errors import did_you_mean
from ..layers import layer_types
from ..schema.caffe_pb2 import LayerParameter

_SUFFIX = "_param"
_SINGLE = (str, bytes, Mapping, Message)  # what can be looped over, but is one value


@cache
def param_name_dict() -> dict[str, str]:
    """Return the parameter message of each type without its `_param`: `{"InnerProduct": "inner_product", ...}`."""
    fields = {
        field.name.removesuffix(_SUFFIX): field.message_type.name.removesuffix("Parameter")
        for field in LayerParameter.DESCRIPTOR.fields[::-1]  # of several for one message the first
        if field.name.endswith(_SUFFIX) and field.message_type
    }
    spelled = {name.replace("_", ""): name for name in fields}
    return {kind: spelled.get(kind.lower(), name) for name, kind in fields.items()}


@cache
def _param_of(type_name: str) -> str | None:
    """Return the LayerParameter field with a type's own settings; for a type that is not known here, by its name."""
    if (kind := layer_types().get(type_name)) is not None:
        return kind.signature.param
    for field in LayerParameter.DESCRIPTOR.fields:
        if field.message_type and field.name.replace("_", "") == type_name.lower() + "param":
            return str(field.name)
    named = param_name_dict().get(type_name)
    return named and named + _SUFFIX


def assign_proto(proto: Message, name: str, val: Any) -> None:
    """Set a field of a message from plain Python values.

    Args:
        proto: the message.
        name: the field.
        val: a number, string or enum value; a dict for a message; a list (or array, ...) of those for a
            repeated field, or one of them for a repeated field of one value.

    Raises:
        AttributeError: if there is no such field; the nearest name is told.
        TypeError: if the value is none for that field.
    """
    fields = proto.DESCRIPTOR.fields_by_name
    if name not in fields:
        raise AttributeError(f"{proto.DESCRIPTOR.name} has no setting '{name}'{did_you_mean(name, fields)}")
    field = fields[name]
    if field.is_repeated:
        values = list(val) if isinstance(val, Iterable) and not isinstance(val, _SINGLE) else [val]
        if field.message_type:
            for value in values:
                _fill(getattr(proto, name).add(), name, value)
        else:
            _assign(name, values, lambda: getattr(proto, name).extend([_plain(v) for v in values]))
    elif field.message_type:
        getattr(proto, name).SetInParent()
        _fill(getattr(proto, name), name, val)
    else:
        _assign(name, val, lambda: setattr(proto, name, _plain(val)))


def _fill(message: Message, name: str, value: Any) -> None:
    if isinstance(value, Message):
        message.MergeFromString(value.SerializeToString())  # it may be of another schema's class
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            assign_proto(message, key, inner)
    else:
        raise TypeError(f"{name} takes a dict of settings, not {value!r}")


def _assign(name: str, value: Any, assign: Callable[[], None]) -> None:
    """Run an assignment; protobuf's complaint about the value gets the setting's name."""
    try:
        assign()
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} cannot be {value!r}: {error}") from error


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def fill_layer(layer: LayerParameter, settings: Mapping[str, Any]) -> None:
    """Set a layer's settings: fields of its type's own parameter message where that has them, else of the layer.

    Raises:
        AttributeError, TypeError: as `assign_proto`, with the layer's name.
    """
    where = f"layer '{layer.name}' ({layer.type})"
    own = _param_of(layer.type)
    for key, value in settings.items():
        place: Message = layer
        if own and key in getattr(layer, own).DESCRIPTOR.fields_by_name:
            place = getattr(layer, own)
        elif key not in layer.DESCRIPTOR.fields_by_name:
            own_fields = getattr(layer, own).DESCRIPTOR.fields_by_name if own else ()
            known = [*layer.DESCRIPTOR.fields_by_name, *own_fields]
            raise AttributeError(f"{where}: there is no setting '{key}'{did_you_mean(key, known)}")
        try:
            assign_proto(place, key, value)
        except (AttributeError, TypeError) as error:
            raise type(error)(f"{where}: {error}") from error

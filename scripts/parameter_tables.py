"""Tables of parameters for the pages of layers, from the schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from caffejax.layers import LayerType
from caffejax.schema import caffe_pb2
from caffejax.schema.fork_fields import fork_fields

# messages with tables of their own, to which others lead
SHARED = ("LayerParameter", "ParamSpec", "NetStateRule", "FillerParameter", "LossParameter", "TransformationParameter")
OF_ALL = ("transform_param", "loss_param")  # the fields of a layer that have them
_HEAD = ["| parameter | type | default |", "|---|---|---|"]
_TYPES = {1: "float", 2: "float", 3: "int", 4: "int", 5: "int", 8: "bool", 9: "string", 13: "int"}


class Tables:
    """Tables of types' parameters; a type with those of an earlier one is told to have these."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, ...], tuple[str, str]] = {}

    def of_type(self, t: LayerType, param: str, place: str) -> list[str]:
        """Write the table of a message of a type's, forks' fields left out unless followed."""
        rows = tuple(_rows(caffe_pb2.LayerParameter.DESCRIPTOR.fields_by_name[param].message_type, t))
        if not rows:
            return [f"`{param}` has no settings that count here."]
        first, there = self._first.setdefault(rows, (t.name, place))
        if first != t.name and len(rows) > 2:
            return [f"`{param}`: see [{first}]({there})."]
        return [f"`{param}`:", "", *_HEAD, *rows]

    def of_message(self, name: str) -> list[str]:
        """Write the table of a shared message."""
        return [*_HEAD, *_rows(getattr(caffe_pb2, name).DESCRIPTOR)]


def _rows(message: Any, t: LayerType | None = None, before: str = "") -> Iterator[str]:
    """Yield a row for each field; of messages within one for each of theirs, unless they are shared."""
    added = fork_fields().get(message.name, {})
    followed = t.signature.fork_settings if t is not None else ()
    for field in message.fields:
        own = message.name == "LayerParameter" and field.number >= 100 and field.name not in OF_ALL
        if own or (field.name in added and field.name not in followed):
            continue
        inner = field.message_type
        if inner is None or before or inner.name in (*SHARED, "BlobShape", "BlobProto"):
            yield f"| {before}{field.name} | {_kind(field)} | {_default(field)} |"
        else:
            yield from _rows(inner, None, f"{before}{field.name}.")


def _kind(field: Any) -> str:
    """Say the field's type in words."""
    if field.enum_type is not None:
        name = ", ".join(v.name for v in field.enum_type.values if v.number < 100)
    elif field.message_type is not None:
        message = field.message_type.name
        name = f"[{message}](layers.md#{message.lower()})" if message in SHARED else message
    else:
        name = _TYPES[field.type]
    return f"{name}, repeated" if field.is_repeated else name


def _default(field: Any) -> str:
    """Format the schema's default; nothing where there is none."""
    if not field.has_default_value:
        return ""
    if field.enum_type is not None:
        return field.enum_type.values_by_number[field.default_value].name
    value = field.default_value
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)

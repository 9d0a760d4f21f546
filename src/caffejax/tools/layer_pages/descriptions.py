"""Descriptions of layer types and their settings, for the documentation and `caffejax layers`.

The description of a setting is the comment above its field in schema/caffe.proto.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any

from ...core.layers.types import (
    TRANSFORMS,
    CallerInput,
    HostFunction,
    LayerType,
    PerLayer,
    SourceInput,
    Traced,
    Variants,
)
from ...core.schema import caffe_pb2
from ...core.schema.fork_fields import load_fork_fields

# messages that several types share; each is described once
SHARED_MESSAGES = (
    *("LayerParameter", "ParamSpec", "NetStateRule", "FillerParameter", "LossParameter", "TransformationParameter"),
    *("ResizeParameter", "NoiseParameter", "DistortionParameter", "ExpansionParameter", "EmitConstraint"),
    *("NonMaximumSuppressionParameter", "SaveOutputParameter"),
)
COMMON_PARAMS = ("transform_param", "loss_param")  # fields of LayerParameter that many types read
_UNEXPANDED_MESSAGES = (*SHARED_MESSAGES, "BlobShape", "BlobProto")
_TYPE_NAMES = {1: "float", 2: "float", 3: "int", 4: "int", 5: "int", 8: "bool", 9: "string", 13: "int"}


@dataclass(frozen=True)
class Setting:
    """The description of a field of a parameter message.

    Attributes:
        name: the name of the field, after the outer field and a dot if the message is nested.
        kind: the type of the field: int, float, bool, string, the names of an enum's values, or the name of a message.
        default: the default as text, or "" if the field has no default.
        repeated: whether the field may be set several times.
        meaning: a description in one line, or "" if the field is not described.
    """

    name: str
    kind: str
    default: str
    repeated: bool
    meaning: str


def get_docstring(t: LayerType) -> str:
    """Return the docstring of the function or class that computes layers of a type.

    For a type with variants, return the sentence that tells how they are distinguished.
    """
    match t.implementation:
        case Traced(forward=function) | HostFunction(forward=function):
            pass
        case SourceInput(open=function) | CallerInput(shapes=function) | PerLayer(make=function):
            pass
        case Variants():
            return t.implementation.selection_doc
    return inspect.getdoc(function) or ""


def list_variants(t: LayerType) -> dict[str, LayerType]:
    """Return the variants of a type, keyed by name. The dict is empty for types without variants."""
    return dict(t.implementation.types) if isinstance(t.implementation, Variants) else {}


def _has_gradient_per_layer(t: LayerType) -> bool:
    """Return whether the layers of a type define their gradients individually, as Python layers do."""
    return isinstance(t.implementation, PerLayer) and t.gradient.backward is None and t.gradient.differentiable


def format_facts(t: LayerType) -> str:
    """Return a sentence with the numbers of bottoms and tops of a type, and how its gradient is checked."""
    bottoms, tops = _format_count(t.signature.bottoms), _format_count(t.signature.tops)
    return f"Number of bottoms: {bottoms}; of tops: {tops}; gradient: {_describe_gradient(t)}."


def _format_count(n: Any) -> str:
    """Format a number of bottoms or tops, such as `2`, `1 to 3`, `1 or more` or `as bottoms`."""
    if isinstance(n, str):
        return "as bottoms"
    if isinstance(n, int):
        return str(n)
    low, high = n
    return f"{low} or more" if high is None else f"{low} to {high}"


def _describe_gradient(t: LayerType) -> str:
    if t.gradient.backward is None:
        return "its own" if _has_gradient_per_layer(t) else "none"
    if t.on_host:
        return "two ways"
    return "Caffe's rule" if t.gradient.overrides_autodiff else "three ways"


def list_restrictions(t: LayerType) -> list[str]:
    """Return sentences about the restrictions of a type, and about the JAX transformations that it does not support."""
    sentences = [t.docs.restrictions] if t.docs.restrictions else []
    if t.on_host and t.signature.tops == 0:
        return [*sentences, "It runs on the host, and is left out of code that JAX traces."]
    if _has_gradient_per_layer(t):
        sentences.append(
            "A class with pycaffe's methods is a callback in code that JAX traces; it has no forward mode, no second "
            "derivatives and no export."
        )
    return [*sentences, *(f"Cannot {TRANSFORMS[transform]}: {reason}." for transform, reason in t.unsupported.items())]


def list_param_fields(t: LayerType) -> list[str]:
    """Return the names of the fields of LayerParameter that hold the settings of a type, except `COMMON_PARAMS`.

    The name is "param_str" for a type whose settings are a dataclass, which layers set in python_param.param_str.
    """
    if isinstance(t.settings, type):
        return ["param_str", *t.signature.further_params]
    return [param for param in (t.signature.param, *t.signature.further_params) if param]


def list_settings(t: LayerType, param: str) -> list[Setting]:
    """Return the settings of a layer type that belong to a field of `list_param_fields`.

    Settings that only forks of Caffe define are omitted if the type does not support them.
    """
    if param == "param_str" and isinstance(t.settings, type):
        defaults = vars(t.settings())
        kinds = {
            f.name: f.type if isinstance(f.type, str) else inspect.formatannotation(f.type) for f in fields(t.settings)
        }
        return [Setting(name, kind, repr(defaults[name]), False, "") for name, kind in kinds.items()]
    message = caffe_pb2.LayerParameter.DESCRIPTOR.fields_by_name[param].message_type
    return list(_iterate_settings(message, "", t.signature.fork_settings))


def list_message_settings(name: str) -> list[Setting]:
    """Return the settings in one of `SHARED_MESSAGES`.

    Settings that only forks of Caffe define are omitted if caffe.proto has no comment on them.
    """
    return list(_iterate_settings(getattr(caffe_pb2, name).DESCRIPTOR))


def _iterate_settings(message: Any, prefix: str = "", supported: tuple[str, ...] | None = None) -> Iterator[Setting]:
    """Yield a setting for each field, and for the fields of nested messages that are not described elsewhere.

    Args:
        message: the descriptor of the message.
        prefix: the text before the names of fields, such as "weight_filler.".
        supported: the fields of forks to include. Default: all that have a comment in caffe.proto.
    """
    fork_names, meanings = load_fork_fields().get(message.name, {}), read_field_comments().get(message.full_name, {})
    for field in message.fields:
        is_param = message.name == "LayerParameter" and field.number >= 100 and field.name not in COMMON_PARAMS
        if is_param or (field.name in fork_names and field.name not in (meanings if supported is None else supported)):
            continue
        name, nested = prefix + field.name, field.message_type
        yield Setting(
            name, _format_type(field), _format_default(field), field.is_repeated, meanings.get(field.name, "")
        )
        if nested is not None and nested.name not in _UNEXPANDED_MESSAGES:
            yield from _iterate_settings(nested, f"{name}.")


def _format_type(field: Any) -> str:
    if field.enum_type is not None:
        return ", ".join(v.name for v in field.enum_type.values if v.number < 100)
    return field.message_type.name if field.message_type is not None else _TYPE_NAMES[field.type]


def _format_default(field: Any) -> str:
    if not field.has_default_value:
        return ""
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[field.default_value].name)
    value = field.default_value
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


@functools.cache
def read_field_comments() -> Mapping[str, Mapping[str, str]]:
    """Return `{full name of a message: {field: meaning}}`. A meaning is the comment above a field in caffe.proto."""
    meanings: dict[str, dict[str, str]] = {}
    outer, comment = ["caffe"], ""
    for line in files(caffe_pb2.__package__).joinpath("caffe.proto").read_text().splitlines():
        text = line.strip()
        if field := re.match(r"(?:optional|repeated|required) \S+ (\w+) = ", text):
            if comment:
                meanings.setdefault(".".join(outer), {})[field[1]] = comment
        elif block := re.match(r"\w+ (\w+) \{", text):
            outer.append(block[1])
        elif text == "}":
            outer.pop()
        comment = text.removeprefix("// ") if text.startswith("// ") else ""
    return meanings

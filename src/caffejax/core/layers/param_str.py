"""Parser of the `param_str` of built-in Python layers: pairs of names and plain values."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]

from ...base.errors import LayerError, did_you_mean, require

_UNQUOTED_NAME = re.compile(r"(^|[{,\n])(\s*)([A-Za-z_]\w*)(\s*):")  # a name without quotes, as in YAML
_LITERALS = {"true": "True", "false": "False", "null": "None"}


def parse_param_str(text: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Read a param_str such as `'feat_stride': 16` or `{'feat_stride': 16, 'scales': [8, 16]}`. No code is run.

    Args:
        text: the param_str: a Python dict, with or without braces and quotes, or YAML with `!!python/tuple`.
        defaults: all supported names with their default values; a default of None accepts values of any type.

    Returns:
        The values by name. Names that the text does not set have their defaults.

    Raises:
        LayerError: if the text has a different format, a name is unknown, or the type of a value differs from the
            default's.
    """
    values = next((v for v in map(_try_read, (_read_python, _read_yaml), (text, text)) if v is not None), None)
    if values is None:
        example = "{'feat_stride': 16}"
        raise LayerError(f"cannot read param_str {text!r}: it must be a dict of names and values, such as {example}")
    for key, value in values.items():
        require(key in defaults, f"param_str has no setting '{key}'{did_you_mean(key, defaults)}")
        require(
            _has_type_of(value, defaults[key]),
            f"{key} in param_str must have the type of its default {defaults[key]!r}, but is {value!r}",
        )
    return {**defaults, **values}


def _try_read(read: Callable[[str], Any], text: str) -> dict[str, Any] | None:
    try:
        values = read(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, yaml.YAMLError):
        return None
    return values if isinstance(values, dict) and all(isinstance(key, str) for key in values) else None


def _read_python(text: str) -> Any:
    """Evaluate a Python literal, a dict that may lack its braces and the quotes of its keys."""
    body = text.strip()
    body = body if body.startswith("{") else "{" + body.replace("\n", ",\n") + "}"
    return ast.literal_eval(
        re.sub(r"\b(true|false|null)\b", lambda m: _LITERALS[m[1]], _UNQUOTED_NAME.sub(r"\1\2'\3'\4:", body))
    )


class _PlainYamlLoader(yaml.SafeLoader):  # type: ignore[misc]
    """A loader of plain YAML values and of `!!python/tuple`. It rejects aliases, which can make short texts huge."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("YAML aliases are not supported in param_str")
        return super().compose_node(parent, index)


_PlainYamlLoader.add_constructor(
    "tag:yaml.org,2002:python/tuple", lambda loader, node: tuple(loader.construct_sequence(node))
)


def _read_yaml(text: str) -> Any:
    return yaml.load(text, _PlainYamlLoader)


def _has_type_of(value: Any, default: Any) -> bool:
    if default is None:
        return True
    if isinstance(default, tuple):
        return isinstance(value, list | tuple) and all(_has_type_of(v, 0.5) for v in value)
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, type(default))

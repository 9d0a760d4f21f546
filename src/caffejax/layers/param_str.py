"""Parser of the `param_str` of built-in Python layers: pairs of names and plain values."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from ..errors import LayerError, did_you_mean, require

_BARE = re.compile(r"(^|[{,\n])(\s*)([A-Za-z_]\w*)(\s*):")  # a name without quotes, as in YAML
_WORDS = {"true": "True", "false": "False", "null": "None"}


def settings(text: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Read a param_str such as `'feat_stride': 16` or `{'feat_stride': 16, 'scales': [8, 16]}`; no code is run.

    Args:
        text: the param_str: a Python dict, with or without braces and quotes, or a line for each pair.
        defaults: all supported names with their default values; a default of None accepts values of any type.

    Raises:
        LayerError: for a text in another format, an unknown name, or a value of another type than the default.
    """
    body = text.strip()
    body = body if body.startswith("{") else "{" + body.replace("\n", ",\n") + "}"
    body = re.sub(r"\b(true|false|null)\b", lambda m: _WORDS[m[1]], _BARE.sub(r"\1\2'\3'\4:", body))
    try:
        values = ast.literal_eval(body)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise LayerError(f"cannot read param_str {text!r}: write it like \"{{'feat_stride': 16}}\"")
    for key, value in values.items():
        require(key in defaults, f"param_str has no setting '{key}'{did_you_mean(key, defaults)}")
        require(_alike(value, defaults[key]), f"param_str's {key} must be like {defaults[key]!r}, not {value!r}")
    return {**defaults, **values}


def _alike(value: Any, default: Any) -> bool:
    if default is None:
        return True
    if isinstance(default, tuple):
        return isinstance(value, list | tuple) and all(_alike(v, 0.5) for v in value)
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, type(default))

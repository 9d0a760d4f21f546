"""The `param_str` of Python layers that are built in: pairs of names and plain values."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from ..errors import LayerError, did_you_mean, require

_BARE = re.compile(r"(^|[{,\n])(\s*)([A-Za-z_]\w*)(\s*):")  # a name without quotes, as YAML has it
_WORDS = {"true": "True", "false": "False", "null": "None"}


def settings(text: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Read a param_str such as `'feat_stride': 16` or `{'feat_stride': 16, 'scales': [8, 16]}`; nothing is run.

    Args:
        text: the param_str: a Python dict, with or without braces and quotes, or a line for each pair.
        defaults: all names that there are, with the values of those not given; where that is None, any will do.

    Raises:
        LayerError: for a text of another form, for names that there are not, and for values of another kind.
    """
    body = text.strip()
    body = body if body.startswith("{") else "{" + body.replace("\n", ",\n") + "}"
    body = re.sub(r"\b(true|false|null)\b", lambda m: _WORDS[m[1]], _BARE.sub(r"\1\2'\3'\4:", body))
    try:
        found = ast.literal_eval(body)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise LayerError(f"cannot read param_str {text!r}: write it like \"{{'feat_stride': 16}}\"")
    for key, value in found.items():
        require(key in defaults, f"param_str has no setting '{key}'{did_you_mean(key, defaults)}")
        require(_alike(value, defaults[key]), f"param_str's {key} must be like {defaults[key]!r}, not {value!r}")
    return {**defaults, **found}


def _alike(value: Any, default: Any) -> bool:
    if default is None:
        return True
    if isinstance(default, tuple):
        return isinstance(value, list | tuple) and all(_alike(v, 0.5) for v in value)
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, type(default))

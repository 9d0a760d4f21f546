"""Record of a snapshot: the part of the training state that Caffe does not store, as JSON.

It contains the name of the update rule, the positions in the data, the seed, the random key, the scores of the last
test, the number of examples in each iteration, the state of the learning-rate policy `plateau` or `stepearly`, and in a
.solverstate what layers carry from pass to pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

from ...base.errors import WeightsError, is_integer, raise_if_any
from ...base.human_readable import format_bytes

_MAX_INTEGER = 2**63 - 1
_MAX_TEXT = 16 << 20  # bytes; a position takes a few dozen bytes for each data layer
_SIZE_LIMIT = f"but at most {format_bytes(_MAX_TEXT)} are allowed"
_POLICY_STATES = (("step", "minimum", "last_event"), ("step", "maximum", "tests"))  # of `plateau` and `stepearly`
_KEY_LENGTHS = (2, 4)  # the possible numbers of 32-bit integers in a JAX key


def format_record(record: Mapping[str, Any]) -> str:
    """Return a record as JSON text; see `validate_record`.

    Raises:
        WeightsError: if the record is larger than `parse_record` accepts.
    """
    text = json.dumps(record)
    if len(text) > _MAX_TEXT:
        message = f"its record would be {format_bytes(len(text))} long, {_SIZE_LIMIT}"
        raise WeightsError(f"{message}; let `get_state` of Python layers return less")
    return text


def parse_record(text: str) -> dict[str, Any]:
    """Parse a record from JSON, and return it after validation. An empty text is an empty record.

    Raises:
        WeightsError: if the text is too long, is not JSON, or is not a record.
    """
    if len(text) > _MAX_TEXT:
        raise WeightsError(f"the snapshot is damaged: its record is {format_bytes(len(text))} long, {_SIZE_LIMIT}")
    try:
        record = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"the snapshot is damaged: its record is not JSON ({error})") from error
    return validate_record(record)


def validate_record(record: Any) -> dict[str, Any]:
    """Validate the types of a record's fields, and return the record. Any field may be missing.

    A record is `{"type": rule, "data": {"train": positions, "test": [positions, ...]}, "seed": int, "key": [int, ...],
    "scores": {name: number}, "plateau": schedule, "examples": int, "carried": state}`. Positions, and the recurrent
    state of the train net, are dicts keyed by layer name; who reads them validates their values. The schedule is the
    state of an `AdaptiveSchedule`: `{"step": int, "minimum": number, "last_event": int}` of the policy `plateau`, or
    `{"step": int, "maximum": number, "tests": int}` of `stepearly`.

    Raises:
        WeightsError: if a field is invalid. The message names each such field.
    """
    damage = "the snapshot is damaged:"
    if not isinstance(record, dict):
        raise WeightsError(f"{damage} its record is {_abbreviate(record)}, not an object with named fields")
    invalid_fields = _invalid_fields(record)
    raise_if_any(
        WeightsError, (f"{damage} the field {field} of its record is {text}" for field, text in invalid_fields)
    )
    return record


def _invalid_fields(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield `(field, description)` for each invalid field. The description says what the value is and should be."""
    data = record.get("data", {"train": {}, "test": []})
    if not isinstance(data, dict) or not {"train", "test"} <= data.keys():
        yield "'data'", f"{_abbreviate(data)}, not an object with the fields 'train' and 'test'"
    else:
        if not isinstance(data["train"], dict):
            yield "'data.train'", f"{_abbreviate(data['train'])}, not an object with a position for each layer"
        if not isinstance(data["test"], list) or not all(isinstance(net, dict) for net in data["test"]):
            yield "'data.test'", f"{_abbreviate(data['test'])}, not a list of objects with a position for each layer"
    seed = record.get("seed", 0)
    if not is_integer(seed) or not -_MAX_INTEGER < seed < _MAX_INTEGER:
        yield "'seed'", f"{_abbreviate(seed)}, not a 64-bit integer"
    key = record.get("key", [0, 0])
    if not isinstance(key, list) or len(key) not in _KEY_LENGTHS or not all(_is_nonnegative_int(n, 2**32) for n in key):
        yield "'key'", f"{_abbreviate(key)}, not a list of two or four 32-bit integers"
    if not _is_nonnegative_int(examples := record.get("examples", 0), _MAX_INTEGER):
        yield "'examples'", f"{_abbreviate(examples)}, not a number of examples"
    if not isinstance(type_ := record.get("type", ""), str):
        yield "'type'", f"{_abbreviate(type_)}, not the name of an update rule"
    scores = record.get("scores") or {}
    if not isinstance(scores, dict) or not all(_is_number(score) for score in scores.values()):
        yield "'scores'", f"{_abbreviate(scores)}, not an object with a number for each output"
    carried = record.get("carried", {})
    if not isinstance(carried, dict):
        yield "'carried'", f"{_abbreviate(carried)}, not an object with the recurrent state of each layer"
    policy_state = record.get("plateau", dict.fromkeys(_POLICY_STATES[0], 0))
    if not isinstance(policy_state, dict) or not any(_is_policy_state(policy_state, names) for names in _POLICY_STATES):
        alternatives = " or ".join(", ".join(map(repr, names)) for names in _POLICY_STATES)
        yield "'plateau'", f"{_abbreviate(policy_state)}, not an object with the numbers {alternatives}"


def _is_policy_state(state: Mapping[str, Any], names: Iterable[str]) -> bool:
    return state.keys() == set(names) and all(
        _is_number(value) and isfinite(value) if name in ("minimum", "maximum") else _is_nonnegative_int(value, 2**31)
        for name, value in state.items()
    )


def _is_nonnegative_int(value: Any, bound: int) -> bool:
    return is_integer(value) and bool(0 <= value < bound)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _abbreviate(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

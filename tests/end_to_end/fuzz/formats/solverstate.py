"""Training states in .solverstate files, with the record of state that Caffe does not store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from caffejax.core.schema import wire

from ..harness import Files, Harness
from ..mutators.byte_mutations import damage
from ..mutators.json_trees import change_json
from ..mutators.wire import Field, change_fields, encode_fields
from ._solvers import restore, write_snapshot

_RECORD = 20000


def _make_intact_sets() -> list[Files]:
    return [write_snapshot(".solverstate", ".caffemodel")]


def _mutate(rng: Random, files: Files) -> Files:
    """Change the record's JSON, the state's fields, or any bytes."""
    name = next(name for name in files if name.endswith(".solverstate"))
    content, choice = files[name], rng.random()
    if choice < 0.5:
        return {**files, name: _change_record(rng, content)}
    return {**files, name: change_fields(rng, content) if choice < 0.8 else damage(rng, content)}


def _change_record(rng: Random, content: bytes) -> bytes:
    fields = [
        Field(number, wire_type, value if isinstance(value, int) else bytes(value))
        for number, wire_type, value in wire.read_fields(memoryview(content))
    ]
    changed_fields = (replace(f, value=change_json(rng, f.value)) if f.number == _RECORD else f for f in fields)  # type: ignore[arg-type]
    return encode_fields(tuple(changed_fields))


def _read(folder: Path) -> Any:
    return restore(next(folder.glob("*.solverstate")))


HARNESS = Harness(_make_intact_sets, _mutate, _read)

"""Checkpoint folders: files damaged, missing, renamed. They have checksums: the restored state is the saved one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from ..harness import Files, Harness
from ..mutators.byte_mutations import damage
from ..mutators.json_trees import change_json
from ._solvers import describe_state_difference, restore, write_snapshot


def _make_intact_sets() -> list[Files]:
    return [write_snapshot(".orbax/")]


def _mutate(rng: Random, files: Files) -> Files:
    name, result = rng.choice(sorted(files)), dict(files)
    choice = rng.random()
    if choice < 0.1:
        del result[name]
    elif choice < 0.15:
        result[f"{name}{rng.choice(['x', '2'])}"] = result.pop(name)
    elif choice < 0.2:
        result = {
            n.replace("/2/", rng.choice(["/3/", "/x/", "/2.tmp/", "/-1/"])): content for n, content in result.items()
        }
    elif choice < 0.6 and result[name][:1] in (b"{", b"["):
        result[name] = change_json(rng, result[name])
    else:
        result[name] = damage(rng, result[name])
    return result


def _read(folder: Path) -> Any:
    return restore(next(folder.glob("*.orbax")))


def _describe_difference(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    return describe_state_difference(expected, actual)


HARNESS = Harness(_make_intact_sets, _mutate, _read, _describe_difference)

"""LevelDB folders under a Data layer, and their records as such."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from caffejax.base.databases import LevelDb

from ..harness import Files, Harness, read_files
from ..mutators.byte_mutations import damage
from ..mutators.leveldb_files import change_log, change_table
from ._sources import GOLDEN, read_net_batches

_NET = """layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "db" batch_size: 10 } }"""


def _make_intact_sets() -> list[Files]:
    names = ("leveldb_raw", "leveldb_compacted", "leveldb_snappy")
    return [{f"db/{name}": content for name, content in read_files(GOLDEN / folder).items()} for folder in names]


def _mutate(rng: Random, files: Files) -> Files:
    name, result = rng.choice(sorted(files)), dict(files)
    if rng.random() < 0.05:
        del result[name]
    elif "CURRENT" in name:
        result[name] = rng.choice(
            [damage(rng, result[name]), b"MANIFEST-%06d\n" % rng.randrange(9), b"../db/MANIFEST\n"]
        )
    elif name.endswith(".ldb"):
        result[name] = change_table(rng, result[name])
    else:
        result[name] = change_log(rng, result[name]) if result[name] else rng.randbytes(50)
    return result


def _read(folder: Path) -> Any:
    records = list(LevelDb(folder / "db"))
    read_net_batches(_NET, folder, 2)
    return records


def _describe_difference(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    """Return a message if there are records other than the written ones, or the first of them if a log is cut off.

    Checksums detect changes, unless they were computed again, which takes more bytes than a few.
    """
    if actual == expected or not all(
        _has_few_changes(damaged.get(name, b""), original) for name, original in intact.items()
    ):
        return None
    has_changed_log = any(name.endswith(".log") and damaged.get(name) != original for name, original in intact.items())
    return (
        None
        if has_changed_log and actual == expected[: len(actual)]
        else f"other records: {len(actual)} of {len(expected)}"
    )


def _has_few_changes(content: bytes, original: bytes) -> bool:
    """Return whether a file has changed in too few bytes for another valid checksum."""
    if len(content) != len(original):
        return original.startswith(content)
    return sum(changed_byte != original_byte for changed_byte, original_byte in zip(content, original, strict=True)) < 4


HARNESS = Harness(_make_intact_sets, _mutate, _read, _describe_difference)

"""LMDB folders under a Data layer, and their records as such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from caffejax.base.databases import Lmdb

from ..harness import Files, Harness, mutate_one_file, read_files
from ..mutators.lmdb_pages import PAGE_SIZE, change_pages
from ._sources import GOLDEN, read_net_batches

_NET = """layer { name: "d" type: "Data" top: "data" top: "label"
  data_param { source: "db" batch_size: 10 backend: LMDB } %s }"""
_MAX_RECORDS = 40  # records on a page
_TRANSFORM = "transform_param { crop_size: 3 mirror: true }"


def _make_intact_sets() -> list[Files]:
    names = ("lmdb_raw", "lmdb_encoded", "lmdb_float", "lmdb_var_encoded")
    return [{f"db/{name}": content for name, content in read_files(GOLDEN / folder).items()} for folder in names]


def _read(folder: Path) -> Any:
    records = list(Lmdb(folder / "db"))
    read_net_batches(_NET % _TRANSFORM, folder, 2, "TRAIN")
    return records


def _describe_difference(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    """A wrong byte within a key or value cannot be told, an LMDB has no checksums; but it spoils no other page's."""
    content, original = damaged["db/data.mdb"], intact["db/data.mdb"]
    is_damaged = [
        content[offset : offset + PAGE_SIZE] != original[offset : offset + PAGE_SIZE]
        for offset in range(0, len(original), PAGE_SIZE)
    ]
    records = dict(expected)
    num_wrong = sum(records.get(key) != value for key, value in actual)
    return (
        f"more records than are on damaged pages: {num_wrong}" if num_wrong > _MAX_RECORDS * sum(is_damaged) else None
    )


HARNESS = Harness(_make_intact_sets, mutate_one_file(change_pages), _read, _describe_difference)

"""Fixtures of databases."""

from pathlib import Path

import pytest
from leveldb_records import RECORDS

from caffejax.base.databases import write_leveldb


@pytest.fixture(scope="module")
def leveldb_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`RECORDS` as a LevelDB."""
    path = tmp_path_factory.mktemp("leveldb") / "db"
    write_leveldb(path, RECORDS)
    return path

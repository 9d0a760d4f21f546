"""Fixtures of data layers."""

from pathlib import Path

import pytest
from leveldb_records import RECORDS

from caffejax.core.data import write_leveldb
from data_fixtures import (  # noqa: F401
    data_layer_text,
    golden,
    hdf5_layer_text,
    make_raw_datum,
    open_source,
    raw_db,
)


@pytest.fixture(scope="module")
def leveldb_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`RECORDS` as a LevelDB."""
    path = tmp_path_factory.mktemp("leveldb") / "db"
    write_leveldb(path, RECORDS)
    return path

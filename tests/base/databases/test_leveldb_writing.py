"""A LevelDB is written completely or not at all."""

import pytest
from leveldb_records import RECORDS

from caffejax.base.databases import LevelDb, write_leveldb
from caffejax.base.errors import DataError


def test_writing_never_overwrites(leveldb_folder):
    with pytest.raises(DataError, match="already exists"):
        write_leveldb(leveldb_folder, [(b"a", b"b")])
    assert list(LevelDb(leveldb_folder)) == RECORDS


def failing_records():
    yield b"a", b"1"
    raise RuntimeError("no more")


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([(b"a", b"1"), (b"b", b"1"), (b"b", b"2")], "db: key b'b' occurs twice"),
        ([(b"a", b"1"), (b"c", b"1"), (b"b", b"2")], "db: key b'b' comes after b'c'; keys must ascend"),
        (failing_records(), "no more"),
    ],
)
def test_failed_writing_leaves_nothing(tmp_path, records, message):
    with pytest.raises((DataError, RuntimeError), match=message):
        write_leveldb(tmp_path / "db", records)
    assert list(tmp_path.iterdir()) == []


def test_writing_into_a_missing_parent_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be written"):
        write_leveldb(tmp_path / "no" / "db", [(b"a", b"1")])

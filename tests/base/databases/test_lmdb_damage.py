"""Damaged LMDB files: never a crash, and records that can be read equal the records that were written."""

import os
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.base.databases import Lmdb, write_lmdb
from caffejax.base.errors import DataError

PAGE_SIZE = 4096
RECORDS = [(b"%05d" % i, os.urandom(1) * (7 * i % 6000)) for i in range(400)]  # some have pages of their own

KEYS = st.binary(min_size=1, max_size=511)
VALUES = st.binary(max_size=40) | st.integers(0, 20_000).map(lambda n: b"x" * n)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("lmdb") / "db"
    write_lmdb(path, RECORDS)
    return (path / "data.mdb").read_bytes()


@settings(max_examples=40)
@given(records=st.dictionaries(KEYS, VALUES, min_size=1, max_size=300), num_removed=st.integers(0, 100))
def test_records_that_the_binding_wrote_are_read(tmp_path_factory, records, num_removed) -> None:
    """In any order, over several transactions, some records removed again."""
    path = str(tmp_path_factory.mktemp("lmdb"))
    with lmdb.open(path, map_size=1 << 28, lock=False) as environment:
        for chunk in (list(records)[::2], list(records)[1::2]):
            with environment.begin(write=True) as txn:
                for key in chunk:
                    txn.put(key, records[key])
        with environment.begin(write=True) as txn:
            for key in list(records)[1 : num_removed + 1]:
                txn.delete(key)
        with environment.begin() as txn:
            expected = list(txn.cursor())
    database = Lmdb(path)
    assert list(database) == expected
    assert [database[i] for i in reversed(range(len(database)))] == expected[::-1]


def test_a_file_truncated_while_it_is_read_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "data.mdb"
    file.write_bytes(content)
    records = Lmdb(tmp_path)
    assert records[0] == RECORDS[0]
    os.truncate(file, 3 * PAGE_SIZE)
    with pytest.raises(DataError, match=r"it was truncated: page \d+ is missing"):
        list(records)


def test_a_file_removed_while_it_is_read_stays_readable(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    records = Lmdb(tmp_path)
    assert records[0] == RECORDS[0]
    (tmp_path / "data.mdb").unlink()
    assert list(records) == RECORDS


@pytest.mark.parametrize("structure", ["databases within", "several values"])
def test_named_databases_are_refused(tmp_path: Path, structure: str) -> None:
    with lmdb.open(str(tmp_path), max_dbs=1, lock=False) as environment:
        named_database = environment.open_db(b"inner", dupsort=structure == "several values")
        with environment.begin(write=True) as txn:
            txn.put(b"a", b"1", db=named_database)
    with pytest.raises(DataError, match="contains named databases"):
        list(Lmdb(tmp_path))


def test_closed_files_are_released(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    num_open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        records = Lmdb(tmp_path)
        assert len(records) == len(RECORDS)
        records.close()
    assert len(os.listdir("/proc/self/fd")) <= num_open_files  # files of earlier tests may be closed meanwhile

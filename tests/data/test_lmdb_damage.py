"""Damaged LMDB files: never a crash, and records that can be read equal the records that were written."""

import os
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.data import Lmdb, write_lmdb
from caffejax.errors import DataError

PAGE = 4096
RECORDS = [(b"%05d" % i, os.urandom(1) * (7 * i % 6000)) for i in range(400)]  # some have pages of their own

keys = st.binary(min_size=1, max_size=511)
values = st.binary(max_size=40) | st.integers(0, 20_000).map(lambda n: b"x" * n)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("lmdb") / "db"
    write_lmdb(path, RECORDS)
    return (path / "data.mdb").read_bytes()


@settings(max_examples=40)
@given(records=st.dictionaries(keys, values, min_size=1, max_size=300), removed=st.integers(0, 100))
def test_it_reads_what_the_binding_writes(tmp_path_factory, records, removed) -> None:
    """In any order, over several transactions, some records removed again."""
    path = str(tmp_path_factory.mktemp("lmdb"))
    with lmdb.open(path, map_size=1 << 28, lock=False) as environment:
        for part in (list(records)[::2], list(records)[1::2]):
            with environment.begin(write=True) as txn:
                for key in part:
                    txn.put(key, records[key])
        with environment.begin(write=True) as txn:
            for key in list(records)[1 : removed + 1]:
                txn.delete(key)
        with environment.begin() as txn:
            expected = list(txn.cursor())
    result = Lmdb(path)
    assert list(result) == expected
    assert [result[i] for i in reversed(range(len(result)))] == expected[::-1]


def test_a_file_that_is_cut_while_it_is_read_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "data.mdb"
    file.write_bytes(content)
    records = Lmdb(tmp_path)
    assert records[0] == RECORDS[0]
    os.truncate(file, 3 * PAGE)
    with pytest.raises(DataError, match=r"it was truncated: page \d+ is missing"):
        list(records)


def test_a_file_that_is_removed_while_it_is_read_is_read_on(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    records = Lmdb(tmp_path)
    assert records[0] == RECORDS[0]
    (tmp_path / "data.mdb").unlink()
    assert list(records) == RECORDS


@pytest.mark.parametrize("kind", ["databases within", "several values"])
def test_keys_that_caffe_never_writes_are_refused(tmp_path: Path, kind: str) -> None:
    with lmdb.open(str(tmp_path), max_dbs=1, lock=False) as environment:
        inner = environment.open_db(b"inner", dupsort=kind == "several values")
        with environment.begin(write=True) as txn:
            txn.put(b"a", b"1", db=inner)
    with pytest.raises(DataError, match="contains named databases"):
        list(Lmdb(tmp_path))


def test_closed_files_are_released(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    open_files_before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        records = Lmdb(tmp_path)
        assert len(records) == len(RECORDS)
        records.close()
    assert len(os.listdir("/proc/self/fd")) == open_files_before

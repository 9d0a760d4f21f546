"""LMDB folders: reading by position, bad folders, writing."""

import multiprocessing
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffejax.base.databases import Lmdb, write_lmdb
from caffejax.base.errors import DataError

RECORDS = [(b"%05d" % i, b"value %d" % i) for i in range(1000)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lmdb") / "db"
    write_lmdb(path, RECORDS)
    return path


@given(indices=st.lists(st.integers(0, len(RECORDS) - 1)))
def test_any_order_of_reading_gives_the_record_at_the_position(folder, indices):
    records = Lmdb(folder)
    assert [records[i] for i in indices] == [RECORDS[i] for i in indices]
    records.close()


def test_records_are_in_the_order_of_their_keys(tmp_path):
    write_lmdb(tmp_path / "db", reversed(RECORDS))
    records = Lmdb(tmp_path / "db")
    assert len(records) == 1000
    assert list(records) == RECORDS
    with pytest.raises(IndexError):
        records[-1]


def test_two_readers_of_one_folder_do_not_disturb_each_other(folder):
    first, second = Lmdb(folder), Lmdb(folder)
    assert first[3] == RECORDS[3]
    assert second[500] == RECORDS[500]
    first.close()
    assert second[501] == RECORDS[501]
    assert first[4] == RECORDS[4], "a closed reader opens the folder again"


def test_another_process_reads_a_copy(folder):
    records = Lmdb(folder)
    assert records[0] == RECORDS[0]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(records.__getitem__, (700,)) == RECORDS[700]


def test_reading_leaves_no_lock_file(folder):
    assert len(Lmdb(folder)) == 1000
    assert [file.name for file in folder.iterdir()] == ["data.mdb"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: no such folder"):
        len(Lmdb(tmp_path / "nowhere"))


def test_a_folder_without_a_database_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"is not an LMDB: it has no data.mdb; .*convert_imageset"):
        len(Lmdb(tmp_path))


def test_an_empty_database_is_refused(tmp_path):
    write_lmdb(tmp_path / "db", [])
    with pytest.raises(DataError, match=r"db: the LMDB has no records"):
        len(Lmdb(tmp_path / "db"))


@pytest.mark.parametrize("content", [b"", b"no database" * 1000, bytes(100_000)])
def test_a_file_that_is_not_an_lmdb_is_refused(tmp_path, content):
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(DataError, match=str(tmp_path)):
        len(Lmdb(tmp_path))


@pytest.mark.parametrize("size", [0, 100, 4096, 8192, 20_000, 0.5, -1])
def test_a_truncated_file_is_refused(folder, tmp_path, size):
    shutil.copy(folder / "data.mdb", tmp_path)
    content = (tmp_path / "data.mdb").read_bytes()
    (tmp_path / "data.mdb").write_bytes(content[: int(size * len(content)) if size == 0.5 else size])
    with pytest.raises(DataError, match=r"truncated|is damaged|data.mdb is empty"):
        len(Lmdb(tmp_path))


def test_overwritten_pages_are_named(folder, tmp_path):
    content = (folder / "data.mdb").read_bytes()
    half = len(content) // 2
    (tmp_path / "data.mdb").write_bytes(content[:half] + bytes(len(content) - half))
    with pytest.raises(DataError, match=r"record 0 or a later one cannot be read: .*page \d+.* is damaged"):
        list(Lmdb(tmp_path))


def test_writing_grows_the_map(tmp_path):
    records = [(b"%02d" % i, bytes([i]) * (1 << 20)) for i in range(70)]  # the map starts with 64 MiB
    write_lmdb(tmp_path / "db", records)
    assert list(Lmdb(tmp_path / "db")) == records


def test_writing_never_overwrites(folder):
    content_before = (folder / "data.mdb").read_bytes()
    with pytest.raises(DataError, match="already exists"):
        write_lmdb(folder, [(b"a", b"b")])
    assert (folder / "data.mdb").read_bytes() == content_before


def failing_records():
    yield b"a", b"1"
    raise RuntimeError("no more")


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], "db: key b'a' occurs twice"),
        ([(b"a" * 512, b"1")], r"db: key b'a{40}' has 512 bytes, but keys in LMDB have 1 to 511; shorten the names"),
        ([(b"", b"1")], "db: key b'' has 0 bytes, but keys in LMDB have 1 to 511"),
        (failing_records(), "no more"),
    ],
)
def test_failed_writing_leaves_nothing(tmp_path, records, message):
    with pytest.raises((DataError, RuntimeError), match=message):
        write_lmdb(tmp_path / "db", records)
    assert list(tmp_path.iterdir()) == []


def test_writing_into_a_missing_parent_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be written"):
        write_lmdb(tmp_path / "no" / "db", [(b"a", b"1")])


WRITER_PROGRAM = """
import sys, lmdb
with lmdb.open(sys.argv[1], map_size=1 << 26) as environment:
    for n in range(int(sys.argv[2]), 100):
        with environment.begin(write=True) as txn:
            for i in range(200):
                txn.put(b"%05d" % i, bytes([n]) * 3000)
"""


def test_records_are_read_while_another_process_writes(tmp_path):
    path = tmp_path / "db"

    def write(start):
        subprocess.run([sys.executable, "-c", WRITER_PROGRAM, str(path), str(start)], check=True)

    write(99)
    records = Lmdb(path)
    expected = [(b"%05d" % i, bytes([99]) * 3000) for i in range(200)]
    assert records.read_range(0, 50) == expected[:50]
    write(80)
    assert records.read_range(50, 150) == expected[50:]
    assert records.read_range(0, 200) == expected
    records.close()
    write(98)
    assert records[0] == expected[0]


def test_no_lock_file_is_made(folder):
    files_before = sorted(p.name for p in folder.iterdir())
    records = Lmdb(folder)
    assert len(records)
    assert sorted(p.name for p in folder.iterdir()) == files_before
    records.close()

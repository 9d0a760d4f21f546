"""LevelDB folders written by Caffe and by caffejax: records at any position, each read once."""

import cv2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leveldb_records import GOLDEN, RECORDS, make_value

from caffejax.base.databases import LevelDb, Lmdb, write_leveldb
from caffejax.base.databases.leveldb import leveldb_reader
from caffejax.base.databases.leveldb.leveldb_format import Files
from caffejax.core.schema import caffe_pb2


@pytest.mark.parametrize("name", ["leveldb_raw", "leveldb_compacted"])
def test_records_that_caffe_wrote_are_read(name):
    assert list(LevelDb(GOLDEN / name)) == list(Lmdb(GOLDEN / "lmdb_raw"))


def test_compressed_records_that_caffe_wrote_are_read():
    records = list(LevelDb(GOLDEN / "leveldb_snappy"))
    assert [key for key, _ in records] == [b"%08d_images/grey/g%d.png" % (i, i) for i in range(8)]
    for i, (_, value) in enumerate(records):
        image = cv2.imread(str(GOLDEN / f"images/grey/g{i}.png"), cv2.IMREAD_COLOR).transpose(2, 0, 1)
        assert caffe_pb2.Datum.FromString(value).data == image.tobytes()


@given(start=st.integers(0, len(RECORDS)), count=st.integers(0, len(RECORDS)))
def test_ranges_of_records_are_read(leveldb_folder, start, count):
    records = LevelDb(leveldb_folder)
    if start + count > len(RECORDS):
        with pytest.raises(IndexError):
            records.read_range(start, count)
    else:
        assert records.read_range(start, count) == RECORDS[start : start + count]


@given(indices=st.lists(st.integers(0, len(RECORDS) - 1)))
def test_any_order_of_reading_gives_the_record_at_the_position(leveldb_folder, indices):
    records = LevelDb(leveldb_folder)
    assert [records[i] for i in indices] == [RECORDS[i] for i in indices]


def test_positions_outside_the_database_raise(leveldb_folder):
    records = LevelDb(leveldb_folder)
    assert len(records) == 500
    for index in (-1, 500):
        with pytest.raises(IndexError):
            records[index]


def test_tables_of_several_files_are_read_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("caffejax.base.databases.leveldb.table_writer._MAX_TABLE_SIZE", 1 << 17)
    write_leveldb(tmp_path / "db", RECORDS, compress=False)
    assert len(list((tmp_path / "db").glob("*.ldb"))) == 4
    assert list(LevelDb(tmp_path / "db")) == RECORDS


def test_each_block_is_decoded_once(leveldb_folder, monkeypatch):
    block_reads = []
    monkeypatch.setattr(
        leveldb_reader,
        "read_block",
        lambda *arguments, original=leveldb_reader.read_block: block_reads.append(arguments) or original(*arguments),
    )
    records = LevelDb(leveldb_folder)
    assert list(records) == RECORDS
    assert len(block_reads) == len(set(block_reads)) < 12
    assert records[0] == RECORDS[0]
    assert len(block_reads) < 12, "a jump costs a block, or none"


def test_opening_reads_no_large_values(tmp_path, monkeypatch):
    records = [(b"%d" % i, make_value(i, 200_000)) for i in range(9)]
    write_leveldb(tmp_path / "db", records)
    read_sizes = []
    original = Files.read
    monkeypatch.setattr(
        Files, "read", lambda self, name, offset, n: read_sizes.append(n) or original(self, name, offset, n)
    )
    database = LevelDb(tmp_path / "db")
    assert len(database) == 9
    assert sum(read_sizes) < 50_000
    assert list(database) == records

"""Write-ahead logs of LevelDB: any layout, truncated, missing."""

import os
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leveldb_records import GOLDEN, make_value, plyvel

from caffejax.base.databases import LevelDb
from caffejax.base.databases.leveldb.write_ahead_log import frame_records
from caffejax.base.errors import DataError
from caffejax.base.varint import encode_varint


def write_logs(path: Path, sizes: list[int]) -> list[tuple[bytes, bytes]]:
    """Write a database whose records are all in its log, each in a separate batch."""
    shutil.copytree(GOLDEN / "leveldb_raw", path)
    records = [(b"key%d" % i, make_value(i, size)) for i, size in enumerate(sizes)]
    batches = [
        struct.pack("<QIBB", i + 1, 1, 1, len(key)) + key + encode_varint(len(value)) + value
        for i, (key, value) in enumerate(records)
    ]
    (path / "000003.log").write_bytes(frame_records(batches))
    return records


@pytest.mark.parametrize("size", [1, 6, 7, 100, 32_760, 32_768, 32_774, 32_775, 40_000, 150_000, 190_000])
def test_a_log_truncated_by_a_crash_is_read_up_to_the_last_complete_record(tmp_path, caplog, size):
    sizes = [10, 0, 32_700 - 60, 100_000, 5, 7, 60_000]
    records = write_logs(tmp_path / "db", sizes)
    os.truncate(tmp_path / "db" / "000003.log", size)
    try:
        result = list(LevelDb(tmp_path / "db"))
    except DataError as error:
        result = []
        message = str(error)
        assert "has no records; 000003.log is cut off after byte 0" in message
    assert result == records[: len(result)]
    assert sum(sizes[: len(result)]) <= size
    assert "000003.log: cut off after byte" in caplog.text
    if plyvel is not None:
        with plyvel.DB(str(tmp_path / "db")) as db:
            assert list(db) == result


@pytest.mark.parametrize("num_zeros", [7, 500, 70_000])
def test_zeros_after_a_log_are_ignored_as_preallocated_space(tmp_path, caplog, num_zeros):
    records = write_logs(tmp_path / "db", [10, 40_000])
    end = (tmp_path / "db" / "000003.log").stat().st_size
    with open(tmp_path / "db" / "000003.log", "ab") as file:
        file.write(bytes(num_zeros))
    assert list(LevelDb(tmp_path / "db")) == records
    assert f"000003.log: cut off after byte {end}" in caplog.text
    with open(tmp_path / "db" / "000003.log", "ab") as file:
        file.write(b"more" * 10)
    with pytest.raises(DataError, match=rf"000003.log: the record at byte {end} has a wrong checksum"):
        len(LevelDb(tmp_path / "db"))


@settings(max_examples=30)
@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 200), st.integers(32_600, 32_800), st.just(100_000)), min_size=1, max_size=9
    )
)
def test_logs_of_any_layout_are_read(tmp_path_factory, sizes):
    path = tmp_path_factory.mktemp("logged") / "db"
    records = write_logs(path, sizes)
    assert list(LevelDb(path)) == records
    if plyvel is not None:
        with plyvel.DB(str(path)) as db:
            assert list(db) == records
    shutil.rmtree(path)


def test_a_truncated_log_before_another_is_refused(tmp_path):
    records = write_logs(tmp_path / "db", [100] * 9)
    first_path, second_path = (tmp_path / "db" / name for name in ("000003.log", "000007.log"))
    shutil.copy(first_path, second_path)
    os.truncate(first_path, 500)
    with pytest.raises(DataError, match=r"000003.log: ends within the record after byte \d+, but a later log follows"):
        len(LevelDb(tmp_path / "db"))
    second_path.write_bytes(b"")
    assert list(LevelDb(tmp_path / "db")) == records[:3]


def test_a_missing_log_is_warned_of(tmp_path, caplog):
    copy = Path(shutil.copytree(GOLDEN / "leveldb_compacted", tmp_path / "db"))
    (copy / "000006.log").unlink()
    assert len(LevelDb(copy)) == 24
    assert "000006.log is missing" in caplog.text

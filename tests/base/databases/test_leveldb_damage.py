"""Folders that are not LevelDB databases, and damaged databases."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from leveldb_records import GOLDEN, GOLDEN_FOLDERS, RECORDS, make_value, needs_plyvel, plyvel

from caffejax.base.databases import LevelDb, Lmdb, write_leveldb
from caffejax.base.databases.leveldb.write_ahead_log import frame_records
from caffejax.base.errors import DataError


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: no such folder"):
        len(LevelDb(tmp_path / "nowhere"))


def test_a_folder_without_a_database_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"is not a LevelDB: it has no file CURRENT; .*convert_imageset"):
        len(LevelDb(tmp_path))


def test_each_backend_recognizes_the_others_folder(leveldb_folder):
    with pytest.raises(DataError, match=r"is an LMDB, not a LevelDB, .*; set backend: LMDB"):
        len(LevelDb(GOLDEN / "lmdb_raw"))
    with pytest.raises(DataError, match="is a LevelDB, not an LMDB; set backend: LEVELDB"):
        len(Lmdb(leveldb_folder))


def test_an_empty_database_is_refused(tmp_path):
    write_leveldb(tmp_path / "db", [])
    with pytest.raises(DataError, match=r"db: the LevelDB has no records"):
        len(LevelDb(tmp_path / "db"))


@pytest.mark.parametrize(
    "content", [b"", b"MANIFEST-000001", b"../../etc/passwd\n", b"MANIFEST-000009\n", b"\xff" * 500]
)
def test_an_invalid_current_file_is_refused(leveldb_folder, tmp_path, content):
    copy = Path(shutil.copytree(leveldb_folder, tmp_path / "db"))
    (copy / "CURRENT").write_bytes(content)
    with pytest.raises(DataError, match=r"does not name a manifest|there is no MANIFEST-000009, which CURRENT names"):
        len(LevelDb(copy))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"", "does not state the number of the log"),
        (b"\x01\x03own\x02\x00", "the unsupported comparator 'own'"),
        (b"\x0e\x01", "has a field 14, which LevelDB does not have; it may be a RocksDB"),
        (b"\x01\xff", "the number at byte 1 is truncated"),
        (b"\x01\x05abc", "5 bytes should follow, not 3"),
    ],
)
def test_invalid_manifests_are_refused(leveldb_folder, tmp_path, record, message):
    copy = Path(shutil.copytree(leveldb_folder, tmp_path / "db"))
    (copy / "MANIFEST-000001").write_bytes(frame_records([record]))
    with pytest.raises(DataError, match=rf"MANIFEST-000001: .*{message}"):
        len(LevelDb(copy))


def test_all_missing_tables_are_named_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("caffejax.base.databases.leveldb.table_writer._MAX_TABLE_SIZE", 1 << 17)
    write_leveldb(tmp_path / "db", RECORDS, compress=False)
    (tmp_path / "db" / "000002.ldb").unlink()
    with open(tmp_path / "db" / "000004.ldb", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(DataError) as exc_info:
        len(LevelDb(tmp_path / "db"))
    first, second = str(exc_info.value).splitlines()
    assert "000002.ldb: is missing; the LevelDB is damaged" in first
    assert "000004.ldb: has 1000 bytes instead of 1" in second


@pytest.mark.parametrize("name", GOLDEN_FOLDERS)
def test_truncated_files_are_refused(name, tmp_path):
    expected = list(LevelDb(GOLDEN / name))
    for file in (GOLDEN / name).iterdir():
        for size in np.random.default_rng(1).integers(0, max(file.stat().st_size, 1), 8).tolist():
            copy = Path(shutil.copytree(GOLDEN / name, tmp_path / f"{file.name}-{size}", dirs_exist_ok=True))
            os.truncate(copy / file.name, size)
            if file.suffix == ".log":
                continue
            with pytest.raises(DataError, match=str(copy)):
                assert list(LevelDb(copy)) == expected


@needs_plyvel
@pytest.mark.parametrize("part", ["key", "value", "kind"])
def test_damage_in_a_large_block_is_found(tmp_path, part):
    """Opening does not verify the checksums of such blocks; reading does."""
    path = tmp_path / "db"
    with plyvel.DB(str(path), create_if_missing=True, compression=None) as db:
        for i in range(9):
            db.put(b"key %d" % i, make_value(i, 200_000))
    with plyvel.DB(str(path)):
        pass  # moves the log into a table
    (table,) = path.glob("*.ldb")
    content = bytearray(table.read_bytes())
    key_offset = content.index(b"key 4")
    content[{"key": key_offset + 4, "value": key_offset + 1000, "kind": key_offset + 5}[part]] ^= 1
    table.write_bytes(content)
    with pytest.raises(DataError, match=r"000005.ldb: .* is damaged"):
        list(LevelDb(path))

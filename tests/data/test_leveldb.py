"""LevelDB folders: reading what Caffe and the LevelDB library wrote, damage, writing."""

import multiprocessing
import os
import shutil
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.data import LevelDb, Lmdb, write_leveldb
from caffejax.data.leveldb import reader
from caffejax.data.leveldb.files import Files
from caffejax.data.leveldb.format import encode_varint
from caffejax.data.leveldb.log import frame_records
from caffejax.errors import DataError
from caffejax.schema import caffe_pb2

try:
    import plyvel
except ImportError:
    plyvel = None

needs_plyvel = pytest.mark.skipif(plyvel is None, reason="the LevelDB library has no wheel for this Python")
GOLDEN = Path(__file__).parents[1] / "golden" / "data"
FOLDERS = ["leveldb_raw", "leveldb_compacted", "leveldb_snappy"]


def value(seed: int, size: int, compressible: bool = False) -> bytes:
    """Bytes that differ for each seed."""
    bits = 1 if compressible else 8
    return np.random.default_rng(seed).integers(0, 1 << bits, size, np.uint8).tobytes()


RECORDS = [(b"%05d_image%d" % (i, i % 7), value(i, 1000 + i % 50, i % 3 == 0)) for i in range(500)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("leveldb") / "db"
    write_leveldb(path, RECORDS)
    return path


@pytest.mark.parametrize("name", ["leveldb_raw", "leveldb_compacted"])
def test_records_that_caffe_wrote(name):
    assert list(LevelDb(GOLDEN / name)) == list(Lmdb(GOLDEN / "lmdb_raw"))


def test_compressed_records_that_caffe_wrote():
    records = list(LevelDb(GOLDEN / "leveldb_snappy"))
    assert [key for key, _ in records] == [b"%08d_images/grey/g%d.png" % (i, i) for i in range(8)]
    for i, (_, stored) in enumerate(records):
        image = cv2.imread(str(GOLDEN / f"images/grey/g{i}.png"), cv2.IMREAD_COLOR).transpose(2, 0, 1)
        assert caffe_pb2.Datum.FromString(stored).data == image.tobytes()


@settings(deadline=None)
@given(start=st.integers(0, len(RECORDS)), count=st.integers(0, len(RECORDS)))
def test_runs_of_records(folder, start, count):
    records = LevelDb(folder)
    if start + count > len(RECORDS):
        with pytest.raises(IndexError):
            records.read_range(start, count)
    else:
        assert records.read_range(start, count) == RECORDS[start : start + count]


@settings(deadline=None)
@given(indices=st.lists(st.integers(0, len(RECORDS) - 1)))
def test_any_order_of_reading_gives_the_record_at_the_position(folder, indices):
    records = LevelDb(folder)
    assert [records[i] for i in indices] == [RECORDS[i] for i in indices]


def test_positions_end(folder):
    records = LevelDb(folder)
    assert len(records) == 500
    for index in (-1, 500):
        with pytest.raises(IndexError):
            records[index]


STEP = st.one_of(
    st.tuples(
        st.just("batch"),
        st.lists(
            st.tuples(
                st.integers(0, 40),  # the key
                st.sampled_from([None, 0, 1, 100, 3000, 33_000, 140_000]),  # the size of the value; None deletes
            ),
            max_size=12,
        ),
    ),
    st.tuples(st.sampled_from(["reopen", "compact"]), st.none()),
)


@needs_plyvel
@settings(deadline=None, max_examples=60)
@given(steps=st.lists(STEP, max_size=12), snappy=st.booleans(), seed=st.integers(0, 1000))
def test_what_the_library_writes_is_what_we_read(tmp_path_factory, steps, snappy, seed):
    path = tmp_path_factory.mktemp("plyvel")
    small = {"write_buffer_size": 1 << 16, "block_size": 1 << 10, "max_file_size": 1 << 20}

    def opened():
        return plyvel.DB(str(path / "db"), create_if_missing=True, compression="snappy" if snappy else None, **small)

    db, wanted = opened(), {}
    for step, changes in steps:
        if step == "reopen":
            db.close()
            db = opened()
        elif step == "compact":
            db.compact_range()
        else:
            with db.write_batch() as batch:
                for key, size in changes:
                    name = b"key" * (key % 3) + b"%03d" % key
                    if size is None:
                        batch.delete(name)
                        wanted.pop(name, None)
                    else:
                        seed += 1
                        wanted[name] = value(seed, size, compressible=key % 2 == 0)
                        batch.put(name, wanted[name])
    db.close()
    try:
        if wanted:
            assert list(LevelDb(path / "db")) == sorted(wanted.items())
        else:
            with pytest.raises(DataError, match="the LevelDB has no records"):
                len(LevelDb(path / "db"))
    finally:
        shutil.rmtree(path)


@needs_plyvel
@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 500, 20_000, 140_000]), max_size=40),
    compress=st.booleans(),
    prefix=st.binary(max_size=300),
)
def test_what_we_write_is_what_the_library_reads(tmp_path_factory, sizes, compress, prefix):
    path = tmp_path_factory.mktemp("ours")
    wanted = [(prefix + b"%04d" % i, value(i, size, compressible=i % 2 == 0)) for i, size in enumerate(sizes)]
    write_leveldb(path / "db", wanted, compress)
    if wanted:
        assert list(LevelDb(path / "db")) == wanted
    db = plyvel.DB(str(path / "db"), paranoid_checks=True)
    assert list(db.iterator(verify_checksums=True)) == wanted
    assert all(db.get(key) == stored for key, stored in wanted)
    db.put(b"", b"new")
    db.compact_range()
    db.close()
    assert list(LevelDb(path / "db")) == [(b"", b"new"), *wanted]
    shutil.rmtree(path)


def test_tables_of_several_files_are_read_in_turn(tmp_path, monkeypatch):
    monkeypatch.setattr("caffejax.data.leveldb.writer._TABLE", 1 << 17)
    write_leveldb(tmp_path / "db", RECORDS, compress=False)
    assert len(list((tmp_path / "db").glob("*.ldb"))) == 4
    assert list(LevelDb(tmp_path / "db")) == RECORDS


def test_each_block_is_decoded_once(folder, monkeypatch):
    read = []
    monkeypatch.setattr(
        reader, "read_block", lambda *place, original=reader.read_block: read.append(place) or original(*place)
    )
    records = LevelDb(folder)
    assert list(records) == RECORDS
    assert len(read) == len(set(read)) < 12
    assert records[0] == RECORDS[0]
    assert len(read) < 12, "a jump costs a block, or none"


def test_opening_reads_no_large_values(tmp_path, monkeypatch):
    records = [(b"%d" % i, value(i, 200_000)) for i in range(9)]
    write_leveldb(tmp_path / "db", records)
    sizes = []
    original = Files.read
    monkeypatch.setattr(Files, "read", lambda self, name, at, n: sizes.append(n) or original(self, name, at, n))
    opened = LevelDb(tmp_path / "db")
    assert len(opened) == 9
    assert sum(sizes) < 50_000
    assert list(opened) == records


def test_readers_write_nothing_and_do_not_disturb_each_other(folder):
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    one, two = LevelDb(folder), LevelDb(folder)
    assert one[3] == RECORDS[3]
    assert two[400] == RECORDS[400]
    one.close()
    assert two[401] == RECORDS[401]
    assert one[4] == RECORDS[4], "a closed reader opens the folder again"
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before


@pytest.mark.parametrize("name", FOLDERS)
def test_threads_read_at_once(name):
    records = LevelDb(GOLDEN / name)
    wanted = list(records)
    order = np.random.default_rng(0).integers(len(wanted), size=(8, 100)).tolist()
    with ThreadPoolExecutor(8) as pool:
        for indices, got in zip(order, pool.map(lambda row: [records[i] for i in row], order), strict=True):
            assert got == [wanted[i] for i in indices]


@pytest.mark.parametrize("opened", [False, True])
def test_another_process_reads_a_copy(folder, opened):
    records = LevelDb(folder)
    if opened:
        assert records[0] == RECORDS[0]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(records.__getitem__, (300,)) == RECORDS[300]


def test_worker_processes_read_caffes_batches(golden, open_source):
    source = open_source(golden / "data_leveldb_compacted.prototxt", workers=2)
    wanted = np.load("data_leveldb_compacted.npz")
    for n in range(3):
        data, label = next(source)
        np.testing.assert_array_equal(data, wanted[f"{n}/data"])
        np.testing.assert_array_equal(label, wanted[f"{n}/label"])


@pytest.mark.filterwarnings("ignore:.*os.fork")  # JAX warns of it; the child does not use JAX
def test_a_forked_process_reads_on(folder):
    records = LevelDb(folder)
    assert records[7] == RECORDS[7]
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(here, b"ok" if records[450] == RECORDS[450] and records[8] == RECORDS[8] else b"no")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(there, 2) == b"ok"
    os.close(there)
    os.close(here)
    assert records[8] == RECORDS[8]


# --- what is no LevelDB, and what is damaged


def test_missing_folder(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: no such folder"):
        len(LevelDb(tmp_path / "nowhere"))


def test_folder_without_a_database(tmp_path):
    with pytest.raises(DataError, match=r"is not a LevelDB: it has no file CURRENT; .*convert_imageset"):
        len(LevelDb(tmp_path))


def test_each_backend_knows_the_others_folder(folder):
    with pytest.raises(DataError, match=r"is an LMDB, not a LevelDB, .*; set backend: LMDB"):
        len(LevelDb(GOLDEN / "lmdb_raw"))
    with pytest.raises(DataError, match="is a LevelDB, not an LMDB; set backend: LEVELDB"):
        len(Lmdb(folder))


def test_empty_database(tmp_path):
    write_leveldb(tmp_path / "db", [])
    with pytest.raises(DataError, match=r"db: the LevelDB has no records"):
        len(LevelDb(tmp_path / "db"))


@pytest.mark.parametrize(
    "content", [b"", b"MANIFEST-000001", b"../../etc/passwd\n", b"MANIFEST-000009\n", b"\xff" * 500]
)
def test_bad_current(folder, tmp_path, content):
    copy = Path(shutil.copytree(folder, tmp_path / "db"))
    (copy / "CURRENT").write_bytes(content)
    with pytest.raises(DataError, match=r"does not name a manifest|there is no MANIFEST-000009, which CURRENT names"):
        len(LevelDb(copy))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (b"", "lacks the number of the log"),
        (b"\x01\x03own\x02\x00", "an order of their own, 'own'"),
        (b"\x0e\x01", "has a field 14, which LevelDB does not know; a RocksDB has such"),
        (b"\x01\xff", "a number has no end"),
        (b"\x01\x05abc", "5 bytes are announced where 3 follow"),
    ],
)
def test_bad_manifests(folder, tmp_path, edit, message):
    copy = Path(shutil.copytree(folder, tmp_path / "db"))
    (copy / "MANIFEST-000001").write_bytes(frame_records([edit]))
    with pytest.raises(DataError, match=rf"MANIFEST-000001: .*{message}"):
        len(LevelDb(copy))


def test_all_missing_tables_are_named_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("caffejax.data.leveldb.writer._TABLE", 1 << 17)
    write_leveldb(tmp_path / "db", RECORDS, compress=False)
    (tmp_path / "db" / "000002.ldb").unlink()
    with open(tmp_path / "db" / "000004.ldb", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(DataError) as caught:
        len(LevelDb(tmp_path / "db"))
    first, second = str(caught.value).splitlines()
    assert "000002.ldb: is missing; the LevelDB is damaged" in first
    assert "000004.ldb: has 1000 bytes instead of 1" in second


@pytest.mark.parametrize("name", FOLDERS)
def test_cut_files(name, tmp_path):
    wanted = list(LevelDb(GOLDEN / name))
    for file in (GOLDEN / name).iterdir():
        for left in np.random.default_rng(1).integers(0, max(file.stat().st_size, 1), 8).tolist():
            copy = Path(shutil.copytree(GOLDEN / name, tmp_path / f"{file.name}-{left}", dirs_exist_ok=True))
            os.truncate(copy / file.name, left)
            if file.suffix == ".log":
                continue
            with pytest.raises(DataError, match=str(copy)):
                assert list(LevelDb(copy)) == wanted


def logged(path: Path, sizes: list[int]) -> list[tuple[bytes, bytes]]:
    """A database whose records are all in its log, each in a batch of its own."""
    shutil.copytree(GOLDEN / "leveldb_raw", path)
    records = [(b"key%d" % i, value(i, size)) for i, size in enumerate(sizes)]
    batches = [
        struct.pack("<QIBB", i + 1, 1, 1, len(key)) + key + encode_varint(len(stored)) + stored
        for i, (key, stored) in enumerate(records)
    ]
    (path / "000003.log").write_bytes(frame_records(batches))
    return records


@pytest.mark.parametrize("left", [1, 6, 7, 100, 32_760, 32_768, 32_774, 32_775, 40_000, 150_000, 190_000])
def test_a_log_cut_off_as_by_a_crash_is_read_up_to_there(tmp_path, caplog, left):
    sizes = [10, 0, 32_700 - 60, 100_000, 5, 7, 60_000]
    records = logged(tmp_path / "db", sizes)
    os.truncate(tmp_path / "db" / "000003.log", left)
    try:
        got = list(LevelDb(tmp_path / "db"))
    except DataError as error:
        got = []
        message = str(error)
        assert "has no records; 000003.log is cut off after byte 0" in message
    assert got == records[: len(got)]
    assert sum(sizes[: len(got)]) <= left
    assert "000003.log: cut off after byte" in caplog.text
    if plyvel is not None:
        with plyvel.DB(str(tmp_path / "db")) as db:
            assert list(db) == got


@pytest.mark.parametrize("zeros", [7, 500, 70_000])
def test_zeros_after_a_log_are_room_never_written_to(tmp_path, caplog, zeros):
    records = logged(tmp_path / "db", [10, 40_000])
    end = (tmp_path / "db" / "000003.log").stat().st_size
    with open(tmp_path / "db" / "000003.log", "ab") as file:
        file.write(bytes(zeros))
    assert list(LevelDb(tmp_path / "db")) == records
    assert f"000003.log: cut off after byte {end}" in caplog.text
    with open(tmp_path / "db" / "000003.log", "ab") as file:
        file.write(b"more" * 10)
    with pytest.raises(DataError, match=rf"000003.log: the record at byte {end} has a wrong checksum"):
        len(LevelDb(tmp_path / "db"))


@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 200), st.integers(32_600, 32_800), st.just(100_000)), min_size=1, max_size=9
    )
)
def test_logs_of_any_layout(tmp_path_factory, sizes):
    path = tmp_path_factory.mktemp("logged") / "db"
    records = logged(path, sizes)
    assert list(LevelDb(path)) == records
    if plyvel is not None:
        with plyvel.DB(str(path)) as db:
            assert list(db) == records
    shutil.rmtree(path)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_no_changed_byte_gives_other_records(tmp_path_factory, data):
    name = data.draw(st.sampled_from(FOLDERS))
    wanted = list(LevelDb(GOLDEN / name))
    path = tmp_path_factory.mktemp("changed")
    copy = Path(shutil.copytree(GOLDEN / name, path / "db"))
    file = data.draw(st.sampled_from(sorted(f for f in copy.iterdir() if f.stat().st_size)))
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    file.write_bytes(content)
    try:
        got = list(LevelDb(copy))
    except DataError as error:
        assert str(copy) in str(error)  # noqa: PT017
    else:
        # A length changed in the last block of a log looks as if a crash had cut it off; there is a warning.
        assert got == wanted or (file.suffix == ".log" and got == wanted[: len(got)])
    shutil.rmtree(path)


@needs_plyvel
@pytest.mark.parametrize("part", ["key", "value", "kind"])
def test_damage_in_a_large_block_is_found(tmp_path, part):
    """Opening does not verify such blocks; but then reading does, and what is hidden is verified."""
    path = tmp_path / "db"
    with plyvel.DB(str(path), create_if_missing=True, compression=None) as db:
        for i in range(9):
            db.put(b"key %d" % i, value(i, 200_000))
    with plyvel.DB(str(path)):
        pass  # moves the log into a table
    (table,) = path.glob("*.ldb")
    content = bytearray(table.read_bytes())
    at = content.index(b"key 4")
    content[{"key": at + 4, "value": at + 1000, "kind": at + 5}[part]] ^= 1
    table.write_bytes(content)
    with pytest.raises(DataError, match=r"000005.ldb: .* is damaged"):
        list(LevelDb(path))


def test_a_cut_log_that_another_follows_is_damage(tmp_path):
    records = logged(tmp_path / "db", [100] * 9)
    first, second = (tmp_path / "db" / name for name in ("000003.log", "000007.log"))
    shutil.copy(first, second)
    os.truncate(first, 500)
    with pytest.raises(DataError, match=r"000003.log: ends within the record after byte \d+, but a later log follows"):
        len(LevelDb(tmp_path / "db"))
    second.write_bytes(b"")
    assert list(LevelDb(tmp_path / "db")) == records[:3]


def test_a_missing_log_is_warned_of(tmp_path, caplog):
    copy = Path(shutil.copytree(GOLDEN / "leveldb_compacted", tmp_path / "db"))
    (copy / "000006.log").unlink()
    assert len(LevelDb(copy)) == 24
    assert "000006.log is missing" in caplog.text


# --- writing


def test_writing_never_overwrites(folder):
    with pytest.raises(DataError, match="exists already"):
        write_leveldb(folder, [(b"a", b"b")])
    assert list(LevelDb(folder)) == RECORDS


def failing():
    yield b"a", b"1"
    raise RuntimeError("no more")


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ([(b"a", b"1"), (b"b", b"1"), (b"b", b"2")], "db: key b'b' occurs twice"),
        ([(b"a", b"1"), (b"c", b"1"), (b"b", b"2")], "db: key b'b' comes after b'c'; keys must ascend"),
        (failing(), "no more"),
    ],
)
def test_failed_writing_leaves_nothing(tmp_path, records, error):
    with pytest.raises((DataError, RuntimeError), match=error):
        write_leveldb(tmp_path / "db", records)
    assert list(tmp_path.iterdir()) == []


def test_writing_into_a_missing_parent(tmp_path):
    with pytest.raises(DataError, match="cannot be written"):
        write_leveldb(tmp_path / "no" / "db", [(b"a", b"1")])

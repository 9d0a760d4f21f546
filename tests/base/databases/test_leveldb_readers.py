"""LevelDB folders read by several readers, threads and processes at once."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from leveldb_records import GOLDEN, GOLDEN_FOLDERS, RECORDS

from caffejax.base.databases import LevelDb


def test_readers_write_nothing_and_do_not_disturb_each_other(leveldb_folder):
    times_before = {file.name: file.stat().st_mtime_ns for file in leveldb_folder.iterdir()}
    first, second = LevelDb(leveldb_folder), LevelDb(leveldb_folder)
    assert first[3] == RECORDS[3]
    assert second[400] == RECORDS[400]
    first.close()
    assert second[401] == RECORDS[401]
    assert first[4] == RECORDS[4], "a closed reader opens the folder again"
    assert {file.name: file.stat().st_mtime_ns for file in leveldb_folder.iterdir()} == times_before


@pytest.mark.parametrize("name", GOLDEN_FOLDERS)
def test_threads_read_at_once(name):
    records = LevelDb(GOLDEN / name)
    expected = list(records)
    indices_by_task = np.random.default_rng(0).integers(len(expected), size=(8, 100)).tolist()
    with ThreadPoolExecutor(8) as pool:
        for indices, result in zip(
            indices_by_task, pool.map(lambda indices: [records[i] for i in indices], indices_by_task), strict=True
        ):
            assert result == [expected[i] for i in indices]


@pytest.mark.parametrize("is_open", [False, True])
def test_another_process_reads_a_copy(leveldb_folder, is_open):
    records = LevelDb(leveldb_folder)
    if is_open:
        assert records[0] == RECORDS[0]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(records.__getitem__, (300,)) == RECORDS[300]


@pytest.mark.filterwarnings("ignore:.*os.fork")  # JAX warns of it; the child does not use JAX
def test_a_forked_process_continues_reading(leveldb_folder):
    records = LevelDb(leveldb_folder)
    assert records[7] == RECORDS[7]
    read_end, write_end = os.pipe()
    child_pid = os.fork()
    if child_pid == 0:
        os.write(write_end, b"ok" if records[450] == RECORDS[450] and records[8] == RECORDS[8] else b"no")
        os._exit(0)
    os.waitpid(child_pid, 0)
    assert os.read(read_end, 2) == b"ok"
    os.close(read_end)
    os.close(write_end)
    assert records[8] == RECORDS[8]

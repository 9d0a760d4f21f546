"""Prefetching: order, positions, exceptions, worker processes, and the absence of deadlocks."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from caffejax.base.errors import DataError, Problem
from caffejax.core.data import Batch, Pipeline

TIMEOUT = 60  # seconds, for what should come at once


class CountingBatches:
    """Batch n holds n, the process that read it, and the thread; batch `bad_batch` fails."""

    tops = ()
    batch_size = 5

    def __init__(self, bad_batch=None, threads=1):
        self.bad_batch, self.num_threads = bad_batch, threads
        self.is_closed = False

    def read(self, start):
        batch_index = start // 5
        if batch_index == self.bad_batch:
            raise DataError(Problem(f"batch {batch_index} is bad", file="x", layer="d"))
        return Batch((np.array(batch_index), np.array(os.getpid()), np.array(threading.get_ident())))

    def close(self):
        self.is_closed = True


def take_numbers(source, n):
    return [int(next(source)[0]) for _ in range(n)]


@pytest.mark.parametrize(("depth", "threads"), [(1, 1), (4, 1), (4, 3), (2, 8)])
def test_batches_come_in_order(depth, threads):
    source = Pipeline(CountingBatches(threads=threads), depth)
    assert take_numbers(source, 50) == list(range(50))
    source.close()


def test_nothing_is_read_before_the_first_batch_is_requested():
    threads_before = set(threading.enumerate())
    source = Pipeline(CountingBatches(), 4)
    assert set(threading.enumerate()) <= threads_before
    source.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_position_does_not_depend_on_prefetching(workers):
    source = Pipeline(CountingBatches(), 3, workers)
    assert source.get_state() == {"examples": 0}
    assert take_numbers(source, 2) == [0, 1]
    assert source.get_state() == {"examples": 10}
    source.set_state({"examples": 5})
    assert source.get_state() == {"examples": 5}
    assert take_numbers(source, 3) == [1, 2, 3]
    source.close()
    assert take_numbers(source, 2) == [4, 5]
    source.close()
    source.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_the_error_of_a_batch_is_raised_at_each_request(workers):
    source = Pipeline(CountingBatches(bad_batch=3), 10, workers)
    batches = [next(source) for _ in range(3)]
    assert [int(batch[0]) for batch in batches] == [0, 1, 2]
    if workers:  # share the reading
        process_ids = {int(batch[1]) for batch in batches}
        assert len(process_ids) == workers
        assert os.getpid() not in process_ids
    for _ in range(2):
        with pytest.raises(DataError) as exc_info:
            next(source)
        assert exc_info.value.problems == (Problem("batch 3 is bad", file="x", layer="d"),)
    assert source.get_state() == {"examples": 15}
    source.set_state({"examples": 20})
    assert take_numbers(source, 2) == [4, 5]
    source.close()


def test_a_killed_worker_ends_reading_with_an_error():
    source = Pipeline(CountingBatches(), 2, workers=2)
    batch_index, process_id, _ = next(source)
    os.kill(int(process_id), signal.SIGKILL)
    batch_indices = [int(batch_index)]
    with pytest.raises(DataError, match=r"a process that reads the data has ended: .*exit code -9"):
        batch_indices.extend(int(batch[0]) for batch in source)
    assert batch_indices == list(range(len(batch_indices)))
    source.close()


def test_workers_read_what_threads_read(open_source, data_layer_text, raw_db):
    net = data_layer_text(raw_db, 4, "crop_size: 3 mirror: true mean_value: 7 scale: 0.5", "backend: LMDB prefetch: 2")
    thread_source, worker_source = open_source(net, "TRAIN", seed=3), open_source(net, "TRAIN", seed=3, workers=2)
    for _ in range(6):
        for expected, actual in zip(next(thread_source), next(worker_source), strict=True):
            np.testing.assert_array_equal(expected, actual)


def test_closing_closes_the_files():
    batches = CountingBatches()
    source = Pipeline(batches, 2)
    take_numbers(source, 3)
    source.close()
    assert batches.is_closed


def test_many_threads_read_one_database(open_source, data_layer_text, raw_db):
    text = data_layer_text(raw_db, 2, data="backend: LMDB prefetch: 8")
    source = open_source(text)
    source.source._batches.num_threads = 8
    for n in range(40):
        assert next(source)[1].tolist() == [2 * n % 13, (2 * n + 1) % 13]
        if n == 20:
            source.close()  # with reads under way


def test_depth_zero_is_refused():
    with pytest.raises(DataError, match="prefetch must be 1 batch or more, not 0"):
        Pipeline(CountingBatches(), 0)


PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
sys.path.insert(0, {folder!r})
from test_prefetch import CountingBatches
from caffejax.core.data import Pipeline

if __name__ == "__main__":
    source = Pipeline(CountingBatches(), 8, workers={workers})
    print(int(next(source)[0]), flush=True)
    {then}
"""


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("interrupt", [False, True])
def test_the_program_ends_without_closing_the_source(tmp_path, workers, interrupt):
    program = tmp_path / "program.py"
    ending = "\n    ".join(["while True:", "    next(source)"]) if interrupt else "pass"
    program.write_text(PROGRAM.format(folder=str(Path(__file__).parent), workers=workers, then=ending))
    process = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "0\n"
    if interrupt:
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == (-signal.SIGINT if interrupt else 0), errors
    if interrupt:
        assert "\nKeyboardInterrupt\n" in errors  # Grain may add that it gave memory back late
    else:
        assert errors == ""

"""Reading ahead: order, positions, exceptions, worker processes, and that nothing ever hangs."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from caffejax.data import Batch, Pipeline
from caffejax.errors import DataError, Problem

PATIENCE = 60  # seconds, for what should come at once


class CountingBatches:
    """Batch n holds n, the process that read it, and the thread; batch `bad` fails."""

    tops = ()
    batch_size = 5

    def __init__(self, bad_batch=None, threads=1):
        self.bad, self.num_threads = bad_batch, threads
        self.closed = False

    def read(self, start):
        number = start // 5
        if number == self.bad:
            raise DataError(Problem(f"batch {number} is bad", file="x", layer="d"))
        return Batch((np.array(number), np.array(os.getpid()), np.array(threading.get_ident())))

    def close(self):
        self.closed = True


def take_numbers(source, n):
    return [int(next(source)[0]) for _ in range(n)]


@pytest.mark.parametrize(("depth", "threads"), [(1, 1), (4, 1), (4, 3), (2, 8)])
def test_batches_come_in_order(depth, threads):
    source = Pipeline(CountingBatches(threads=threads), depth)
    assert take_numbers(source, 50) == list(range(50))
    source.close()


def test_nothing_is_read_before_the_first_batch_is_asked_for():
    threads_before = threading.active_count()
    source = Pipeline(CountingBatches(), 4)
    assert threading.active_count() == threads_before
    source.close()


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_position_is_the_consumers(workers):
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


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_an_exception_is_raised_unchanged_at_its_batch_and_again(workers):
    source = Pipeline(CountingBatches(bad_batch=3), 10, workers)
    batches = [next(source) for _ in range(3)]
    assert [int(batch[0]) for batch in batches] == [0, 1, 2]
    if workers:  # share the reading
        processes = {int(batch[1]) for batch in batches}
        assert len(processes) == workers
        assert os.getpid() not in processes
    for _ in range(2):
        with pytest.raises(DataError) as exc_info:
            next(source)
        assert exc_info.value.problems == (Problem("batch 3 is bad", file="x", layer="d"),)
    assert source.get_state() == {"examples": 15}
    source.set_state({"examples": 20})
    assert take_numbers(source, 2) == [4, 5]
    source.close()


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_reading_with_a_message():
    source = Pipeline(CountingBatches(), 2, workers=2)
    number, process, _ = next(source)
    os.kill(int(process), signal.SIGKILL)
    numbers = [int(number)]
    with pytest.raises(DataError, match=r"a process that reads the data has ended: .*exit code -9"):
        numbers.extend(int(batch[0]) for batch in source)
    assert numbers == list(range(len(numbers)))
    source.close()


@pytest.mark.slow
def test_workers_read_what_threads_read(open_source, data_layer, raw_db):
    net = data_layer(raw_db, 4, "crop_size: 3 mirror: true mean_value: 7 scale: 0.5", "backend: LMDB prefetch: 2")
    by_threads, by_workers = open_source(net, "TRAIN", seed=3), open_source(net, "TRAIN", seed=3, workers=2)
    for _ in range(6):
        for expected, actual in zip(next(by_threads), next(by_workers), strict=True):
            np.testing.assert_array_equal(expected, actual)


def test_closing_closes_the_files():
    batches = CountingBatches()
    source = Pipeline(batches, 2)
    take_numbers(source, 3)
    source.close()
    assert batches.closed


def test_many_threads_read_one_database(open_source, data_layer, raw_db):
    text = data_layer(raw_db, 2, data="backend: LMDB prefetch: 8")
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
from caffejax.data import Pipeline

if __name__ == "__main__":
    source = Pipeline(CountingBatches(), 8, workers={workers})
    print(int(next(source)[0]), flush=True)
    {then}
"""


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("interrupt", [False, True])
def test_the_program_ends_though_nobody_closed(tmp_path, workers, interrupt):
    program = tmp_path / "program.py"
    ending = "\n    ".join(["while True:", "    next(source)"]) if interrupt else "pass"
    program.write_text(PROGRAM.format(folder=str(Path(__file__).parent), workers=workers, then=ending))
    process = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "0\n"
    if interrupt:
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == (-signal.SIGINT if interrupt else 0), errors
    if interrupt:
        assert "\nKeyboardInterrupt\n" in errors  # Grain may add that it gave memory back late
    else:
        assert errors == ""

"""The prefetcher: order, positions, exceptions, and that nothing ever hangs."""

import gc
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from caffejax.data import Prefetcher
from caffejax.errors import DataError

PATIENCE = 60  # seconds, for what should come at once


class Counting:
    """Gives 0, 1, 2, ... Waits for `gate` before each, counts in `given`, fails at `bad`."""

    tops = ()

    def __init__(self, bad=None, gate=None):
        self.at, self.bad, self.gate = 0, bad, gate
        self.given = threading.Semaphore(0)
        self.reading = threading.Event()
        self.closed = False

    def __next__(self):
        self.reading.set()
        if self.gate is not None:
            self.gate.wait()
        if self.at == self.bad:
            raise DataError(f"batch {self.at} is bad")
        self.at += 1
        self.given.release()
        return (np.array(self.at - 1),)

    def get_state(self):
        return {"examples": self.at}

    def set_state(self, state):
        self.at = state["examples"]

    def close(self):
        self.closed = True


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "caffejax-prefetch"]


def take(source, n):
    return [int(next(source)[0]) for _ in range(n)]


@pytest.mark.parametrize("depth", [1, 4])
def test_batches_come_in_order(depth):
    source = Prefetcher(Counting(), depth)
    assert take(source, 50) == list(range(50))
    source.close()


def test_nothing_is_read_before_the_first_batch_is_asked_for():
    counting = Counting()
    source = Prefetcher(counting, 4)
    assert (counting.at, readers()) == (0, [])
    source.close()


def test_the_position_is_the_consumers():
    counting = Counting()
    source = Prefetcher(counting, 3)
    assert source.get_state() == {"examples": 0}
    assert take(source, 2) == [0, 1]
    for _ in range(5):  # two taken, and three ahead
        assert counting.given.acquire(timeout=PATIENCE)
    assert source.get_state() == {"examples": 2}
    source.set_state({"examples": 1})
    assert source.get_state() == {"examples": 1}
    assert take(source, 3) == [1, 2, 3]
    source.close()


def test_an_exception_comes_in_its_place_and_stays():
    source = Prefetcher(Counting(bad=3), 10)
    assert take(source, 3) == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(DataError, match=r"^batch 3 is bad$"):
            next(source)
    assert source.get_state() == {"examples": 3}
    source.set_state({"examples": 4})
    assert take(source, 2) == [4, 5]
    source.close()


def test_closing_ends_the_thread_and_reading_goes_on_where_it_stood():
    counting = Counting()
    source = Prefetcher(counting, 2)
    take(source, 3)
    source.close()
    assert counting.closed
    assert readers() == []
    assert take(source, 2) == [3, 4]
    source.close()
    source.close()


def test_closing_does_not_wait_for_a_source_that_hangs():
    counting = Counting(gate=threading.Event())
    source = Prefetcher(counting, 2, patience=0.01)
    failures = []

    def consume():
        try:
            next(source)
        except DataError as error:
            failures.append(str(error))

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert counting.reading.wait(PATIENCE)
    source.close()
    consumer.join(PATIENCE)
    assert failures == ["the data source was closed while a batch was awaited"]
    (reader,) = readers()
    counting.gate.set()
    reader.join(PATIENCE)
    assert not reader.is_alive()


def test_dropping_it_ends_the_thread():
    source = Prefetcher(Counting(), 2)
    take(source, 1)
    (reader,) = readers()
    del source
    gc.collect()
    assert not reader.is_alive()


def test_depth_zero_is_refused():
    with pytest.raises(DataError, match="prefetch is 0"):
        Prefetcher(Counting(), 0)


HANGING = """
import sys, threading
from caffejax.data import Prefetcher

class Hanging:
    tops = ()
    at = 0
    def __next__(self):
        self.at += 1
        if self.at > 1:
            print("hangs", flush=True)
            threading.Event().wait()
        return ()
    def get_state(self): return {}
    def set_state(self, state): pass
    def close(self): pass

source = Prefetcher(Hanging(), 2, patience=0.01)
next(source)
"""


def run(program):
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_interpreter_ends_though_nobody_closed_and_the_source_hangs():
    process = run(HANGING)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")


def test_ctrl_c_ends_the_waiting_consumer():
    # what a terminal gives; started in the background, a process ignores the signal
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    process = run(listen + HANGING + "next(source)")
    assert process.stdout.readline() == "hangs\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")

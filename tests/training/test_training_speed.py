"""Pace and waiting: what they count, with clocks and devices that the test sets."""

import time
from pathlib import Path
from typing import Any

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Callback
from caffejax.data.loader import Loader
from caffejax.training import Solver, reporting
from caffejax.training.reporting import DataWait, Stopwatch


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    result = Clock()
    monkeypatch.setattr(reporting, "time", result)
    return result


def test_a_lap_is_since_the_last(clock: Clock) -> None:
    waited = 7.0
    watch = Stopwatch(10, 32, lambda: waited)
    clock.now += 2
    waited += 0.5
    assert watch.seconds == 2
    assert watch.lap(14) == (2.0, 2.0, 64.0, 0.25)
    clock.now += 4
    assert watch.lap(15) == (4.0, 0.25, 8.0, 0.0)
    assert watch.lap(16) == (0, 0, 0, 0)  # no time went by


class Result:
    """A computed value of a device; whether it is ready when a read begins, and when it ends."""

    def __init__(self, *ready: bool) -> None:
        self.ready = list(ready)

    def is_ready(self) -> bool:
        return self.ready.pop(0)


@pytest.mark.parametrize(
    ("results", "seconds"),
    [
        ([None], 3.0),  # before the first there is nothing to compute
        ([Result(True)], 3.0),
        ([Result(False, False)], 0.0),
        ([Result(False, True)], 1.5),
        ([Result(True), Result(False, False)], 3.0),
    ],
)
def test_a_read_counts_as_far_as_the_device_had_nothing_to_do(clock: Clock, results: list[Any], seconds: float) -> None:
    wait = DataWait()
    for result in results:
        if result is not None:
            wait.note(result)
        with wait.reading():
            clock.now += 3
    assert wait.seconds == seconds


class Later:
    """A value that is ready some seconds after its start."""

    def __init__(self, seconds: float) -> None:
        self.at = time.perf_counter() + seconds

    def is_ready(self) -> bool:
        return time.perf_counter() >= self.at

    def block_until_ready(self) -> None:
        time.sleep(max(0.0, self.at - time.perf_counter()))


def test_a_slow_read_counts_from_when_the_device_was_done() -> None:
    wait = DataWait()
    with wait.reading():
        time.sleep(0.01)
    before, began = wait.seconds, time.perf_counter()
    wait.note(Later(0.1))  # type: ignore[arg-type]
    with wait.reading():
        time.sleep(0.5)
    assert 0.3 < wait.seconds - before <= time.perf_counter() - began - 0.1


def test_arrays_say_whether_they_are_ready() -> None:
    wait = DataWait()
    wait.note(jnp.zeros(3).block_until_ready())
    with wait.reading():
        time.sleep(0.01)
    assert 0.01 <= wait.seconds < 5


NET = """
layer {{ name: "data" type: "HDF5Data" top: "x" top: "y" hdf5_data_param {{ source: "{}" batch_size: 4 }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {{ num_output: 2 }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }}
"""


def test_training_tells_how_long_it_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x"], file["y"] = np.ones((8, 2), np.float32), np.zeros(8, np.float32)
    (tmp_path / "list.txt").write_text(f"{tmp_path / 'data.h5'}\n")
    take = Loader.__next__

    def slow(loader: Loader) -> dict[str, Any]:
        time.sleep(0.05)
        return take(loader)

    monkeypatch.setattr(Loader, "__next__", slow)
    laps = []

    class Laps(Callback):
        def on_display(self, solver: Solver, display: Any) -> None:
            laps.append(display.pace)

    text = f'base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "{tmp_path / "x"}" display: 10'
    solver = Solver(f"{text} net_param {{ {NET.format(tmp_path / 'list.txt')} }}")
    solver.callbacks.append(Laps())
    solver.step(21)
    solver.close()
    _, first_lap, second_lap = laps  # the first is of compilation
    for pace_of in first_lap, second_lap:
        assert 0.8 <= pace_of.waiting <= 1
        assert pace_of.seconds >= 0.5
    assert first_lap.images_per_second == pytest.approx(4 * first_lap.iterations_per_second)
    assert first_lap.iterations_per_second * first_lap.seconds == pytest.approx(10)

"""Measured training speed and waiting time, with simulated clocks and devices."""

import time
from pathlib import Path
from typing import Any

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Callback
from caffejax.core.data.loader import Loader
from caffejax.core.solver import Solver, reporting
from caffejax.core.solver.reporting import DataWait, Stopwatch


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


def test_a_lap_begins_at_the_previous_lap(clock: Clock) -> None:
    total_wait = 7.0
    watch = Stopwatch(10, 32, lambda: total_wait)
    clock.now += 2
    total_wait += 0.5
    assert watch.seconds == 2
    assert watch.lap(14) == (2.0, 2.0, 64.0, 0.25)
    clock.now += 4
    assert watch.lap(15) == (4.0, 0.25, 8.0, 0.0)
    assert watch.lap(16) == (0, 0, 0, 0)  # no time went by


def test_time_between_periods_of_training_does_not_count(clock: Clock) -> None:
    watch = Stopwatch(0, 1, lambda: 0.0)
    for _ in range(10):  # as a loop of `solver.step(1)` that is displayed after ten of them
        clock.now += 100
        with watch.running():
            clock.now += 0.5
    with watch.running():
        assert watch.lap(10) == (5.0, 2.0, 2.0, 0.0)


class ScriptedResult:
    """A device value whose readiness at each read is given."""

    def __init__(self, *is_ready_at_reads: bool) -> None:
        self.is_ready_at_reads = list(is_ready_at_reads)

    def is_ready(self) -> bool:
        return self.is_ready_at_reads.pop(0)


@pytest.mark.parametrize(
    ("results", "seconds"),
    [
        ([None], 3.0),  # before the first there is nothing to compute
        ([ScriptedResult(True)], 3.0),
        ([ScriptedResult(False, False)], 0.0),
        ([ScriptedResult(False, True)], 1.5),
        ([ScriptedResult(True), ScriptedResult(False, False)], 3.0),
    ],
)
def test_a_read_counts_only_while_the_device_is_idle(clock: Clock, results: list[Any], seconds: float) -> None:
    wait = DataWait()
    for result in results:
        if result is not None:
            wait.record_result(result)
        with wait.measure_read():
            clock.now += 3
    assert wait.seconds == seconds


class DelayedResult:
    """A device value that is ready some seconds after its start."""

    def __init__(self, seconds: float) -> None:
        self.ready_time = time.perf_counter() + seconds

    def is_ready(self) -> bool:
        return time.perf_counter() >= self.ready_time

    def block_until_ready(self) -> None:
        time.sleep(max(0.0, self.ready_time - time.perf_counter()))


def test_a_slow_read_counts_from_when_the_device_becomes_idle() -> None:
    wait = DataWait()
    with wait.measure_read():
        time.sleep(0.01)
    seconds_before, start_time = wait.seconds, time.perf_counter()
    wait.record_result(DelayedResult(0.1))  # type: ignore[arg-type]
    with wait.measure_read():
        time.sleep(1)
    assert 0.3 < wait.seconds - seconds_before <= time.perf_counter() - start_time - 0.1


def test_wait_is_measured_with_jax_arrays() -> None:
    wait = DataWait()
    wait.record_result(jnp.zeros(3).block_until_ready())
    with wait.measure_read():
        time.sleep(0.01)
    assert 0.01 <= wait.seconds < 5


NET = """
layer {{ name: "data" type: "HDF5Data" top: "x" top: "y" hdf5_data_param {{ source: "{}" batch_size: 4 }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {{ num_output: 2 }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }}
"""


def test_training_reports_the_wait_for_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x"], file["y"] = np.ones((8, 2), np.float32), np.zeros(8, np.float32)
    (tmp_path / "list.txt").write_text(f"{tmp_path / 'data.h5'}\n")
    take = Loader.take

    def take_slowly(loader: Loader, n: int) -> list[dict[str, Any]]:
        time.sleep(0.05)
        return take(loader, n)

    monkeypatch.setattr(Loader, "take", take_slowly)
    paces = []

    class PaceRecorder(Callback):
        def on_display(self, solver: Solver, display: Any) -> None:
            paces.append(display.pace)

    text = f'base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "{tmp_path / "x"}" display: 10'
    solver = Solver(f"{text} net_param {{ {NET.format(tmp_path / 'list.txt')} }}")
    solver.callbacks.append(PaceRecorder())
    solver.step(21)
    solver.close()
    _, first_pace, second_pace = paces  # the first is of compilation
    for pace in first_pace, second_pace:
        assert pace.waiting <= 1
        assert pace.waiting * pace.seconds >= 0.45  # ten times 0.05 s
    assert first_pace.images_per_second == pytest.approx(4 * first_pace.iterations_per_second)
    assert first_pace.iterations_per_second * first_pace.seconds == pytest.approx(10)

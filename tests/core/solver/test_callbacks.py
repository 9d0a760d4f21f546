"""Callbacks: which are called, with what, and in which order."""

from pathlib import Path
from typing import Any

import pytest

from caffejax import Callback, Solver
from caffejax.core.solver import reporting

SETTINGS = "max_iter: 4 display: 2 test_interval: 4 test_iter: 1 snapshot: 3 snapshot_after_train: false"
NET = """
layer { name: "data" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" }
"""
METHODS = [name for name in vars(Callback) if name.startswith("on_")]


def make_solver(folder: Path, settings: str = SETTINGS, **options: Any) -> Solver:
    text = f'net_param {{ {NET} }} base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "{folder / "x"}" {settings}'
    return Solver(text, **options)


def make_listener(events: list[Any]) -> Callback:
    """Return a callback that records the method, the iteration, and further arguments."""

    def make_method(name: str) -> Any:
        return lambda self, solver, *details: events.append((name, solver.iteration, *details))

    return type("Listener", (Callback,), {name: make_method(name) for name in METHODS})()


def test_each_callback_receives_each_event_once_in_order(tmp_path: Path) -> None:
    solver, first_events, second_events, step_iterations = make_solver(tmp_path), [], [], []  # type: ignore[var-annotated]
    solver.callbacks += [
        make_listener(first_events),
        Callback(),
        lambda s: step_iterations.append(s.iteration),
        make_listener(second_events),
    ]
    solver.solve()
    solver.close()
    assert [event[:2] for event in first_events] == [
        ("on_start", 0), ("on_test", 0), ("on_display", 0), ("on_step", 1), ("on_step", 2), ("on_display", 2),
        ("on_step", 3), ("on_snapshot", 3), ("on_step", 4), ("on_display", 4), ("on_test", 4), ("on_end", 4),
    ]  # fmt: skip
    assert {event[0] for event in first_events} == set(METHODS)
    assert step_iterations == [1, 2, 3, 4]
    assert [event[:2] for event in second_events] == [event[:2] for event in first_events]
    displays = [event[2] for event in first_events if event[0] == "on_display"]
    assert [d.iteration for d in displays] == [0, 2, 4]
    assert [set(d.outputs) for d in displays] == [{"loss"}, {"loss"}, set()]
    assert first_events[-1][2] is None
    assert next(event[2] for event in first_events if event[0] == "on_snapshot") == f"{tmp_path / 'x'}.orbax/3"


def test_the_end_is_reported_for_every_cause(tmp_path: Path) -> None:
    class FailingCallback(Callback):
        def on_step(self, solver: Solver) -> None:
            raise ZeroDivisionError("boom")

    solver, events = make_solver(tmp_path), []  # type: ignore[var-annotated]
    solver.callbacks += [make_listener(events), FailingCallback()]
    with pytest.raises(ZeroDivisionError, match="boom") as exc_info:
        solver.solve()
    solver.close()
    assert events[-1] == ("on_end", 1, exc_info.value)


def test_requested_tests_and_snapshots_are_reported(tmp_path: Path) -> None:
    solver, events = make_solver(tmp_path), []  # type: ignore[var-annotated]
    solver.callbacks.append(make_listener(events))
    scores = solver.test()
    solver.snapshot()
    solver.close()
    assert events == [("on_test", 0, scores), ("on_snapshot", 0, f"{tmp_path / 'x'}.orbax/0")]


def test_a_method_that_is_no_event_causes_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"Mine\.on_iteration is never called; the events are on_start, on_step, "):
        type("Mine", (Callback,), {"on_iteration": print, "on_step": print})
    solver = make_solver(tmp_path)
    with pytest.raises(ValueError, match="'snapshot' or 'stop', not 'halt'"):
        solver.request("halt")  # type: ignore[arg-type]
    solver.close()


def test_a_callback_that_reads_nothing_does_not_wait_for_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    monkeypatch.setattr(reporting.SmoothedLoss, "_read", lambda self, n: reads.append(n))
    solver, steps = make_solver(tmp_path, "max_iter: 50", steps_per_dispatch=5), []  # type: ignore[var-annotated]
    solver.callbacks += [Callback(), lambda s: steps.append(s.iteration)]
    solver.step(50)
    solver.close()
    assert reads == []
    assert steps == list(range(5, 55, 5))

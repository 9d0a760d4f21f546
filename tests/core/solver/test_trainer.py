"""The training loop with updates that compute nothing: requests, and actions between iterations."""

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.config import TrainConfig
from caffejax.base.errors import SolverError
from caffejax.core.solver.build_trainer import TrainerParts, build_trainer
from caffejax.core.solver.nan_check import FiniteCheck
from caffejax.core.solver.placement import Placement
from caffejax.core.solver.train_step import StepResult, TrainState
from caffejax.core.solver.trainer import Trainer
from caffejax.core.solver.updater import Updater

NET = """
layer { name: "data" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" }
"""
STEP_POLICY = 'lr_policy: "step"'


class RecordingUpdater(Updater):
    """An updater that changes only the iteration, and records the calls of `update`."""

    def __init__(
        self, placement: Placement, train_state: TrainState, steps_per_dispatch: int = 1, losses: Sequence[float] = ()
    ) -> None:
        super().__init__(placement, train_state)
        self.steps_per_dispatch = steps_per_dispatch
        self.calls: list[tuple[int, int]] = []
        self.rates: list[float] = []
        self._losses = list(losses)

    def update(self, iteration: int, rates: Sequence[np.float32], *, debug_info: bool, requests: object) -> StepResult:
        self.calls.append((iteration, len(rates)))
        self.rates += [float(rate) for rate in rates]
        new_iteration = jnp.int32(iteration + len(rates))
        self._state = self._state.replace(iteration=new_iteration)
        losses = [self._losses.pop(0) if self._losses else 1.0 for _ in rates]
        return StepResult(jnp.array(losses), {"loss": jnp.array(losses[-1])})

    def final_loss(self) -> jax.Array:
        return jnp.array(5.0)


class EventTrainer(Trainer):
    """A trainer that calls a function with each event."""

    def __init__(
        self, parts: TrainerParts, updater: RecordingUpdater, check: FiniteCheck, on_event: Callable[..., object]
    ) -> None:
        super().__init__(parts, updater, check)
        self._on_event = on_event

    def _notify(self, event: str, *details: object) -> None:
        self._on_event(event, *details)


def make_trainer(
    folder: Path,
    settings: str,
    steps_per_dispatch: int = 1,
    losses: Sequence[float] = (),
    on_event: Callable[..., object] = lambda event, *what: None,
    **options: Any,
) -> tuple[Trainer, RecordingUpdater]:
    parts, initial_state = build_trainer(
        f"net_param {{ {NET} }} base_lr: 8 stepsize: 2 gamma: 0.5 random_seed: 1 "
        f'snapshot_prefix: "{folder / "x"}" {settings} {"" if "lr_policy" in settings else STEP_POLICY}',
        config=TrainConfig(**options),
    )
    updater = RecordingUpdater(parts.placement, initial_state, steps_per_dispatch, losses)
    return EventTrainer(parts, updater, FiniteCheck(parts.net, parts.param.iter_size), on_event), updater


def find_logged_lines(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    return [m for m in (r.getMessage() for r in caplog.records) if any(word in m for word in words)]


def test_events_come_in_the_order_of_caffe(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = "max_iter: 4 display: 2 snapshot: 3 test_iter: 1 test_interval: 2"
    trainer, updater = make_trainer(
        tmp_path, settings, on_event=lambda event, *_: log.info("%s at %d", event, trainer.iteration)
    )
    log = logging.getLogger("caffejax")
    with caplog.at_level(logging.INFO, logger="caffejax"):
        trainer.solve()
    trainer.close()
    lines = find_logged_lines(caplog, "Testing", " lr = ", ", loss =", "on_", "Snapshotting to", "Done")
    events = [
        "on_start at 0",
        "Iteration 0, Testing net (#0)",
        "on_test at 0",
        "Iteration 0 (",
        "Iteration 0, lr = 8",
        "on_display at 0",
        "on_step at 1",
        "on_step at 2",
        "Iteration 2, Testing net (#0)",
        "on_test at 2",
        "Iteration 2 (",
        "Iteration 2, lr = 4",
        "on_display at 2",
        "on_step at 3",
        f"Snapshotting to binary proto file {tmp_path / 'x'}_iter_3.caffemodel",
        "on_snapshot at 3",
        "on_step at 4",
        f"Snapshotting to binary proto file {tmp_path / 'x'}_iter_4.caffemodel",
        "on_snapshot at 4",
        "Iteration 4, loss = 5",  # of the forward pass after the last update
        "on_display at 4",
        "Iteration 4, Testing net (#0)",
        "on_test at 4",
        "Optimization Done.",
        "on_end at 4",
    ]
    assert len(lines) == len(events)
    assert all(line.startswith(event) for line, event in zip(lines, events, strict=True)), lines
    assert updater.rates == [8, 8, 4, 4]


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ("", [(0, 3), (3, 3), (6, 3), (9, 1)]),
        ("display: 4", [(0, 1), (1, 3), (4, 1), (5, 3), (8, 1), (9, 1)]),  # what is displayed comes last
        ("snapshot: 5", [(0, 3), (3, 1), (4, 1), (5, 3), (8, 1), (9, 1)]),
        ("test_iter: 1 test_interval: 6", [(0, 3), (3, 3), (6, 3), (9, 1)]),
    ],
)
def test_updates_are_dispatched_together_if_nothing_is_due_between(
    tmp_path: Path, settings: str, calls: list[tuple[int, int]]
) -> None:
    trainer, updater = make_trainer(tmp_path, f"max_iter: 10 {settings}", steps_per_dispatch=3)
    trainer.step(10)
    trainer.close()
    assert updater.calls == calls


def count_steps_naively(trainer: Trainer, n: int, end: int) -> int:
    """Return n if nothing is due between the next n iterations, in which each is looked at, otherwise 1."""
    p = trainer.param
    for i in range(trainer.iteration, trainer.iteration + n - 1):
        is_displayed = p.display and i % p.display == 0
        is_saved = p.snapshot and (i + 1) % p.snapshot == 0
        if i + 1 >= end or is_displayed or is_saved or trainer.tests.is_due(i + 1):
            return 1
    return n


def test_the_number_of_updates_equals_that_of_a_loop_over_iterations(tmp_path: Path) -> None:
    trainer, updater = make_trainer(tmp_path, "max_iter: 10")
    rng, numbers = np.random.default_rng(0), []
    for _ in range(5000):
        p, n = trainer.param, int(rng.integers(1, 7))
        p.display, p.snapshot, p.test_interval = (int(k) for k in rng.choice([0, 0, 1, 2, 3, 5, 6, 7, 20], 3))
        p.test_offset, trainer.iteration = int(rng.integers(-9, 10)), int(rng.integers(0, 50))
        updater.steps_per_dispatch, end = n, trainer.iteration + int(rng.integers(1, 12))
        numbers.append(trainer._steps_to_dispatch(end))
        assert numbers[-1] == count_steps_naively(trainer, n, end), (p, trainer.iteration, n, end)
    assert set(numbers) == set(range(1, 7))
    trainer.param.display = trainer.param.snapshot = trainer.param.test_interval = 0
    updater.steps_per_dispatch = 10**15  # more than a loop could look at
    assert trainer._steps_to_dispatch(10**16) == 10**15
    trainer.close()


@pytest.mark.parametrize(
    "settings",
    [
        'lr_policy: "multistep" stepvalue: 3 stepvalue: 8 average_loss: 4 display: 5',
        'lr_policy: "poly" power: 2 average_loss: 7 snapshot: 6',
        'lr_policy: "plateau" plateau_winsize: 2 plateau_winsize: 3 average_loss: 2',
        "average_loss: 3 test_iter: 1 test_interval: 7 test_offset: 2 display: 4 snapshot: 5",
        "display: 3 test_iter: 1 test_interval: 2 test_initialization: false snapshot_after_train: false",
    ],
)
def test_rates_losses_and_lines_do_not_depend_on_the_number_of_updates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: str
) -> None:
    def train(n: int) -> tuple[list[float], float, list[str], list[str]]:
        caplog.clear()
        events: list[str] = []
        trainer, updater = make_trainer(
            *(tmp_path, f"max_iter: 23 {settings}", n, [(7 * i) % 5 + i / 9 for i in range(23)]),
            on_event=lambda event, *_: event == "on_step" or events.append(f"{event} {trainer.iteration}"),
        )
        with caplog.at_level(logging.INFO, logger="caffejax"):
            trainer.solve()
        trainer.close()
        lines = find_logged_lines(caplog, ", loss =", " lr = ", "Testing", "net output", "Snapshotting", "Done")
        return updater.rates, trainer.smoothed_loss, events, [re.sub(r" \(\S+ iter/s, \S+s/", " (", s) for s in lines]

    single_updates = train(1)
    assert all(train(n) == single_updates for n in (2, 4, 30))


def test_requests_are_met_after_the_current_iteration(tmp_path: Path) -> None:
    def send_requests(event: str, *_: object) -> None:
        if event == "on_step" and trainer.iteration in (3, 6):
            trainer.request("snapshot" if trainer.iteration == 3 else "stop")
            trainer.request("snapshot")  # does not take back a stop

    trainer, updater = make_trainer(tmp_path, "max_iter: 100", on_event=send_requests)
    trainer.solve()
    assert trainer.iteration == len(updater.calls) == 6
    assert sorted(p.name for p in tmp_path.glob("*.caffemodel")) == ["x_iter_3.caffemodel", "x_iter_6.caffemodel"]
    trainer.restore(tmp_path / "x.orbax" / "3")
    assert trainer.iteration == int(updater.train_state.iteration) == 3
    trainer.close()


def test_a_nonfinite_loss_is_reported_and_not_saved(tmp_path: Path) -> None:
    trainer, _ = make_trainer(
        tmp_path, "max_iter: 10 snapshot: 4", steps_per_dispatch=2, losses=[1, 2, 3, 4, 5, np.inf]
    )
    with pytest.raises(
        SolverError, match=r"iteration 5: the loss is inf; it was finite up to iteration 4\..*x\.orbax.4"
    ):
        trainer.solve()
    trainer.close()
    assert [p.name for p in tmp_path.glob("*.caffemodel")] == ["x_iter_4.caffemodel"]


def test_the_smoothed_loss_is_the_mean_of_the_last_losses(tmp_path: Path) -> None:
    trainer, _ = make_trainer(tmp_path, "max_iter: 5 average_loss: 3", steps_per_dispatch=2, losses=[9, 9, 1, 2, 6])
    assert trainer.smoothed_loss == 0
    for invalid_count in (-1, 1.5, "2"):
        with pytest.raises(ValueError, match="iterations must be an integer of at least 0, not"):
            trainer.step(invalid_count)  # type: ignore[arg-type]
    trainer.step(5)
    assert trainer.smoothed_loss == pytest.approx(3)
    trainer.close()


def test_a_stop_before_training_counts_and_does_not_outlast_it(tmp_path: Path) -> None:
    """A signal may arrive after its handler was installed and before training has begun."""
    trainer, _ = make_trainer(tmp_path, "max_iter: 3")
    trainer.request("stop")
    trainer.solve()
    assert trainer.iteration == 1
    trainer.solve()
    assert trainer.iteration == 3


def test_a_requested_test_does_not_replace_a_due_test(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Caffe's solver tests whenever the iteration is due, even if it has just tested."""
    trainer, _ = make_trainer(tmp_path, "max_iter: 2 test_iter: 1 test_interval: 2")
    with caplog.at_level(logging.INFO, logger="caffejax"):
        trainer.test()
        trainer.step(1)
        assert len(find_logged_lines(caplog, "Testing net")) == 2
        trainer.solve()
        trainer.step(1)
    trainer.close()
    assert len(find_logged_lines(caplog, "Testing net")) == 4


@pytest.mark.parametrize("when", ["in a test that is due", "in the last test", "in the test before a snapshot"])
def test_a_stop_ends_a_test_and_restores_its_data_position(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    stop_iteration = {"in a test that is due": 2, "in the last test": 4, "in the test before a snapshot": 2}[when]
    keep_options = {"keep_best": "loss"} if when.endswith("snapshot") else {}
    settings = "max_iter: 4 test_iter: 3 test_interval: 2 " + ("snapshot: 2" if keep_options else "")
    trainer, updater = make_trainer(tmp_path, settings, **keep_options)
    (evaluator,) = trainer.tests.evaluators
    read_next, batch_iterations = type(evaluator.loader).__next__, []

    def next_batch() -> dict[str, np.ndarray]:
        batch_iterations.append(trainer.iteration)
        if trainer.iteration == stop_iteration:
            trainer.request("stop")
        return read_next(evaluator.loader)

    class Loader(type(evaluator.loader)):  # type: ignore[misc]
        def __next__(self) -> dict[str, np.ndarray]:
            return next_batch()

    evaluator.loader.__class__ = Loader
    state_before = evaluator.get_state()
    with caplog.at_level(logging.INFO, logger="caffejax"):
        trainer.solve()
    trainer.close()
    assert batch_iterations.count(stop_iteration) == 1  # of three batches
    assert batch_iterations.count(0) == 3
    assert len(find_logged_lines(caplog, "Test interrupted")) == 1
    assert state_before.keys() == evaluator.get_state().keys()
    assert len(updater.calls) == stop_iteration
    assert (tmp_path / "x.orbax" / str(stop_iteration)).is_dir()

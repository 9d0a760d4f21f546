"""Pictures of solvers: learning rates, and runs of caffejax beside runs that were recorded from Caffe 1.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from chart_style import new_figure, save_figure

from caffejax import Solver
from caffejax.core.schema import read_solver
from caffejax.core.schema.caffe_pb2 import SolverParameter
from caffejax.core.solver import Callback, Scores
from caffejax.core.solver.lr_schedules import rate_schedule

REPOSITORY = Path(__file__).resolve().parents[1]
GOLDEN = REPOSITORY / "tests" / "golden"
DIGITS = REPOSITORY / "configs" / "digits" / "lenet_solver.prototxt"
CASES = {
    "sgd_step_momentum_l2": "SGD, momentum, weight decay",
    "nesterov_fixed_l2": "Nesterov",
    "adam_fixed": "Adam",
    "rmsprop_multistep_l1": "RMSProp, L1",
    "adagrad_fixed_l2": "AdaGrad",
    "adadelta_fixed": "AdaDelta",
}
SEEDS = 1, 2, 3
POLICIES: dict[str, dict[str, Any]] = {
    "fixed": {},
    "step": {"gamma": 0.5, "stepsize": 250},
    "multistep": {"gamma": 0.2, "stepvalue": [500, 800]},
    "exp": {"gamma": 0.996},
    "inv": {"gamma": 0.01, "power": 0.75},
    "poly": {"power": 0.9, "max_iter": 1000},
    "sigmoid": {"gamma": -0.01, "stepsize": 500},
    "multifixed": {"stageiter": [150, 650, 1000], "stagelr": [0.003, 0.008, 0.002]},
    "poly, warmup_iter": {"power": 0.9, "max_iter": 1000, "warmup_iter": 200},
}


class Accuracies(Callback):
    """The test accuracies of a run, by iteration."""

    def __init__(self) -> None:
        self.values: dict[int, float] = {}

    def on_test(self, solver: Solver, results: list[Scores]) -> None:
        """Keep an accuracy."""
        self.values[solver.iteration] = float(results[0].outputs["accuracy"])


def lr_policies() -> None:
    """Draw the learning rate of each policy."""
    figure, axes = new_figure(3, rows=3, height=5.5, sharex=True, sharey=True)
    for axis, (name, settings) in zip(axes, POLICIES.items(), strict=True):
        schedule = rate_schedule(SolverParameter(base_lr=0.01, lr_policy=name.split(",")[0], **settings))
        axis.plot([schedule(i) for i in range(1001)], linewidth=1.8)
        label = ", ".join(f"{key} {value}" for key, value in settings.items())
        axis.set_title(f"{name}\n")
        axis.text(0.5, 1.02, label, transform=axis.transAxes, ha="center", fontsize=7, color="gray")
    figure.supxlabel("iteration")
    figure.supylabel("learning rate, base_lr 0.01")
    save_figure(figure, "lr_policies")


def compute_losses(case: str) -> list[float]:
    """Return the loss of each iteration of a recorded case, trained from its initial weights."""
    folder = GOLDEN / "solver" / case
    solver = Solver(folder / "solver.prototxt", weights=[folder / "init.caffemodel"])
    values = []
    for _ in range(24):
        solver.step(1)
        values.append(float(solver.smoothed_loss))
    solver.close()
    return values


def compute_accuracies(seed: int) -> dict[int, float]:
    """Return the test accuracies of LeNet on the digits, by iteration."""
    param = read_solver(DIGITS)
    param.random_seed, param.snapshot, param.snapshot_after_train, param.test_interval = seed, 0, False, 100
    solver = Solver(param, file=DIGITS)
    solver.callbacks.append(accuracies := Accuracies())
    solver.solve()
    solver.close()
    return accuracies.values


def same_as_caffe() -> None:
    """Draw losses of solvers that begin with Caffe's weights, and accuracies of LeNet on the digits, beside Caffe's."""
    figure, (left, right) = new_figure(2, width=11)
    for index, (case, label) in enumerate(CASES.items()):
        recorded = np.load(GOLDEN / "solver" / case / "expected.npz")["loss"]
        left.plot(recorded, "o", color=f"C{index}", markersize=5, alpha=0.45)
        left.plot(compute_losses(case), color=f"C{index}", linewidth=1.4, label=label)
    left.plot([], [], "o", color="gray", alpha=0.5, label="Caffe 1.0")
    left.set(title="Loss, from the same weights: lines caffejax, circles Caffe 1.0", xlabel="iteration", yscale="log")
    reference = json.loads((GOLDEN / "digits" / "caffe_reference.json").read_text())["runs"]
    for index, run in enumerate(reference):
        label = f"Caffe 1.0, {len(reference)} seeds" if not index else None
        right.plot(run["iterations"], run["test_accuracy"], color="gray", alpha=0.5, linewidth=1, label=label)
    for index, values in enumerate(map(compute_accuracies, SEEDS)):
        label = f"caffejax, {len(SEEDS)} seeds" if not index else None
        right.plot(list(values), list(values.values()), linewidth=1.4, color="C0", label=label)
    right.set(title="LeNet on handwritten digits: test accuracy", xlabel="iteration", ylim=(0.94, 1), xlim=(0, 1000))
    left.set_ylim(bottom=1e-3)
    left.legend(fontsize=8, ncols=3, loc="lower left")
    right.legend(loc="lower right", fontsize=9)
    save_figure(figure, "same_as_caffe")

"""A small training run, and a callback that records its events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from caffejax import Callback, Solver

NET = """
layer { name: "data" type: "DummyData" top: "x" top: "label" dummy_data_param {
  shape { dim: 8 dim: 3 dim: 6 dim: 6 } shape { dim: 8 }
  data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "log" type: "Log" bottom: "ip" top: "log" include { phase: TRAIN } propagate_down: false }
layer { name: "worst" type: "Reduction" bottom: "log" top: "worst" include { phase: TRAIN } propagate_down: false }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SETTINGS = "max_iter: 6 display: 2 test_interval: 3 test_iter: 1 snapshot: 4"


def make_small_solver(folder: Path, settings: str = SETTINGS, net: str = NET, **options: Any) -> Solver:
    """Make a solver whose snapshots go to `folder`; logarithms of negative numbers make the output `worst` NaN."""
    text = f'net_param {{ name: "small" {net} }} base_lr: 0.1 lr_policy: "step" stepsize: 3 gamma: 0.5 random_seed: 1'
    return Solver(f'{text} snapshot_prefix: "{folder / "small"}" {settings}', **options)


class EventRecorder(Callback):
    """Records each callback with its iteration and argument."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, Any]] = []

    def on_start(self, solver: Solver) -> None:
        self.events.append(("start", solver.iteration, None))

    def on_step(self, solver: Solver) -> None:
        self.events.append(("step", solver.iteration, None))

    def on_display(self, solver: Solver, display: Any) -> None:
        self.events.append(("train", display.iteration, display))

    def on_test(self, solver: Solver, results: Any) -> None:
        self.events.append(("test", solver.iteration, results))

    def on_snapshot(self, solver: Solver, checkpoint: str) -> None:
        self.events.append(("snapshot", solver.iteration, checkpoint))

    def on_end(self, solver: Solver, error: BaseException | None) -> None:
        self.events.append(("end", solver.iteration, error))


def train(solver: Solver, *callbacks: Callback, resume: Path | None = None) -> None:
    """Train to the end with these callbacks."""
    solver.callbacks += callbacks
    try:
        solver.solve(resume=resume)
    finally:
        solver.close()

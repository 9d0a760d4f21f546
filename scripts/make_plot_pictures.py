"""Writes the pictures of docs/watching.md: trains LeNet on the digits at two learning rates, and draws the runs.

python scripts/make_plot_pictures.py    # some minutes on two cores
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from caffejax import Solver
from caffejax.cli import main
from caffejax.metrics import JsonLines
from caffejax.schema import read_solver

REPOSITORY = Path(__file__).resolve().parents[1]
PICTURES = REPOSITORY / "docs" / "pictures"
SOLVER = REPOSITORY / "configs" / "digits" / "lenet_solver.prototxt"
NET = SOLVER.with_name("lenet_train_test.prototxt")
RATES = 0.01, 0.001


def train(rate: float) -> tuple[Path, Path]:
    """Train in the working directory; return the metrics and the weights."""
    param = read_solver(SOLVER)
    param.base_lr, param.display, param.test_interval, param.snapshot = rate, 10, 50, 0
    param.snapshot_prefix = f"lr_{rate}"
    solver = Solver(param, file=SOLVER)
    metrics = Path(f"learning rate {rate}.metrics.jsonl")
    solver.callbacks.append(JsonLines(metrics))
    solver.solve()
    solver.close()
    return metrics, Path(f"lr_{rate}_iter_{param.max_iter}.caffemodel")


def pictures() -> int:
    """Train, and write the pictures; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        runs = [train(rate) for rate in RATES]
        logs = [str(metrics) for metrics, _ in runs]
        code = main(["plot", *logs, f"--out={PICTURES / 'plot_digits.png'}", "--smooth=9", "--log_loss"])
        shown = ["draw", str(NET), f"--weights={runs[0][1]}", "--blob=conv1", "--example=2", "--size=400"]
        code = code or main([*shown, f"--out={PICTURES / 'features_digits.png'}"])
        os.chdir(REPOSITORY)
    return code


if __name__ == "__main__":
    sys.exit(pictures())

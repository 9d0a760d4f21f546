"""One competitor of against_commit.py: a training step or a call of a frozen net, by the package that PYTHONPATH has.

    python benchmarks/commit_competitor.py TASK FOLDER

`cold_start_nets` writes FOLDER. Only public names are used, which both commits have. It answers as
`competitor_server.serve` does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from cold_start_process import build_frozen, build_solver
from competitor_server import Run, serve


def make_step(folder: Path) -> Run:
    return build_solver(threads=0)(folder)


def make_frozen_call(folder: Path) -> Run:
    call = build_frozen(threads=0)(folder)
    with np.load(folder / "first.npz") as file:
        inputs = jax.device_put(dict(file))
    return lambda: next(iter(call(inputs).values()))


TASKS: dict[str, Callable[[Path], Run]] = {"step": make_step, "frozen": make_frozen_call}


def main() -> None:
    task, folder = sys.argv[1], Path(sys.argv[2])
    serve(lambda: TASKS[task](folder), select_output=lambda result: result.ravel()[:100])


if __name__ == "__main__":
    main()

"""Trains a net as its solver prototxt says: tests and snapshots when due, logging in Caffe's form."""

from __future__ import annotations

import argparse

from ..errors import CaffejaxError
from . import flags
from .glog import log, start_logging

HELP = "train a net from its solver prototxt"
EXAMPLE = "caffejax train --solver=configs/digits/lenet_solver.prototxt"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    flags.add(parser, "solver", "the solver prototxt", required=True, metavar="FILE")
    flags.add(
        parser,
        "snapshot",
        "resume from a <prefix>.orbax folder (its newest step), a step in it, or a .solverstate[.h5]",
        metavar="PATH",
    )
    flags.add(parser, "weights", "start from these .caffemodel[.h5] files, separated by commas", metavar="FILES")
    flags.add(
        parser,
        "backward",
        "gradients by autodiff, or by the layers' hand-written rules",
        choices=("autodiff", "rules"),
        default="autodiff",
    )
    flags.add_device_flags(parser)
    flags.add_state_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Trains."""
    if options.snapshot and options.weights:
        raise CaffejaxError("give --snapshot to resume or --weights to fine-tune, not both")
    start_logging()
    from pathlib import Path

    from ..schema import read_solver
    from ..solvers import Solver
    from .progress import shown

    param = read_solver(Path(options.solver))
    if options.level:
        param.train_state.level = options.level
    param.train_state.stage.extend(flags.stages(options))
    device = flags.pick_device(options, prefer_gpu=param.solver_mode == param.GPU)
    log.info("Running on %s", device)
    solver = Solver(
        param,
        file=options.solver,
        weights=[w for w in (options.weights or "").split(",") if w],
        device=device,
        backward=options.backward,
    )
    try:
        with shown(solver):
            solver.solve(resume=options.snapshot)
    finally:
        solver.close()

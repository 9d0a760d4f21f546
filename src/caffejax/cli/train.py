"""Train a net as its solver prototxt says: test and snapshot when due, log in Caffe's form."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, get_args

from ..errors import CaffejaxError
from ..glog import log, start_logging
from ..options import OnSnapshotError
from . import devices, flags, nets, recording, signals, spread

if TYPE_CHECKING:
    from ..schema.caffe_pb2 import SolverParameter

HELP = "train a net from its solver prototxt"
EXAMPLE = "caffejax train --solver=configs/digits/lenet_solver.prototxt"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    flags.add(parser, "solver", "the solver prototxt", required=True, metavar="FILE")
    flags.add(
        parser,
        "snapshot",
        "resume from a <prefix>.orbax folder (its newest step), a step in it, or a .solverstate[.h5]",
        metavar="PATH",
    )
    flags.add(parser, "weights", "start from these .caffemodel[.h5] files, separated by commas", metavar="FILES")
    nets.add_strict_flag(parser)
    flags.add(parser, "keep_last", "keep this many of the newest checkpoints; all unless given", type=int, metavar="N")
    flags.add(parser, "keep_best", "keep the checkpoint with the best value of this test output too", metavar="NAME")
    flags.add_switch(
        parser, "checkpoint_only", "snapshot checkpoints only; Caffe's files bring all params together in one process"
    )
    flags.add(
        parser,
        "on_snapshot_error",
        "what to do where a snapshot cannot be written; the last one of training must be. Several processes stop",
        choices=get_args(OnSnapshotError),
        default="stop",
    )
    nets.add_state_flags(parser)
    flags.add_options(parser)
    computes = flags.group(parser, flags.COMPUTES)
    flags.add(
        computes,
        "steps_per_dispatch",
        "start this many iterations at once: for small nets on fast devices",
        type=flags.positive,
        default=1,
        metavar="N",
    )
    flags.add_switch(computes, "debug_nans", "check every step, and name the layer where NaN or infinity arises")
    devices.add_flags(parser, "run on the GPU of this number; on several, as 0,1,2, or on all")
    spread.add_flags(parser)
    recording.add_flags(parser)
    signals.add_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Train the net."""
    if options.snapshot and options.weights:
        raise CaffejaxError("give --snapshot to resume or --weights to fine-tune, not both")
    start_logging()
    from pathlib import Path

    from ..schema import read_solver

    param = read_solver(Path(options.solver))
    if options.level:
        param.train_state.level = options.level
    if options.stage:
        param.train_state.stage.extend(nets.stages(options))
    with spread.ending_together():
        spread.join_processes(options)
        _train(param, options)


def _train(param: SolverParameter, options: argparse.Namespace) -> None:
    from pathlib import Path

    from ..training import Solver
    from ..training.files import check_files

    weights = flags.several(options.weights)
    writes = bool(param.snapshot or param.snapshot_after_train)
    check_files(param, Path(options.solver), weights, options.snapshot, writes=writes)
    chosen = spread.pick_devices(options, prefer_gpu=param.solver_mode == param.GPU, device_id=param.device_id)
    several = isinstance(chosen, list)
    log.info("Running on %s", ", ".join(map(str, chosen)) if several else chosen)
    solver = Solver(
        param,
        file=options.solver,
        weights=weights,
        strict_weights=options.strict_weights,
        device=None if several else chosen,
        devices=chosen if several else None,
        parallel=spread.parallel_of(options),
        run=flags.run_of(options),
        reading=flags.reading_of(options),
        keep_last=options.keep_last,
        keep_best=options.keep_best,
        on_snapshot_error=options.on_snapshot_error,
        checkpoint_only=options.checkpoint_only,
        steps_per_dispatch=options.steps_per_dispatch,
        debug_nans=options.debug_nans,
    )
    try:
        with solver.snapshots.locked(), signals.handled(solver, options), recording.recorded(solver, options):
            log.info("Starting Optimization")
            solver.solve(resume=options.snapshot)
    finally:
        solver.close()

"""Train a net as its solver prototxt defines it, with tests and snapshots, and log in Caffe's format."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from ..base.config import TrainConfig
from ..base.errors import CaffejaxError
from ..base.glog import log, start_logging
from . import device_flags, flags, net_flags, progress_bar, signal_handlers

if TYPE_CHECKING:
    from ..core.schema.caffe_pb2 import SolverParameter

HELP = "train a net from its solver prototxt"
EXAMPLE = "caffejax train --solver=configs/digits/lenet_solver.prototxt"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_first_argument(parser, "SOLVER", "the solver prototxt", "solver")
    flags.add_fields(parser, TrainConfig)
    net_flags.add_state_flags(parser)
    parser.set_defaults(level=None)  # the solver's train_state decides
    flags.add_options(parser)
    device_flags.add_device_flags(parser, "run on the GPU with this number, on several GPUs (0,1,2), or on all")
    device_flags.add_distributed_flags(parser)
    progress_bar.add_recording_flags(parser)
    signal_handlers.add_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Train the net."""
    if options.resume and options.resume != "auto" and options.weights:
        raise CaffejaxError(
            "give --snapshot to resume or --weights to fine-tune, not both; --snapshot=auto may be given with --weights"
        )
    start_logging()
    from pathlib import Path

    from ..core.schema import read_solver

    param = read_solver(Path(options.solver))
    if options.level is not None:
        param.train_state.level = options.level
    if options.stage:
        param.train_state.stage.extend(net_flags.get_stages(options))
    with device_flags.abort_all_on_error():
        device_flags.initialize_distributed_from_flags(options)
        _train(param, options)


def _train(param: SolverParameter, options: argparse.Namespace) -> None:
    from ..core.solver import Solver

    devices = device_flags.pick_devices(options, prefer_gpu=param.solver_mode == param.GPU, device_id=param.device_id)
    log.info("Running on %s", ", ".join(map(str, devices)) if isinstance(devices, list) else devices)
    solver_options: Any = flags.get_field_values(TrainConfig, options)
    solver_options |= {
        "devices" if isinstance(devices, list) else "device": devices,
        "parallel": device_flags.make_parallel_config(options),
        "net_config": flags.make_config(options),
    }
    solver = Solver(param, file=options.solver, **solver_options)
    try:
        with (
            solver.snapshots.lock(),
            signal_handlers.handle_signals(solver, options),
            progress_bar.record_training(solver, options),
        ):
            log.info("Starting Optimization")
            solver.solve()
            if solver.iteration < solver.param.max_iter:  # stopped early, after a snapshot
                log.info("Resume with: %s", _format_resume_command(options, solver.snapshots.prefix))
    finally:
        solver.close()


def _format_resume_command(options: argparse.Namespace, prefix: str) -> str:
    """Return the command that was given, with the snapshots of `prefix` instead of a snapshot or weights."""
    flags = [word for word in options.parser.subparsers["train"].words if word.startswith("-") and word != "--"]
    kept = [word for word in flags if word.partition("=")[0].lstrip("-") not in ("snapshot", "weights")]
    return shlex.join(["caffejax", "train", f"--solver={options.solver}", *kept, f"--snapshot={prefix}.orbax"])

"""Compile a net, or a solver's training step, for TPUs or GPUs that this machine need not have, and print a report.

The target's compiler runs on this machine. The report describes one step on each device: whether it fits into memory,
operations, memory traffic, collectives, the minimum time by the device's data sheet, and the bottleneck. No device is
measured. If the net reads data, this host reads some batches for about a second, and the report compares the examples
per second that it feeds with those that the net takes. The data may be absent. Chips with a built-in data sheet: TPU
v4, v5e, v5p, v6e; NVIDIA a100, h100, h200, b200.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import Problem
from ..base.human_readable import format_bytes, format_count
from . import device_flags, flags, net_flags

if TYPE_CHECKING:
    from ..core.program.net import Net
    from ..core.schema.caffe_pb2 import LayerParameter, SolverParameter
    from ..tools.planning import DataRate, Plan, ScalingEstimate
    from ..tools.planning.hlo import Collective

HELP = "compile for a TPU or GPU without having one, to see whether it fits and how fast it could be"
EXAMPLE = "caffejax plan configs/resnet50/train_val.prototxt --target tpu:v5e:2x2 --batch 32 --precision bfloat16"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_net_argument(parser, "the net or solver prototxt; a net is trained by SGD with momentum")
    flags.add(
        parser,
        "target",
        "the devices: tpu:v5e:2x2, cuda:h100:4, or the file of a chip's data sheet, such as chip.toml:4",
        required=True,
        metavar="TARGET",
    )
    flags.add(parser, "phase", "TRAIN for a training step, TEST for a forward pass", choices=_PHASES, default="TRAIN")
    flags.add(
        parser,
        "batch",
        "examples for each device, or for each row of --mesh (default: the net's batch size)",
        type=flags.parse_positive,
        metavar="N",
    )
    flags.add(
        parser,
        "batch_axis",
        "the batch axis of the inputs: 1 for recurrent nets",
        type=flags.parse_count,
        default=0,
        metavar="N",
    )
    flags.add(
        parser,
        "largest",
        "find the largest batch that fits: estimate compiles one more time, check about four more times",
        choices=("estimate", "check", "none"),
        default="estimate",
    )
    device_flags.add_mesh_flags(parser)
    flags.add(
        parser,
        "scaling",
        "numbers of devices for which to estimate scaling, from the step's collectives and the data sheet",
        type=_parse_positive_integers,
        default="8,64,512",
        metavar="N,N",
    )
    flags.add_json_flag(parser)
    flags.add_options(parser, "precision", "kernels", "sync_bn")
    net_flags.add_state_flags(parser)


_PHASES = ("TRAIN", "TEST")


def run(options: argparse.Namespace) -> None:
    """Compile and print the plan."""
    from ..tools.planning import estimate_data_rate, parse_target, plan

    target = parse_target(options.target)
    net, solver, absent_layers = _read_net_and_solver(options)
    solver_settings: dict[str, Any] = {} if solver is None else {"solver": solver}
    device_flags.check_mesh(options, target.devices, f" in {target}")
    net_plan = plan(
        net,
        target,
        parallel=device_flags.make_parallel_config(options, "device"),
        batch=options.batch,
        batch_axis=options.batch_axis,
        largest=options.largest,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
        **solver_settings,
    )
    scaling = net_plan.scaling(options.scaling)
    data_rate = estimate_data_rate(net, options.batch_axis, absent_layers) if net_plan.fits else None
    if options.json:
        flags.print_json(_as_json(net_plan, data_rate, scaling))
    else:
        lines = [*_format_plan(net_plan), *_format_data_rate(net_plan, data_rate), *_format_scaling(net_plan, scaling)]
        print("\n".join(lines))


def _parse_positive_integers(text: str) -> list[int]:
    """Parse positive integers separated by commas, such as "8,64,512"."""
    return [flags.parse_positive(part) for part in text.split(",")]


def _read_net_and_solver(
    options: argparse.Namespace,
) -> tuple[Net, SolverParameter | None, Sequence[LayerParameter]]:
    """Return the net, the solver if the command's file is a solver, and the data layers whose sources are absent.

    In the net, Input layers of the same names replace these layers.
    """
    from ..core.graph import make_net_state
    from ..core.graph.resolve import is_included
    from ..core.program.net import Net
    from ..core.schema import read_solver, read_valid_part
    from ..core.solver import solver_param
    from ..tools.model_check.model_files import detect_kind
    from ..tools.model_check.placeholder_sources import has_missing_source

    path, config, stages = Path(options.model), flags.make_config(options), net_flags.get_stages(options)
    solver: SolverParameter | None = None
    problems: Sequence[Problem] = ()
    if not path.is_file() or detect_kind(path.read_text("utf-8-sig", "replace")) != "solver":
        message, problems = read_valid_part(path)
        state = make_net_state(message, options.phase, options.level, stages)
        settings = solver_param.NetSettings(message, state, str(path))
    else:
        solver = read_solver(path)
        solver_param.check_solver(solver, str(path))
        test_nets = solver_param.read_test_nets(solver, path.parent) if options.phase == "TEST" else []
        settings = test_nets[0] if test_nets else solver_param.read_train_net(solver, path.parent)
    message, state, file = settings.message, settings.state, Path(settings.file or path)
    absent_layers = [x for x in message.layer if is_included(x, state) and has_missing_source(x, file.parent)]
    if absent_layers:
        assumed = net_flags.assume_shapes(message, state, file, config, problems, check_settings=True)
        settings = replace(settings, message=assumed.net)
    elif solver is None:
        return Net(path, options.phase, level=options.level, stages=stages, config=config), None, ()
    return settings.build(config), solver, absent_layers


def _format_plan(plan: Plan) -> list[str]:
    chip, num_devices = plan.target.chip, plan.target.devices
    step_name = "training step" if plan.phase == "TRAIN" else "forward pass"
    row_note = "" if plan.model == 1 else f" row of {plan.model} devices"
    memory = (
        f"{format_bytes(plan.needed_bytes)} of {format_bytes(plan.usable_bytes)} ({format_bytes(chip.memory)} minus "
        "the runtime's share)"
    )
    batch = f"{format_count(plan.batch, 'example')} each{row_note}"
    lines = [
        f"{step_name} in {plan.precision} on {num_devices} x {chip.platform} {chip.name}, {batch}",
        f"memory per device  {memory}: {'fits' if plan.fits else 'DOES NOT FIT'}",
    ]
    if plan.program is not None:
        program = plan.program
        lines += [
            f"                   arguments {format_bytes(program.argument_bytes)}, "
            f"results {format_bytes(program.result_bytes)}, temporary {format_bytes(program.temp_bytes)}",
            f"operations         {plan.operations / 1e9:,.1f} G in products and convolutions",
            f"memory traffic     {program.traffic / 1e9:,.2f} GB",
            f"collectives        {program.num_collectives}",
            *(f"                   {_format_collective(c, num_devices)}" for c in program.collectives),
            f"fusions, copies    {program.num_fusions}, {program.num_copies}",
            *(f"calls to the host  {n}, whose time is not known" for n in [program.num_host_calls] if n),
            f"compiled in        {plan.compile_seconds:.1f} s",
        ]
    if plan.fits:
        parts = ", ".join(f"{name} {1000 * s:.3g} ms" for name, s in plan.seconds.items())
        lines += [
            f"best possible      {1000 * plan.best_seconds:.3g} ms, bound by {plan.bottleneck} ({parts})",
            f"                   {plan.examples_per_second:,.0f} examples per second on all devices",
        ]
    if plan.largest_batch is not None:
        lines.append(
            f"largest batch      about {plan.largest_batch}" if plan.largest_batch else "largest batch      none"
        )
    return lines


def _format_data_rate(plan: Plan, rate: DataRate | None) -> list[str]:
    if rate is None:
        return []
    if rate.examples_per_second is None:
        return [f"data               cannot be read: {rate.problem}"]
    method = "measured" if rate.is_measured else "a guess for JPEGs, as the data are absent"
    lines = [
        f"data               this host feeds {rate.examples_per_second:,.0f} examples per second "
        f"({method}, {format_count(rate.cores, 'core')}); the net takes up to {plan.examples_per_second:,.0f}"
    ]
    if rate.examples_per_second < plan.examples_per_second:
        lines.append(
            "                   at that speed the devices wait for data: try train --workers, or store smaller images"
        )
    return lines


def _format_collective(collective: Collective, num_devices: int) -> str:
    group_note = "" if collective.group_size == num_devices else f" among {collective.group_size} devices"
    return f"{collective.count} x {collective.kind} of {format_bytes(collective.bytes)}{group_note}"


def _format_scaling(plan: Plan, scaling: Sequence[ScalingEstimate]) -> list[str]:
    """Return a line of text for each number of devices, with the shortest and the longest estimate of a step."""
    lines = []
    for estimate in scaling:
        worst, best = estimate.efficiency
        lines.append(
            f"on {estimate.devices:<5,} devices   {1000 * estimate.best_seconds:.3g} to "
            f"{1000 * estimate.worst_seconds:.3g} ms per step, "
            f"collectives {1000 * estimate.collective_seconds:.3g} ms of it: "
            f"{100 * best:.0f} to {100 * worst:.0f} % of the speed without them"
        )
    return lines


def _as_json(plan: Plan, data_rate: DataRate | None, scaling: Sequence[ScalingEstimate]) -> dict[str, Any]:
    return {
        "target": str(plan.target),
        "devices": plan.target.devices,
        "precision": plan.precision,
        "phase": plan.phase,
        "batch": plan.batch,
        "model": plan.model,
        "fits": plan.fits,
        "memory_needed": plan.needed_bytes,
        "memory_usable": plan.usable_bytes,
        "operations": plan.operations,
        "program": None if plan.program is None else asdict(plan.program),
        "seconds": plan.seconds,
        "best_seconds": plan.best_seconds,
        "bound_by": plan.bottleneck,
        "examples_per_second": plan.examples_per_second,
        "data": None if data_rate is None else asdict(data_rate),
        "compile_seconds": plan.compile_seconds,
        "largest_batch": plan.largest_batch,
        "scaling": [
            {
                "devices": s.devices,
                "collective_seconds": s.collective_seconds,
                "best_seconds": s.best_seconds,
                "worst_seconds": s.worst_seconds,
                "best_efficiency": s.efficiency[1],
                "worst_efficiency": s.efficiency[0],
            }
            for s in scaling
        ],
    }

"""What a solver's settings ask for, built and checked before anything runs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

from ..checkpoints.loading import load_weights
from ..data.loader import Loader
from ..layers.context import name_key
from ..net import Net, Variables
from ..options import Reading, Run
from ..paths import find
from ..schedule.limit import available_memory
from ..schema import read_solver, source_file
from ..schema.caffe_pb2 import SolverParameter
from . import policies, settings
from .report import log
from .snapshots import Snapshots
from .state import TrainState
from .testing import Tests
from .transforms import caffe_optimizer


@dataclass(frozen=True)
class Setup:
    """The parts that training is composed of.

    Attributes:
        param: the settings.
        file: where they came from.
        device: where to run.
        seed: where all randomness comes from.
        rate_schedule: the learning rate by iteration.
        net: the train net.
        loader: its batches.
        tests: the test nets.
        optimizer: the update rule.
        snapshots: where snapshots go.
        keep_best: the test output that checkpoints are ranked by, if they are.
    """

    param: SolverParameter
    file: Path | None
    device: jax.Device
    seed: int
    rate_schedule: policies.RateSchedule
    net: Net
    loader: Loader
    tests: Tests
    optimizer: optax.GradientTransformationExtraArgs
    snapshots: Snapshots
    keep_best: str | None


def build(
    solver: str | os.PathLike[str] | SolverParameter,
    file: str | os.PathLike[str] | None = None,
    *,
    device: jax.Device | None = None,
    seed: int | None = None,
    weights: Sequence[str | os.PathLike[str]] = (),
    keep_last: int | None = None,
    keep_best: str | None = None,
    open_loader: Callable[[Net], Loader] = lambda net: Loader(net.graph),
    run: Run = Run(),
    reading: Reading = Reading(),
) -> tuple[Setup, TrainState]:
    """Build what a solver's settings ask for, and the state that training starts from, on the device.

    Args:
        solver, file, device, seed, weights, keep_last, keep_best: as `Solver` takes them.
        open_loader: what opens a net's data.
        run: how the nets compute; test nets are never recomputed.
        reading: how they read; their seed is the solver's.

    Raises:
        SolverError, SchemaError, GraphError, DataError, WeightsError: for settings, nets or weights that cannot work.
    """
    param = read_solver(solver)
    path = Path(file) if file is not None else source_file(solver)
    folder = path.parent if path else None
    settings.check(param, os.fspath(path) if path else None)
    device = device or jax.devices()[0]
    seed = _seed(param, seed)
    key = jax.random.key(seed)

    reading = replace(reading, seed=seed)
    train = settings.train_net(param, folder)
    log.info("Creating training net%s.", f" from net file: {train.file}" if train.file else " specified in the solver")
    net = _net(train, _limited(run, device), reading)
    loader = open_loader(net)
    test_nets = [_net(test, replace(run, remat="none"), reading) for test in settings.test_nets(param, folder)]
    tests = Tests(param, test_nets, net, key, device, open_loader)

    given = [find(w, folder) for entry in param.weights for w in entry.split(",")]
    variables = _initial(net, key, [*given, *weights])
    optimizer = optimizer_of(param, net)
    setup = Setup(
        param=param,
        file=path,
        device=device,
        seed=seed,
        rate_schedule=policies.rate_schedule(param),
        net=net,
        loader=loader,
        tests=tests,
        optimizer=optimizer,
        snapshots=Snapshots(param, path, tests.keep(keep_last, keep_best)),
        keep_best=keep_best,
    )
    return setup, jax.device_put(start_of(variables, optimizer, key), device)


def optimizer_of(param: SolverParameter, net: Net) -> optax.GradientTransformationExtraArgs:
    """Make the update rule that a solver's settings ask for, of a net's params."""
    return caffe_optimizer(param, _multipliers(net, "lr_mult"), _multipliers(net, "decay_mult"))


def start_of(variables: Variables, optimizer: optax.GradientTransformationExtraArgs, key: jax.Array) -> TrainState:
    """Make the state that training starts from."""
    return TrainState(
        params=variables.params,
        state=variables.state,
        opt_state=optimizer.init(variables.params),
        iteration=jnp.int32(0),
        key=name_key(key, "train"),
    )


def _seed(param: SolverParameter, given: int | None) -> int:
    if param.random_seed >= 0:
        return int(param.random_seed)
    return secrets.randbits(31) if given is None else given


def _limited(run: Run, device: jax.Device) -> Run:
    """Set the memory limit to what the device has free, where one is needed and none is given."""
    if run.remat == "auto" and run.memory_limit is None:
        return replace(run, memory_limit=available_memory(device))
    return run


def _net(net: settings.NetSettings, run: Run, reading: Reading) -> Net:
    return Net(net.message, state=net.state, file=net.file, run=run, reading=reading)


def _initial(net: Net, key: jax.Array, weights: Sequence[str | os.PathLike[str]]) -> Variables:
    variables = net.init(name_key(key, "init"))
    for path in weights:
        log.info("Finetuning from %s", path)
        variables = load_weights(net.graph, variables, path)
    return variables


def _multipliers(net: Net, name: str) -> dict[str, tuple[float | None, ...]]:
    """Make a tree like the params, of each one's lr_mult or decay_mult."""
    return net.tree(lambda p: getattr(p, name) if p.spec.learnable else None)

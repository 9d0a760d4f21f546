"""Construction of the train net, test nets, loaders, optimizer and train state from a solver's settings."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from ...base.config import DataShard, NetConfig, TrainConfig
from ...base.errors import GraphError, Problem, SolverError, locate_errors, raise_if_any
from ...base.host_memory import get_memory_budget
from ...base.human_readable import format_count
from ..checkpoints.load_save import drop_empty_files, load_weights
from ..data.loader import Loader
from ..data.split_batch_size import split_batch_sizes
from ..data.user_data import UserData, format_inputs
from ..graph import Graph
from ..graph.caffe_log import log_creation
from ..graph.trained_layers import separate_params
from ..layers.bucketed_random import make_key
from ..layers.context import fold_in_name
from ..parallel.coordination import broadcast_from_first
from ..parallel.mesh import DATA, first_local_device, local_shard, make_mesh
from ..program.callbacks import find_layers_outside_programs, find_layers_without_padding, find_writers
from ..program.net import Net
from ..schema import format_text, read_solver, source_file
from ..schema.caffe_pb2 import SolverParameter
from . import lr_schedules, solver_param
from .caffe_optimizer import make_optimizer
from .evaluate import supports_parallel_eval
from .fingerprint import check_same_job
from .optax_interface import drop_update_settings, use_optax
from .output_checks import check_layer_outputs, check_snapshot_files
from .periodic_evaluation import PeriodicEvaluation
from .placement import Placement
from .reporting import log
from .shared_folder import check_shared_folder
from .snapshots import Snapshots, snapshot_prefix
from .solver_param import check_files, find_weights_files
from .state_files import find_resumable
from .train_step import TrainState
from .training_memory import check_memory


@dataclass(frozen=True)
class TrainerParts:
    """The nets, data, optimizer and options of one training run.

    Attributes:
        param: the settings from the solver prototxt.
        file: the solver's file, or None.
        device: the device that trains, or the first device of this process if several devices train.
        placement: places the train state and batches on the devices.
        config: the solver's options, with the files of the first weights, and the snapshot to restore before training.
        seed: the seed of all random numbers.
        rate_schedule: the learning rate as a function of the iteration. It is NaN with an optimizer of optax, which has
            a learning rate of its own.
        net: the train net.
        loader: an iterator that yields the batches of the train net.
        tests: the test nets.
        optimizer: the update rule.
        snapshots: writes and reads snapshots.
    """

    param: SolverParameter
    file: Path | None
    device: jax.Device
    placement: Placement
    config: TrainConfig
    seed: int
    rate_schedule: lr_schedules.RateSchedule
    net: Net
    loader: Loader
    tests: PeriodicEvaluation
    optimizer: optax.GradientTransformationExtraArgs
    snapshots: Snapshots

    @property
    def batch_size(self) -> int:
        """The number of examples per iteration: the net's batch size times `iter_size` times the rows of the mesh."""
        graph = self.net.graph
        names = self.net.input_names or graph.layers[0].tops
        shape = graph.blobs[names[0]].shape if names else ()
        return self.param.iter_size * self.net.config.shard.total * (shape[0] if shape else 1)


def build_trainer(
    solver: str | os.PathLike[str] | SolverParameter,
    file: str | os.PathLike[str] | None = None,
    config: TrainConfig | None = None,
    *,
    data: Any = None,
    test_data: Any = None,
    open_loader: Callable[[Net], Loader] | None = None,
    checks_memory: bool = False,
    on_net_built: Callable[[Net, SolverParameter], None] = lambda net, param: None,
) -> tuple[TrainerParts, TrainState]:
    """Validate a solver's settings, and return its `TrainerParts` and the initial train state, placed on the devices.

    Args:
        solver, file, data, test_data: see `Solver`.
        config: the solver's options. Test nets never rematerialize.
        open_loader: a function that returns the loader of a net, or None. It replaces `data` and `test_data`.
        checks_memory: whether to check that training on one device fits into the device's memory.
        on_net_built: a function that is called with the train net and the solver's settings as soon as the net is
            built, to start work in the background. It is called only for training on one device.

    Raises:
        SolverError: if the solver's settings or the options are invalid.
        SchemaError: if a prototxt file cannot be parsed.
        GraphError: if a net is invalid.
        DataError: if the data cannot be opened.
        WeightsError: if the weights cannot be read or do not fit the net.
    """
    config, param = config or TrainConfig(), read_solver(solver)
    path = Path(file) if file is not None else source_file(solver)
    folder = path.parent if path else None
    if config.optimizer is not None:
        param = drop_update_settings(param, path)
    solver_param.check_solver(param, os.fspath(path) if path else None, needs_update=config.optimizer is None)
    resume = find_resumable(snapshot_prefix(param, path)) if config.resume == "auto" else config.resume
    weights_paths = config.weights or find_weights_files(param, path)
    if resume is not None:
        weights_paths = ()  # the snapshot has weights
    if list(weights_paths) != find_weights_files(param, path):  # the setting is replaced, as Caffe's flags replace it
        param.weights[:] = [os.fspath(p) for p in weights_paths]
    check_files(param, path, weights_paths, resume)
    config = replace(config, weights=weights_paths, resume=resume)
    devices, parallel = _select_devices(config), config.parallel
    if len(devices) == 1 and jax.process_count() == 1 and (parallel.model > 1 or parallel.shard != "none"):
        raise SolverError(
            f"model={parallel.model} and shard={parallel.shard!r} need several devices, but training uses one device; "
            "set devices to use more"
        )
    mesh = make_mesh(devices, parallel.model)
    device = first_local_device(mesh)
    seed = _choose_seed(param, config.seed)
    key = make_key(seed)

    num_parts = mesh.shape[DATA] if parallel.batch == "global" else 1
    net_config = replace(config.net_config, seed=seed, shard=local_shard(mesh), num_parts=num_parts)
    net_config = config_for_mesh(mesh, net_config)
    with locate_errors(file=os.fspath(path) if path else None):
        train_settings = solver_param.read_train_net(param, folder)
        test_settings = solver_param.read_test_nets(param, folder)
    if num_parts > 1:
        with locate_errors(file=train_settings.file):
            message = split_batch_sizes(train_settings.message, num_parts, train_settings.state)
            train_settings = replace(train_settings, message=message)
    log.info("Initializing solver from parameters: \n%s", format_text(param))
    source = f"from net file: {train_settings.file}" if train_settings.file else "specified in the solver"
    log.info("Creating training net %s.", source)
    net = train_settings.build(_set_memory_limit(net_config, device))
    if net_config.axis_name is not None and any(x.type.traits.takes_one_image for x in net.graph.layers):
        net_config = replace(net_config, joins_batches=False)
        net = train_settings.build(_set_memory_limit(net_config, device))
    log_creation(net.graph)
    if (param.snapshot or param.snapshot_after_train) and not config.checkpoint_only:
        check_snapshot_files(param, net.graph)
    if mesh.size > 1:
        check_host_layers(net.graph, mesh)
    else:
        if checks_memory:
            check_memory(net, device, net_config.memory_limit, train_settings.build)
        on_net_built(net, param)
    test_config = replace(net_config, remat="none", axis_name=None, sync_bn=False, num_parts=1)
    test_nets = []
    for i, settings in enumerate(test_settings):
        source = f"by net file: {settings.file}" if settings.file else "in the solver"
        log.info("Creating test net (#%d) specified %s", i, source)
        test_nets.append(_build_test_net(settings, test_config, net.graph))
        log_creation(test_nets[-1].graph)
    nets = [("the train net", net), *((f"test net #{i}", test_net) for i, test_net in enumerate(test_nets))]
    check_layer_outputs([(name, net.graph) for name, net in nets])
    open_loader = open_loader or make_loader_opener(nets, data, test_data)
    loader = open_loader(net)
    tests = PeriodicEvaluation(param, test_nets, net, key, mesh, open_loader)
    loaders = [loader, *(evaluator.loader for evaluator in tests.evaluators)]
    named_nets = {name: (net, loader) for (name, net), loader in zip(nets, loaders, strict=True)}
    check_same_job(param, config, seed, devices, named_nets)
    if param.snapshot or param.snapshot_after_train:
        check_shared_folder(snapshot_prefix(param, path))
    log.info("Solver scaffolding done.")

    optimizer = make_optimizer(param, net) if config.optimizer is None else use_optax(config.optimizer, net)
    placement = Placement(mesh, net.graph, parallel.shard)
    for weights_file in weights_paths:
        log.info("Finetuning from %s", weights_file)
    variables = load_weights(
        drop_empty_files(weights_paths, config.strict_weights),
        net.graph,
        placement.init_variables(net, fold_in_name(key, "init")),
        config.strict_weights,
    )
    parts = TrainerParts(
        param=param,
        file=path,
        device=device,
        placement=placement,
        config=config,
        seed=seed,
        rate_schedule=lr_schedules.rate_schedule(param) if config.optimizer is None else lambda _: np.float32(np.nan),
        net=net,
        loader=loader,
        tests=tests,
        optimizer=optimizer,
        snapshots=Snapshots(param, path, tests.keep_rule(config.keep_last, config.keep_best), config),
    )
    return parts, placement.init_state(variables, optimizer, key)


def config_for_mesh(mesh: Mesh, config: NetConfig) -> NetConfig:
    """Return the configuration of a net that is trained on a mesh of devices.

    If the mesh has several rows, `axis_name` is set, because each row of devices then processes a separate batch.
    """
    return replace(config, axis_name=DATA) if mesh.shape[DATA] > 1 else config


def check_host_layers(graph: Graph, mesh: Mesh) -> None:
    """Raise `GraphError` if layers on the host cannot be trained on a mesh.

    They must be callbacks of the program, for each device in this process. Files and positions exist only once.
    """
    host_layers = [layer for layer in graph.layers if layer.type.on_host]
    refused = host_layers
    if mesh.axis_names == (DATA,) and jax.process_count() == 1:
        positions = [layer for layer in host_layers if layer.type.position is not None]
        outside = [*find_layers_outside_programs(graph), *find_layers_without_padding(graph)]
        refused = [*outside, *find_writers(graph), *positions] if host_layers else []
    if refused:
        reasons = "depends on all rows of a blob whose number of rows depends on values", "runs on the host"
        raise GraphError(
            layer.make_problem(
                f"{reasons[layer.type.on_host]}, so the net cannot be trained on several devices; train on one device"
            )
            for layer in {layer.key: layer for layer in refused}.values()
        )


def _build_test_net(settings: solver_param.NetSettings, config: NetConfig, train_graph: Graph) -> Net:
    """Return a test net. If only one device can test it, it reads all batches instead of this process's share."""

    def build(config: NetConfig) -> Net:
        test_net = settings.build(config)
        graph = separate_params(test_net.graph, train_graph)
        return test_net if graph is test_net.graph else test_net.with_graph(graph, reshaped=True)

    test_net = build(config)
    if config.shard == DataShard() or supports_parallel_eval(test_net):
        return test_net
    if jax.process_count() > 1 and test_net.graph.has_host_layers:
        message = (
            "the test net has layers that run on the host, so several processes cannot test it; train in one process"
        )
        raise GraphError(Problem(message, file=settings.file))
    return build(replace(config, shard=DataShard()))


def _select_devices(config: TrainConfig) -> list[jax.Device]:
    """Return the devices to train on, including the devices of other processes."""
    devices, processes = config.devices, jax.process_count()
    if config.device is not None and processes > 1:
        raise SolverError(f"device is {config.device}, but several processes train on all their devices; omit device")
    if devices is None:
        return jax.devices() if processes > 1 else [config.device or jax.local_devices()[0]]
    if isinstance(devices, Sequence):
        return list(devices)
    available_devices = jax.devices()
    if devices > len(available_devices):
        raise SolverError(
            f"{devices} devices are needed, but JAX has {format_count(len(available_devices), 'device')}; "
            f"set JAX_NUM_CPU_DEVICES={devices} in the environment to simulate them on a CPU"
        )
    return available_devices[:devices]


def _choose_seed(param: SolverParameter, default: int | None) -> int:
    number = broadcast_from_first(secrets.randbits(31))  # all processes take part, even if their settings differ
    if param.random_seed >= 0:
        return int(param.random_seed)
    return number if default is None else default


def _set_memory_limit(config: NetConfig, device: jax.Device) -> NetConfig:
    if config.remat == "auto" and config.memory_limit is None:
        return replace(config, memory_limit=get_memory_budget(device))
    return config


def make_loader_opener(nets: Sequence[tuple[str, Net]], data: Any, test_data: Any) -> Callable[[Net], Loader]:
    """Return a function that takes one of a solver's nets and opens its loader, which yields the net's batches.

    Args:
        nets: the name of each net, for messages, and the net: first the train net, then the test nets.
        data: the data of the train net's Input layers, or None; see `UserData`.
        test_data: the data of the test net's Input layers, or None. For several test nets, it is a list with one item
            for each net, which is None for a net without Input layers.

    Raises:
        SolverError: if a net has Input layers but no data, or has data but no Input layers. The message names each such
            net.
    """
    num_tests = len(nets) - 1
    arguments = [("data", data), *[("test_data", test_data)] * num_tests]
    if test_data is not None and not num_tests:
        raise SolverError("test_data is given, but the solver has no test nets: set test_iter and test_interval")
    if num_tests > 1:
        items = [None] * num_tests if test_data is None else test_data
        if not (isinstance(items, list | tuple) and len(items) == num_tests):
            raise SolverError(
                f"test_data must be a list of {num_tests} items: the data of each test net, or None for a net without "
                "Input layers"
            )
        arguments[1:] = [(f"test_data[{i}]", item) for i, item in enumerate(items)]
    named_nets = list(zip(nets, arguments, strict=True))
    problems = (_find_problems(net_name, net.graph, *argument) for (net_name, net), argument in named_nets)
    raise_if_any(SolverError, itertools.chain.from_iterable(problems))
    argument_of = {net: argument for (_, net), argument in named_nets}

    def open_loader(net: Net) -> Loader:
        name, value = argument_of[net]
        user_data = None if value is None else UserData(name, value, net.graph, compares=True)
        return Loader(net.graph, user_data=user_data)

    return open_loader


def _find_problems(net_name: str, graph: Graph, argument: str, data: Any) -> Iterator[Problem]:
    if graph.caller_inputs and data is None:
        yield Problem(
            f"{net_name} has no data for {'; '.join(format_inputs(graph))}. In Python, "
            f"pass the data to the solver: caffejax.Solver(..., {argument.partition('[')[0]}="
            f"{{{', '.join(f'{blob!r}: array' for blob in graph.caller_inputs)}}}); see 'Training on your own arrays' "
            "in the documentation. On the command line, replace these layers with data layers, such as Data, "
            "ImageData or HDF5Data",
            graph.file,
        )
    elif data is not None and not graph.caller_inputs:
        yield Problem(
            f"{argument} is given, but {net_name} has no Input layers that read it; replace the "
            f"net's data layers with an Input layer, or omit {argument}",
            graph.file,
        )

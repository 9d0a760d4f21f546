"""The fingerprint of a training job: all that its processes must have in common, part by part."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from ..._version import __version__
from ...base.config import NetConfig, Parallel, TrainConfig
from ..data.data_identity import checksum_arrays, checksum_bytes, checksum_file
from ..data.loader import Loader
from ..parallel.coordination import check_equal
from ..program.net import Net
from ..schema import format_text
from ..schema.caffe_pb2 import SolverParameter
from .solverstate_io import find_weights, is_caffe_state

_NET_FIELDS = ("net_param", "train_net_param", "test_net_param")  # nets are compared by layer
# options that may differ between hosts, or whose files and arrays are compared
_OWN_OPTIONS = ("weights", "device", "devices", "resume", "memory_limit", "workers", "shard", "optimizer")
_SAME_FILES = "give all processes the same files"
_SAME_OPTIONS = "start all processes with the same flags or keywords"
_SAME_DATA = "copy the same data to all hosts, and pass the same arrays in the same order to all processes"
_SAME_SNAPSHOT = "resume all processes from the same snapshot, in a folder that all can see"
_MAX_CONTENT = 2**20  # bytes; larger files contain arrays, and smaller ones the checksums of arrays


def check_same_job(
    param: SolverParameter,
    config: TrainConfig,
    seed: int,
    devices: Sequence[jax.Device],
    nets: Mapping[str, tuple[Net, Loader]],
) -> None:
    """Check that all processes train the same job, in one exchange; all processes must call it together.

    Args:
        param: the solver's settings.
        config: the solver's options, with the files of the first weights, and the snapshot to restore.
        seed: the seed of all random numbers.
        devices: the devices of all processes that train.
        nets: the nets and their data, by names for messages.

    Raises:
        CaffejaxError: in all processes, if they differ. The message names each part that differs, the processes, and
            the remedy.
    """
    if jax.process_count() == 1:
        return
    same_version = "install the same version on all hosts"
    listed = ", ".join(f"{device.platform} {device.process_index}:{device.id}" for device in devices)
    devices_text = f"{len(devices)} devices (checksum {checksum_bytes([listed.encode()]):08x})"
    first_weights = " ".join(f"{checksum_file(path):08x}" for path in config.weights) or "none"
    parts = {
        "the version of caffejax": (__version__, same_version),
        "the version of JAX": (jax.__version__, same_version),
        "the devices": (devices_text, "start all processes with the same devices"),
        "the seed": (str(seed), _SAME_OPTIONS),
        "the first weights": (first_weights, _SAME_FILES),
        "the snapshot to resume": (_describe_snapshot(config.resume), _SAME_SNAPSHOT),
    }
    parts |= {f"the solver's {name}": (value, _SAME_FILES) for name, value in _describe_settings(param)}
    parts |= {f"the option {name}": (value, _SAME_OPTIONS) for name, value in _describe_options(config)}
    for net_name, (net, loader) in nets.items():
        for layer in net.graph.layers:
            parts[f"layer '{layer.key}' of {net_name}"] = format_text(layer.definition.layer), _SAME_FILES
        for key, value in loader.describe_data().items():
            parts[f"the data of '{key}' of {net_name}"] = value, _SAME_DATA
    if config.optimizer is not None:
        train_net, _ = next(iter(nets.values()))
        parts["the optimizer"] = _describe_optimizer(config.optimizer, train_net), _SAME_OPTIONS
    check_equal("compare the job", parts)


def check_same_snapshot(path: str | os.PathLike[str]) -> None:
    """Check that all processes restore the same snapshot; all processes must call it together.

    Raises:
        CaffejaxError: in all processes, if they differ.
    """
    if jax.process_count() > 1:
        check_equal("restore a snapshot", {"the snapshot to resume": (_describe_snapshot(path), _SAME_SNAPSHOT)})


def _describe_snapshot(path: str | os.PathLike[str] | None) -> str:
    """Return the name of a snapshot and a checksum of Caffe's two files, or of the files of a checkpoint's step."""
    if path is None:
        return "none"
    path = Path(path)
    if is_caffe_state(path):
        from ..checkpoints.solverstate import read_solverstate  # importing h5py takes long

        learned_net = read_solverstate(path).learned_net
        weights = find_weights(path, learned_net) if learned_net else None
        checksum = checksum_arrays([checksum_file(file) for file in (path, weights) if file])
        return f"{path.name} (checksum {checksum:08x})"
    if not path.name.isdigit():
        steps = [step for step in path.iterdir() if step.name.isdigit()] if path.is_dir() else []
        path = max(steps, key=lambda step: int(step.name), default=path)
    parts: list[bytes] = []
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        size = file.stat().st_size
        parts += [f"{file.relative_to(path)} {size}".encode(), file.read_bytes() if size <= _MAX_CONTENT else b""]
    return f"iteration {path.name} (checksum {checksum_bytes(parts):08x})"


def _describe_settings(param: SolverParameter) -> Iterable[tuple[str, str]]:
    values: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+):? (.*(?:\n[ }].*)*)", format_text(param), re.MULTILINE):
        values.setdefault(name, []).append(" ".join(value.split()))
    return ((name, ", ".join(texts)) for name, texts in values.items() if name not in _NET_FIELDS)


def _describe_options(config: TrainConfig) -> Iterator[tuple[str, str]]:
    for settings in (config, config.parallel, config.net_config):
        for field in fields(settings):
            value = getattr(settings, field.name)
            is_group = isinstance(value, NetConfig | Parallel)
            if field.name not in (*_OWN_OPTIONS, "seed") and not is_group:
                yield field.metadata.get("flag") or field.name, repr(value)


def _describe_optimizer(optimizer: optax.GradientTransformation, net: Net) -> str:
    transformation = optax.with_extra_args_support(optimizer)
    params, _ = net.graph.map_variables(lambda param: jax.ShapeDtypeStruct(param.spec.shape, np.float32))

    def update(params: Any) -> Any:
        return transformation.update(params, transformation.init(params), params, value=0.0)

    program = jax.make_jaxpr(update)(params)
    return f"{re.sub(r' at 0x[0-9a-f]+', '', str(program))} {checksum_arrays(program.consts)}"

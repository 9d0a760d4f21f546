"""Keys of compiled functions in the cache of compiled programs on disk; see `kernels/executable_cache.py`.

A key consists of everything that determines the function: the net, its configuration and the solver's settings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from ..base.config import NetConfig
from ..core.data.transform import Normalize
from ..core.graph import Graph, Layer, Param
from ..core.layers.registry import is_builtin
from ..core.program.net import Net
from ..core.schema.caffe_pb2 import SolverParameter

# settings that do not affect compiled functions: rates are arguments, and only the trainer reads the other settings
_UNCOMPILED_SETTINGS = (
    *("net", "net_param", "train_net", "train_net_param", "train_state", "test_net", "test_net_param", "test_state"),
    *("test_iter", "test_interval", "test_compute_loss", "test_initialization", "base_lr", "lr_policy", "gamma"),
    *("power", "stepsize", "stepvalue", "max_iter", "display", "average_loss", "snapshot", "snapshot_prefix"),
    *("snapshot_format", "snapshot_after_train", "random_seed", "weights", "debug_info"),
)


def net_cache_key(name: str, net: Net, solver_param: SolverParameter | None = None) -> bytes | None:
    """Return the cache key of a compiled function, or None if the function must not be stored.

    Args:
        name: the function's name.
        net: the net.
        solver_param: the settings of the solver on which the function depends, or None.
    """
    key = graph_cache_key(f"{name} of {type(net).__module__}.{type(net).__qualname__}", net.graph, net.config)
    if key is None or solver_param is None:
        return key
    settings = SolverParameter()
    settings.CopyFrom(solver_param)
    for field in _UNCOMPILED_SETTINGS:
        settings.ClearField(field)
    return key + settings.SerializeToString(deterministic=True)


def graph_cache_key(name: str, graph: Graph, config: NetConfig) -> bytes | None:
    """Return the cache key of a compiled function of a graph, or None if the function must not be stored.

    The function must not be stored if it depends on code or files other than the net and caffejax. This applies to
    layers on the host, layer types that a user registered, and layer types that are built for a single layer, which may
    read files.
    """
    if graph.has_host_layers or any(map(_depends_on_other_code, graph.layers)):
        return None
    digest = hashlib.sha256()
    for part in (name, config.compute_options, *_graph_fingerprint(graph)):
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(f"{len(data)}\n".encode() + data)
    if any(not isinstance(layer.device_transform, Normalize | None) for layer in graph.layers):
        return None
    return digest.digest()


def _depends_on_other_code(layer: Layer) -> bool:
    return layer.context.has_own_type or not (layer.type.is_input or is_builtin(layer.type))


def _graph_fingerprint(graph: Graph) -> Iterator[Any]:
    yield graph.phase, graph.input_layer_tops, graph.outputs, graph.force_backward
    yield sorted((name, blob.shape, str(blob.dtype)) for name, blob in graph.blobs.items())
    for layer in graph.layers:
        yield layer.definition.layer.SerializeToString(deterministic=True)
        yield from _layer_fingerprint(layer)


def _layer_fingerprint(layer: Layer) -> Iterator[Any]:
    yield (
        layer.key,
        layer.type.name,
        layer.type.is_input,
        layer.context.phase,
        layer.bottoms,
        layer.tops,
        layer.loss_weights,
    )
    yield layer.need_backward, layer.bottom_need_backward
    yield [_param_fingerprint(param) for param in layer.all_params]
    if layer.source_spec is not None:
        yield [(top.shape, str(top.dtype)) for top in (*layer.source_spec.tops, *(layer.source_spec.arrays or ()))]
        if isinstance(normalize := layer.device_transform, Normalize):
            yield normalize.scale, normalize.mean.shape, str(normalize.mean.dtype)
            yield normalize.mean.tobytes()


def _param_fingerprint(param: Param) -> tuple[Any, ...]:
    spec = param.spec
    multipliers = param.lr_mult, param.decay_mult, param.need_backward
    return param.owner, spec.shape, spec.learnable, spec.persistent, spec.rewrite is None, *multipliers

"""The rules that decide which forward passes run on a net compiled for inference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.config import NetConfig
from ...base.host_memory import get_free_memory
from ...base.variables import Blobs, Variables
from ...core.graph import Graph, Layer, make_inference_graph
from ...core.graph.inference_graph import find_inference_names
from ...core.layers import Traced
from ...core.layers.context import Epilogue
from ...core.layers.dispatch import forward
from ...core.ops import compilation
from .frozen_net import Frozen

_NUM_COPIES = 2  # the number of copies of the weights that a compiled net may hold
_FREE_CHANGES = 2  # after this many changes of the weights, which look like edits, the net is compiled at once
_PATIENCE = 16  # after later changes, the number of passes with equal weights before compilation; doubles each time
_MAX_BLOB_SETS = 4  # the number of sets of blobs for which a net is compiled at the same time


class FrozenPasses:
    """Forward passes of a net compiled for inference, with fixed parameters and state. `freeze_passes` creates it.

    Args:
        graph: the net's graph.
        config: the kernels, precision and other settings of the computation.
        variables: the parameters and state.
        names: the blobs to return, as `{name in the net: name in the graph that make_inference_graph returns}`.
    """

    def __init__(self, graph: Graph, config: NetConfig, variables: Variables, names: Mapping[str, str]) -> None:
        self._names, self._loss_weights = names, graph.loss_weights
        self._frozen = Frozen(make_inference_graph(graph, names), variables, config)
        transformed_layers = [layer for layer in graph.layers if layer.device_transform is not None]

        def transform(inputs: Mapping[str, Any]) -> dict[str, Any]:
            results = (
                (layer.tops, layer.transform_on_device([inputs[top] for top in layer.tops]))
                for layer in transformed_layers
            )
            return {top: value for tops, values in results for top, value in zip(tops, values, strict=True)}

        self._transform = compilation.Jitted(transform, config.kernels) if transformed_layers else None

    def __call__(self, inputs: Mapping[str, Any], key: Any) -> Blobs:
        """Return the blobs of one forward pass, by name.

        Args:
            inputs: the batch of the net's inputs, by name.
            key: the random key of the pass.
        """
        batch = inputs if self._transform is None else {**inputs, **self._transform(inputs)}
        return self.run_transformed(batch, lambda: key)

    def run_transformed(self, inputs: Mapping[str, Any], make_key: Callable[[], Any]) -> Blobs:
        """Return the blobs of one forward pass, by name.

        Args:
            inputs: the batch, to which `transform_on_device` of the data layers has already been applied.
            make_key: a function that returns the random key. It is called only if a layer may draw random numbers.
        """
        blobs = self._frozen(inputs, make_key() if self._frozen.may_draw(inputs) else None)
        return {name: blobs[inference_name] for name, inference_name in self._names.items()}

    def loss(self, blobs: Blobs) -> Any:
        """Return the sum of the weighted losses of a pass, as float32.

        Args:
            blobs: the blobs of the pass, which must include `output_and_loss_names`.
        """
        sums = (weight * np.sum(blobs[name], dtype=np.float32) for name, weight in self._loss_weights.items())
        return np.float32(sum(sums))


def freeze_passes(graph: Graph, config: NetConfig, variables: Variables, blobs: Iterable[str]) -> FrozenPasses | None:
    """Compile a net's forward passes for inference, if the results are then the same as from `Net.apply`.

    A net is not compiled if its phase is TRAIN, if layers run on the host, if its state changes between passes (as in
    recurrent layers), if kernels or precision are not the defaults, or if two copies of the weights do not fit into
    free memory.

    Args:
        graph: the net's graph.
        config: the kernels, precision and other settings of the computation.
        variables: the parameters and state.
        blobs: the names of the blobs to return.

    Returns:
        The compiled passes, or None if the net is not compiled.
    """
    all_names = find_inference_names(graph)
    names = {name: all_names[name] for name in blobs}
    if not names or graph.phase != "TEST" or config.kernels != "fast" or config.precision != "float32":
        return None
    weight_bytes = sum(array.nbytes for array in jax.tree.leaves(variables))
    if _NUM_COPIES * weight_bytes > get_free_memory() or not is_stateless(make_inference_graph(graph, names)):
        return None
    return FrozenPasses(graph, config, variables, names)


class FrozenPassCache:
    """Cache of compiled forward passes of a net whose weights may change between passes.

    Weights count as unchanged if a pass receives the same array objects, because JAX's arrays are immutable. After each
    of the first two changes the net is compiled at once. After later changes it is compiled only when the weights have
    been unchanged for a number of passes, which starts at 16 and doubles with each change.

    Args:
        graph: the net's graph.
        config: the kernels, precision and other settings of the computation.
    """

    def __init__(self, graph: Graph, config: NetConfig) -> None:
        self._graph, self._config = graph, config
        self._can_freeze = True
        self._arrays: list[Any] = []
        self._passes: dict[frozenset[str], FrozenPasses] = {}  # by the names of the blobs that they return
        self._num_changes = self._num_waited = 0

    def __len__(self) -> int:
        return len(self._passes)

    def is_current(self, variables: Variables) -> bool:
        """Return whether the parameters and state are the same array objects as in the last call of `find`."""
        arrays = _flatten(variables)
        return len(arrays) == len(self._arrays) and all(map(is_, arrays, self._arrays))

    def find(self, names: frozenset[str], variables: Variables) -> FrozenPasses | None:
        """Return compiled passes that return these blobs with these weights, or None if the net is not compiled yet.

        Args:
            names: the names of the blobs that the passes must return.
            variables: the parameters and state.
        """
        if not self._can_freeze:
            return None
        if not self.is_current(variables):
            self._num_changes += bool(self._passes)
            self._passes.clear()
            self._arrays, self._num_waited = _flatten(variables), 0
        if names in self._passes:
            return self._passes[names]
        if len(self._passes) == _MAX_BLOB_SETS:
            return next((passes for cached_names, passes in self._passes.items() if cached_names >= names), None)
        if not self._passes and self._num_changes > _FREE_CHANGES:
            self._num_waited += 1
            if self._num_waited <= _PATIENCE << (self._num_changes - _FREE_CHANGES - 1):
                return None
        passes = freeze_passes(self._graph, self._config, variables, names)
        if passes is None:
            self._can_freeze = False
        else:
            self._passes[names] = passes
        return passes


def _flatten(variables: Variables) -> list[Any]:
    return jax.tree.leaves(tuple(variables))


def is_stateless(graph: Graph) -> bool:
    """Return whether a forward pass never changes the state.

    A BatchNorm layer changes its statistics, unless it uses them to normalize. The result is False for a net with
    host layers, because they may keep state.
    """
    if graph.has_host_layers:
        return False
    stateful_layers = [
        layer
        for layer in graph.layers
        if isinstance(layer.type.implementation, Traced) and layer.type.implementation.stateful
    ]
    shapes = [tuple(graph.blobs[name] for name in layer.bottoms) for layer in stateful_layers]
    distinct_layers = {(layer.context, bottoms): layer for layer, bottoms in zip(stateful_layers, shapes, strict=True)}
    return not any(_changes_state(layer, bottoms) for (_, bottoms), layer in distinct_layers.items())


def _changes_state(layer: Layer, bottoms: tuple[jax.ShapeDtypeStruct, ...]) -> bool:
    """Return whether a layer's forward function returns a state that differs from its input."""
    blobs = tuple(jax.ShapeDtypeStruct(p.spec.shape, jnp.float32) for p in layer.all_params)
    is_one_blob_of_channels = len(bottoms) == 1 < len(bottoms[0].shape)
    if is_one_blob_of_channels and Epilogue(layer.context, blobs).is_channel_affine(1, bottoms[0].shape[1]):
        return False  # the layer normalizes by its statistics
    is_unchanged: list[bool] = []

    def trace(key: jax.Array, blobs: tuple[Any, ...], bottoms: tuple[Any, ...]) -> Any:
        _, new_state = forward(layer.context.replace(fold_in_args=(key, 0)), blobs, bottoms)
        old_state = [b for b, p in zip(blobs, layer.all_params, strict=True) if not p.spec.learnable]
        is_unchanged.extend(n is o for n, o in zip(new_state, old_state, strict=False))
        return new_state

    with layer.locate_errors():
        jax.eval_shape(trace, jax.eval_shape(lambda: jax.random.key(0)), blobs, bottoms)
    return not all(is_unchanged)

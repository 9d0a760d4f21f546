"""The graph of a net to which all of Caffe's rules have been applied, as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import GraphError, Problem, locate_errors, raise_if_any
from ...base.human_readable import format_count
from ...base.text_table import escape_unprintable
from ..layers import CallerInput, Context, LayerDefinition, LayerType, ParamSpec, Phase, type_of
from ..layers.context import hash_name, resolve_type
from ..layers.data_source import SourceSpec
from ..layers.dispatch import forward

T = TypeVar("T")

UNNAMED_TOP = "(automatic)"  # Caffe's name for a loss top that the net does not name
CARRIED = "carried_"  # begins the names of state that a layer carries to the next pass and that is no blob in Caffe


class Slot(NamedTuple):
    """The position of a param in the trees of params and state: the layer's key, and the param's name in the layer."""

    layer: str
    name: str


@dataclass(frozen=True)
class Param:
    """A learnable param or a running statistic of one layer.

    Attributes:
        slot: the layer's key, and the param's name in the layer, such as "weight".
        index: the number of the param in the layer, from 0, in Caffe's order.
        owner: the slot of the layer that owns the array. It is equal to `slot` if the param is not shared.
        spec: shape and filler.
        shared_name: the name by which layers share the param, or "".
        lr_mult, decay_mult: the multipliers in effect. If the owner does not set a multiplier, the first value that a
            layer sets for the shared param is in effect.
        need_backward: whether this layer contributes to the param's gradient.
    """

    slot: Slot
    index: int
    owner: Slot
    spec: ParamSpec
    shared_name: str
    lr_mult: float
    decay_mult: float
    need_backward: bool

    @property
    def is_owner(self) -> bool:
        """True if the layer owns the array. Otherwise a different layer owns it."""
        return self.owner == self.slot

    def array(self, params: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
        """Return the array of this param from `params` or `state`, in the shape that this layer uses.

        Args:
            params, state: trees `{layer: {name: array}}`, see `Variables`.
        """
        array = (params if self.spec.learnable else state)[self.owner.layer][self.owner.name]
        # with share_mode PERMISSIVE, the owner's shape may differ
        return array if tuple(array.shape) == self.spec.shape else array.reshape(self.spec.shape)


@dataclass(frozen=True)
class Layer:
    """One layer of a graph.

    Attributes:
        key: the layer's name, followed by a number if an earlier layer has the same name, which Caffe allows.
        context: the settings, type and phase, in the form that the functions of the type take.
        definition: the layer's definition, the net's file, and the options for reading data.
        bottoms, tops: blob names. A top with the name of its bottom is computed in place.
        loss_weights: the loss weight of each top.
        params: params and running statistics, in Caffe's order.
        recurrent_state: arrays that a forward pass stores for the next one. In Caffe they are not among the layer's
            blobs.
        need_backward: whether the layer takes part in the backward pass.
        bottom_need_backward: for each bottom, whether its gradient is computed.
        is_inserted_split: whether this is a Split that was inserted because a blob has several readers.
        source_spec: for a data layer, the shapes and dtypes that probing its source returned; None for other layers.
    """

    key: str
    context: Context
    definition: LayerDefinition
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    loss_weights: tuple[float, ...]
    params: tuple[Param, ...]
    recurrent_state: tuple[Param, ...] = ()
    need_backward: bool = False
    bottom_need_backward: tuple[bool, ...] = ()
    is_inserted_split: bool = False
    source_spec: SourceSpec | None = None

    def __reduce__(self) -> Any:
        # the type is pickled as its name, and `_unpickle_layer` resolves it for this layer
        return _unpickle_layer, ({f.name: getattr(self, f.name) for f in fields(self)},)

    @property
    def name(self) -> str:
        """The layer's name in the prototxt."""
        return str(self.definition.layer.name)

    def __repr__(self) -> str:
        bottoms, tops = (", ".join(map(escape_unprintable, names)) or "nothing" for names in (self.bottoms, self.tops))
        return f"{escape_unprintable(self.key)} ({self.type.name}): {bottoms} -> {tops}"

    def locate_errors(self) -> AbstractContextManager[None]:
        """Return a context manager that adds the layer's name, type and file to errors."""
        return locate_errors(file=self.definition.file, layer=self.name, layer_type=self.type.name)

    def make_problem(self, message: str) -> Problem:
        """Return a problem with the message and the layer's name, type and file."""
        return Problem(message, file=self.definition.file, layer=self.name, layer_type=self.type.name)

    def transform_on_device(self, arrays: Sequence[Any]) -> tuple[jax.Array, ...]:
        """Compute the tops of an Input or data layer from arrays of the caller or the source; return the tops.

        This applies the part of a data layer's transform that runs on the device: subtract the mean and scale.
        """
        tops = tuple(map(jnp.asarray, arrays))
        return tops if self.device_transform is None else self.device_transform(*tops)

    @property
    def device_transform(self) -> Callable[..., tuple[jax.Array, ...]] | None:
        """The function that computes a data layer's tops from the source's arrays on the device.

        It is None if the arrays are the tops.
        """
        return self.source_spec and self.source_spec.device_transform

    @property
    def index_bottoms(self) -> frozenset[int]:
        """The indices of the bottoms that contain labels or other integer indices."""
        return self.type.gradient.indices.positions(len(self.bottoms))

    @property
    def gradient_stops(self) -> tuple[bool, ...]:
        """For each bottom, whether no gradient passes to it.

        No gradient passes to bottoms with labels or indices, or to the bottoms of layers that select or label boxes.
        No gradient passes where `propagate_down` is false, except if the net sets `force_backward`.
        """
        if self.type.stops_gradients:
            return (True,) * len(self.bottoms)
        propagate = tuple(self.definition.layer.propagate_down) or (True,) * len(self.bottoms)
        force_flags = self.bottom_need_backward or (False,) * len(self.bottoms)
        return tuple(
            i in self.index_bottoms or not (requested or force)
            for i, (requested, force) in enumerate(zip(propagate, force_flags, strict=True))
        )

    @property
    def is_in_place(self) -> bool:
        """True if the layer has one bottom and one top of the same name."""
        return len(self.bottoms) == 1 and self.tops == self.bottoms

    @property
    def is_row_wise(self) -> bool:
        """True if each row (index of axis 0) of the tops depends only on the same row of the bottoms."""
        traits = self.type.traits
        return traits.elementwise or bool(self.context.evaluate(traits.row_wise))

    @property
    def counts_rows(self) -> bool:
        """True if the bottoms may have rows of padding that the layer leaves out; see `LayerTraits.counts_rows`."""
        return bool(self.context.evaluate(self.type.traits.counts_rows))

    @property
    def row_bottoms(self) -> tuple[str, ...]:
        """For a row-wise layer, the bottoms whose rows correspond to rows of the tops."""
        indices = self.type.traits.row_bottoms
        return self.bottoms if indices is None else tuple(self.bottoms[i] for i in indices if i < len(self.bottoms))

    @property
    def all_params(self) -> tuple[Param, ...]:
        """The elements of `params`, including shared ones, followed by `recurrent_state`."""
        return (*self.params, *self.recurrent_state)

    def arrays(self, params: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arrays of `all_params`, each in the shape that this layer uses; see `Param.array`."""
        return tuple(param.array(params, state) for param in self.all_params)

    def make_fold_in_args(self, key: jax.Array | None) -> tuple[jax.Array, Any] | None:
        """Return the key of a forward pass paired with a number that depends on this layer's name.

        The result is None if `key` is None. See `Context.fold_in_args`.
        """
        return None if key is None else (key, hash_name(self.key))

    def with_phase(self, phase: Phase) -> Layer:
        """Return a copy of the layer for the given phase."""
        context = replace(self.context, type=type_of(self.definition.layer), phase=phase)
        definition = replace(self.definition, phase=phase)
        return replace(self, context=resolve_type(context, definition), definition=definition)

    @property
    def type(self) -> LayerType:
        """The layer's registered type."""
        return self.context.type


def _unpickle_layer(state: dict[str, Any]) -> Layer:
    layer = Layer(**state)
    return replace(layer, context=resolve_type(layer.context, layer.definition))


@dataclass(frozen=True)
class DefinedNames:
    """Names that a prototxt defines in any phase. Arrays for them may be passed to nets with fewer layers, as unused.

    Attributes:
        layers: the names of the layers.
        repeated_layers: the names of several layers, as a layer that each phase defines for itself.
        inputs: the tops of layers without bottoms.
        other_phase: the phase for which the net was not built.
        other_tops: the tops in that phase.
    """

    layers: frozenset[str] = frozenset()
    repeated_layers: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    other_phase: Phase = "TEST"
    other_tops: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Graph:
    """A net for one phase that has passed all checks, with the shapes of all its blobs.

    Attributes:
        name: the net's name.
        phase: "TRAIN" or "TEST".
        layers: the layers, in the order of execution.
        blobs: shape and dtype of each blob, in the order in which they are first produced.
        input_layer_tops: the tops of Input layers, which the caller provides.
        outputs: blobs that no layer reads, sorted by the bytes of their names.
        force_backward: whether gradients of all blobs are computed.
        file: the net's file, for messages.
        defined: the names that the net's definition has in any phase.
        removed_owners: layers that are not run, but own params that layers of the graph share.
    """

    name: str
    phase: Phase
    layers: tuple[Layer, ...]
    blobs: Mapping[str, jax.ShapeDtypeStruct]
    input_layer_tops: tuple[str, ...]
    outputs: tuple[str, ...]
    force_backward: bool
    file: str | None = None
    defined: DefinedNames = DefinedNames()
    removed_owners: tuple[Layer, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "blobs", MappingProxyType(dict(self.blobs)))

    def __repr__(self) -> str:
        layers = [layer for layer in self.layers if not layer.is_inserted_split]
        name_lists = self.input_names, self.outputs
        inputs, outputs = (", ".join(map(self._format_blob, names)) or "nothing" for names in name_lists)
        count = format_count(len(layers), "layer")
        return f"{escape_unprintable(self.name) or 'unnamed'} ({self.phase}): {count}, {inputs} -> {outputs}"

    def _format_blob(self, blob: str) -> str:
        """Return a blob's name and shape as text, such as "data (1x3x224x224)"."""
        shape = "x".join(map(str, self.blobs[blob].shape)) or "a number"
        return f"{escape_unprintable(blob)} ({shape})"

    def __reduce__(self) -> Any:
        # a mapping proxy cannot be pickled
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return partial(Graph, **values | {"blobs": dict(self.blobs)}), ()

    @property
    def param_layers(self) -> tuple[Layer, ...]:
        """The layers whose params are in the trees of params and state: `removed_owners`, and `layers`."""
        return self.removed_owners + self.layers

    @property
    def params(self) -> tuple[Param, ...]:
        """All params of all layers. A shared param occurs once for each layer."""
        return tuple(p for layer in self.param_layers for p in layer.params)

    @cached_property
    def first_users(self) -> frozenset[Slot]:
        """The slot of each array in the first of `layers` that uses it, which is its owner unless that was removed."""
        users = {p.owner: p.slot for layer in reversed(self.layers) for p in reversed(layer.params)}
        return frozenset(users.values())

    @property
    def unique_params(self) -> tuple[Param, ...]:
        """All params and running statistics, each array once, in the order in which Caffe's solver stores histories."""
        return tuple(p for p in self.params if p.is_owner)

    @cached_property
    def variables(self) -> tuple[Param, ...]:
        """All arrays of params and state, each once, by layer and in Caffe's order of a layer's blobs."""
        return tuple(p for layer in self.param_layers for p in layer.all_params if p.is_owner)

    @cached_property
    def blob_names(self) -> dict[str, tuple[str, ...]]:
        """The names of each layer's params and state by its key, in Caffe's order, by which older files number them."""
        return {layer.key: tuple(p.slot.name for p in layer.all_params) for layer in self.param_layers}

    def map_variables(self, value: Callable[[Param], T]) -> tuple[dict[str, dict[str, T]], dict[str, dict[str, T]]]:
        """Return `value(param)` for each array in `variables`, as two trees with the structures of params and state."""
        learnable, statistics = (
            [p for p in self.variables if p.spec.learnable == learned] for learned in (True, False)
        )
        return map_params(learnable, value), map_params(statistics, value)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The net's inputs: all tops of Input and data layers."""
        return tuple(top for layer in self.layers if layer.type.is_input for top in layer.tops)

    @property
    def caller_inputs(self) -> tuple[str, ...]:
        """The inputs that the caller provides: tops of Input layers and of other layers that take arrays."""
        return tuple(
            top for layer in self.layers if isinstance(layer.type.implementation, CallerInput) for top in layer.tops
        )

    @cached_property
    def has_host_layers(self) -> bool:
        """True if any layer runs on the host, outside compiled code."""
        return any(layer.type.on_host for layer in self.layers)

    @cached_property
    def has_varying_rows(self) -> bool:
        """True if the number of rows of a blob may depend on the data, as in nets with host layers or padded rows."""
        return self.has_host_layers or any(layer.type.traits.pads_rows for layer in self.layers)

    @cached_property
    def split_roots(self) -> dict[str, str]:
        """For each top of an inserted Split, the blob that it copies. In Caffe the top and the blob share one array."""
        return {top: layer.bottoms[0] for layer in self.layers if layer.is_inserted_split for top in layer.tops}

    @cached_property
    def param_tops(self) -> dict[str, Slot]:
        """The tops that are params, as those of Parameter layers, with their slots. No layer overwrites them."""
        slots = {
            layer.tops[0]: layer.params[0].owner
            for layer in self.layers
            if layer.type.traits.top_is_param and layer.params
        }
        overwritten_blobs = {top for layer in self.layers for top in layer.tops if top in layer.bottoms}
        return {top: slot for top, slot in slots.items() if top not in overwritten_blobs}

    def with_phase(self, phase: Phase) -> Graph:
        """Return a graph of the same layers in the given phase. Include and exclude rules are not applied again."""
        return replace(self, phase=phase, layers=tuple(layer.with_phase(phase) for layer in self.layers))

    @property
    def loss_weights(self) -> dict[str, float]:
        """The nonzero loss weights, by top."""
        return {
            top: weight
            for layer in self.layers
            for top, weight in zip(layer.tops, layer.loss_weights, strict=True)
            if weight
        }

    def layer(self, key: str) -> Layer:
        """Return the layer with the given key.

        Raises:
            GraphError: if the graph has no layer with this key.
        """
        for layer in self.param_layers:
            if layer.key == key:
                return layer
        raise GraphError(f"net '{self.name}' has no layer '{key}'")

    def find_param(self, slot: Slot) -> Param:
        """Return the param or running statistic that a slot names."""
        return next(param for param in self.layer(slot.layer).all_params if param.slot == slot)

    def check_backward(self, layers: slice = slice(None)) -> None:
        """Check that the backward pass can compute every gradient that it needs.

        Args:
            layers: the indices of the layers that the pass runs; default: all layers.

        Raises:
            GraphError: if a layer that needs a backward pass has none, or would propagate a gradient to labels or
                indices. The message names each such layer.
        """
        problems = []
        for layer in self.layers[layers]:
            gradient_bottoms = [i for i, need in enumerate(layer.bottom_need_backward) if need]
            messages = [
                f"cannot propagate a gradient to bottom {i} ('{layer.bottoms[i]}'), which holds indices; "
                "set propagate_down once per bottom, with false for this bottom"
                for i in gradient_bottoms
                if i in layer.index_bottoms
            ]
            if gradient_bottoms and not layer.type.has_backward:
                messages = ["has no backward pass, but a gradient through it is needed; see propagate_down"]
            problems += [layer.make_problem(m) for m in messages]
        raise_if_any(GraphError, problems)


def map_params(params: Iterable[Param], value: Callable[[Param], T | None]) -> dict[str, dict[str, T]]:
    """Return `{layer: {name: value(param)}}`, the structure of params and state.

    Params whose value is None are omitted, and so are layers without any value.
    """
    tree: dict[str, dict[str, T]] = {}
    for param in params:
        if (x := value(param)) is not None:
            tree.setdefault(param.slot.layer, {})[param.slot.name] = x
    return tree


def is_random(layer: Layer, bottoms: Sequence[Any]) -> bool:
    """Return whether a layer uses random numbers in its phase.

    Args:
        layer: the layer. A user's host layer is assumed to be deterministic.
        bottoms: shapes and dtypes of its bottoms; for a host layer, arrays.
    """
    if layer.type.is_input or (layer.type.on_host and layer.type.instance is not None):
        return False
    recorder = _RecordingKey((jax.random.key(0), 0))
    context = layer.context.replace(fold_in_args=recorder)
    if layer.type.on_host:
        forward(context, [np.zeros(p.spec.shape, np.float32) for p in layer.all_params], bottoms)
    else:
        params = [jax.ShapeDtypeStruct(p.spec.shape, np.float32) for p in layer.all_params]
        jax.eval_shape(lambda *arrays: forward(context, *arrays), params, bottoms)
    return recorder.used


class _RecordingKey(tuple[Any, ...]):
    """A placeholder for a layer's fold-in arguments that records whether the layer uses its random key."""

    used = False

    def __iter__(self) -> Any:
        self.used = True
        return super().__iter__()

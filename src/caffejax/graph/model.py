"""The graph: a net after all of Caffe's rules, as frozen dataclasses. Nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax

from ..errors import GraphError, Problem
from ..layers import Blob, Context, LayerType

AUTOMATIC = "(automatic)"  # Caffe's name for a loss top that the net does not name


class Slot(NamedTuple):
    """Where a blob of a layer lies in the params: the layer's key and the blob's index."""

    layer: str
    index: int  # type: ignore[assignment]  # the tuple's method of that name is not wanted here


@dataclass(frozen=True)
class Param:
    """One blob of one layer.

    Attributes:
        slot: the layer and the index of this blob.
        owner: the slot whose array this is: its own, or another layer's where the blob is shared.
        blob: shape and filler.
        name: the name it is shared under, or "".
        lr_mult: the multiplier in effect: the owner's, or the first given by a layer that shares it.
        decay_mult: likewise.
        need_backward: whether this layer contributes to the blob's gradient.
    """

    slot: Slot
    owner: Slot
    blob: Blob
    name: str
    lr_mult: float
    decay_mult: float
    need_backward: bool

    @property
    def owned(self) -> bool:
        """Whether the array is the layer's own."""
        return self.owner == self.slot


@dataclass(frozen=True)
class Layer:
    """One layer of a graph, in the order of execution.

    Attributes:
        key: unique in the graph: the layer's name, with a number where Caffe allows a repeated one.
        context: parameters, type and phase, as the type's functions want them.
        bottoms, tops: blob names. A top named like its bottom is computed in place.
        loss_weights: one per top.
        params: one per blob.
        carried: what a forward pass leaves to the next; no blobs in Caffe's sense.
        need_backward: whether the layer takes part in the backward pass.
        bottom_need_backward: for which bottoms a gradient is computed.
        inserted_split: a Split that the net added because a blob has several readers.
    """

    key: str
    context: Context
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    loss_weights: tuple[float, ...]
    params: tuple[Param, ...]
    carried: tuple[Param, ...] = ()
    need_backward: bool = False
    bottom_need_backward: tuple[bool, ...] = ()
    inserted_split: bool = False

    @property
    def name(self) -> str:
        """The name in the prototxt."""
        return str(self.context.layer.name)

    @property
    def is_fed(self) -> bool:
        """Whether the tops come from outside: of Input and data layers."""
        return self.type.forward is None

    @property
    def index_bottoms(self) -> frozenset[int]:
        """Which bottoms hold labels or indices."""
        n = len(self.bottoms)
        return frozenset(i % n for i in self.type.index_bottoms if -n <= i < n)

    @property
    def gradient_stops(self) -> tuple[bool, ...]:
        """For each bottom, whether no gradient is ever to pass: where `propagate_down` says so, and for indices."""
        asked = tuple(self.context.layer.propagate_down) or (True,) * len(self.bottoms)
        return tuple(i in self.index_bottoms or not wanted for i, wanted in enumerate(asked))

    @property
    def type(self) -> LayerType:
        """The registered type."""
        return self.context.type


@dataclass(frozen=True)
class Graph:
    """A net for one phase, checked and with all shapes.

    Attributes:
        name: the net's name.
        phase: "TRAIN" or "TEST".
        layers: in the order of execution.
        blobs: shape and dtype of each blob, in the order they are first produced.
        inputs: blobs that the caller feeds.
        outputs: blobs that no layer reads, in byte order of their names.
        force_backward: whether gradients of all blobs are wanted.
        file: where the net came from, for messages.
    """

    name: str
    phase: str
    layers: tuple[Layer, ...]
    blobs: dict[str, jax.ShapeDtypeStruct]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    force_backward: bool
    file: str | None = None

    @property
    def params(self) -> tuple[Param, ...]:
        """Every blob of every layer, shared ones once per layer."""
        return tuple(p for layer in self.layers for p in layer.params)

    @property
    def learnable(self) -> tuple[Param, ...]:
        """The blobs that exist once: what Caffe's solver keeps a history for, in its order."""
        return tuple(p for p in self.params if p.owned)

    @property
    def fed(self) -> tuple[str, ...]:
        """The blobs that come from outside: tops of Input and data layers."""
        return tuple(top for layer in self.layers if layer.is_fed for top in layer.tops)

    @property
    def has_host_layers(self) -> bool:
        """Whether some layers run on the host and cannot be compiled."""
        return any(layer.type.host for layer in self.layers)

    @property
    def losses(self) -> dict[str, float]:
        """Loss weight of each top that has one."""
        return {
            top: weight
            for layer in self.layers
            for top, weight in zip(layer.tops, layer.loss_weights, strict=True)
            if weight
        }

    def layer(self, key: str) -> Layer:
        """The layer of that key.

        Raises:
            GraphError: if there is none.
        """
        for layer in self.layers:
            if layer.key == key:
                return layer
        raise GraphError(f"net '{self.name}' has no layer '{key}'")

    def check_backward(self) -> None:
        """Raises `GraphError` if a backward pass would need a gradient that does not exist."""
        problems = []
        for layer in self.layers:
            wanted = [i for i, need in enumerate(layer.bottom_need_backward) if need]
            messages = [
                f"cannot propagate a gradient to bottom {i} ('{layer.bottoms[i]}'), which holds indices; "
                "give propagate_down once per bottom, false for this one"
                for i in wanted
                if i in layer.index_bottoms
            ]
            if wanted and not layer.type.has_backward:
                messages = ["has no backward pass, but a gradient is asked of it"]
            problems += [Problem(m, file=self.file, layer=layer.name, layer_type=layer.type.name) for m in messages]
        if problems:
            raise GraphError(problems)

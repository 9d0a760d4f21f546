"""One layer in numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ..graph import Graph, Layer
from ..layers import Context
from ..layers.calling import forward
from .counting import multiply_adds
from .family import Family, family_of
from .field import Field

_KEY = jax.eval_shape(jax.random.key, 0)
_FLOAT = jnp.dtype(jnp.float32).itemsize


@dataclass(frozen=True)
class LayerSummary:
    """One layer.

    Attributes:
        key: its key in the graph: its name, but for nets that repeat one.
        name, type: Caffe's.
        family: what kind of layer it is, see `family_of`.
        bottoms, tops: names of blobs.
        top_shapes: the tops' shapes.
        param_shapes: the shapes of its params, running statistics included, and of those that it shares.
        parameters: numbers in the params that are its own.
        activations: numbers in its tops; 0 for what shares memory with a bottom: in-place tops and splits.
        activation_bytes: what they take.
        multiply_adds: of the forward pass, for the whole batch; None for host layers, which cannot be looked into.
        field: what a number of the first top sees of the net's inputs; None where it sees all of them, as after an
            InnerProduct, or where that cannot be said.
    """

    key: str
    name: str
    type: str
    family: Family
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    top_shapes: tuple[tuple[int, ...], ...]
    param_shapes: tuple[tuple[int, ...], ...]
    parameters: int
    activations: int
    activation_bytes: int
    multiply_adds: int | None
    field: Field | None = None

    @property
    def parameter_bytes(self) -> int:
        """What the params take; they are float32."""
        return self.parameters * _FLOAT

    @property
    def receptive_field(self) -> tuple[int, ...] | None:
        """The size of what a number of the first top sees, in the inputs' pixels, one for each axis of space."""
        return None if self.field is None else self.field.size

    @property
    def stride(self) -> tuple[float, ...] | None:
        """The distance between neighbours in the first top, in the inputs' pixels."""
        return None if self.field is None else tuple(map(float, self.field.stride))


def layer_summary(layer: Layer, graph: Graph, *, count: bool = True, field: Field | None = None) -> LayerSummary:
    """Return a layer's numbers; without multiply-adds, which take longest, unless they are to be counted."""
    tops = [graph.blobs[top] for top in layer.tops]
    shared = layer.tops if layer.type.traits.copies else layer.bottoms
    new = [x for name, x in zip(layer.tops, tops, strict=True) if name not in shared]
    return LayerSummary(
        key=layer.key,
        name=layer.name,
        type=layer.type.name,
        family=family_of(layer),
        bottoms=tuple(graph.split_roots.get(bottom, bottom) for bottom in layer.bottoms),  # as the text has them
        tops=layer.tops,
        top_shapes=tuple(x.shape for x in tops),
        param_shapes=tuple(p.spec.shape for p in layer.params),
        parameters=sum(math.prod(p.spec.shape) for p in layer.params if p.owned),
        activations=sum(math.prod(x.shape) for x in new),
        activation_bytes=sum(math.prod(x.shape) * x.dtype.itemsize for x in new),
        multiply_adds=_multiply_adds(layer, graph) if count else None,
        field=field,
    )


def _multiply_adds(layer: Layer, graph: Graph) -> int | None:
    if layer.type.is_fed:
        return 0
    if layer.type.on_host:
        return None
    shapes = tuple(p.spec.shape for p in layer.owned)
    bottoms = tuple((graph.blobs[bottom].shape, graph.blobs[bottom].dtype) for bottom in layer.bottoms)
    return _counted(layer.context.plain(), shapes, bottoms)


@functools.lru_cache(maxsize=4096)
def _counted(context: Context, blobs: Sequence[tuple[int, ...]], bottoms: Sequence[tuple[tuple[int, ...], str]]) -> int:
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in blobs]
    given = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in bottoms]
    return multiply_adds(lambda key, *arrays: forward(context.with_key((key, 0)), *arrays), _KEY, arrays, given)

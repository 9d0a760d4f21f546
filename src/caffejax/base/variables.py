"""Types of a net's parameters, state and outputs, which are pytrees of arrays."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from .errors import shorten_list
from .human_readable import format_count

Params = dict[str, dict[int, jax.Array]]
ParamsLike = Mapping[str, Mapping[int, jax.Array] | Sequence[jax.Array | None]]  # accepted from users
Blobs = dict[str, jax.Array]


class Variables(NamedTuple):
    """A net's learnable parameters and its mutable state.

    Both are plain pytrees `{layer: {index: array}}`. The index is the number of the blob in the layer, in Caffe's
    order: `params["conv1"][0]` is the weight of a convolution and `params["conv1"][1]` its bias. Each array is in
    exactly one of the two trees: a BatchNorm layer's mean, variance and scale factor are `state["bn1"][0]` to
    `state["bn1"][2]`. A blob that several layers share is stored under the first of these layers, which owns it. Layers
    without arrays are absent.

    Attributes:
        params: learnable arrays, floating point.
        state: running statistics, and the values that a recurrent layer carries from one forward pass to the next,
            under indices after the layer's blobs.
    """

    def __repr__(self) -> str:
        return "\n".join(
            ["Variables", *(f"  {field}: {_format_shapes(getattr(self, field))}" for field in self._fields)]
        )

    params: Params
    state: Params


class Outputs(NamedTuple):
    """The second value that `Net.loss` returns, after the loss.

    Attributes:
        blobs: the net's output blobs, or the blobs that were requested.
        state: the updated running statistics.
    """

    blobs: Blobs
    state: Params


def as_params(tree: ParamsLike) -> Params:
    """Return a tree as `Params`: `{layer: {index: array}}`.

    Args:
        tree: for each layer a mapping from index to array, or a sequence of arrays in Caffe's order with None for blobs
            that are in another tree.
    """
    return {layer: blobs if type(blobs) is dict else _index_layer_blobs(blobs) for layer, blobs in tree.items()}


def _index_layer_blobs(blobs: Any) -> dict[int, Any]:
    if isinstance(blobs, Mapping):
        return dict(blobs)
    return {i: b for i, b in enumerate(blobs) if b is not None} if isinstance(blobs, tuple | list) else {}


def _format_shapes(tree: Params) -> str:
    """Format a tree as text, by layer: the shapes of arrays, and the values of numbers and of what is no array."""
    if not isinstance(tree, Mapping):
        return repr(tree)
    layers = [f"{name} ({_format_layer(blobs)})" for name, blobs in tree.items()]
    return f"{format_count(len(layers), 'layer')}: {', '.join(shorten_list(layers))}" if layers else "none"


def _sort_blobs(blobs: Any) -> list[Any]:
    blobs_by_index = _index_layer_blobs(blobs)
    return [blobs_by_index[i] for i in sorted(blobs_by_index)]


def _format_layer(blobs: Any) -> str:
    return ", ".join(map(_format_leaf, _sort_blobs(blobs) if isinstance(blobs, Mapping | tuple | list) else [blobs]))


def _format_leaf(leaf: Any) -> str:
    if not hasattr(leaf, "shape"):
        return reprlib.repr(leaf)
    if leaf.shape:
        return "x".join(map(str, leaf.shape))
    is_readable = isinstance(leaf, np.ndarray | np.generic | jax.Array) and not isinstance(leaf, jax.core.Tracer)
    try:
        return str(np.asarray(leaf)) if is_readable else "a number"
    except RuntimeError:  # it was donated, or is on devices of other processes
        return "a number"

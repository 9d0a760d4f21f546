"""Types of a net's parameters, state and outputs, which are pytrees of arrays."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from .errors import shorten_list
from .human_readable import format_count

Params = dict[str, dict[str, jax.Array]]
ParamsLike = Mapping[str, Mapping[str, jax.Array]]  # accepted from users
Blobs = dict[str, jax.Array]


class Variables(NamedTuple):
    """A net's learnable parameters and its mutable state.

    Both are plain pytrees `{layer: {name: array}}`. `params["conv1"]["weight"]` is the weight of a convolution, and
    `params["conv1"]["bias"]` its bias. Each array is in exactly one of the two trees: a BatchNorm layer's running
    statistics are `state["bn1"]["mean"]`, `["variance"]` and `["scale_factor"]`. The blobs of a Python layer are named
    by their numbers, "0", "1". A blob that several layers share is stored under the first of these layers, which owns
    it. Layers without arrays are absent.

    Attributes:
        params: learnable arrays, floating point.
        state: running statistics, and the values that a recurrent layer carries from one forward pass to the next,
            whose names begin with "carried_".
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
    """Return a tree of mappings, such as a FrozenDict of flax, as dictionaries. Other values are left out."""
    return {
        layer: blobs if type(blobs) is dict else dict(blobs) if isinstance(blobs, Mapping) else {}
        for layer, blobs in tree.items()
    }


def _format_shapes(tree: Params) -> str:
    """Format a tree as text, by layer: the shapes of arrays, and the values of numbers and other objects."""
    if not isinstance(tree, Mapping):
        return repr(tree)
    layers = [f"{name} ({_format_layer(blobs)})" for name, blobs in tree.items()]
    noun = "layer" if all(isinstance(blobs, Mapping) for blobs in tree.values()) else "array"  # of a single layer
    return f"{format_count(len(layers), noun)}: {', '.join(shorten_list(layers))}" if layers else "none"


def _format_layer(blobs: Any) -> str:
    if not isinstance(blobs, Mapping):
        return _format_leaf(blobs)
    return ", ".join(f"{name} {_format_leaf(blob)}" for name, blob in blobs.items())


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

"""Types of a net's params, state and outputs: pytrees of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax

from .errors import shorten_list
from .human_readable import counted

Params = dict[str, dict[int, jax.Array]]
ParamsLike = Mapping[str, Mapping[int, jax.Array] | Sequence[jax.Array | None]]  # what users may write instead
Blobs = dict[str, jax.Array]


class Variables(NamedTuple):
    """A net's learnable params and its mutable state.

    Both are plain pytrees `{layer: {index: array}}`. The index is the blob's number in the layer, in Caffe's order, so
    `params["conv1"][0]` is the weight of a convolution and `params["conv1"][1]` its bias. An array is in exactly one of
    the two trees: a BatchNorm layer's mean, variance and scale factor are `state["bn1"][0]` to `state["bn1"][2]`. A
    blob that several layers share is present only under the layer that owns it (the first). Layers without arrays are
    absent.

    Attributes:
        params: learnable arrays, floating point.
        state: running statistics, and behind a layer's own blobs the values that a recurrent layer carries from one
            forward pass to the next.
    """

    def __repr__(self) -> str:
        return "\n".join(["Variables", *(f"  {field}: {_shapes(getattr(self, field))}" for field in self._fields)])

    params: Params
    state: Params


class Outputs(NamedTuple):
    """What `Net.loss` gives beside the loss.

    Attributes:
        blobs: the net's output blobs, or those asked for.
        state: the new running statistics.
    """

    blobs: Blobs
    state: Params


def index_blobs(tree: ParamsLike) -> Params:
    """Return a tree in the form of `Params`.

    Args:
        tree: for each layer a mapping from index to array, or a sequence of arrays in Caffe's order with None for
            blobs that are in another tree.
    """
    return {layer: blobs if type(blobs) is dict else _index(blobs) for layer, blobs in tree.items()}


def _index(blobs: Any) -> dict[int, Any]:
    if isinstance(blobs, Mapping):
        return dict(blobs)
    return {i: b for i, b in enumerate(blobs) if b is not None} if isinstance(blobs, tuple | list) else {}


def _shapes(tree: Params) -> str:
    """Return the shapes of a tree's arrays, by layer, for people; the arrays themselves are not looked at."""
    if not isinstance(tree, Mapping):
        return repr(tree)
    layers = [f"{name} ({', '.join(map(_shape, _in_order(blobs)))})" for name, blobs in tree.items()]
    return f"{counted(len(layers), 'layer')}: {', '.join(shorten_list(layers))}" if layers else "none"


def _in_order(blobs: Any) -> list[Any]:
    by_index = _index(blobs)
    return [by_index[i] for i in sorted(by_index)]


def _shape(array: object) -> str:
    return "x".join(map(str, getattr(array, "shape", ()))) or "a number"

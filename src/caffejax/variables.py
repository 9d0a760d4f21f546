"""What a net remembers and gives: trees of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax

from .sizes import counted

Params = dict[str, tuple[jax.Array | None, ...]]
Blobs = dict[str, jax.Array]

_SHOWN = 8  # layers of a tree that is printed


class Variables(NamedTuple):
    """What a net remembers. Both are `{layer: arrays in Caffe's order}`, None where an array is not the layer's own.

    Attributes:
        params: what is learnable.
        state: running statistics, then what a layer carries from one forward pass to the next.
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


def _shapes(tree: Params) -> str:
    """Return the shapes of a tree's arrays, by layer, for people; the arrays themselves are not looked at."""
    if not isinstance(tree, Mapping):
        return repr(tree)
    names = list(tree)
    shown = [*names[: _SHOWN - 1], None, names[-1]] if len(names) > _SHOWN else names
    layers = ["..." if name is None else f"{name} ({', '.join(map(_shape, tree[name]))})" for name in shown]
    return f"{counted(len(names), 'layer')}: {', '.join(layers)}" if names else "none"


def _shape(array: object) -> str:
    return "-" if array is None else "x".join(map(str, getattr(array, "shape", ()))) or "a number"

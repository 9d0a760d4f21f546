"""What a net remembers and gives: trees of arrays."""

from __future__ import annotations

from typing import NamedTuple

import jax

Params = dict[str, tuple[jax.Array | None, ...]]
Blobs = dict[str, jax.Array]


class Variables(NamedTuple):
    """What a net remembers. Both are `{layer: arrays in Caffe's order}`, None where an array is not the layer's own.

    Attributes:
        params: what is learnable.
        state: running statistics, then what a layer carries from one forward pass to the next.
    """

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

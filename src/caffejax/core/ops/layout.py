"""Conversion between Caffe's order of axes (batch, channels, *space) and channels last."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.experimental.layout import Layout, with_layout_constraint


def to_channels_last(x: Array) -> Array:
    """Transpose (batch, channels, *space) to (batch, *space, channels). Arrays of up to 2 axes are unchanged."""
    return jnp.moveaxis(x, 1, -1) if x.ndim > 2 else x


def to_channels_first(x: Array) -> Array:
    """Transpose (batch, *space, channels) to (batch, channels, *space). Arrays of up to 2 axes are unchanged."""
    return jnp.moveaxis(x, -1, 1) if x.ndim > 2 else x


def materialise(x: Array) -> Array:
    """Make XLA write `x` to memory in the order of its axes, with the last axis contiguous; return `x`.

    XLA chooses this layout by itself for arrays that a matrix product or a convolution reads or writes. XLA fuses no
    operations across this call, so the operations that read `x` do not recompute it.
    """
    return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))


def materialise_channels_last(x: Array) -> Array:
    """Make XLA write `x`, (batch, channels, *space), to memory with the channels last; return `x`."""
    return to_channels_first(materialise(to_channels_last(x)))


def leave_layout(x: Array) -> Array:
    """Return `x` unchanged, so that XLA chooses the layout. It can be passed instead of `materialise`."""
    return x

"""Batching rules for `jax.vmap`: reshapes that merge the mapped axis into the rows or the channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp


def mapped_size(arrays: Sequence[jax.Array], axes: Sequence[int | None]) -> int:
    """Return the size of the mapped axis; `axes` has None for each array that is not mapped."""
    return next(a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None)


def move_to_front(x: jax.Array, axis: int | None, size: int) -> jax.Array:
    """Move `axis` to the front; if it is None, broadcast `x` to (size, *x.shape)."""
    return jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)


def merge_into_rows(x: jax.Array) -> jax.Array:
    """Reshape (size, rows, ...) to (size * rows, ...)."""
    return x.reshape(-1, *x.shape[2:])


def split_from_rows(x: jax.Array, size: int) -> jax.Array:
    """Reshape (size * rows, ...) to (size, rows, ...)."""
    return x.reshape(size, -1, *x.shape[1:])


def map_rows(
    make_operation: Callable[[], Callable[..., Sequence[jax.Array]]],
    arrays: Sequence[jax.Array],
    axes: Sequence[int | None],
) -> tuple[jax.Array, ...]:
    """Merge the mapped axis of each array into the rows, apply an operation, and split the axis off again."""
    size = mapped_size(arrays, axes)
    rows = (merge_into_rows(move_to_front(a, axis, size)) for a, axis in zip(arrays, axes, strict=True))
    return tuple(split_from_rows(result, size) for result in make_operation()(*rows))


def merge_into_channels(x: jax.Array) -> jax.Array:
    """Transpose and reshape (size, batch, channels, ...) to (batch, size * channels, ...)."""
    return jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:])


def split_from_channels(x: jax.Array, size: int) -> jax.Array:
    """Transpose and reshape (batch, size * channels, ...) to (size, batch, channels, ...)."""
    return jnp.moveaxis(x.reshape(x.shape[0], size, -1, *x.shape[2:]), 1, 0)

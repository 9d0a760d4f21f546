"""Sums and means over the devices that share one batch.

Under `jax.shard_map` over `NetConfig.axis_name` each device runs the net on its shard of the rows, and a loss
refers to the batch of all devices. The interpreter, which runs the layers of a net, replaces a top without axes by its
mean over the devices. A layer with such a top therefore returns, for

- a mean over rows: the mean over the device's rows; nothing else is needed;
- a sum over rows: `axis_size` times the sum over the device's rows;
- a sum divided by a count: the device's sum divided by `global_count`.

Backward rules receive the gradients of these tops and differentiate the same expressions. Other tops, such as a top
with an axis of classes, are computed with `psum`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ...base.errors import require
from ..ops.vma import vary, varying_axes
from .context import Context


def axis_size(ctx: Context) -> int:
    """Return the number of devices that share a batch, or 1 without a mesh axis."""
    return 1 if ctx.axis_name is None else int(jax.lax.axis_size(ctx.axis_name))


def axis_index(ctx: Context) -> Any:
    """Return the index of this device along the mesh axis, from 0."""
    return 0 if ctx.axis_name is None else jax.lax.axis_index(ctx.axis_name)


def psum(ctx: Context, x: Array) -> Array:
    """Return the sum of x over the devices, which is the same on every device."""
    if ctx.axis_name is None:
        return x
    total: Array = jax.lax.psum(vary(x, frozenset({ctx.axis_name})), ctx.axis_name)
    return total


def pmean(ctx: Context, x: Array) -> Array:
    """Return the mean of x over the devices, which is the same on every device."""
    return x if ctx.axis_name is None else psum(ctx, x) / axis_size(ctx)


def global_count(ctx: Context, valid: Array) -> Array:
    """Return the divisor for a device's sum over valid items.

    The divisor is the number of valid items on all devices, but at least 1, divided by the number of devices.

    Args:
        valid: bool, of any shape, True for items that count.
    """
    return jnp.maximum(1.0 / axis_size(ctx), pmean(ctx, jnp.sum(valid, dtype=jnp.float32)))


def with_mesh_axis(ctx: Context, bottoms: Sequence[Array]) -> Context:
    """Return a layer's context, with the mesh axis set if the layer's bottoms differ between devices.

    If the bottoms are equal on all devices, for example because they are parameters, or if the devices' batches are not
    joined, the layer computes as on one device.
    """
    joins = ctx.config.joins_batches and any(_may_differ(ctx, x) for x in bottoms)
    return ctx.replace(axis_name=ctx.config.axis_name) if joins else ctx


def find_device_index(ctx: Context) -> Array | None:
    """Return the index of this device among those that share a batch, or None on one device."""
    axis_name = ctx.config.axis_name
    try:
        return None if axis_name is None else jax.lax.axis_index(axis_name)
    except NameError:  # outside of `jax.shard_map`, for example while shapes are evaluated
        return None


def reduce_scalar_tops(ctx: Context, tops: Sequence[Array], loss_weights: Sequence[float]) -> tuple[Array, ...]:
    """Return a layer's tops, where tops without axes are replaced by their mean over the devices.

    A loss of one element of a layer on the host is replaced, too, because Python layers give their losses shape (1,).
    Each device divides before the sum over devices, so that XLA can combine this sum with the sum of the gradients.
    """
    axis_name: Any = ctx.config.axis_name
    return tuple(
        jax.lax.psum(top / jax.lax.axis_size(axis_name), axis_name)
        if (top.ndim == 0 or (ctx.type.on_host and weight and top.size == 1)) and _may_differ(ctx, top)
        else top
        for top, weight in zip(tops, loss_weights, strict=True)
    )


def psum_loss(ctx: Context, loss: Array) -> Array:
    """Return the sum of a loss over the devices. A loss that is the same on every device counts only once."""
    axis_name: Any = ctx.config.axis_name
    total: Array = jax.lax.psum(loss, axis_name) if _may_differ(ctx, loss) else loss
    return total


def _may_differ(ctx: Context, x: Array) -> bool:
    axis_name = ctx.config.axis_name
    index = find_device_index(ctx)
    if index is None:
        return False
    require(
        axis_name in varying_axes(jax.typeof(index)),
        f'axis_name "{axis_name}" must be an axis of jax.shard_map with check_vma=True, which records the values '
        "that devices share",
    )
    return axis_name in varying_axes(jax.typeof(x))

"""What layers ask of the devices whose batches count as one: how many they are, sums and means over them.

Under `jax.shard_map` over `Run.axis_name` each device runs the net on a batch of its own, and what a net computes of
its whole batch is of all these batches, joined along the axis of the rows. A top without axes is such a number, and the
interpreter takes the mean of what the devices have for it. So layers give, of what is

- a mean over rows: the mean over the device's own, and need nothing from here;
- a sum over rows: `devices` times the sum over the device's own;
- a sum over a count: the device's own sum over the `mean` of the devices' counts, see `count`.

Rules get the diffs of these tops, and differentiate just that. What is none of this, such as a top with an axis for the
classes, is made of `total`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from ..kernels.varying import vary, varying
from .context import Context


def devices(ctx: Context) -> int:
    """Return how many devices' batches count as one."""
    return 1 if ctx.axis is None else int(jax.lax.axis_size(ctx.axis))


def number(ctx: Context) -> Any:
    """Return which of these devices this is, from 0 on."""
    return 0 if ctx.axis is None else jax.lax.axis_index(ctx.axis)


def total(ctx: Context, x: jax.Array) -> jax.Array:
    """Return the sum over the devices, the same on all."""
    if ctx.axis is None:
        return x
    found: jax.Array = jax.lax.psum(vary(x, frozenset({ctx.axis})), ctx.axis)
    return found


def mean(ctx: Context, x: jax.Array) -> jax.Array:
    """Return the mean over the devices, the same on all."""
    return x if ctx.axis is None else total(ctx, x) / devices(ctx)


def count(ctx: Context, valid: jax.Array) -> jax.Array:
    """Return what the device's own sum over those that count is divided by: as if by all devices' count, at least 1."""
    return jnp.maximum(1.0 / devices(ctx), mean(ctx, jnp.sum(valid, dtype=jnp.float32)))


def placed(ctx: Context, bottoms: Sequence[jax.Array]) -> Context:
    """Return a layer's context for these bottoms: if they differ between devices, each of these has a batch of its own.

    A layer whose bottoms all devices share, such as one of params alone, computes what it does on one device.
    """
    return ctx.replace(axis=ctx.run.axis_name) if any(_differs(ctx, x) for x in bottoms) else ctx


def of_whole_batch(ctx: Context, tops: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """Return a layer's tops, those without axes as the devices' mean.

    Each device divides its own: so nothing is left to do after the sum, which comes with the gradients.
    """
    name: Any = ctx.run.axis_name
    return tuple(
        jax.lax.psum(top / jax.lax.axis_size(name), name) if top.ndim == 0 and _differs(ctx, top) else top
        for top in tops
    )


def summed(ctx: Context, loss: jax.Array) -> jax.Array:
    """Return the sum over the devices of what they have of their own; once what they share."""
    name: Any = ctx.run.axis_name
    found: jax.Array = jax.lax.psum(loss, name) if _differs(ctx, loss) else loss
    return found


def _differs(ctx: Context, x: jax.Array) -> bool:
    """Return whether devices whose batches count as one have arrays of their own for `x`."""
    name = ctx.run.axis_name
    if name is None:
        return False
    try:
        number = jax.lax.axis_index(name)
    except NameError:  # outside of `jax.shard_map`, where shapes are found out, say
        return False
    require(
        name in varying(jax.typeof(number)),
        f'axis_name "{name}" must be an axis of jax.shard_map with check_vma=True, which tells what devices share',
    )
    return name in varying(jax.typeof(x))

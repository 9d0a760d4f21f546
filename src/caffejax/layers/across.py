"""What layers ask of the devices whose batches count as one: how many they are, sums and means over them.

Under `jax.shard_map` over `Run.axis_name` each device runs the net on a batch of its own, and what a net computes of its
whole batch is of all these batches, joined along the axis of the rows. A top without axes is such a number, and the
interpreter takes the mean of what the devices have for it. So layers give, of what is

- a mean over rows: the mean over the device's own, and need nothing from here;
- a sum over rows: `devices` times the sum over the device's own;
- divided by a count: the device's own sum over the `mean` of the devices' counts, which is at least `1 / devices`.

Rules get diffs of these tops. What is none of this, such as a top with an axis of classes, is made of `total`s.

An array that is the same on all devices (as `jax.typeof` says), such as one that is made of params alone, is no part of
a batch, and counts once. Where the axis is not bound, layers are on one device.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from ..errors import require
from ..kernels.varying import vary, varying
from .context import Context


def spread(ctx: Context, x: jax.Array) -> bool:
    """Return whether devices have arrays of their own for `x`, of batches that count as one.

    Raises:
        LayerError: if the axis is bound by something that does not tell what differs along it.
    """
    name = ctx.run.axis_name
    if name is None or not _bound(name):
        return False
    require(
        name in varying(jax.typeof(jax.lax.axis_index(name))),
        f'axis_name "{name}" must be an axis of jax.shard_map with check_vma=True: nothing else tells what devices share',
    )
    return name in varying(jax.typeof(x))


def devices(ctx: Context, x: jax.Array) -> int:
    """Return how many devices have rows of `x` of their own; 1 where all have the same."""
    return int(jax.lax.axis_size(ctx.run.axis_name)) if spread(ctx, x) else 1


def total(ctx: Context, x: jax.Array) -> jax.Array:
    """Return the sum over the devices, the same on all."""
    found: jax.Array = jax.lax.psum(x, ctx.run.axis_name) if spread(ctx, x) else x
    return found


def mean(ctx: Context, x: jax.Array) -> jax.Array:
    """Return the mean over the devices, the same on all."""
    found: jax.Array = jax.lax.pmean(x, ctx.run.axis_name) if spread(ctx, x) else x
    return found


def alike(ctx: Context, bottoms: Sequence[jax.Array]) -> list[jax.Array]:
    """Make all bottoms of a layer differ between devices if some do: then each tells whether the layer sees a batch."""
    if not any(spread(ctx, x) for x in bottoms):
        return list(bottoms)
    return [vary(x, frozenset({str(ctx.run.axis_name)})) for x in bottoms]


def of_whole_batch(ctx: Context, tops: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """Return a layer's tops, those without axes as the devices' mean."""
    return tuple(mean(ctx, top) if top.ndim == 0 else top for top in tops)


def _bound(name: str) -> bool:
    try:
        jax.lax.axis_size(name)
    except NameError:
        return False
    return True

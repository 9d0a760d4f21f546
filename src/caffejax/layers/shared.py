"""Layers that differ in nothing but their names are traced, differentiated and lowered once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from .calling import Arrays, Backward, call
from .checking import checked
from .context import Context
from .registry import Follower


@partial(jax.tree_util.register_dataclass, data_fields=["tops", "state"], meta_fields=["taken"])
@dataclass(frozen=True)
class Joint:
    """What a layer and some that follow it leave: tops, new state of the first, and how many of those it took in."""

    tops: Arrays
    state: Arrays
    taken: int


def call_shared(
    ctx: Context,
    key: jax.Array | None,
    propagate_down: tuple[bool, ...],
    blobs: Sequence[jax.Array],
    bottoms: Sequence[jax.Array],
    mode: Backward,
) -> tuple[Arrays, Arrays]:
    """As `calling.call`, in a forward pass with that key."""
    if not ctx.type.shared:
        return call(ctx.in_pass(key, propagate_down), blobs, bottoms, mode)
    result: tuple[Arrays, Arrays] = _called(ctx.unnamed, ctx.with_key(key).base_key, tuple(blobs), tuple(bottoms), mode)
    return result


@partial(jax.jit, static_argnums=(0, 4))
def _called(ctx: Context, key: Any, blobs: Arrays, bottoms: Arrays, mode: Backward) -> tuple[Arrays, Arrays]:
    return call(ctx.with_key(key), blobs, bottoms, mode)


def call_joint(
    ctx: Context, blobs: Sequence[jax.Array], bottoms: Sequence[jax.Array], followers: Sequence[Follower]
) -> Joint | None:
    """A layer and as many of its followers as its type can compute in one go; None if that is none of them."""
    if not all(c.type.shared for c in (ctx, *(f.ctx for f in followers))):
        return _joint(ctx, blobs, bottoms, followers)
    contexts, arrays = tuple(f.ctx.unnamed for f in followers), tuple(f.blobs for f in followers)
    return _called_joint(ctx.unnamed, contexts, tuple(blobs), tuple(bottoms), arrays)


@partial(jax.jit, static_argnums=(0, 1))
def _called_joint(
    ctx: Context, contexts: tuple[Context, ...], blobs: Arrays, bottoms: Arrays, arrays: tuple[Arrays, ...]
) -> Joint | None:
    return _joint(ctx, blobs, bottoms, list(map(Follower, contexts, arrays)))


@checked
def _joint(
    ctx: Context, blobs: Sequence[jax.Array], bottoms: Sequence[jax.Array], followers: Sequence[Follower]
) -> Joint | None:
    assert ctx.type.joint is not None
    found = ctx.type.joint(ctx, tuple(blobs), *bottoms, followers)
    if found is None:
        return None
    taken, result = found
    top, state = result if ctx.type.stateful else (result, ())
    return Joint((top,), tuple(state), int(taken))

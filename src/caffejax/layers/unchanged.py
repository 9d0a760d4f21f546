"""Gather and Debug: they pass on what they are given."""

from __future__ import annotations

from typing import Any

import jax

from ..errors import require
from .context import Context
from .registry import register
from .tops import every
from .types import SAME_AS_BOTTOMS, Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced

Arrays = tuple[jax.Array, ...]


def gather(ctx: Context, *xs: jax.Array) -> Arrays:
    """The bottoms: what all processes of an MPI job have together, of which here is one."""
    require(
        not ctx.layer.HasField("gather_param"), "gather_param is not supported; Gather here joins processes' batches"
    )
    return xs


def debug(ctx: Context, *xs: jax.Array) -> Arrays:
    """The bottoms, for MyCaffe's debugger to look at."""
    return xs


def unchanged_backward(ctx: Context, *xs: jax.Array, y: Any, dy: Any) -> Arrays:
    return every(dy)


for _name, _forward, _origin in (("Gather", gather, "yjxiong/caffe"), ("Debug", debug, "MyCaffe")):
    register(
        LayerType(
            Signature(_name, bottoms=(1, None), tops=SAME_AS_BOTTOMS),
            Traced(_forward),
            Gradient(unchanged_backward),
            LayerTraits(elementwise=True, data_movement="whole", dtype_policy="bottoms", accepts_integers=True),
            docs=LayerDocs(origin=_origin),
        )
    )

"""Mean: a mean for each channel added or subtracted."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import SAME_AS_BOTTOMS, Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def mean(ctx: Context, *xs: jax.Array) -> tuple[jax.Array, ...]:
    """output_scale * (input_scale * x + or - mean_scale * value), the values repeated over the channels of each bottom.

    `operation` says ADD or SUBTRACT.
    """
    return tuple(_shifted(ctx.param, x) for x in xs)


register(
    LayerType(
        Signature("Mean", bottoms=(1, None), tops=SAME_AS_BOTTOMS, param="mean_param"),
        Traced(mean),
        Gradient(exists=False),
        LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same"),
        docs=LayerDocs(
            origin="FlowNet 2", restrictions="A mean `file` is refused; use values, or transform_param's mean_file."
        ),
    )
)


def _shifted(p: Any, x: jax.Array) -> jax.Array:
    require(not p.file, "a mean file is not supported; give values")
    require(len(x.shape) == 4, f"needs bottoms with 4 axes (number, channels, height, width), not shape {x.shape}")
    n = len(p.value)
    require(n > 0 and x.shape[1] % n == 0, f"the {x.shape[1]} channels must be a multiple of the {n} values")
    values = jnp.tile(jnp.asarray(list(p.value), promote(x).dtype), x.shape[1] // n)[:, None, None]
    sign = -1 if p.operation == p.SUBTRACT else 1
    return (p.output_scale * (p.input_scale * promote(x) + sign * p.mean_scale * values)).astype(x.dtype)

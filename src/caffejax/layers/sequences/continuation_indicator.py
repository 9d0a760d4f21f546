"""ContinuationIndicator: where sequences of one length begin, for LSTM and RNN."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..registry import register
from ..types import Gradient, LayerDocs, LayerType, Signature, Traced


def continuation_indicator(ctx: Context) -> jax.Array:
    """0 in the first of (time_step, batch_size) rows, and 1 in all others."""
    p = ctx.param
    require(
        p.time_step > 0 and p.batch_size > 0, f"time_step {p.time_step}, batch_size {p.batch_size}: must be positive"
    )
    return jnp.ones((p.time_step, p.batch_size), jnp.float32).at[0].set(0)


register(
    LayerType(
        Signature("ContinuationIndicator", bottoms=0, param="continuation_indicator_param"),
        Traced(continuation_indicator),
        Gradient(exists=False),
        docs=LayerDocs(origin="warpctc-caffe"),
    )
)

"""The params of layers that multiply by a weight."""

from __future__ import annotations

from typing import Any

import numpy as np

from .context import Context, ParamSpec, Shape


def weight_and_bias(p: Any, shape: Shape) -> list[ParamSpec]:
    """Declare a weight of this shape, and a bias (num_output,) if there is one; `p` is the layer's own message."""
    weight = ParamSpec(shape, p.weight_filler)
    return [weight, ParamSpec((p.num_output,), p.bias_filler)] if p.bias_term else [weight]


def taken_by_outputs(ctx: Context, blobs: Any, factor: Any, bias: Any) -> tuple[Any, tuple[np.ndarray, ...]] | None:
    """Take a factor and a bias for each output into a weight, whose first axis these are, and its bias.

    Returns:
        The layer's message, which has a bias now, and the two blobs in float32; None if outputs are on another axis.
    """
    layer = type(ctx.layer)()
    layer.CopyFrom(ctx.layer)
    assert ctx.type.signature.param is not None
    p = getattr(layer, ctx.type.signature.param)
    if p.axis != 1 or getattr(p, "transpose", False):
        return None
    p.bias_term = True
    weight, *before = (np.asarray(b, np.float32) for b in blobs)
    factor, bias = np.asarray(factor, np.float64), np.asarray(bias, np.float64)
    along = factor.reshape(*factor.shape, *(1,) * (weight.ndim - 1)) if factor.ndim else factor
    own = before[0].ravel() if before else np.zeros(len(weight))
    return layer, (weight * along.astype(np.float32), (own * factor + bias).astype(np.float32))

"""LRN, Softmax, and what normalises each channel by stored numbers."""

from __future__ import annotations

import numpy as np

from ...layers.axes import canonical_axis
from ..operation import Numbers
from ..program import Value
from .registry import Call, lowers


@lowers("LRN")
def lrn(call: Call) -> Value | None:
    """x * (k + alpha / n * sum of squares) ** -beta."""
    p = call.param
    within = p.norm_region == p.WITHIN_CHANNEL
    if p.local_size > 2 * min(call.x.shape[1:]):
        return None
    numbers = {"alpha": float(p.alpha), "beta": float(p.beta), "k": 1.0 if within else float(p.k)}
    return call.writer.add("lrn", [call.x], call.out, within=int(within), size=p.local_size, **numbers)


@lowers("Softmax")
def softmax(call: Call) -> Value | None:
    """exp(x) normalised to sum 1 along an axis."""
    axis = canonical_axis(call.param.axis, call.x.shape)
    if call.param.temperature != 1:
        return None
    return call.writer.add("softmax", [call.x], call.out, axis=axis) if axis else None


@lowers("Normalize")
def normalize(call: Call) -> Value | None:
    """SSD's: each place over its length, times a scale."""
    p, w, shape = call.context.layer.norm_param, call.writer, call.x.shape
    if not call.blobs or p.across_spatial or len(shape) != 4:
        return None
    w.share(call.x)  # it is read again
    ones = w.weight(np.ones((1, shape[1], 1, 1), np.float32))
    once, nothing = (1, 1), (0, 0)
    steps: dict[str, Numbers] = {"stride": once, "dilation": once, "low": nothing, "high": nothing, "groups": 1}
    total = w.add("convolution", [w.apply(call.x, "square")], (shape[0], 1, *shape[2:]), weight=ones, **steps)
    over = w.apply(w.apply(total, "linear", 1, p.eps), "power", 1, -0.5)
    scale = np.broadcast_to(np.asarray(call.blobs[0], np.float32), shape[1])
    return w.apply_by_channel(w.combine("times", call.x, over), "times", scale)


@lowers("BatchNorm", "Scale", "Bias", "BN")
def by_channel(call: Call) -> Value | None:
    """A factor and a bias for each channel, which could not be folded."""
    known = call.context.type.traits.by_channel
    shapes = [np.shape(b) for b in call.blobs]
    if known is None or len(call.bottoms) != 1 or len(call.x.shape) < 2:
        return None
    if not call.blobs or not known.applies(call.context, shapes, 1, call.x.shape[1]):
        return None
    factor, bias = (
        np.asarray(a, np.float32) for a in known.factor_and_bias(call.context, tuple(map(np.asarray, call.blobs)))
    )
    x = call.x
    if np.any(factor != 1):
        x = call.writer.apply_by_channel(x, "times", factor)
    return call.writer.apply_by_channel(x, "plus", bias) if np.any(bias) else x

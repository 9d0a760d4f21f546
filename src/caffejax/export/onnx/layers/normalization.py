"""BatchNorm, LRN, Softmax."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ....kernels.window import Window
from ....layers.axes import canonical_axis
from ....layers.normalization import stored, uses_stored
from ..values import Value
from .pooling import averaged
from .registry import Call, Scaled, Tops, emits


def normalises_by_stored(call: Call) -> bool:
    """Return whether a BatchNorm is one BatchNormalization."""
    return uses_stored(call.context) and len(call.blobs) == 3


def batch_normalization(call: Call, factor: np.ndarray, bias: np.ndarray) -> Value:
    """Normalise by the stored statistics, with a factor and a bias for each channel."""
    mean, variance = map(np.asarray, stored(tuple(map(jnp.asarray, call.blobs))))
    arrays = (("scale", factor), ("bias", bias), ("mean", mean), ("variance", variance))
    inputs = [call.array(array, name) for name, array in arrays]
    return call.emit("BatchNormalization", *inputs, epsilon=float(call.param.eps))


@emits(
    "BatchNorm",
    operators="BatchNormalization, with the Scale that follows",
    unless="it normalises by the batch, or has five blobs: then Mul, Add",
    scaled=Scaled(normalises_by_stored, batch_normalization),
)
def batch_norm(call: Call) -> Tops | None:
    """Normalise by the stored statistics."""
    if not normalises_by_stored(call):
        return None
    channels = call.x.shape[1]
    return batch_normalization(call, np.ones(channels, np.float32), np.zeros(channels, np.float32))


@emits("LRN", operators="LRN; within channels AveragePool, Pow, Div")
def lrn(call: Call) -> Tops | None:
    """Across channels ONNX's own; within them by means of squares."""
    p, b = call.param, call.builder
    if p.norm_region == p.ACROSS_CHANNELS:
        return call.emit("LRN", size=p.local_size, alpha=p.alpha, beta=p.beta, bias=p.k)
    x = call.name(call.x)
    window = Window.symmetric((p.local_size,) * 2, (1, 1), (p.local_size // 2,) * 2)
    means = averaged(call, b.node("Mul", [x, x]), window, call.x.shape[2:])
    if means is None:
        return None
    scale = b.node("Add", [b.node("Mul", [means, _number(call, p.alpha)]), _number(call, 1)])
    return call.top(b.node("Div", [x, b.node("Pow", [scale, _number(call, p.beta)])]))


def _number(call: Call, number: float) -> str:
    return call.builder.constant(np.float32(number))


@emits("Softmax", operators="Softmax")
def softmax(call: Call) -> Tops:
    """exp(x / temperature) normalised to sum 1 along an axis."""
    axis = canonical_axis(call.param.axis, call.x.shape)
    if call.param.temperature != 1:
        cooled = call.builder.node("Div", [call.name(call.x), _number(call, call.param.temperature)])
        return call.top(call.builder.node("Softmax", [cooled], axis=axis))
    return call.emit("Softmax", axis=axis)

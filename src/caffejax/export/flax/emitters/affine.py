"""Scale and Bias."""

from __future__ import annotations

import numpy as np

from ....errors import require
from ....layers.axes import canonical_axis
from ..building import Emission, writes
from ..program import Shape, Value


@writes("Scale")
def scale(e: Emission) -> Value:
    """Write a factor, and a bias if there is one: learned, or the factor from another bottom."""
    x = e.last(e.bottoms[0])
    bounded = e.p.HasField("min_value") or e.p.HasField("max_value")
    require(not bounded, "holds its factor between bounds (min_value, max_value), which is not supported")
    if len(e.bottoms) == 2:
        y = e.call("{0} * {1}", x, _broadcast(e, e.bottoms[1], x))
        return _with_bias(e, y) if e.arrays else y
    factor, *bias = (_stored(array, x, e.p.axis) for array in e.arrays)
    weights = {"scale": factor, **({"bias": bias[0]} if bias else {})}
    options = {} if bias else {"use_bias": False}
    part = e.part("Scale", "scale", weights, positional=1, random=False, shape=factor.shape, **options)
    return e.elementwise("{part}({0})", x, part=part, helpers=["Scale"])


@writes("Bias")
def bias(e: Emission) -> Value:
    """Write a sum with a learned bias, or with another bottom."""
    x = e.last(e.bottoms[0])
    return e.call("{0} + {1}", x, _broadcast(e, e.bottoms[1], x)) if len(e.bottoms) == 2 else _with_bias(e, x)


def _with_bias(e: Emission, x: Value) -> Value:
    array = _stored(e.arrays[-1], x, e.p.axis)
    part = e.part("Bias", "bias", {"bias": array}, positional=1, random=False, shape=array.shape)
    return e.elementwise("{part}({0})", x, part=part, helpers=["Bias"])


def _stored(array: np.ndarray, x: Value, axis: int) -> np.ndarray:
    """Return an array that lies along Caffe's axes from `axis` on such that it broadcasts along what is stored."""
    start = canonical_axis(axis, x.shape) if array.ndim else 0
    whole = array.reshape((1,) * start + array.shape + (1,) * (len(x.shape) - start - array.ndim))
    whole = whole.transpose(x.order)
    first = next((k for k, n in enumerate(whole.shape) if n != 1), whole.ndim)
    return whole.reshape(whole.shape[first:])


def _broadcast(e: Emission, factor: Value, x: Value) -> Value:
    """Return another bottom, which lies along axes of `x` from the layer's `axis` on, such that it broadcasts."""
    start = canonical_axis(e.p.axis, x.shape) if factor.shape else 0
    shape: Shape = (1,) * start + factor.shape + (1,) * (len(x.shape) - start - len(factor.shape))
    if shape == factor.shape:
        return e.ordered(factor, x.order)
    factor = e.plain(factor)
    if start == 0:  # such as (images, channels), with the axes of the plane to come
        sizes = [shape[axis] for axis in x.order]
        if [axis for axis in x.order if shape[axis] != 1] == sorted(k for k in x.order if shape[k] != 1):
            text = ", ".join(map(str, ("{0}.shape[0]", *sizes[1:])))
            return e.call(f"{{0}}.reshape({text})", factor, shape=shape, order=x.order, blob=factor.blob)
        text = ", ".join(map(str, ("{0}.shape[0]", *shape[1:])))
    else:
        text = ", ".join(map(str, shape))
    spread = e.call(f"{{0}}.reshape({text})", factor, shape=shape, order=tuple(range(len(shape))), blob=factor.blob)
    return e.ordered(spread, x.order)

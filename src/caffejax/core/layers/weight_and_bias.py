"""Functions for layers with a weight and a bias: they declare the two blobs, and fold factors into them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .context import Context, ParamSpec, Shape
from .dtype_policy import promote


def weight_and_bias_specs(p: Any, shape: Shape) -> list[ParamSpec]:
    """Return the specs of a weight with this shape and, if `p.bias_term` is true, of a bias (num_output,).

    `p` is the parameter message or the settings of the layer.
    """
    weight = ParamSpec(shape, p.weight_filler, name="weight")
    return [weight, ParamSpec((p.num_output,), p.bias_filler, name="bias")] if p.bias_term else [weight]


@dataclass(frozen=True, eq=False)
class ScaledWeight:
    """The product of a weight and a factor for each output, as float32.

    The product is computed each time NumPy converts the object to an array.

    Attributes:
        weight: the weight, (outputs, ...), or another ScaledWeight.
        factor: the factors, (outputs,) or ().
    """

    weight: Any
    factor: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's shape."""
        return tuple(self.weight.shape)

    @property
    def ndim(self) -> int:
        """The number of axes of the weight."""
        return len(self.shape)

    dtype = np.dtype(np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        factor = self.factor.reshape(*self.factor.shape, *(1,) * (self.ndim - 1)).astype(np.float32)
        return (np.asarray(self.weight, np.float32) * factor).astype(dtype or np.float32, copy=False)


def fold_scale_bias(blobs: Any, factor: Any, bias: Any, *, ctx: Context) -> tuple[Any, tuple[Any, np.ndarray]] | None:
    """Fold a factor and a bias for each output into the weight and the bias of a layer.

    Args:
        blobs: the weight (outputs, ...), and the bias if the layer has one.
        factor, bias: (outputs,) or ().

    Returns:
        The LayerParameter with `bias_term: true`, and the two blobs: a `ScaledWeight`, and a bias in float32. None if
            the outputs are not along axis 0 of the weight and axis 1 of the top.
    """
    layer = type(ctx.layer)()
    layer.CopyFrom(ctx.layer)
    assert ctx.type.signature.param is not None
    p = getattr(layer, ctx.type.signature.param)
    if p.axis != 1 or getattr(p, "transpose", False):
        return None
    p.bias_term = True
    weight, *old_biases = blobs
    factor, bias = np.asarray(factor, np.float64), np.asarray(bias, np.float64)
    old_bias = np.asarray(old_biases[0], np.float32).ravel() if old_biases else np.zeros(weight.shape[0])
    return layer, (ScaledWeight(weight, factor), (old_bias * factor + bias).astype(np.float32))


def normalize_rows(weight: Array, *, eps: float = 0.0) -> Array:
    """Divide the rows of a weight (rows, columns) by their lengths, sqrt(sum of squares + eps)."""
    squared_lengths = jnp.sum(jnp.square(promote(weight)), axis=1, keepdims=True)
    return (weight / jnp.sqrt(squared_lengths + eps)).astype(weight.dtype)

"""Convolution over any number of spatial axes, with groups, stride, padding and dilation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import require
from ..kernels.affine import by_channel
from ..kernels.convolution import correlate
from ..kernels.grouping import in_groups
from ..kernels.window import Window
from .axes import after_first_axis, canonical_axis
from .context import Context, ParamSpec, Shape
from .dtypes import promote
from .epilogue import Epilogue
from .registry import register
from .spatial import DILATION_OF_FORKS, convolution_output, convolution_window
from .tops import every
from .types import SAME_AS_BOTTOMS, Fusion, Gradient, LayerTraits, LayerType, Signature, Traced
from .weights import taken_by_outputs, weight_and_bias

Arrays = tuple[jax.Array, ...]


@dataclass(frozen=True)
class Correlation:
    """Cross-correlation with a weight (outputs, inputs / group, *kernel), and its two transposes.

    Attributes:
        window: kernel, stride, padding and dilation.
        axis: the channel axis: axes before it are independent, axes after it spatial.
        group: the number of groups of channels, each seen by its own outputs.
        fast: whether forward takes the fast kernels; the transposes, which are for rules, stay plain.
    """

    window: Window
    axis: int
    group: int
    fast: bool = False

    def size(self, x: Any) -> Shape:
        """Return the spatial part of a shape."""
        return tuple(x.shape[self.axis + 1 :])

    def __call__(
        self,
        x: jax.Array,
        weight: jax.Array,
        bias: jax.Array | None = None,
        *,
        factor: jax.Array | None = None,
        relu: bool = False,
    ) -> jax.Array:
        """Correlate (..., inputs, *size) to (..., outputs, *output size).

        Times the factor and plus the bias of each output, if there are any, and with negatives set to 0 if `relu`.
        """
        size = self.size(x)
        window = self.window.ending(size, convolution_output(size, self.window))
        y = correlate(self._flat(x), weight, window, bias, factor=factor, relu=relu, fast=self.fast)
        return y.reshape(*x.shape[: self.axis], *y.shape[1:]).astype(x.dtype)

    def spread(self, y: jax.Array, weight: jax.Array, size: Shape) -> jax.Array:
        """Spread (..., outputs, *output size) to (..., inputs, *size): each number times the kernel, where it is from.

        A correlation again: of `y`, spread out by the stride, with the flipped kernel.
        """
        n = len(size)
        back = self.window.ending(size, self.size(y)).transposed()

        def run(y: jax.Array, weight: jax.Array, groups: int) -> jax.Array:
            swapped = weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
            return lax.conv_general_dilated(
                y,
                jnp.flip(swapped.reshape(-1, *swapped.shape[2:]), range(2, 2 + n)),
                back.stride,
                back.padding,
                lhs_dilation=self.window.stride,
                rhs_dilation=back.dilation,
                dimension_numbers=_plain(n),
                feature_group_count=groups,
            )

        x = in_groups(run, self._flat(y), weight, self.group)
        return x.reshape(*y.shape[: self.axis], *x.shape[1:])

    def weight_diff(self, x: jax.Array, dy: jax.Array) -> jax.Array:
        """Return the weight's diff: `x` correlated with `dy`, the batch taking the place of the channels."""
        n = len(self.size(x))
        diff = lax.conv_general_dilated(
            self._flat(x),
            self._flat(dy),
            self.window.dilation,
            self.window.ending(self.size(x), self.size(dy)).padding,
            rhs_dilation=self.window.stride,
            dimension_numbers=lax.ConvDimensionNumbers(*(((1, 0, *range(2, n + 2)),) * 3)),
            batch_group_count=self.group,
        )
        # where the stride leaves a remainder, the last positions belong to no kernel element
        return diff[(slice(None), slice(None), *(slice(k) for k in self.window.kernel))]

    def add_bias(self, y: jax.Array, bias: jax.Array | None = None) -> jax.Array:
        """Add the bias of each output, if there is one."""
        if bias is None:
            return y
        return by_channel(self._flat(y), None, bias, fast=self.fast).reshape(y.shape).astype(y.dtype)

    def bias_diff(self, dy: jax.Array) -> jax.Array:
        """Return the bias's diff."""
        return promote(self._flat(dy)).sum((0, *range(2, 2 + len(self.size(dy)))))

    def _flat(self, x: jax.Array) -> jax.Array:
        return x.reshape(-1, *x.shape[self.axis :])


def correlation(ctx: Context, xs: tuple[Any, ...]) -> Correlation:
    """Read a ConvolutionParameter for bottoms of this shape.

    Raises:
        LayerError: for parameters that do not go together, and bottoms of several shapes.
    """
    p, shape = ctx.param, xs[0].shape
    axis = canonical_axis(p.axis, shape)
    for i, x in enumerate(xs):
        require(x.shape == shape, f"all bottoms need one shape: bottom {i} {x.shape}, 0 {shape}")
    require(p.num_output > 0, "num_output must be positive")
    require(p.group > 0, "group must be positive")
    require(
        shape[axis] % p.group == 0 and p.num_output % p.group == 0,
        f"channels {shape[axis]} and num_output {p.num_output} must be multiples of group {p.group}",
    )
    return Correlation(convolution_window(p, len(shape) - axis - 1), axis, p.group, ctx.fast)


def summed(diffs: list[tuple[jax.Array, ...]]) -> tuple[Any, ...]:
    """Return (bottom, weight, bias) diffs of several bottoms as a rule does: the blobs' added up."""
    dxs, *blob_diffs = zip(*diffs, strict=True)
    return tuple(sum(d[1:], d[0]) for d in blob_diffs), *dxs


def convolution(ctx: Context, blobs: Arrays, *xs: jax.Array) -> Arrays:
    """Cross-correlation of every bottom with the same weight (num_output, channels / group, *kernel).

    `axis` is the channel axis: axes before it are independent, axes after it spatial. Sizes round towards
    zero; a kernel larger than the padded input by less than a stride sees zeros beyond it.
    """
    c = correlation(ctx, xs)
    return tuple(c(x, *blobs) for x in xs)


def convolution_fusible(ctx: Context, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Count factors and biases by channel (BatchNorm by stored statistics, Scale, Bias), and a ReLU after them."""
    axis = canonical_axis(ctx.param.axis, x.shape)
    affine = len(list(takewhile(lambda f: f.is_by_channel(axis, ctx.param.num_output), epilogues)))
    return affine + any(f.is_relu for f in epilogues[affine : affine + 1])


def convolution_fused(ctx: Context, blobs: Arrays, x: jax.Array, epilogues: Sequence[Epilogue]) -> jax.Array:
    """Compute it with what `convolution_fusible` counts."""
    weight, bias = blobs if len(blobs) > 1 else (blobs[0], None)
    *affine, last = epilogues
    relu, factor = last.is_relu, None
    for epilogue in affine if relu else epilogues:
        by, added = epilogue.factor_and_bias()
        factor = by if factor is None else factor * by
        bias = added if bias is None else bias * by + added
    return correlation(ctx, (x,))(x, weight, bias, factor=factor, relu=relu)


def convolution_params(ctx: Context, *xs: Any) -> list[ParamSpec]:
    c = correlation(ctx, xs)
    return weight_and_bias(ctx.param, (ctx.param.num_output, xs[0].shape[c.axis] // c.group, *c.window.kernel))


def convolution_backward(ctx: Context, blobs: Arrays, *xs: jax.Array, y: Any, dy: Any) -> tuple[Any, ...]:
    weight, *bias = blobs
    c = correlation(ctx, xs)
    return summed(
        [
            (c.spread(d, weight, c.size(x)), c.weight_diff(x, d), *(c.bias_diff(d) for _ in bias))
            for x, d in zip(xs, every(dy), strict=True)
        ]
    )


def convolution_top_shapes(ctx: Context, *xs: Any) -> list[Shape] | None:
    if any(x.shape != xs[0].shape or 0 in x.shape for x in xs):
        return None
    c = correlation(ctx, xs)
    size = convolution_output(c.size(xs[0]), c.window)
    return [(*xs[0].shape[: c.axis], ctx.param.num_output, *size)] * len(xs)


def convolution_window_of(ctx: Context, x: Any) -> Window:
    """Return the window over the axes of space."""
    return correlation(ctx, (x,)).window


CONVOLUTION_TRAITS = LayerTraits(
    row_wise=after_first_axis,
    dtype_policy="products",
    weight_axes=4,
    spatial_map="windows",
    window=convolution_window_of,
    fold_scale_bias=taken_by_outputs,
)

register(
    LayerType(
        Signature(
            "Convolution",
            bottoms=(1, None),
            tops=SAME_AS_BOTTOMS,
            param="convolution_param",
            fork_settings=DILATION_OF_FORKS,
        ),
        Traced(
            convolution,
            params=convolution_params,
            fusion=Fusion(convolution_fusible, convolution_fused),
            top_shapes=convolution_top_shapes,
        ),
        Gradient(convolution_backward),
        CONVOLUTION_TRAITS,
    )
)


def _plain(n: int) -> lax.ConvDimensionNumbers:
    """Return Caffe's own order: batch, channels, then space; weights output, input, then space."""
    return lax.ConvDimensionNumbers(*((tuple(range(n + 2)),) * 3))

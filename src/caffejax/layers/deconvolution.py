"""Deconvolution: Convolution the other way round, also known as transposed convolution."""

from __future__ import annotations

from typing import Any

import jax

from ..errors import require
from .axes import after_first_axis
from .context import Context, ParamSpec, Shape
from .convolution import CONVOLUTION_LABEL, Correlation, convolution_window_of, correlation, summed
from .registry import register
from .spatial import DILATION_OF_FORKS
from .tops import every
from .types import SAME_AS_BOTTOMS, Facts, Gradient, LayerType, Signature, Traced
from .weights import weight_and_bias

Arrays = tuple[jax.Array, ...]


def deconvolution(ctx: Context, blobs: Arrays, *xs: jax.Array) -> Arrays:
    """Every bottom's numbers times the kernel, added up where they overlap: Convolution's bottom gradient.

    The weight is (channels, num_output / group, *kernel); a size n becomes stride * (n - 1) + extent - 2 * pad.
    """
    weight, *bias = blobs
    c = correlation(ctx, xs)
    return tuple(c.add_bias(c.spread(x, weight, _size(c, x)), *bias) for x in xs)


def deconvolution_params(ctx: Context, *xs: Any) -> list[ParamSpec]:
    c = correlation(ctx, xs)
    return weight_and_bias(ctx.param, (xs[0].shape[c.axis], ctx.param.num_output // c.group, *c.window.kernel))


def deconvolution_backward(ctx: Context, blobs: Arrays, *xs: jax.Array, y: Any, dy: Any) -> tuple[Any, ...]:
    weight, *bias = blobs
    c = correlation(ctx, xs)
    return summed(
        [
            (c(d, weight), c.weight_diff(d, x), *(c.bias_diff(d) for _ in bias))
            for x, d in zip(xs, every(dy), strict=True)
        ]
    )


register(
    LayerType(
        Signature(
            "Deconvolution",
            bottoms=(1, None),
            tops=SAME_AS_BOTTOMS,
            param="convolution_param",
            fork_settings=DILATION_OF_FORKS,
        ),
        Traced(deconvolution, params=deconvolution_params),
        Gradient(deconvolution_backward),
        Facts(
            row_wise=after_first_axis,
            dtypes="products",
            weight_axes=4,
            pixels="transposed",
            window=convolution_window_of,
            label=CONVOLUTION_LABEL,
        ),
    )
)


def _size(c: Correlation, x: jax.Array) -> Shape:
    w = c.window
    size = tuple(
        stride * (n - 1) + extent - low - high
        for n, stride, extent, (low, high) in zip(c.size(x), w.stride, w.extent, w.padding, strict=True)
    )
    require(all(n > 0 for n in size), f"nothing is left: input {c.size(x)}, kernel {w.extent}, pad {w.low}")
    return size

"""Deconvolution: Convolution the other way round, also known as transposed convolution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from ..errors import require
from .context import Context, ParamSpec, Shape
from .convolution import CONVOLUTION_TRAITS, Correlation, correlation, summed
from .registry import register
from .spatial import DILATION_OF_FORKS
from .tops import every
from .types import SAME_AS_BOTTOMS, Gradient, LayerType, Signature, Traced
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
        replace(
            CONVOLUTION_TRAITS, spatial_map="transposed", fold_scale_bias=None
        ),  # its outputs are not the weight's first axis
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

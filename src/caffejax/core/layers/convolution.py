"""Convolution and Deconvolution over any number of spatial axes.

Caffe's rules (base_conv_layer.cpp): sizes round towards zero, and all bottoms share one weight.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from ...base.errors import require
from ..ops.channels import channel_affine
from ..ops.convolution_op import correlate, run_in_groups
from ..ops.custom_gradient import make_differentiable
from ..ops.platform_dispatch import PlatformOp
from ..ops.window import Window
from ..schema.caffe_pb2 import ConvolutionParameter
from .context import Arrays, Epilogue, Params, ParamSpec, Shape
from .declaration import register
from .dtype_policy import promote
from .helpers import as_tuple, canonical_axis, is_after_first_axis
from .types import SAME_AS_BOTTOMS
from .weight_and_bias import fold_scale_bias, weight_and_bias_specs

# the repeated field of each size, the fields for height and width, and the default, or None if a size is required
_SIZE_FIELDS = (
    ("kernel_size", ("kernel_h", "kernel_w"), None),
    ("stride", ("stride_h", "stride_w"), 1),
    ("pad", ("pad_h", "pad_w"), 0),
    ("dilation", (), 1),
)


def read_window(p: ConvolutionParameter, n_axes: int) -> Window:
    """Return the kernel's window over `n_axes` spatial axes.

    Raises:
        LayerError: if sizes are missing, zero, set twice, or do not match the number of axes.
    """
    values = (
        (tuple(getattr(p, name)), tuple(getattr(p, field) if p.HasField(field) else None for field in pair_names))
        for name, pair_names, _ in _SIZE_FIELDS
    )
    return _make_window(n_axes, *values)


@lru_cache(4096)  # few windows, in many layers, for each input size
def _make_window(n_axes: int, *values: tuple[Shape, tuple[int | None, ...]]) -> Window:
    kernel, stride, pad, dilation = (
        resolve_sizes(n_axes, *fields, *field_values) for fields, field_values in zip(_SIZE_FIELDS, values, strict=True)
    )
    for name, size in (("kernel", kernel), ("stride", stride), ("dilation", dilation)):
        require(all(n > 0 for n in size), f"{name} must be positive, not {size}")
    return Window.symmetric(kernel=kernel, stride=stride, pad=pad, dilation=dilation)


def resolve_sizes(
    n_axes: int, name: str, pair_names: Sequence[str], default: int | None, values: Shape, pair: Sequence[int | None]
) -> Shape:
    """Return a size along each axis: `values`, one or one for each axis, or `pair`, height and width, or the default.

    Raises:
        LayerError: if the size is set twice, for one axis only, or not at all and it has no default.
    """
    pair_text = " and ".join(pair_names)
    if any(size is not None for size in pair):
        require(n_axes == 2, f"{pair_text} need 2 spatial axes, but the bottom has {n_axes}; use {name}")
        require(not values, f"give either {name} or {pair_text}, not both")
        require(name == "pad" or None not in pair, f"{pair_text} must both be set")
        return tuple(default or 0 if size is None else size for size in pair)
    if not values:
        require(default is not None or n_axes == 0, f"{name} (or {pair_text}) must be set")
        return (default or 0,) * n_axes
    require(
        len(values) in (1, n_axes),
        f"{name} must have one value, or one for each of the {n_axes} spatial axes, not {len(values)}",
    )
    return values * n_axes if len(values) == 1 else values


def convolution_output_size(size: Shape, window: Window) -> Shape:
    """Return the output size along each axis, rounded towards zero as Caffe's integer division does.

    Raises:
        LayerError: if the kernel does not fit the padded input.
    """
    axes = zip(size, window.extent, window.stride, window.padding, strict=True)
    output_size = tuple(int((n + low + high - extent) / stride) + 1 for n, extent, stride, (low, high) in axes)
    require(
        all(n > 0 for n in output_size),
        f"the kernel does not fit: the input has size {size}, the kernel extent is {window.extent}, "
        f"and pad is {window.low}",
    )
    return output_size


@dataclass(frozen=True)
class ConvolutionOp:
    """The operation of a Convolution layer: cross-correlation with a weight (outputs, inputs / group, *kernel).

    It also computes the gradients and the transpose of this operation.

    Attributes:
        window: kernel, stride, padding and dilation.
        axis: the channel axis. Axes before it are independent, and axes after it are spatial.
        group: the number of groups of channels. The outputs of a group depend only on the inputs of this group.
        fast: whether forward uses the fast kernels. The gradients do not use them.
    """

    window: Window
    axis: int
    group: int
    fast: bool = False

    def spatial_shape(self, x: Any) -> Shape:
        """Return the sizes of the spatial axes of `x`."""
        return tuple(x.shape[self.axis + 1 :])

    def __call__(
        self, x: Array, weight: Array, bias: Array | None = None, *, factor: Array | None = None, relu: bool = False
    ) -> Array:
        """Cross-correlate `x` with `weight`: (..., inputs, *size) to (..., outputs, *output size).

        Then multiply by `factor` and add `bias`, (outputs,) each, if they are not None. With `relu`, replace negative
        values by 0.
        """
        size = self.spatial_shape(x)
        window = self.window.fit_padding(size, convolution_output_size(size, self.window))
        y = correlate(self._flatten_batch(x), weight, window, bias, factor=factor, relu=relu, fast=self.fast)
        return y.reshape(*x.shape[: self.axis], *y.shape[1:]).astype(x.dtype)

    def transpose(self, y: Array, weight: Array, size: Shape) -> Array:
        """Apply the transpose of the operation to `y`: (..., outputs, *output size) to (..., inputs, *size).

        It is computed as a correlation of `y`, dilated by the stride, with the flipped kernel.
        """
        n = len(size)
        transposed_window = self.window.fit_padding(size, self.spatial_shape(y)).transpose()

        def convolve(y: Array, weight: Array, groups: int) -> Array:
            grouped_weight = weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
            return lax.conv_general_dilated(
                y,
                jnp.flip(grouped_weight.reshape(-1, *grouped_weight.shape[2:]), range(2, 2 + n)),
                transposed_window.stride,
                transposed_window.padding,
                lhs_dilation=self.window.stride,
                rhs_dilation=transposed_window.dilation,
                dimension_numbers=lax.ConvDimensionNumbers(*(tuple(range(n + 2)),) * 3),
                feature_group_count=groups,
            )

        def convolve_groups(y: Array, weight: Array) -> tuple[Array]:
            return (run_in_groups(convolve, y, weight, self.group),)

        def forward(y: Array, weight: Array) -> tuple[Array, Arrays]:
            return convolve(y, weight, self.group), (y, weight)

        def backward(residuals: Any, dx: Array, needed: Sequence[bool]) -> list[Array | None]:
            y, weight = residuals
            flat_convolution = replace(self, axis=1)
            return [
                flat_convolution(dx, weight) if needed[0] else None,
                flat_convolution.weight_diff(dx, y) if needed[1] else None,
            ]

        def convolve_on_gpu(y: Array, weight: Array) -> tuple[Array]:
            return (make_differentiable(forward, backward)(y, weight),)

        if self.group == 1:
            (x,) = convolve_groups(self._flatten_batch(y), weight)
        else:  # XLA's compiler for GPUs fails on JAX's own gradient of the weight
            operation = PlatformOp(convolve_groups, cpu=convolve_groups, gpu=convolve_on_gpu)
            (x,) = operation(self._flatten_batch(y), weight)
        return x.reshape(*y.shape[: self.axis], *x.shape[1:])

    def weight_diff(self, x: Array, dy: Array) -> Array:
        """Return the gradient of the weight: the correlation of `x` with `dy`, with batch and channels exchanged."""
        n = len(self.spatial_shape(x))
        diff = lax.conv_general_dilated(
            self._flatten_batch(x),
            self._flatten_batch(dy),
            self.window.dilation,
            self.window.fit_padding(self.spatial_shape(x), self.spatial_shape(dy)).padding,
            rhs_dilation=self.window.stride,
            dimension_numbers=lax.ConvDimensionNumbers(*(((1, 0, *range(2, n + 2)),) * 3)),
            batch_group_count=self.group,
        )
        # where the stride leaves a remainder, the last positions belong to no kernel element
        return diff[(slice(None), slice(None), *(slice(k) for k in self.window.kernel))]

    def add_bias(self, y: Array, bias: Array | None = None) -> Array:
        """Add `bias`, (outputs,), to the channels of `y`, unless it is None."""
        if bias is None:
            return y
        return channel_affine(self._flatten_batch(y), None, bias, fast=self.fast).reshape(y.shape).astype(y.dtype)

    def bias_diff(self, dy: Array) -> Array:
        """Return the gradient of the bias, (outputs,)."""
        return promote(self._flatten_batch(dy)).sum((0, *range(2, 2 + len(self.spatial_shape(dy)))))

    def _flatten_batch(self, x: Array) -> Array:
        return x.reshape(-1, *x.shape[self.axis :])


def make_convolution_op(p: ConvolutionParameter, xs: tuple[Any, ...], *, fast: bool = False) -> ConvolutionOp:
    """Return the operation that settings define for the bottoms `xs`, which have `.shape`; see `ConvolutionOp.fast`.

    Raises:
        LayerError: if the settings contradict each other or do not fit the shapes, or if the shapes of bottoms differ.
    """
    shape = xs[0].shape
    axis = canonical_axis(p.axis, shape)
    for i, x in enumerate(xs):
        require(x.shape == shape, f"bottom {i} must have the shape of bottom 0, {shape}, but has {x.shape}")
    require(p.num_output > 0, f"num_output must be positive, not {p.num_output}")
    require(p.group > 0, f"group must be positive, not {p.group}")
    require(
        shape[axis] % p.group == 0 and p.num_output % p.group == 0,
        f"the {shape[axis]} channels and num_output {p.num_output} must be multiples of group {p.group}",
    )
    return ConvolutionOp(read_window(p, len(shape) - axis - 1), axis, p.group, fast)


def sum_diffs(diffs: Iterable[tuple[Array, ...]]) -> tuple[Any, ...]:
    """Sum the diffs of weight and bias over the bottoms; return this pair, then the diffs of the bottoms.

    `diffs` has a tuple (diff of the bottom, diff of the weight, diff of the bias) for each bottom.
    """
    dxs, *blob_diffs = zip(*diffs, strict=True)
    return tuple(sum(d[1:], d[0]) for d in blob_diffs), *dxs


@register(
    "Convolution",
    bottoms=(1, None),
    tops=SAME_AS_BOTTOMS,
    param="convolution_param",
    row_wise=is_after_first_axis,
    dtype_policy="products",
    weight_axes=4,
    blob_names=("weight", "bias"),
    spatial_map="windows",
    fold_scale_bias=fold_scale_bias,
)
def convolution(p: ConvolutionParameter, params: Params, *xs: Array, fast: bool) -> Arrays:
    """Cross-correlate each bottom with one weight, and add a bias.

    Bottoms: (N, C, *size), all of one shape. Tops: (N, num_output, *output size). Blobs: weight (num_output, C / group,
    *kernel), bias (num_output,). `axis` is the channel axis: axes before it are independent, and axes after it are
    spatial. As in Caffe, an output size is (size + 2 * pad - extent) / stride + 1, rounded towards zero, where the
    extent of the kernel is (kernel - 1) * dilation + 1. A kernel that is larger than the padded input by less than a
    stride reads zeros beyond the padding.
    """
    c = make_convolution_op(p, xs, fast=fast)
    return tuple(c(x, *params.values()) for x in xs)


@convolution.count_fusible
def count_fusible(p: ConvolutionParameter, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Return how many of the epilogues can be fused: layers with a factor and bias for each channel, then a ReLU.

    Layers with a factor and bias are Scale, Bias, and BatchNorm with running statistics.
    """
    axis = canonical_axis(p.axis, x.shape)
    num_affine = len(list(takewhile(lambda f: f.is_channel_affine(axis, p.num_output), epilogues)))
    return num_affine + any(f.is_relu for f in epilogues[num_affine : num_affine + 1])


@convolution.fused
def convolution_fused(
    p: ConvolutionParameter, params: Params, x: Array, epilogues: Sequence[Epilogue], *, fast: bool
) -> Array:
    """Apply a convolution fused with `epilogues`, whose number `count_fusible` returned; return the last top."""
    weight, bias = params["weight"], params.get("bias")
    *affine, last = epilogues
    relu, factor = last.is_relu, None
    for epilogue in affine if relu else epilogues:
        scale, shift = epilogue.factor_and_bias()
        factor = scale if factor is None else factor * scale
        bias = shift if bias is None else bias * scale + shift
    return make_convolution_op(p, (x,), fast=fast)(x, weight, bias, factor=factor, relu=relu)


@convolution.params
def convolution_params(p: ConvolutionParameter, *xs: Any) -> list[ParamSpec]:
    c = make_convolution_op(p, xs)
    return weight_and_bias_specs(p, (p.num_output, xs[0].shape[c.axis] // c.group, *c.window.kernel))


@convolution.backward
def convolution_backward(p: ConvolutionParameter, params: Params, *xs: Array, y: Any, dy: Any) -> tuple[Any, ...]:
    weight, *bias = params.values()
    c = make_convolution_op(p, xs)
    return sum_diffs(
        (c.transpose(d, weight, c.spatial_shape(x)), c.weight_diff(x, d), *(c.bias_diff(d) for _ in bias))
        for x, d in zip(xs, as_tuple(dy), strict=True)
    )


@convolution.top_shapes
def convolution_top_shapes(p: ConvolutionParameter, *xs: Any) -> list[Shape] | None:
    if any(x.shape != xs[0].shape or 0 in x.shape for x in xs):
        return None
    c = make_convolution_op(p, xs)
    size = convolution_output_size(c.spatial_shape(xs[0]), c.window)
    return [(*xs[0].shape[: c.axis], p.num_output, *size)] * len(xs)


@convolution.window
def convolution_window(p: ConvolutionParameter, x: Any) -> Window:
    """Return the kernel's window over the spatial axes of the bottom `x`."""
    return make_convolution_op(p, (x,)).window


@register(
    "Deconvolution",
    bottoms=(1, None),
    tops=SAME_AS_BOTTOMS,
    param="convolution_param",
    row_wise=is_after_first_axis,
    dtype_policy="products",
    weight_axes=4,
    blob_names=("weight", "bias"),
    spatial_map="transposed",
    window=convolution_window,
)
def deconvolution(p: ConvolutionParameter, params: Params, *xs: Array, fast: bool) -> Arrays:
    """Apply the transpose of Convolution: multiply each value by the kernel, sum where kernels overlap, and add a bias.

    Bottoms: (N, C, *size), all of one shape. Tops: (N, num_output, *output size), where a size n becomes stride * (n -
    1) + extent - 2 * pad, and the extent of the kernel is (kernel - 1) * dilation + 1. Blobs: weight (C, num_output /
    group, *kernel), bias (num_output,).
    """
    weight, *bias = params.values()
    c = make_convolution_op(p, xs, fast=fast)
    return tuple(c.add_bias(c.transpose(x, weight, _deconvolution_output_size(c, x)), *bias) for x in xs)


@deconvolution.params
def deconvolution_params(p: ConvolutionParameter, *xs: Any) -> list[ParamSpec]:
    c = make_convolution_op(p, xs)
    return weight_and_bias_specs(p, (xs[0].shape[c.axis], p.num_output // c.group, *c.window.kernel))


@deconvolution.backward
def deconvolution_backward(p: ConvolutionParameter, params: Params, *xs: Array, y: Any, dy: Any) -> tuple[Any, ...]:
    weight, *bias = params.values()
    c = make_convolution_op(p, xs)
    return sum_diffs(
        (c(d, weight), c.weight_diff(d, x), *(c.bias_diff(d) for _ in bias))
        for x, d in zip(xs, as_tuple(dy), strict=True)
    )


def _deconvolution_output_size(c: ConvolutionOp, x: Array) -> Shape:
    w = c.window
    size = tuple(
        stride * (n - 1) + extent - low - high
        for n, stride, extent, (low, high) in zip(c.spatial_shape(x), w.stride, w.extent, w.padding, strict=True)
    )
    require(
        all(n > 0 for n in size),
        f"the top would be empty: the input has size {c.spatial_shape(x)}, the kernel extent is {w.extent}, "
        f"and pad is {w.low}",
    )
    return size


def depthwise_settings(p: ConvolutionParameter, x: Any) -> ConvolutionParameter:
    """Return the settings of a Convolution that has a group with one output for each channel of the bottom `x`."""
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not shape {x.shape}")
    settings = copy.deepcopy(p)
    settings.num_output = settings.group = x.shape[1]
    settings.axis = 1
    return settings

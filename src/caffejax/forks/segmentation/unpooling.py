"""Unpooling and Upsample, which write values to the positions of maxima, or repeat them over windows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.context import Context, Params, ParamSpec, Shape
from ...core.layers.declaration import declare, register
from ...core.layers.pooling import average_windows, constant_window_areas, pool_diff, read_height_width
from ...core.layers.types import Indices, Variants
from ...core.ops.window import Window
from ...core.schema.caffe_pb2 import UnpoolingParameter, UpsampleParameter
from ..general.settings_checks import reject_fields


def scatter_by_mask(x: jax.Array, mask: jax.Array, size: Shape) -> jax.Array:
    """Write the values of x to the flat positions in the mask, in planes of `size`. Other positions are 0.

    If several values have one position, the last value is used. If a position is outside the plane, the entire plane is
    NaN.

    Args:
        x: the values, (N, C, H, W).
        mask: positions row * width + column, (N, C, H, W).
        size: (height, width) of the result (N, C, height, width).
    """
    require(x.shape == mask.shape, f"data and mask must have equal shapes, not {x.shape} and {mask.shape}")
    num_cells = size[0] * size[1]

    def scatter_plane(values: jax.Array, index: jax.Array) -> jax.Array:
        is_inside = (index >= 0) & (index < num_cells)
        value_index = jnp.arange(values.size, dtype=jnp.int32)
        last_index = (
            jnp.full(num_cells, -1, jnp.int32).at[jnp.where(is_inside, index, num_cells)].max(value_index, mode="drop")
        )
        scattered = jnp.where(last_index >= 0, values[jnp.maximum(last_index, 0)], 0)
        return jnp.where(jnp.all(is_inside), scattered, jnp.nan)

    top = jax.vmap(jax.vmap(scatter_plane))(_flatten_plane(x), _flatten_plane(mask).astype(jnp.int32))
    return top.reshape(*x.shape[:2], *size).astype(x.dtype)


def gather_by_mask(y: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the values of `y` at the flat positions in the mask, in the shape of the mask, (N, C, H, W).

    A position outside the plane gives 0.
    """
    gather = jax.vmap(
        jax.vmap(
            lambda values, index: values.at[jnp.where(index < 0, values.size, index)].get(mode="fill", fill_value=0)
        )
    )
    return gather(_flatten_plane(y), _flatten_plane(mask).astype(jnp.int32)).reshape(mask.shape)


def _flatten_plane(x: jax.Array) -> jax.Array:
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])


Arrays = tuple[jax.Array, ...]


@declare(
    "Unpooling",
    bottoms=(1, 2),
    param="unpooling_param",
    in_place=False,
    overrides_autodiff=True,
    indices=Indices(
        (1,),
        lambda p, x, *mask, ctx: _unpool_size(p, x, ctx=ctx)[0] * _unpool_size(p, x, ctx=ctx)[1],
        gathers=True,
        ignores_gradient=True,
    ),
    row_wise=True,
    dtype_policy="bottoms",
    origin="DeconvNet",
)
def max_unpooling(p: UnpoolingParameter, x: jax.Array, *mask: jax.Array, ctx: Context) -> jax.Array:
    """Write each value to its position in the mask, and 0 elsewhere. (N, C, H, W) becomes (N, C, *unpool_size).

    A second bottom (N, C, H, W) is the mask, such as Pooling's second top, with flat positions row * width + column.
    Without a mask, a value is placed at the top left of its window, or in the last row or column if its window starts
    beyond the top. If several values have one position, the last value is used, but each of them gets the gradient
    there. If a position is outside the plane, the entire plane is NaN.

    The type UnPooling, MyCaffe's name, does not require unpool_size. By default, a side of its top is the larger of (n
    - 1) * stride + kernel - 2 * pad and n * stride - pad + 1.
    """
    return scatter_by_mask(x, _unpool_mask(ctx, x, mask), _unpool_size(p, x, ctx=ctx))


@max_unpooling.backward
def max_unpooling_backward(
    x: jax.Array, *mask: jax.Array, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array | None, ...]:
    return gather_by_mask(dy, _unpool_mask(ctx, x, mask)), *(None for _ in mask)


@declare(
    "Unpooling",
    param="unpooling_param",
    in_place=False,
    stateful=True,
    overrides_autodiff=True,
    origin="DeconvNet",
    unsupported={"symbolic_batch": "the top of the previous pass, which has a fixed batch size, is added"},
)
def window_unpooling(p: UnpoolingParameter, x: jax.Array, *, state: Params, ctx: Context) -> tuple[jax.Array, Arrays]:
    """Add each value to all cells of its window. (N, C, H, W) becomes (N, C, *unpool_size).

    The method AVE divides the value by the number of cells of the window; TILE does not. As in the fork, the gradient
    of a value is the average over its window for both methods. Also as in the fork, the top is not cleared: each pass
    adds to the top of the previous pass.
    """
    window, size = _unpool_window(ctx, x), _unpool_size(p, x, ctx=ctx)
    window_sums = x
    if p.unpool == p.TILE:
        window_sums = x * constant_window_areas(size, window, tuple(x.shape[2:]), x.dtype)
    top_spec: Any = jax.ShapeDtypeStruct((*x.shape[:2], *size), x.dtype)
    values = state["values"]
    top = (values + pool_diff("AVE", top_spec, window_sums, window, tuple(x.shape[2:]))).astype(x.dtype)
    return top, (jax.lax.stop_gradient(top).astype(values.dtype),)


@window_unpooling.params
def window_unpooling_params(p: UnpoolingParameter, x: Any, *, ctx: Context) -> list[ParamSpec]:
    window, size = _unpool_window(ctx, x), _unpool_size(p, x, ctx=ctx)
    last_starts = [(n - 1) * s - a for n, s, a in zip(x.shape[2:], window.stride, window.low, strict=True)]
    require(
        all(start < n for start, n in zip(last_starts, size, strict=True)),
        f"the last window would start at {tuple(last_starts)}, outside the top of {size}: set a larger unpool_size",
    )
    return [ParamSpec((*x.shape[:2], *_unpool_size(p, x, ctx=ctx)), learnable=False, persistent=False, name="values")]


@window_unpooling.backward
def window_unpooling_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context) -> jax.Array:
    return average_windows(dy, _unpool_window(ctx, x), tuple(x.shape[2:]))


register(
    "Unpooling",
    Variants(
        lambda layer: "MAX" if layer.unpooling_param.unpool == layer.unpooling_param.MAX else "AVE, TILE",
        {"MAX": max_unpooling.type, "AVE, TILE": window_unpooling.type},
        "The method `unpool` selects the variant.",
    ),
    bottoms=(1, 2),
    param="unpooling_param",
    in_place=False,
    aliases=("UnPooling",),
    origin="DeconvNet",
)


def _unpool_size(p: UnpoolingParameter, x: Any, *, ctx: Context) -> Shape:
    """Return (height, width) of the top.

    It is unpool_size or, for the type UnPooling without this setting, the size that the windows determine.
    """
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    if ctx.layer.type != "UnPooling" or any(map(p.HasField, ("unpool_size", "unpool_h", "unpool_w"))):
        size = read_height_width(p, "unpool_size", "unpool_h", "unpool_w")
    else:
        axes = zip(x.shape[2:], *_read_kernel_stride_pad(p), strict=True)
        height, width = (max((n - 1) * s + k - 2 * a, n * s - a + 1) for n, k, s, a in axes)
        size = height, width
    require(min(size) > 0, f"unpool_size must be positive: {size}")
    return size


def _read_kernel_stride_pad(p: Any) -> tuple[Shape, Shape, Shape]:
    kernel = read_height_width(p, "kernel_size", "kernel_h", "kernel_w")
    return kernel, read_height_width(p, "stride", "stride_h", "stride_w"), read_height_width(p, "pad", "pad_h", "pad_w")


def _unpool_window(ctx: Context, x: Any) -> Window:
    (kernel, stride, pad), size = _read_kernel_stride_pad(ctx.param), _unpool_size(ctx.param, x, ctx=ctx)
    require(min(kernel) > 0 and min(stride) > 0, f"kernel and stride must be positive: {kernel} and {stride}")
    require(all(a < k for a, k in zip(pad, kernel, strict=True)), f"pad {pad} must be less than kernel {kernel}")
    clipped_kernel = tuple(
        min(k, n + 2 * a) for k, n, a in zip(kernel, size, pad, strict=True)
    )  # a window cannot cover more cells than the padded top has
    return Window.symmetric(clipped_kernel, stride, pad)


def _unpool_mask(ctx: Context, x: jax.Array, mask: tuple[jax.Array, ...]) -> jax.Array:
    if mask:
        return mask[0]
    window, size = _unpool_window(ctx, x), _unpool_size(ctx.param, x, ctx=ctx)
    axes = zip(x.shape[2:], window.stride, window.low, size, strict=True)
    rows, columns = (jnp.clip(jnp.arange(n) * s - a, 0, to - 1) for n, s, a, to in axes)
    return jnp.broadcast_to(rows[:, None] * size[1] + columns, x.shape)


@declare(
    "Upsample",
    bottoms=2,
    param="upsample_param",
    in_place=False,
    overrides_autodiff=True,
    indices=Indices((1,), lambda p, x, mask: _count_cells(_upsample_size(p, x)), gathers=True, ignores_gradient=True),
    row_wise=True,
    dtype_policy="bottoms",
    origin="SegNet, ENet",
)
def upsample_by_mask(p: UpsampleParameter, x: jax.Array, mask: jax.Array) -> jax.Array:
    """Write each value to its position in the mask, and 0 elsewhere. (N, C, H, W) becomes (N, C, height, width).

    The second bottom (N, C, H, W) is the mask, such as Pooling's second top, with flat positions row * width + column.
    If several values have one position, the last value is used, but each of them gets the gradient there. If a position
    is outside the plane, the entire plane is NaN.
    """
    return scatter_by_mask(x, mask, _upsample_size(p, x))


@upsample_by_mask.backward
def upsample_by_mask_backward(x: jax.Array, mask: jax.Array, *, y: jax.Array, dy: jax.Array) -> tuple[jax.Array, None]:
    return gather_by_mask(dy, mask), None


@declare(
    "Upsample",
    param="upsample_param",
    in_place=False,
    row_wise=True,
    dtype_policy="bottoms",
    accepts_integers=True,
    origin="MobileNet-YOLO",
)
def upsample_by_repetition(p: UpsampleParameter, x: jax.Array) -> jax.Array:
    """Repeat each value `scale` times along height and width. (N, C, H, W) becomes (N, C, scale * H, scale * W).

    The default of `scale` is 1.
    """
    n = _repeat_factor(p, x)
    return jnp.repeat(jnp.repeat(x, n, axis=2), n, axis=3) if n > 1 else x


@upsample_by_repetition.backward
def upsample_by_repetition_backward(p: UpsampleParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    n, (height, width) = _repeat_factor(p, x), x.shape[2:]
    return jnp.sum(dy.reshape(*x.shape[:2], height, n, width, n), axis=(3, 5))


register(
    "Upsample",
    Variants(
        lambda layer: "SegNet" if len(layer.bottom) == 2 else "MobileNet-YOLO",
        {"SegNet": upsample_by_mask.type, "MobileNet-YOLO": upsample_by_repetition.type},
        "A layer with a second bottom, the mask, is SegNet's.",
    ),
    bottoms=(1, 2),
    param="upsample_param",
    in_place=False,
    origin="SegNet, MobileNet-YOLO",
)


_MASK_SETTINGS = ("scale_h", "scale_w", "pad_out_h", "pad_out_w", "upsample_h", "upsample_w")


def _upsample_size(p: UpsampleParameter, x: Any) -> Shape:
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    if p.HasField("upsample_h") and p.HasField("upsample_w"):
        size = (p.upsample_h, p.upsample_w)
    else:
        require(
            all(p.HasField(f"{name}_h") == p.HasField(f"{name}_w") for name in ("scale", "upsample")),
            "set scale, or both scale_h and scale_w, or both upsample_h and upsample_w",
        )
        scales = (p.scale_h, p.scale_w) if p.HasField("scale_h") else (p.scale, p.scale)
        require(min(scales) > 1, f"scale must be more than 1, not {min(scales)}")
        pads = (p.pad_out_h, p.pad_out_w)
        require(
            all(s == 2 or not a for s, a in zip(scales, pads, strict=True)),
            f"pad_out_h and pad_out_w need scale 2, not {scales}",
        )
        size = tuple(n * s - a for n, s, a in zip(x.shape[2:], scales, pads, strict=True))
    require(min(size) > 1, f"the top must have sides of 2 or more, not {size}")
    return size


def _count_cells(size: Shape) -> int:
    return size[0] * size[1]


def _repeat_factor(p: UpsampleParameter, x: Any) -> int:
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    reject_fields(p, _MASK_SETTINGS, "set scale, or add the mask as the second bottom")
    scale = p.scale if p.HasField("scale") else 1
    require(scale > 0, f"scale must be positive, not {scale}")
    return int(scale)

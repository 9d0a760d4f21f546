"""ResizeBilinear: TensorFlow's, ONNX's and PyTorch's ways to interpolate between pixels."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ...errors import require
from ..axes import possible_plane
from ..context import Context
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .interpolation import Places, interpolated, interpolated_diff

_QUANTIZED = ("input_scale", "output_scale", "input_zero_point", "output_zero_point", "saturate")
_FIRST = {"NHWC": 1, "NCHW": 2}  # the axis of the height, by data_format


def resize_bilinear(ctx: Context, x: jax.Array) -> jax.Array:
    """Bilinear interpolation to output_height x output_width, else scale_height and scale_width times as much.

    Of NHWC, or NCHW as data_format says. Pixel i of the top lies at i * size / output size; with align_corners at
    i * (size - 1) / (output size - 1), and with half_pixel_centers or pytorch_half_pixel at
    (i + 0.5) * size / output size - 0.5. What lies before the first or after the last pixel equals that.
    """
    channels_last = _FIRST[_format(ctx, x)] == 1
    planes = x.transpose(0, 3, 1, 2) if channels_last else x
    top = interpolated(planes, _places(ctx, x), fast=ctx.fast)
    return top.transpose(0, 2, 3, 1) if channels_last else top


def resize_bilinear_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    first = _FIRST[_format(ctx, x)]
    planes = dy.transpose(0, 3, 1, 2) if first == 1 else dy
    diff = interpolated_diff(planes, _places(ctx, x), x.shape[first : first + 2])
    return (diff.transpose(0, 2, 3, 1) if first == 1 else diff).astype(x.dtype)


register(
    LayerType(
        Signature("ResizeBilinear", param="resize_bilinear_param", in_place=False),
        Traced(resize_bilinear),
        Gradient(resize_bilinear_backward),
        LayerTraits(row_wise=True, dtype_policy="bottoms", accepts_integers=True),
        docs=LayerDocs(origin="synopsys-caffe", restrictions="No NCHWD, and no quantized numbers. No recorded case."),
    )
)


def _format(ctx: Context, x: Any) -> str:
    p = ctx.param
    require(p.data_format in _FIRST, f"data_format '{p.data_format}' is not supported; use NHWC or NCHW")
    require(len(x.shape) == 4, f"needs a bottom with 4 axes, {p.data_format}, not shape {x.shape}")
    quantized = [name for name in _QUANTIZED if getattr(p, name) != p.DESCRIPTOR.fields_by_name[name].default_value]
    require(not quantized, f"{', '.join(quantized)}: quantized numbers are not supported")
    modes = [name for name in ("align_corners", "half_pixel_centers", "pytorch_half_pixel") if getattr(p, name)]
    require(len(modes) <= 1, f"{' and '.join(modes)} exclude each other")
    return str(p.data_format)


def _places(ctx: Context, x: Any) -> tuple[Places, Places]:
    p, first = ctx.param, _FIRST[_format(ctx, x)]
    old, channels = x.shape[first : first + 2], x.shape[3 if first == 1 else 1]
    size = _side(p, "height", old[0]), _side(p, "width", old[1])
    possible_plane(size, (x.shape[0], channels))
    rows, columns = (_along(p, n, out) for n, out in zip(old, size, strict=True))
    return rows, columns


def _side(p: Any, name: str, n: int) -> int:
    if p.HasField(f"output_{name}"):
        side = getattr(p, f"output_{name}")
    else:
        scale = getattr(p, f"scale_{name}")
        require(np.isfinite(scale), f"scale_{name} must be a number, not {scale}")
        side = int(np.floor(np.float32(n) * np.float32(scale)))
    require(side > 0, f"output_{name}, or scale_{name} of a size of {n}, must give 1 pixel or more, not {side}")
    return int(side)


def _along(p: Any, n: int, out: int) -> Places:
    number = np.arange(out, dtype=np.float32)
    corners = p.align_corners and out > 1
    step = np.float32(n - 1) / np.float32(out - 1) if corners else np.float32(n) / np.float32(out)
    half = np.float32(0.5)
    if p.half_pixel_centers or (p.pytorch_half_pixel and out > 1):
        at = (number + half) * step - half
    else:
        at = np.zeros_like(number) if p.pytorch_half_pixel else number * step
    low = np.floor(at)
    return Places(np.clip(low, 0, n - 1).astype(int), np.where(at < 0, 0, at - low))

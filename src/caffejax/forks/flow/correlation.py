"""Correlation and Correlation1D, which compare two maps cell by cell for many displacements of the second map."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ...core.layers.context import Context, Shape
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.ops.vma import vary_as


@dataclass(frozen=True)
class CorrelationGeometry:
    """The geometry of a comparison of two padded maps. All lengths are numbers of cells.

    Attributes:
        kernel: the side of the windows that are compared.
        stride: the distance between neighbouring windows of the first map.
        pad: the number of padding (rows, columns) on either side.
        start: (row, column) of the first window of the first map.
        out_size: (height, width) of the top.
        shifts: (shifts, 2), the displacement (down, right) of the window in the second map, for each channel of the
            top.
        is_absolute: whether to average absolute differences instead of products.
        channels: the number of channels of the maps.
    """

    kernel: int
    stride: int
    pad: Shape
    start: Shape
    out_size: Shape
    shifts: np.ndarray
    is_absolute: bool
    channels: int

    def pad_map(self, x: jax.Array) -> jax.Array:
        """Return a map (N, C, H, W), padded with zeros on all sides, in float32 or a wider dtype."""
        return jnp.pad(promote(x), ((0, 0), (0, 0), *((p, p) for p in self.pad)))

    def slice_region(self, padded_map: jax.Array, shift: Any) -> jax.Array:
        """Return the part of a padded map that the windows cover if they are displaced by `shift` (down, right)."""
        return lax.dynamic_slice(padded_map, self._region_start(shift), (*padded_map.shape[:2], *self._region_size))

    def add_region(self, padded_map: jax.Array, shift: Any, region: jax.Array) -> jax.Array:
        """Return a padded map after adding `region` to the part that `slice_region` returns for this shift."""
        begin = self._region_start(shift)
        return lax.dynamic_update_slice(padded_map, lax.dynamic_slice(padded_map, begin, region.shape) + region, begin)

    def average(self, values: jax.Array) -> jax.Array:
        """Average products or differences, (N, C, height, width), over channels and windows; return (N, *out_size)."""
        channel_sums = jnp.sum(values, axis=1)
        sums = lax.reduce_window(
            channel_sums,
            np.array(0, channel_sums.dtype),
            lax.add,
            (1, self.kernel, self.kernel),
            (1, self.stride, self.stride),
            "VALID",
        )
        return sums / (self.kernel**2 * self.channels)

    def average_diff(self, d_means: jax.Array) -> jax.Array:
        """Return the gradient with respect to the values that `average` takes, (N, 1, height, width).

        It is the same for all channels. `d_means`, (N, *out_size), is the gradient with respect to the result of
        `average`.
        """
        margin, stride_gap = self.kernel - 1, self.stride - 1
        dilated = lax.pad(
            d_means,
            jnp.zeros((), d_means.dtype),
            [(0, 0, 0), (margin, margin, stride_gap), (margin, margin, stride_gap)],
        )
        sums = lax.reduce_window(
            dilated, np.array(0, dilated.dtype), lax.add, (1, self.kernel, self.kernel), (1, 1, 1), "VALID"
        )
        return sums[:, None] / (self.kernel**2 * self.channels)

    def _region_start(self, shift: Any) -> list[jax.Array]:
        return [jnp.asarray(index, jnp.int32) for index in (0, 0, self.start[0] + shift[0], self.start[1] + shift[1])]

    @property
    def _region_size(self) -> Shape:
        return tuple((n - 1) * self.stride + self.kernel for n in self.out_size)


def correlation(a: jax.Array, b: jax.Array, *, ctx: Context) -> jax.Array:
    """Compare two feature maps (N, C, H, W) for each displacement d of the second map. The top is (N, shifts, H', W').

    Each channel of the top belongs to one displacement d. Its values are the means of a(x) * b(x + d) over the channels
    and a window of kernel_size x kernel_size or, if correlation_type is SUBTRACT, the means of |a(x) - b(x + d)|.
    Displacements are multiples of stride_2 up to max_displacement in both directions, row by row. Windows are stride_1
    cells apart.

    Correlation1D displaces the second map only to the left and right, and does not pad the height. If its
    single_direction is 1, it displaces the map to the right by 0 to R steps; if it is -1, to the left by 1 to R + 1
    steps. R is max_displacement / stride_2.
    """
    geometry = _read_geometry(ctx, a, b)
    a_region, padded_b = geometry.slice_region(geometry.pad_map(a), (0, 0)), geometry.pad_map(b)

    def compare_shift(shift: jax.Array) -> jax.Array:
        b_region = geometry.slice_region(padded_b, shift)
        return geometry.average(jnp.abs(a_region - b_region) if geometry.is_absolute else a_region * b_region)

    return jnp.moveaxis(lax.map(compare_shift, jnp.asarray(geometry.shifts)), 0, 1).astype(a.dtype)


def correlation_backward(
    a: jax.Array, b: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array, jax.Array]:
    geometry = _read_geometry(ctx, a, b)
    padded_b = geometry.pad_map(b)
    a_region = geometry.slice_region(geometry.pad_map(a), (0, 0))

    def add_shift(carry: tuple[jax.Array, ...], shift_and_diff: Any) -> tuple[tuple[jax.Array, ...], None]:
        d_a_region, d_padded_b = carry
        shift, d_means = shift_and_diff
        b_region, d_product = geometry.slice_region(padded_b, shift), geometry.average_diff(d_means)
        if geometry.is_absolute:
            d_product = d_product * jnp.sign(a_region - b_region)
            return (d_a_region + d_product, geometry.add_region(d_padded_b, shift, -d_product)), None
        return (d_a_region + d_product * b_region, geometry.add_region(d_padded_b, shift, d_product * a_region)), None

    zeros = tuple(vary_as(jnp.zeros_like(x), a, b, dy) for x in (a_region, padded_b))
    (d_a_region, d_padded_b), _ = lax.scan(
        add_shift, zeros, (jnp.asarray(geometry.shifts), jnp.moveaxis(promote(dy), 1, 0))
    )
    d_a = geometry.add_region(vary_as(jnp.zeros_like(padded_b), a, b, dy), (0, 0), d_a_region)
    return _crop_padding(d_a, geometry.pad, a), _crop_padding(d_padded_b, geometry.pad, b)


for _name in ("Correlation", "Correlation1D"):
    register(
        _name,
        bottoms=2,
        param="correlation_param",
        in_place=False,
        backward=correlation_backward,
        overrides_autodiff=True,
        row_wise=True,
        origin="FlowNet 2",
        restrictions="do_abs has no effect, as in FlowNet 2.",
    )(correlation)


def _crop_padding(padded_map: jax.Array, pad: Shape, x: jax.Array) -> jax.Array:
    return padded_map[:, :, pad[0] : pad[0] + x.shape[2], pad[1] : pad[1] + x.shape[3]]


def _read_geometry(ctx: Context, a: Any, b: Any) -> CorrelationGeometry:
    """Return the geometry for two maps (N, C, H, W) that the layer's CorrelationParameter defines.

    Raises:
        LayerError: if settings are missing or do not fit the maps, or the shapes of the maps differ.
    """
    p = ctx.param
    require(
        len(a.shape) == 4 and a.shape == b.shape,
        f"needs two bottoms of equal shape with 4 axes, not {a.shape} and {b.shape}",
    )
    for name in ("kernel_size", "max_displacement"):
        require(p.HasField(name), f"{name} must be set")
    require(p.kernel_size % 2 == 1, f"kernel_size must be odd, not {p.kernel_size}")
    require(p.stride_1 > 0 and p.stride_2 > 0, f"stride_1 {p.stride_1} and stride_2 {p.stride_2} must be positive")
    is_1d = ctx.type.name == "Correlation1D"
    require(p.single_direction == 0 or is_1d, "single_direction is only for Correlation1D; remove it")
    require(p.single_direction in (-1, 0, 1), f"single_direction must be -1, 0 or 1, not {p.single_direction}")
    max_shift, num_steps = p.max_displacement, p.max_displacement // p.stride_2
    pad, border = ((0, p.pad), (0, max_shift)) if is_1d else ((p.pad,) * 2, (max_shift,) * 2)
    size = [n + 2 * added - 2 * removed for n, added, removed in zip(a.shape[2:], pad, border, strict=True)]
    out_size = tuple(-(-(n - p.kernel_size + 1) // p.stride_1) for n in size)
    require(
        all(n > 0 for n in out_size),
        f"windows of {p.kernel_size} with shifts up to {max_shift} do not fit maps of {a.shape[2:]} with pad {p.pad}",
    )
    extra_padding = (0, p.stride_2 if p.single_direction < 0 else 0)  # columns for the additional step to the left
    return CorrelationGeometry(
        kernel=p.kernel_size,
        stride=p.stride_1,
        pad=tuple(n + extra for n, extra in zip(pad, extra_padding, strict=True)),
        start=tuple(n + extra for n, extra in zip(border, extra_padding, strict=True)),
        out_size=out_size,
        shifts=_make_shifts(num_steps, p.stride_2, p.single_direction, is_1d),
        is_absolute=p.correlation_type == p.SUBTRACT,
        channels=a.shape[1],
    )


@functools.cache
def _make_shifts(num_steps: int, stride: int, direction: int, is_1d: bool) -> np.ndarray:
    column_shifts = (
        np.arange(*{-1: (-num_steps - 1, 0), 0: (-num_steps, num_steps + 1), 1: (0, num_steps + 1)}[direction]) * stride
    )
    row_shifts = np.zeros(1, column_shifts.dtype) if is_1d else column_shifts
    return np.stack(np.meshgrid(row_shifts, column_shifts, indexing="ij"), axis=-1).reshape(-1, 2).astype(np.int32)

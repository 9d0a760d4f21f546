"""Correlation and Correlation1D: compare two maps cell by cell for many shifts of the second one."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...errors import require
from ...kernels.vma import vary_as
from ..context import Context, Shape
from ..dtype_policy import promote
from ..registry import define_layer
from ..types import Gradient, LayerDocs, LayerTraits, Signature, Traced


@dataclass(frozen=True)
class Comparison:
    """Geometry of the comparison of two padded maps.

    Attributes:
        kernel: side of the windows that are compared.
        stride: distance of neighbouring windows.
        pad: (rows, columns) of padding on all sides.
        start: (row, column) of the first window of the first map.
        out: (height, width) of the top.
        shifts: (shifts, 2), displacement (down, right) of the second map's window, for each channel of the top.
        absolute: whether to average absolute differences instead of products.
        channels: the number of channels of the maps.
    """

    kernel: int
    stride: int
    pad: Shape
    start: Shape
    out: Shape
    shifts: np.ndarray
    absolute: bool
    channels: int

    def pad_map(self, x: jax.Array) -> jax.Array:
        """Return a map (N, C, H, W) with zeros added on all sides, at least in float32."""
        return jnp.pad(promote(x), ((0, 0), (0, 0), *((p, p) for p in self.pad)))

    def part(self, padded: jax.Array, shift: Any) -> jax.Array:
        """Return the part of a padded map that all windows together cover, moved by `shift` (down, right)."""
        return lax.dynamic_slice(padded, self._begin(shift), (*padded.shape[:2], *self._size))

    def put(self, padded: jax.Array, shift: Any, part: jax.Array) -> jax.Array:
        """Return a padded map with `part` added at its position moved by `shift` (down, right)."""
        begin = self._begin(shift)
        return lax.dynamic_update_slice(padded, lax.dynamic_slice(padded, begin, part.shape) + part, begin)

    def means(self, compared: jax.Array) -> jax.Array:
        """Return the means over channels and windows of products or differences: (N, C, height, width) to (N, *out)."""
        total = jnp.sum(compared, axis=1)
        sums = lax.reduce_window(
            total,
            np.array(0, total.dtype),
            lax.add,
            (1, self.kernel, self.kernel),
            (1, self.stride, self.stride),
            "VALID",
        )
        return sums / (self.kernel**2 * self.channels)

    def spread(self, d_means: jax.Array) -> jax.Array:
        """Return the gradient of `means`: (N, *out) to (N, 1, height, width), the same for all channels."""
        edge, stride_gap = self.kernel - 1, self.stride - 1
        around = lax.pad(
            d_means, jnp.zeros((), d_means.dtype), [(0, 0, 0), (edge, edge, stride_gap), (edge, edge, stride_gap)]
        )
        sums = lax.reduce_window(
            around, np.array(0, around.dtype), lax.add, (1, self.kernel, self.kernel), (1, 1, 1), "VALID"
        )
        return sums[:, None] / (self.kernel**2 * self.channels)

    def _begin(self, shift: Any) -> list[jax.Array]:
        return [jnp.asarray(at, jnp.int32) for at in (0, 0, self.start[0] + shift[0], self.start[1] + shift[1])]

    @property
    def _size(self) -> Shape:
        return tuple((n - 1) * self.stride + self.kernel for n in self.out)


def correlation(ctx: Context, a: jax.Array, b: jax.Array) -> jax.Array:
    """Similarity of two feature maps for each displacement d of the second: two (N, C, H, W) to (N, shifts, H', W').

    A channel of the top is the mean of a(x) * b(x + d) over the channels and a window of kernel_size x kernel_size, for
    one displacement d. With correlation_type SUBTRACT it is the mean of |a(x) - b(x + d)|. Displacements are multiples
    of stride_2 up to max_displacement in both directions, row by row. Windows are stride_1 cells apart. Correlation1D
    displaces to the left and right only, and does not pad the height. Its single_direction 1 displaces to the right by
    0 to R steps, -1 to the left by 1 to R + 1 steps, where R is max_displacement / stride_2.
    """
    c = _comparison(ctx, a, b)
    first, second = c.part(c.pad_map(a), (0, 0)), c.pad_map(b)

    def one(shift: jax.Array) -> jax.Array:
        other = c.part(second, shift)
        return c.means(jnp.abs(first - other) if c.absolute else first * other)

    return jnp.moveaxis(lax.map(one, jnp.asarray(c.shifts)), 0, 1).astype(a.dtype)


def correlation_backward(
    ctx: Context, a: jax.Array, b: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    c = _comparison(ctx, a, b)
    second = c.pad_map(b)
    first = c.part(c.pad_map(a), (0, 0))

    def one(diffs: tuple[jax.Array, ...], shift_and_diff: Any) -> tuple[tuple[jax.Array, ...], None]:
        d_first, d_second = diffs
        shift, d_means = shift_and_diff
        other, d_product = c.part(second, shift), c.spread(d_means)
        if c.absolute:
            d_product = d_product * jnp.sign(first - other)
            return (d_first + d_product, c.put(d_second, shift, -d_product)), None
        return (d_first + d_product * other, c.put(d_second, shift, d_product * first)), None

    start = tuple(vary_as(jnp.zeros_like(x), a, b, dy) for x in (first, second))
    (d_first, d_second), _ = lax.scan(one, start, (jnp.asarray(c.shifts), jnp.moveaxis(promote(dy), 1, 0)))
    d_a = c.put(vary_as(jnp.zeros_like(second), a, b, dy), (0, 0), d_first)
    return _inner(d_a, c.pad, a), _inner(d_second, c.pad, b)


for _name in ("Correlation", "Correlation1D"):
    define_layer(
        Signature(_name, bottoms=2, param="correlation_param", in_place=False),
        Traced(correlation),
        Gradient(correlation_backward, overrides_autodiff=True),
        LayerTraits(row_wise=True),
        docs=LayerDocs(origin="FlowNet 2", restrictions="do_abs has no effect, as in FlowNet 2."),
    )


def _inner(padded: jax.Array, pad: Shape, x: jax.Array) -> jax.Array:
    return padded[:, :, pad[0] : pad[0] + x.shape[2], pad[1] : pad[1] + x.shape[3]]


def _comparison(ctx: Context, a: Any, b: Any) -> Comparison:
    """Return the geometry for two maps (N, C, H, W) from the layer's CorrelationParameter.

    Raises:
        LayerError: if settings are missing or do not fit, or the shapes of the maps differ.
    """
    p = ctx.param
    require(
        len(a.shape) == 4 and a.shape == b.shape,
        f"needs two bottoms of equal shape with 4 axes, not {a.shape} and {b.shape}",
    )
    for name in ("kernel_size", "max_displacement"):
        require(p.HasField(name), f"{name} must be given")
    require(p.kernel_size % 2 == 1, f"kernel_size must be odd, not {p.kernel_size}")
    require(p.stride_1 > 0 and p.stride_2 > 0, f"strides must be positive: {p.stride_1} and {p.stride_2}")
    sideways = ctx.type.name == "Correlation1D"
    require(p.single_direction == 0 or sideways, "single_direction is for Correlation1D")
    require(p.single_direction in (-1, 0, 1), f"single_direction must be -1, 0 or 1, not {p.single_direction}")
    reach, steps = p.max_displacement, p.max_displacement // p.stride_2
    pad, edge = ((0, p.pad), (0, reach)) if sideways else ((p.pad,) * 2, (reach,) * 2)
    size = [n + 2 * more - 2 * less for n, more, less in zip(a.shape[2:], pad, edge, strict=True)]
    out = tuple(-(-(n - p.kernel_size + 1) // p.stride_1) for n in size)
    require(
        all(n > 0 for n in out),
        f"windows of {p.kernel_size} with shifts up to {reach} do not fit maps of {a.shape[2:]} with pad {p.pad}",
    )
    beyond = (0, p.stride_2 if p.single_direction < 0 else 0)  # room for the extra step to the left
    return Comparison(
        kernel=p.kernel_size,
        stride=p.stride_1,
        pad=tuple(more + b for more, b in zip(pad, beyond, strict=True)),
        start=tuple(less + b for less, b in zip(edge, beyond, strict=True)),
        out=out,
        shifts=_shifts(steps, p.stride_2, p.single_direction, sideways),
        absolute=p.correlation_type == p.SUBTRACT,
        channels=a.shape[1],
    )


@functools.cache
def _shifts(steps: int, stride: int, direction: int, sideways: bool) -> np.ndarray:
    across = np.arange(*{-1: (-steps - 1, 0), 0: (-steps, steps + 1), 1: (0, steps + 1)}[direction]) * stride
    down = np.zeros(1, across.dtype) if sideways else across
    return np.stack(np.meshgrid(down, across, indexing="ij"), axis=-1).reshape(-1, 2).astype(np.int32)

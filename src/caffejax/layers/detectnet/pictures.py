"""What DetectNet's augmentation does to images, as OpenCV does it: other colours, bicubic scaling, rotation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .augmentation import Augmentation, around, turned

_CUBIC = -0.75  # of the family of cubic kernels, OpenCV's
_EPSILON = 1.1920929e-07


def recoloured(image: jax.Array, hue: Any, saturation: Any) -> jax.Array:
    """Return an image (3, H, W), blue first, with degrees added to its hue and its saturation times a factor.

    As it is where both change next to nothing.
    """
    saturation = jnp.where(saturation < 1 - 1 / 255, saturation, 1)
    blue, green, red = image
    value = jnp.max(image, axis=0)
    range_ = value - jnp.min(image, axis=0)
    safe = jnp.where(range_ > 0, range_, 1)
    sector = jnp.where(
        value == red,
        (green - blue) / safe,
        jnp.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )

    def channel(first: int) -> jax.Array:
        place = (first + sector + hue / 60) % 6
        return value - range_ * saturation * jnp.clip(jnp.minimum(place, 4 - place), 0, 1)

    changed = jnp.stack([channel(1), channel(3), channel(5)]).astype(image.dtype)
    return jnp.where((jnp.abs(hue) > _EPSILON) | (saturation < 1), changed, image)


def rescaled(image: jax.Array, size: Any, offset: Any, out: tuple[int, int]) -> jax.Array:
    """Return a part of an image (C, H, W) scaled to a size, of which only that part is computed; 0 outside of it.

    Args:
        image: as it is before.
        size: height and width to which it is scaled; they need not be known yet.
        offset: y and x at which the part begins.
        out: how large the part is.
    """
    for axis, n in ((1, out[0]), (2, out[1])):
        places, weights = _taps(image.shape[axis], size[axis - 1], offset[axis - 1], n)
        along = (n, 1) if axis == 1 else (n,)
        parts = (
            jnp.take(image, places[:, k], axis=axis) * weights[:, k].reshape(along).astype(image.dtype)
            for k in range(4)
        )
        image = sum(parts, start=jnp.zeros((), image.dtype))
    return image


def rotated(image: jax.Array, chosen: Augmentation, out: tuple[int, int]) -> jax.Array:
    """Return what the crop shows of a scaled image (C, H, W) when it is turned; bilinear, 0 where it is not.

    The image may be larger than `chosen.size` says; what is beyond does not count.
    """
    size = jnp.asarray(chosen.size)
    y, x = jnp.mgrid[: out[0], : out[1]]
    low, extent = around(size, chosen.angle)
    at = jnp.stack([y, x], axis=-1) + jnp.asarray(chosen.offset)
    shown = jnp.all((at >= 0) & (at < extent), axis=-1)
    back = turned((at + low - size / 2)[..., ::-1], -chosen.angle)[..., ::-1] + size / 2
    first = jnp.floor(back).astype(jnp.int32)
    part = (back - first).astype(image.dtype)
    last = size - jnp.where(chosen.angle == 0, 1, 2)  # a turned image lacks its border, where it has no neighbour
    shown &= jnp.all((first >= 0) & (first <= last), axis=-1)
    result = jnp.zeros((), image.dtype)
    for step in (0, 0), (0, 1), (1, 0), (1, 1):
        cell = jnp.clip(first + jnp.asarray(step), 0, size - 1)
        weight = jnp.prod(jnp.where(jnp.asarray(step) == 1, part, 1 - part), axis=-1)
        result = result + image[:, cell[..., 0], cell[..., 1]] * jnp.where(shown, weight, 0)
    return result


def _taps(n: int, size: Any, offset: Any, out: int) -> tuple[jax.Array, jax.Array]:
    """Return the 4 places along an axis of length n that each result is made of, (out, 4), and their weights."""
    at = jnp.arange(out) + offset
    inside = (at >= 0) & (at < size)
    numerator = (2 * jnp.clip(at, 0, size - 1) + 1) * n - size  # of 2 * size: whole numbers lose nothing
    first = numerator // (2 * size)
    part = (numerator - first * 2 * size) / (2 * size)
    before, after = (_outer(1 + part), _inner(part))
    nearer = _inner(1 - part)
    weights = jnp.stack([before, after, nearer, 1 - before - after - nearer], axis=1)
    places = jnp.clip(first[:, None] + jnp.arange(-1, 3), 0, n - 1)
    return places, jnp.where(inside[:, None], weights, 0)


def _outer(x: jax.Array) -> jax.Array:
    return ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC


def _inner(x: jax.Array) -> jax.Array:
    return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1

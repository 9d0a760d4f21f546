"""What is drawn for one image of DetectNet's training, and what it makes of the objects."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...errors import require
from .coverage import Objects

DRAWS = 12  # uniform numbers for each image


class Augmentation(NamedTuple):
    """In this order: colours, flip, scale, rotation, crop.

    Attributes:
        hue: degrees added to it.
        saturation: a factor for it.
        flip: whether left is right.
        size: height and width to scale the image to.
        angle: by which it is then turned, in radians.
        offset: y and x at which it is then cropped; they may lie outside.
    """

    hue: Any
    saturation: Any
    flip: Any
    size: Any
    angle: Any
    offset: Any


def require_augmentation(a: Any) -> None:
    """Raise `LayerError` for parameters that make no sense, or are not followed."""
    require(
        min(a.scale_min, a.scale_max) > 0, f"scale_min {a.scale_min:g} and scale_max {a.scale_max:g} must be above 0"
    )
    for field, _ in a.ListFields():
        require(
            field.message_type is None,
            f"detectnet_augmentation_param: {field.name} is not supported here; leave it out",
        )


def turns(a: Any) -> bool:
    """Return whether images may be turned at all."""
    return bool(a.rotation_prob > 0 and a.max_rotate_degree != 0)


def drawn(truth: Any, a: Any, size: tuple[int, int], numbers: jax.Array) -> Augmentation:
    """Return the augmentation of one image.

    Args:
        truth: the DetectNetGroundTruthParameter, which says how large it will be.
        a: the DetectNetAugmentationParameter.
        size: its height and width before.
        numbers: (DRAWS,), uniform in [0, 1).
    """
    u = iter(numbers)

    def maybe(probability: float, value: Any, otherwise: Any) -> Any:
        return jnp.where(next(u) < probability, value, otherwise)

    hue = maybe(a.hue_rotation_prob, jnp.clip((2 * next(u) - 1) * a.hue_rotation, -180, 180), 0)
    saturation = maybe(a.desaturation_prob, 1 - next(u) * a.desaturation_max, 1)
    flip = maybe(a.flip_prob, True, False)
    before = jnp.asarray(size)
    scaled = _rounded(before * (a.scale_min + (a.scale_max - a.scale_min) * next(u)))
    size_then = jnp.maximum(maybe(a.scale_prob, scaled, before), 1)
    angle = jnp.deg2rad(maybe(a.rotation_prob, (2 * next(u) - 1) * a.max_rotate_degree, 0)) if turns(a) else 0
    place, shift = jnp.stack([next(u), next(u)]), jnp.asarray([a.shift_y, a.shift_x])
    at_random = next(u) < a.crop_prob
    place, shift = jnp.where(at_random, place, 0.5), jnp.where(at_random, shift, 0)
    whole = around(size_then, angle)[1] if turns(a) else size_then
    wanted = jnp.asarray([truth.image_size_y, truth.image_size_x])
    offset = _rounded(place * (whole - wanted + shift) - shift // 2)
    return Augmentation(hue, saturation, flip, size_then, angle, offset)


def augmented(objects: Objects, chosen: Augmentation, size: tuple[int, int]) -> Objects:
    """Return the objects of an image of that height and width where the augmented image shows them."""
    corner, sides = objects.corner, objects.sides
    flipped = corner.at[:, 0].set(size[1] - corner[:, 0] - sides[:, 0] - 1)
    corner = jnp.where(chosen.flip, flipped, corner)
    scale = _xy(chosen.size).astype(corner.dtype) / jnp.asarray(size[::-1], corner.dtype)
    corner, sides = corner * scale, sides * scale
    middle, low = _xy(chosen.size) / 2, _xy(around(chosen.size, chosen.angle)[0])
    centre = corner + sides / 2 - middle
    moved = turned(centre, chosen.angle) - centre - low
    corner = corner + jnp.where(chosen.angle == 0, 0, moved) - _xy(chosen.offset)
    return objects._replace(corner=corner.astype(sides.dtype), sides=sides)


def turned(points: jax.Array, angle: Any) -> jax.Array:
    """Return points (..., 2), x and y, turned around the origin; clockwise, as y points down."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    x, y = points[..., 0], points[..., 1]
    return jnp.stack([x * cos - y * sin, x * sin + y * cos], axis=-1)


def around(size: Any, angle: Any) -> tuple[jax.Array, jax.Array]:
    """Return where the whole pixels around a turned image begin, and how many there are; y and x. Unturned: itself."""
    size = jnp.asarray(size)
    cos, sin = jnp.abs(jnp.cos(angle)), jnp.abs(jnp.sin(angle))
    half = (size * cos + size[::-1] * sin) / 2
    low, high = jnp.floor(size / 2 - half), jnp.ceil(size / 2 + half)
    still = jnp.asarray(angle == 0)
    return jnp.where(still, 0, low).astype(size.dtype), jnp.where(still, size, high - low + 1).astype(size.dtype)


def _xy(pair: Any) -> jax.Array:
    return jnp.asarray(pair)[::-1]


def _rounded(x: jax.Array) -> jax.Array:
    """Return the nearest whole numbers, halves away from 0."""
    return (jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)).astype(jnp.int32)

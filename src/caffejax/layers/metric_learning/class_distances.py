"""Distances of items to classes, one of them their own: for GeneralContrastiveLoss and GeneralTripletLoss."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..loss import class_numbers, own_classes, require_one_batch


def class_distances(distances: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return distances (items, classes), and where the items' own classes are."""
    require_one_batch(distances.shape, labels.shape)
    require(
        math.prod(labels.shape[1:]) == 1,
        f"needs one label per item: distances {distances.shape}, labels {labels.shape}",
    )
    rows = promote(distances).reshape(distances.shape[0], -1)
    require(rows.shape[1] > 1, f"needs distances to two classes or more, not shape {distances.shape}")
    return rows, own_classes(class_numbers(labels, rows.shape[1]), rows.shape)


def first_largest(values: jax.Array) -> jax.Array:
    """Return True at the first largest of each row."""
    return jnp.arange(values.shape[1]) == jnp.argmax(values, axis=1)[:, None]


def no_others(ctx: Context, distance: jax.Array) -> jax.Array:
    """Return True for items for which only the own distance counts: with `positive_first`, those far from it."""
    p: Any = ctx.param
    return (distance > p.positive_upper_bound) & p.positive_first

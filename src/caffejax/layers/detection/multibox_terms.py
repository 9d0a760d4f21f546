"""The terms of MultiBoxLoss, of each prior: that of its location, and that of its class."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..loss import replaced
from ..smooth_l1 import huber, huber_slope
from ..softmax import LOG_FLT_MIN


def location_terms(p: Any, difference: jax.Array) -> jax.Array:
    """Return the losses for differences of offsets (..., 4), (...)."""
    each = 0.5 * jnp.square(difference) if p.loc_loss_type == p.L2 else huber(difference)
    return jnp.sum(each, axis=-1)


def location_slopes(p: Any, difference: jax.Array) -> jax.Array:
    """Return the derivatives of `location_terms`, (..., 4)."""
    return difference if p.loc_loss_type == p.L2 else huber_slope(difference)


def class_terms(p: Any, scores: jax.Array, classes: jax.Array) -> jax.Array:
    """Return the losses for scores (..., classes), (...), where `classes` is 1 at the right ones and else 0."""
    if p.conf_loss_type == p.LOGISTIC:
        return jnp.sum(jax.nn.softplus(scores) - scores * classes, axis=-1)
    picked = jnp.sum(jnp.where(classes > 0, jax.nn.log_softmax(scores), 0), axis=-1)
    return -replaced(picked, jnp.maximum(picked, LOG_FLT_MIN))


def class_slopes(p: Any, scores: jax.Array, classes: jax.Array) -> jax.Array:
    """Return the derivatives of `class_terms`, (..., classes)."""
    made = jax.nn.sigmoid(scores) if p.conf_loss_type == p.LOGISTIC else jax.nn.softmax(scores)
    return made - classes

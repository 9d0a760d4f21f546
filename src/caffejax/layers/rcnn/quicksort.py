"""The order into which pva-faster-rcnn's quicksort brings scores: that of equal ones, too.

Its sort takes the first of a part for the pivot, and swaps the first smaller from the left with the first larger from
the right until they meet. Equal scores stay where they are, so that what is before them decides where they come to lie.
Here all parts are divided at once, and a round is as much work as one pass over all scores.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...kernels.varying import vary_as


class _Parts(NamedTuple):
    """The scores as far as they are sorted, where they were, and the first and last place of the part of each."""

    scores: jax.Array
    order: jax.Array
    start: jax.Array
    end: jax.Array


def quicksorted(scores: jax.Array) -> jax.Array:
    """Return the numbers of scores (N,), the largest score first, in the fork's order.

    Where no two are equal it is that of any sort, and found by one.
    """
    sort = jnp.argsort(-scores, stable=True)
    best = scores[sort]
    return lax.cond(jnp.any(best[1:] == best[:-1]), _divided, lambda _: sort, scores)


def _divided(scores: jax.Array) -> jax.Array:
    n = scores.shape[0]
    places = vary_as(jnp.arange(n), scores)
    parts = _Parts(scores, places, jnp.zeros_like(places), jnp.full_like(places, n - 1))
    return lax.while_loop(_unlike, _divide, parts).order


def _unlike(parts: _Parts) -> jax.Array:
    """Return whether there is a part with scores of different size: others stay as they are."""
    pivot = parts.scores[parts.start]
    return jnp.any((parts.scores < pivot) | (parts.scores > pivot))


def _divide(parts: _Parts) -> _Parts:
    places, pivot = jnp.arange(parts.scores.shape[0]), parts.scores[parts.start]
    smaller, larger = parts.scores < pivot, parts.scores > pivot
    from_left = jnp.cumsum(smaller) - smaller - _before(smaller, parts.start)
    from_right = _before(larger, parts.end + 1) - jnp.cumsum(larger)
    # the k-th smaller from the left and the k-th larger from the right change places if they lie in that order
    swapped = jnp.where(
        smaller,
        from_left < _before(larger, parts.end + 1) - jnp.cumsum(larger),
        larger & (from_right < jnp.cumsum(smaller) - _before(smaller, parts.start)),
    )
    left, right = (
        jnp.zeros_like(places).at[jnp.where(swapped & side, parts.start + rank, places.size)].set(places, mode="drop")
        for side, rank in ((smaller, from_left), (larger, from_right))
    )
    origin = jnp.where(
        swapped, jnp.where(smaller, right[parts.start + from_left], left[parts.start + from_right]), places
    )
    scores = parts.scores[origin]
    # the pivot goes to where the last larger one is
    middle = parts.start.at[parts.start].max(jnp.where(scores > pivot, places, parts.start))[parts.start]
    origin = jnp.where(places == parts.start, origin[middle], jnp.where(places == middle, parts.start, origin))
    start = jnp.where(places == middle, middle, jnp.where(places > middle, middle + 1, parts.start))
    end = jnp.where(places == middle, middle, jnp.where(places < middle, middle - 1, parts.end))
    return _Parts(parts.scores[origin], parts.order[origin], start, end)


def _before(chosen: jax.Array, place: jax.Array) -> jax.Array:
    """Return how many are chosen before a place."""
    return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(chosen, dtype=jnp.int32)])[place]

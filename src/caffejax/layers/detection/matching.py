"""Which ground truth a prior is matched to: the best pairs first, each ground truth once; then all that overlap enough.

Ground truth is one list for all images. What is computed for each of its rows has no axis for the images, which may
then be spread over devices.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...kernels.varying import vary_as
from ..boxes import overlaps

_LEAST = 1e-6  # overlaps of no more are none
_PAIRED = 2.0  # more than any overlap


class Truth(NamedTuple):
    """Ground truth, (count,) each, the boxes (count, 4). Rows that do not count have the image -1."""

    image: jax.Array
    label: jax.Array
    box: jax.Array

    @classmethod
    def of(cls, rows: jax.Array, *, difficult: bool) -> Truth:
        """Read rows of (image, label, instance, box, difficult), with or without the difficult ones."""
        counts = (rows[:, 0] >= 0) & (difficult | (rows[:, 7] == 0))
        return cls(jnp.where(counts, rows[:, 0], -1).astype(jnp.int32), rows[:, 1].astype(jnp.int32), rows[:, 3:7])


class Matches(NamedTuple):
    """What priors are matched to, (images, groups, priors) each.

    Attributes:
        truth: the number of the ground truth, -1 for none.
        overlap: the largest overlap with one of the image.
        ignored: whether the prior is left out for reaching beyond the image.
    """

    truth: jax.Array
    overlap: jax.Array
    ignored: jax.Array


def match(
    truth: Truth, boxes: jax.Array, images: jax.Array, *, labels: int | None, threshold: float | None, inside_only: bool
) -> Matches:
    """Match priors to the ground truth of each image.

    Args:
        truth: the ground truth.
        boxes: the boxes of the priors that each ground truth is compared with, (count or 1, priors, 4).
        images: the images' numbers, (images,).
        labels: where given, the ground truth of each label, 0 .. labels - 1, is matched by itself, in a group of its
            own; else there is one group.
        threshold: the overlap from which on a prior that is left is matched, too; None for never.
        inside_only: whether boxes that reach beyond the image are left out.
    """
    overlap = overlaps(truth.box[:, None], boxes)
    counts = jnp.broadcast_to((truth.image >= 0)[:, None], overlap.shape)
    beyond = jnp.broadcast_to(jnp.any((boxes < 0) | (boxes > 1), axis=-1), overlap.shape) & inside_only
    overlap = jnp.where((overlap > _LEAST) & counts & ~beyond, overlap, 0.0)
    alike = truth.image[:, None] == truth.image
    if labels is not None:
        alike &= truth.label[:, None] == truth.label
    paired = _best_pairs(overlap, alike)[:, None] == jnp.arange(overlap.shape[1])
    groups = jnp.zeros_like(truth.label) if labels is None else truth.label
    score = jnp.where(paired, _PAIRED, overlap)
    least = _PAIRED if threshold is None else min(threshold, _PAIRED)
    return _of_images((truth.image, groups, score, overlap, beyond & counts), images, labels or 1, least)


def _best_pairs(overlap: jax.Array, alike: jax.Array) -> jax.Array:
    """Return the prior that each ground truth is paired with, -1 for none; those alike compete for the priors.

    Again and again, the pair with the largest overlap leaves; of equals that with the first prior, then with the
    first ground truth. All images take a step at a time.
    """
    number, prior = jnp.arange(overlap.shape[0]), jnp.arange(overlap.shape[1])

    def goes_on(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.any(carry[1] > 0)

    def step(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        pairs, left = carry
        best, at = jnp.max(left, axis=1), jnp.argmax(left, axis=1)
        earlier = (at < at[:, None]) | ((at == at[:, None]) & (number < number[:, None]))
        before = (best > best[:, None]) | ((best == best[:, None]) & earlier)
        leaves = (best > 0) & ~jnp.any(before & alike, axis=1)
        taken = jnp.max(jnp.where(alike & leaves, at, -1), axis=1)
        left = jnp.where(leaves[:, None] | (taken[:, None] == prior), 0.0, left)
        return jnp.where(leaves, at, pairs), left

    none = jnp.full_like(jnp.argmax(overlap, axis=1), -1)
    return lax.while_loop(goes_on, step, (vary_as(none, overlap, alike), vary_as(overlap, alike)))[0]


def _of_images(rows: tuple[jax.Array, ...], images: jax.Array, groups: int, least: float) -> Matches:
    """Gather what the rows of ground truth, each with its image and group, say about its priors."""
    group = jnp.arange(groups)

    def step(carry: tuple[jax.Array, ...], row: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...], None]:
        best, which, largest, ignored = carry
        number, image, own_group, score, overlap, beyond = row
        here = (images == image)[:, None, None] & (group == own_group)[:, None]
        better = here & (score > best)
        return (
            jnp.where(better, score, best),
            jnp.where(better, number, which),
            jnp.where(here, jnp.maximum(largest, overlap), largest),
            ignored | (here & beyond),
        ), None

    _, _, score, _, _ = rows
    zeros = jnp.zeros((images.shape[0], groups, score.shape[1]), score.dtype)
    fresh = (zeros, jnp.full(zeros.shape, -1, jnp.int32), zeros, jnp.zeros(zeros.shape, bool))
    numbered = (jnp.arange(score.shape[0], dtype=jnp.int32), *rows)
    start: tuple[jax.Array, ...] = tuple(vary_as(x, images, *numbered) for x in fresh)
    (best, which, largest, ignored), _ = lax.scan(step, start, numbered)
    return Matches(jnp.where(best >= least, which, -1), largest, ignored)

"""Mining: of many priors, those with the largest losses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def hardest(losses: jax.Array, eligible: jax.Array, count: Any) -> jax.Array:
    """Choose in each row the eligible ones with the largest losses; of equals the first.

    Args:
        losses: (rows, n).
        eligible: (rows, n), which may be chosen.
        count: (rows,) or a number: how many to choose, or all that are eligible if those are fewer.

    Returns:
        (rows, n), True for those chosen.
    """
    held = jnp.where(eligible, losses, -jnp.inf)
    count = jnp.minimum(count, jnp.sum(eligible, axis=1))
    ranked = jnp.sort(held, axis=1)
    # the least loss that is chosen
    last = jnp.take_along_axis(ranked, jnp.clip(held.shape[1] - count, 0, held.shape[1] - 1)[:, None], axis=1)
    above, equal = eligible & (held > last), eligible & (held == last)
    room = (count - jnp.sum(above, axis=1))[:, None]
    return (above | (equal & (jnp.cumsum(equal, axis=1) <= room))) & (count > 0)[:, None]

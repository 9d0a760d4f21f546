"""Running a function again in its backward pass, in place of keeping its residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..kernels.gradient import with_gradient


def recomputed(run: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Make the backward pass of `run(given, before) -> (result, aux)` run it again instead of keeping its residuals.

    No gradient passes through `aux`. The second run waits for the diffs of the result; otherwise a compiler would see
    the same computation twice, do it once and keep everything. An optimization barrier, by which `jax.checkpoint`
    keeps the two apart, is gone before XLA settles on the CPU in which order to compute.
    """

    def forward(given: Any, before: Any) -> Any:
        return run(given, before), (given, before)

    def backward(saved: Any, diffs: Any, wanted: Any) -> Any:
        given, before = saved
        late = _nan_in(diffs[0])
        given = given._replace(inputs=_after(late, given.inputs))
        _, pullback, _ = jax.vjp(run, given, _after(late, before), has_aux=True)
        return pullback(diffs[0])

    return with_gradient(forward, backward)


def _nan_in(diffs: Any) -> jax.Array:
    """Return whether the first number of any of the arrays is NaN, which is known only when all of them are."""
    firsts = [x.ravel()[0] for x in jax.tree.leaves(diffs) if jnp.issubdtype(x.dtype, jnp.floating) and x.size]
    found: jax.Array = jnp.any(jnp.stack([jnp.isnan(x) for x in firsts]))
    return found


def _after(late: jax.Array, tree: Any) -> Any:
    """Return the same arrays, known only when `late` is; NaN if that is true, as are the diffs."""

    def wait(x: jax.Array) -> jax.Array:
        return jnp.where(late, jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0, x).astype(x.dtype)

    return jax.tree.map(wait, tree)

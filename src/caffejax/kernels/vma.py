"""Varying manual axes: mesh axes along which a value differs between devices inside of `jax.shard_map`."""

from __future__ import annotations

from typing import Any

import jax


def varying(kind: Any) -> frozenset[str]:
    """Return the axes along which values of this type (`jax.typeof(x)`) vary."""
    axes: frozenset[str] = kind.vma if hasattr(kind, "vma") else kind.mat.varying
    return axes


def vary(x: jax.Array, axes: frozenset[str]) -> jax.Array:
    """Make `x` vary along these axes; the transpose sums over them."""
    missing = tuple(axes - varying(jax.typeof(x)))
    return jax.lax.pcast(x, missing, to="varying") if missing else x


def vary_as(x: jax.Array, *others: jax.Array) -> jax.Array:
    """Make `x` vary along all axes of the others: the initial value of a loop needs the type of its result."""
    return vary(x, frozenset[str]().union(*(varying(jax.typeof(other)) for other in others)))

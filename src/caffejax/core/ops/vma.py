"""Varying manual axes (vma): the mesh axes along which a value differs between devices inside `jax.shard_map`."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array


def varying_axes(aval: Any) -> frozenset[str]:
    """Return the names of the mesh axes along which values of the type `aval` vary, such as `jax.typeof(x)`."""
    axes: frozenset[str] = aval.vma if hasattr(aval, "vma") else aval.mat.varying
    return axes


def vary(x: Array, axes: frozenset[str]) -> Array:
    """Return `x` with a type that varies along the mesh axes `axes`. The transpose sums over these axes."""
    missing_axes = tuple(axes - varying_axes(jax.typeof(x)))
    return jax.lax.pcast(x, missing_axes, to="varying") if missing_axes else x


def vary_as(x: Array, *arrays: Array) -> Array:
    """Return `x` with a type that varies along all mesh axes along which any of `arrays` varies.

    This is for the initial value of a loop, which must have the same type as the loop's result.
    """
    return vary(x, frozenset[str]().union(*(varying_axes(jax.typeof(array)) for array in arrays)))

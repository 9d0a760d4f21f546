"""Keeping the end of a training step apart from its backward pass, where XLA would tie them together."""

from __future__ import annotations

import math
from typing import Any

import jax

from .layout import materialise
from .platform_dispatch import Operation

Arrays = tuple[jax.Array, ...]


def updated_apart(params: Any, grads: Any, most: float = math.inf) -> tuple[Any, Any]:
    """Return both trees as they are, such that no param is updated by what also prepares it for the backward pass.

    XLA fuses the update of a weight with its transposition for a convolution of the backward pass, as both read it.
    On several devices that convolution, and so the backward pass of all layers before, then waits for the weight's
    gradient to be added up over the devices, and no two gradients can be added up at once. Gradients that are added up
    at once are kept for that. The TPUs' compiler does not tie them; kept apart, all of them or none, they take less
    memory there.

    Args:
        params, grads: trees alike.
        most: how many numbers a param may have for this.
    """
    leaves: list[jax.Array]
    tree: Any
    leaves, tree = jax.tree.flatten(params)
    chosen = [i for i, leaf in enumerate(leaves) if leaf.size <= most]
    diffs = [_in_order(diff) for diff in tree.flatten_up_to(grads)]
    if not chosen:
        return params, tree.unflatten(diffs)
    tpu = _by_twos if math.isinf(most) else _as_they_are
    run = Operation(_as_they_are, _as_they_are, tpu=tpu, cut=_by_twos)
    found = run(*(leaves[i] for i in chosen), *(diffs[i] for i in chosen))
    for i, param, diff in zip(chosen, found, found[len(chosen) :], strict=False):
        leaves[i], diffs[i] = param, diff
    return tree.unflatten(leaves), tree.unflatten(diffs)


def _as_they_are(*arrays: jax.Array) -> Arrays:
    return arrays


def _by_twos(*arrays: jax.Array) -> Arrays:
    half = len(arrays) // 2
    pairs = [jax.lax.optimization_barrier(pair) for pair in zip(arrays[:half], arrays[half:], strict=True)]
    return tuple(p for p, _ in pairs) + tuple(g for _, g in pairs)


def _in_order(diff: jax.Array) -> jax.Array:
    """Have a weight's gradient lie as the weight does, in the order of its axes.

    Else it lies as the convolution left it, and XLA brings the weight and what the rule remembers of it into that
    order, and both back.
    """
    return Operation(_as_they_are, _as_they_are, gpu=_materialised)(diff)[0] if diff.ndim > 2 else diff


def _materialised(diff: jax.Array) -> Arrays:
    return (materialise(diff),)

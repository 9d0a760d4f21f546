"""Optimization barrier between the backward pass of a training step and the parameter updates."""

from __future__ import annotations

import math
from typing import Any

import jax

from .layout import materialise
from .platform_dispatch import Operation

Arrays = tuple[jax.Array, ...]


def updated_apart(params: Any, grads: Any, most: float = math.inf) -> tuple[Any, Any]:
    """Return `(params, grads)` unchanged, with barriers that keep XLA from fusing updates with the backward pass.

    Without a barrier, XLA fuses the update of a weight with its transposition for a convolution of the backward pass,
    because both read the weight. On several devices that convolution, and the backward pass of all earlier layers, then
    waits for the all-reduce of the weight's gradient, and XLA cannot combine the all-reduces of several gradients. The
    TPU compiler does not fuse them. There, barriers for all parameters or for no parameters take less memory.

    Args:
        params, grads: trees of the same structure.
        most: the largest number of elements of a parameter that gets a barrier.
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
    results = run(*(leaves[i] for i in chosen), *(diffs[i] for i in chosen))
    for i, param, diff in zip(chosen, results, results[len(chosen) :], strict=False):
        leaves[i], diffs[i] = param, diff
    return tree.unflatten(leaves), tree.unflatten(diffs)


def _as_they_are(*arrays: jax.Array) -> Arrays:
    return arrays


def _by_twos(*arrays: jax.Array) -> Arrays:
    half = len(arrays) // 2
    pairs = [jax.lax.optimization_barrier(pair) for pair in zip(arrays[:half], arrays[half:], strict=True)]
    return tuple(p for p, _ in pairs) + tuple(g for _, g in pairs)


def _in_order(diff: jax.Array) -> jax.Array:
    """Return a weight's gradient, laid out on GPUs in the order of its axes, as the weight is.

    Otherwise the gradient has the layout of the convolution's result, and XLA converts the weight and the history of
    the update rule to that layout and back.
    """
    return Operation(_as_they_are, _as_they_are, gpu=_materialised)(diff)[0] if diff.ndim > 2 else diff


def _materialised(diff: jax.Array) -> Arrays:
    return (materialise(diff),)

"""Grouped convolutions, in a form that XLA can partition over several devices."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .platform_dispatch import PlatformOp

Convolve = Callable[[jax.Array, jax.Array, int], jax.Array]


def count_groups(inputs: int, weight: jax.Array) -> int:
    """Return the number of groups of a convolution.

    Args:
        inputs: the number of input channels.
        weight: the weight, (outputs, inputs / groups, ...).
    """
    return inputs // weight.shape[1]


def run_in_groups(run: Convolve, x: jax.Array, weight: jax.Array, groups: int) -> jax.Array:
    """Return `run(x, weight, groups)`, the grouped convolution, computed one group at a time where that is faster.

    Group k consists of the k-th of `groups` equal parts of the channels of `x`, (batch, channels, ...), and the k-th
    part of the first axis of `weight`.

    In a program for several devices, XLA would gather the full batch for the gradient of a grouped convolution, except
    for a depthwise convolution. In such programs the groups are therefore computed one by one. This is also faster on
    CPUs, and moves less memory on TPUs.
    """
    if groups in (1, weight.shape[0] * weight.shape[1]):
        return run(x, weight, groups)

    def run_grouped(x: jax.Array, weight: jax.Array) -> tuple[jax.Array]:
        return (run(x, weight, groups),)

    def run_separately(x: jax.Array, weight: jax.Array) -> tuple[jax.Array]:
        return (run_group_by_group(lambda x, weight: run(x, weight, 1), x, weight, groups),)

    return PlatformOp(run_grouped, cpu=run_separately, tpu=run_separately, partitioned=run_separately)(x, weight)[0]


def run_group_by_group(
    run: Callable[[jax.Array, jax.Array], jax.Array], x: jax.Array, weight: jax.Array, groups: int
) -> jax.Array:
    """Call `run` on each group of channels of `x` and rows of `weight`, and concatenate the results on axis 1."""
    group_operands = zip(jnp.split(x, groups, 1), jnp.split(weight, groups), strict=True)
    return jnp.concatenate([run(xs, ws) for xs, ws in group_operands], 1)

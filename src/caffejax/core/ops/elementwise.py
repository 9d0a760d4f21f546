"""Elementwise operations and concatenation. On CPUs the channels are last in memory, as in convolutions and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array

from .custom_gradient import make_differentiable
from .implementations import cpu_form
from .platform_dispatch import Arrays, PlatformOp


def apply_elementwise(function: Callable[..., Arrays], *arrays: Array) -> Arrays:
    """Call an elementwise function on arrays of one shape (batch, channels, *space).

    On CPUs the function is called with the channels last, the order in memory, so that XLA need not transpose.
    """
    return PlatformOp(function, cpu_form("apply_elementwise", _apply, function=function))(*arrays)


def _apply(*arrays: Array, function: Callable[..., Arrays]) -> Arrays:
    return function(*arrays)


def relu(x: Array) -> Array:
    """Return max(x, 0), with gradient 0 at 0. NaN remains NaN, and its gradient that of the result.

    The gradient is computed from the result, which is usually in memory for the gradients of the next layers. On CPUs
    it is computed from `x`, because XLA would recompute the result and all operations before it.
    """
    return PlatformOp(_relu, cpu_form("relu", _relu))(x)[0]


def _relu(x: Array) -> Arrays:
    def forward(x: Array) -> tuple[Array, Array]:
        y = jnp.maximum(x, 0)
        return y, y

    def backward(y: Array, dy: Array, needed: Sequence[bool]) -> Arrays:
        return (jnp.where(y <= 0, 0, dy),)

    return (make_differentiable(forward, backward)(x),)


def concatenate_channels(arrays: tuple[Array, ...]) -> Array:
    """Concatenate arrays (batch, channels, *space) along the channels. On CPUs the channels are last in memory."""
    return PlatformOp(_concatenate, cpu_form("concatenate_channels", _concatenate))(*arrays)[0]


def _concatenate(*arrays: Array) -> Arrays:
    return (jnp.concatenate(arrays, 1),)

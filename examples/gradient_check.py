"""Write a layer, with a Backward by hand, and have both of its gradients checked."""

import jax.numpy as jnp

import caffejax
from caffejax import Gradient, LayerType, Signature, Traced, register


def softsign(ctx, x):
    """x / (1 + |x|)"""
    return x / (1 + jnp.abs(x))


def softsign_backward(ctx, x, *, y, dy):
    """The derivative is 1 / (1 + |x|)**2."""
    return dy / (1 + jnp.abs(x)) ** 2


def wrong_backward(ctx, x, *, y, dy):
    """Return a wrong derivative: the square is missing."""
    return dy / (1 + jnp.abs(x))


register(LayerType(Signature("SoftSign"), Traced(softsign), Gradient(softsign_backward)))
register(LayerType(Signature("WrongSign"), Traced(softsign), Gradient(wrong_backward)))

# autodiff and the rule, each against finite differences
for name in ("SoftSign", "WrongSign"):
    report = caffejax.check_gradients(name, bottoms=[(2, 3)])
    print(report)
    print(name, "is right" if report.ok else "is wrong")

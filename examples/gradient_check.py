"""Write a layer, with a Backward by hand, and have both of its gradients checked."""

import jax.numpy as jnp

import caffejax


@caffejax.register("SoftSign")
def softsign(x):
    """x / (1 + |x|)"""
    return x / (1 + jnp.abs(x))


@softsign.backward
def softsign_backward(x, *, y, dy):
    """The derivative is 1 / (1 + |x|)**2."""
    return dy / (1 + jnp.abs(x)) ** 2


wrong_sign = caffejax.register("WrongSign")(softsign)


@wrong_sign.backward
def wrong_backward(x, *, y, dy):
    """Return a wrong derivative: the square is missing."""
    return dy / (1 + jnp.abs(x))


# autodiff and the rule, each against finite differences
for name in ("SoftSign", "WrongSign"):
    report = caffejax.check_gradients(name, bottoms=[(2, 3)])
    print(report)
    print(name, "is right" if report.ok else "is wrong")

"""Forward mode, Hessian-vector products and gradient penalties, against finite differences of the gradient."""

from typing import Any

import jax
import numpy as np
from cases import COMPILED, LAYERS, Case
from subject import Subject, asked, assert_close, each, inner, moved, numpy, subject

STEP = 1e-5


@each(LAYERS + COMPILED)
def test_jvp(case: Case, kernels: str) -> None:
    """Of the loss and all tops: along a direction, what the gradient says."""
    one = subject(case, kernels)
    with asked("jvp", one):
        along = jax.jit(lambda point, d: jax.jvp(lambda p: one.loss(*p)[0], (point,), (d,)))
        value, slope = along(one.point, one.direction())
        (expected, _), gradient = one.compiled(*one.point)
        assert_close(value, expected, 1e-5)
        sizes = [np.abs(np.asarray(g) * d).sum() for g, d in zip(*map(jax.tree.leaves, (gradient, one.direction())))]
        np.testing.assert_allclose(slope, inner(gradient, one.direction()), rtol=0, atol=1e-5 * (1 + sum(sizes)))


@each(LAYERS + COMPILED)
def test_second_derivatives(case: Case, kernels: str) -> None:
    """`jax.jvp` of `jax.grad`, and `jax.grad` of the gradient's norm."""
    one = subject(case, kernels)
    with asked("second", one):
        product, penalty = jax.jit(lambda p, d: second(one, p, d))(one.point, one.direction())
        expected = by_differences(case, kernels, one)
        assert_close(product, expected[0], 1e-3)
        np.testing.assert_allclose(penalty, expected[1], rtol=1e-3, atol=1e-3)


def second(one: Subject, point: Any, direction: Any) -> tuple[Any, Any]:
    """The Hessian times a direction, and half the squared norm's slope along it."""

    def penalty(point: Any) -> Any:
        gradient = one.gradient(*point)
        return inner(gradient, gradient) / 2

    product = jax.jvp(lambda p: one.gradient(*p), (point,), (direction,))[1]
    return product, inner(jax.grad(penalty)(point), direction)


def by_differences(case: Case, kernels: str, one: Subject) -> tuple[Any, Any]:
    """The same from float64 gradients."""
    with jax.enable_x64(True):
        double = Subject(case, kernels)
        double.params, double.state, double.inputs = (
            numpy(tree, np.float64) for tree in (one.params, one.state, one.inputs)
        )
        ahead, behind = (
            double.compiled(*moved(double.point, double.direction(), s))[1] for s in (STEP, -STEP)
        )
        product = jax.tree.map(lambda a, b: np.asarray(a - b) / (2 * STEP), ahead, behind)
        penalty = (inner(ahead, ahead) - inner(behind, behind)) / (4 * STEP)
        return product, np.asarray(penalty)

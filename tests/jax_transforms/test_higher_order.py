"""Forward mode, Hessian-vector products and gradient penalties, against finite differences of the gradient."""

from typing import Any

import jax
import numpy as np
from case import Case
from case_net import (
    CaseNet,
    assert_close,
    cached_subject,
    compile_call,
    expect_support,
    inner_product,
    move,
    parametrize_cases,
    to_numpy,
)
from cases import COMPILED, LAYERS

STEP = 1e-5


@parametrize_cases(LAYERS + COMPILED[:1])
def test_jvp_is_the_product_with_the_gradient(case: Case, kernels: str) -> None:
    """The derivative of the loss and all tops along a direction equals the gradient's."""
    one = cached_subject(case, kernels)
    with expect_support("jvp", one):
        arrays = one.point, one.direction()
        value, slope = compile_call(lambda point, d: jax.jvp(lambda p: one.loss(*p)[0], (point,), (d,)), *arrays)(
            *arrays
        )
        (expected, _), gradient = jax.tree.map(np.asarray, one.compiled(*one.point))
        assert_close(value, expected, 1e-5)
        parts = jax.tree.map(lambda g, d: np.abs(g * d).sum(), gradient, one.direction())
        error = 1e-5 * (1 + sum(jax.tree.leaves(parts)))
        np.testing.assert_allclose(slope, inner_product(gradient, one.direction()), rtol=0, atol=error)


@parametrize_cases(LAYERS + COMPILED[:1])
def test_second_derivatives(case: Case, kernels: str) -> None:
    """`jax.jvp` of `jax.grad`, and `jax.grad` of the gradient's norm."""
    one = cached_subject(case, kernels)
    with expect_support("second_order", one):
        with jax.enable_x64(True):
            double = one.exact
            expected = central_differences(double)
        with jax.enable_x64(case.random):  # other numbers are drawn in float64
            evaluated_subject = double if case.random else one
            arrays = evaluated_subject.point, evaluated_subject.direction()
            product, penalty = compile_call(lambda p, d: compute_second_derivatives(evaluated_subject, p, d), *arrays)(
                *arrays
            )
        assert_close(product, expected[0], 1e-3)
        np.testing.assert_allclose(penalty, expected[1], rtol=1e-3, atol=1e-3)


def compute_second_derivatives(one: CaseNet, point: Any, direction: Any) -> tuple[Any, Any]:
    """The Hessian times a direction, and half the squared gradient's slope along it."""

    def penalty(point: Any) -> Any:
        gradient = one.gradient(*point)
        return inner_product(gradient, gradient) / 2

    product = jax.jvp(lambda p: one.gradient(*p), (point,), (direction,))[1]
    return product, inner_product(jax.grad(penalty)(point), direction)


def central_differences(double: CaseNet) -> tuple[Any, Any]:
    """The same from gradients on either side."""
    gradient_plus, gradient_minus = (
        to_numpy(double.compiled(*move(double.point, double.direction(), s))[1], np.float64) for s in (STEP, -STEP)
    )
    product = jax.tree.map(lambda a, b: (a - b) / (2 * STEP), gradient_plus, gradient_minus)
    return product, np.asarray(
        inner_product(gradient_plus, gradient_plus) - inner_product(gradient_minus, gradient_minus)
    ) / (4 * STEP)

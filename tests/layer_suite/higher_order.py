"""Forward mode, Hessian-vector products and gradient penalties, against finite differences of the gradient."""

from typing import Any

import jax
import numpy as np

from .case import Case
from .case_net import CaseNet, assert_close, cached_case_net, compile_for, expect_support, inner_product, move, to_numpy

STEP_SIZE = 1e-5


def jvp_is_the_product_with_the_gradient(case: Case, kernels: str) -> None:
    """The loss is unchanged, and its derivative along a direction is the product of gradient and direction."""
    case_net = cached_case_net(case, kernels)
    with expect_support("jvp", case_net):
        arrays = case_net.point, case_net.draw_direction()
        value, slope = compile_for(lambda point, d: jax.jvp(lambda p: case_net.loss(*p)[0], (point,), (d,)), *arrays)(
            *arrays
        )
        (expected, _), gradient = jax.tree.map(np.asarray, case_net.compiled_value_and_grad(*case_net.point))
        assert_close(value, expected, 1e-5)
        parts = jax.tree.map(lambda g, d: np.abs(g * d).sum(), gradient, case_net.draw_direction())
        error = 1e-5 * (1 + sum(jax.tree.leaves(parts)))
        np.testing.assert_allclose(slope, inner_product(gradient, case_net.draw_direction()), rtol=0, atol=error)


def second_derivatives_equal_central_differences(case: Case, kernels: str) -> None:
    """Tests `jax.jvp` of `jax.grad`, and `jax.grad` of the squared norm of the gradient."""
    case_net = cached_case_net(case, kernels)
    with expect_support("second_order", case_net):
        with jax.enable_x64(True):
            float64_net = case_net.float64_copy
            expected = compute_central_differences(float64_net)
        with jax.enable_x64(case.random):  # other numbers are drawn in float64
            evaluated_net = float64_net if case.random else case_net
            arrays = evaluated_net.point, evaluated_net.draw_direction()
            product, penalty = compile_for(lambda p, d: compute_second_derivatives(evaluated_net, p, d), *arrays)(
                *arrays
            )
        assert_close(product, expected[0], 1e-3)
        np.testing.assert_allclose(penalty, expected[1], rtol=1e-3, atol=1e-3)


def compute_second_derivatives(case_net: CaseNet, point: Any, direction: Any) -> tuple[Any, Any]:
    """Return the Hessian-vector product, and the derivative of half the squared gradient along the direction."""

    def compute_penalty(point: Any) -> Any:
        gradient = case_net.compute_gradient(*point)
        return inner_product(gradient, gradient) / 2

    product = jax.jvp(lambda p: case_net.compute_gradient(*p), (point,), (direction,))[1]
    return product, inner_product(jax.grad(compute_penalty)(point), direction)


def compute_central_differences(float64_net: CaseNet) -> tuple[Any, Any]:
    """Return the same quantities from central differences of gradients."""
    gradient_plus, gradient_minus = (
        to_numpy(
            float64_net.compiled_value_and_grad(*move(float64_net.point, float64_net.draw_direction(), s))[1],
            np.float64,
        )
        for s in (STEP_SIZE, -STEP_SIZE)
    )
    product = jax.tree.map(lambda a, b: (a - b) / (2 * STEP_SIZE), gradient_plus, gradient_minus)
    return product, np.asarray(
        inner_product(gradient_plus, gradient_plus) - inner_product(gradient_minus, gradient_minus)
    ) / (4 * STEP_SIZE)

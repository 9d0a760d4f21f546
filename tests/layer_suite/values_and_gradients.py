"""jit equals eager; gradients equal finite differences, the hand-written rule and float64."""

from typing import Any

import jax
import numpy as np

from golden_cases import ACCEPTED_CASES, KERNEL_TYPES, is_fork_case

from .case import Case
from .case_net import (
    CaseNet,
    assert_close,
    cached_case_net,
    expect_support,
    inner_product,
    is_kernel_independent,
    move,
    to_numpy,
)


def types_without_kernels_have_one_program(case: Case) -> None:
    assert case.types & KERNEL_TYPES or is_kernel_independent(case)


def jit_equals_eager(case: Case, kernels: str) -> None:
    case_net = cached_case_net(case, kernels)
    with expect_support("jit", case_net):
        compiled = (jax.jit(case_net.value_and_grad) if case_net.is_on_host else case_net.compiled_value_and_grad)(
            *case_net.point
        )
        assert_close(compiled, case_net.value_and_grad(*case_net.point), 1e-5)


def gradient_is_the_derivative(case: Case, kernels: str) -> None:
    """Float64 gradients by each argument equal finite differences, and float32 gradients are close to them."""
    case_net = cached_case_net(case, kernels)
    step, tolerance = (1e-3, 1e-3) if case_net.is_on_host else (1e-6, 1e-4)  # a host layer's arrays are float32
    with jax.enable_x64(True):
        float64_net = case_net.float64_copy
        (_, (tops, _)), gradient = float64_net.compiled_value_and_grad(*float64_net.point)
        assert all(top.dtype in (np.float64, np.float32) for top in tops.values())
        expected_gradient = to_numpy(gradient, np.float64)
        for path, mask in list_argument_masks(float64_net.point, are_joined=case.is_net):
            direction = jax.tree.map(np.multiply, float64_net.draw_direction(), mask)
            loss_plus, loss_minus = (
                float64_net.compiled_value_and_grad(*move(float64_net.point, direction, s))[0][0] for s in (step, -step)
            )
            expected, result = (loss_plus - loss_minus) / (2 * step), inner_product(expected_gradient, direction)
            if not case_net.has_caffe_gradient:
                np.testing.assert_allclose(result, expected, rtol=tolerance, atol=1e-6, err_msg=path)
    if not case.random:  # other numbers are drawn in float64
        assert_close(
            case_net.compiled_value_and_grad(*case_net.point)[1], expected_gradient, 1e-3 if case.is_net else 1e-4
        )


def list_argument_masks(point: Any, are_joined: bool) -> list[tuple[str, Any]]:
    """Return (name, mask) for each array, a mask of 1 for it and 0 elsewhere; or one mask of ones if `are_joined`."""
    leaves, tree = jax.tree.flatten_with_path(point)
    if are_joined:
        return [("all", jax.tree.unflatten(tree, [1.0] * len(leaves)))]
    return [
        (jax.tree_util.keystr(path), jax.tree.unflatten(tree, [float(i == j) for j in range(len(leaves))]))
        for i, (path, _) in enumerate(leaves)
    ]


RECORDED_TYPES = {
    c["type"] for c in ACCEPTED_CASES if c["has_backward"] and "stochastic" not in c and not is_fork_case(c)
} - {"Python"}


def has_recorded_rule(case: Case) -> bool:
    """Return whether the type's recorded numbers and gradient check cover all its settings."""
    return case.types <= RECORDED_TYPES


def autodiff_equals_backward_rules(case: Case, kernels: str) -> None:
    case_net = cached_case_net(case, kernels)
    rule_net = CaseNet(case, kernels, backward="rules")
    assert_close(
        rule_net.compiled_value_and_grad(*case_net.point), case_net.compiled_value_and_grad(*case_net.point), 1e-5
    )

"""jit equals eager; gradients equal finite differences, the hand-written rule and float64."""

from typing import Any

import jax
import numpy as np
import pytest
from case import Case
from case_net import (
    CaseNet,
    assert_close,
    cached_case_net,
    expect_support,
    inner_product,
    is_kernel_independent,
    move,
    parametrize_cases,
    to_numpy,
)
from cases import COMPILED_NETS, EXTRA_FORK_CASES, FORK_CASES, LAYER_CASES

from caffejax.core.layers import layer_types
from caffejax.core.schema import read_net
from golden_cases import ACCEPTED_CASES, KERNEL_TYPES, is_fork_case


def test_every_type_that_computes_has_a_case() -> None:
    tested_types = set().union(*map(list_types, LAYER_CASES))
    computing_types = {name for name, layer_type in layer_types().items() if not layer_type.is_input} - {"Python"}
    assert computing_types <= tested_types
    assert len(computing_types) > 50


@pytest.mark.long
@pytest.mark.parametrize("case", [c for c in LAYER_CASES if c not in FORK_CASES], ids=lambda case: case.name)
def test_types_without_kernels_have_one_program(case: Case) -> None:
    assert list_types(case) & KERNEL_TYPES or is_kernel_independent(case)


@parametrize_cases(LAYER_CASES + COMPILED_NETS)
def test_jit_equals_eager(case: Case, kernels: str) -> None:
    case_net = cached_case_net(case, kernels)
    with expect_support("jit", case_net):
        compiled = (jax.jit(case_net.value_and_grad) if case_net.is_on_host else case_net.compiled_value_and_grad)(
            *case_net.point
        )
        assert_close(compiled, case_net.value_and_grad(*case_net.point), 1e-5)


@parametrize_cases(LAYER_CASES + EXTRA_FORK_CASES + COMPILED_NETS)
def test_gradient_is_the_derivative(case: Case, kernels: str) -> None:
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


def has_recorded_rule(case: Case) -> bool:
    """Return whether the type's recorded numbers and gradient check cover all its settings."""
    return list_types(case) <= RECORDED_TYPES


def list_types(case: Case) -> set[str]:
    return {layer.type for layer in read_net(case.prototxt(3)).layer} - {"Input"}


RECORDED_TYPES = {
    c["type"] for c in ACCEPTED_CASES if c["has_backward"] and "stochastic" not in c and not is_fork_case(c)
} - {"Python"}


@parametrize_cases(LAYER_CASES + EXTRA_FORK_CASES, has_recorded_rule)
def test_autodiff_equals_backward_rules(case: Case, kernels: str) -> None:
    case_net = cached_case_net(case, kernels)
    rule_net = CaseNet(case, kernels, backward="rules")
    assert_close(
        rule_net.compiled_value_and_grad(*case_net.point), case_net.compiled_value_and_grad(*case_net.point), 1e-5
    )


@pytest.mark.parametrize("kernels", ["fast", "reference"])
def test_test_net_without_loss_has_gradient_of_its_data(kernels: Any) -> None:
    lenet = next(c for c in COMPILED_NETS if c.name == "lenet_TEST")
    case_net = cached_case_net(lenet, kernels)
    assert not any(weight for layer in case_net.net.graph.layers for weight in layer.loss_weights)

    def compute_score(data: Any) -> Any:
        return case_net.net.apply(case_net.params, case_net.state, {"data": data}, blobs=["prob"])[0]["prob"][0, 1]

    result = jax.grad(compute_score)(case_net.inputs["data"])
    assert np.all(np.any(result[0], axis=(1, 2)))
    assert not np.any(result[1:]), "of the other images"

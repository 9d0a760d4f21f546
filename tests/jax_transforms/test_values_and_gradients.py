"""jit equals eager; gradients equal finite differences, the hand-written rule and float64."""

from typing import Any

import jax
import numpy as np
import pytest
from case import Case
from case_net import (
    CaseNet,
    assert_close,
    cached_subject,
    expect_support,
    inner_product,
    is_kernel_independent,
    move,
    parametrize_cases,
    to_numpy,
)
from cases import COMPILED, EXTRA_FORK_CASES, FORKS, LAYERS

from caffejax.layers import layer_types
from caffejax.schema import read_net
from golden_cases import ACCEPTED_CASES, KERNEL_TYPES, is_fork_case


def test_every_type_that_computes_has_a_case() -> None:
    tested = set().union(*map(types_of, LAYERS))
    computing = {name for name, kind in layer_types().items() if not kind.is_input} - {"Python"}
    assert computing <= tested
    assert len(computing) > 50


@pytest.mark.long
@pytest.mark.parametrize("case", [c for c in LAYERS if c not in FORKS], ids=lambda case: case.name)
def test_other_types_have_one_program_with_either_kernels(case: Case) -> None:
    assert types_of(case) & KERNEL_TYPES or is_kernel_independent(case)


@parametrize_cases(LAYERS + COMPILED)
def test_jit_equals_eager(case: Case, kernels: str) -> None:
    one = cached_subject(case, kernels)
    with expect_support("jit", one):
        compiled = (jax.jit(one.value_and_grad) if one.is_on_host else one.compiled)(*one.point)
        assert_close(compiled, one.value_and_grad(*one.point), 1e-5)


@parametrize_cases(LAYERS + EXTRA_FORK_CASES + COMPILED)
def test_gradient_is_the_derivative(case: Case, kernels: str) -> None:
    """The gradient of the loss in float64 by each argument, and float32's is near it. No net has force_backward."""
    one = cached_subject(case, kernels)
    step, tolerance = (1e-3, 1e-3) if one.is_on_host else (1e-6, 1e-4)  # a host layer's arrays are float32
    with jax.enable_x64(True):
        double = one.exact
        (_, (tops, _)), gradient = double.compiled(*double.point)
        assert all(top.dtype in (np.float64, np.float32) for top in tops.values())
        exact = to_numpy(gradient, np.float64)
        for path, mask in list_argument_masks(double.point, together=case.is_net):
            direction = jax.tree.map(np.multiply, double.direction(), mask)
            loss_plus, loss_minus = (double.compiled(*move(double.point, direction, s))[0][0] for s in (step, -step))
            expected, result = (loss_plus - loss_minus) / (2 * step), inner_product(exact, direction)
            if not one.prefers_rule:
                np.testing.assert_allclose(result, expected, rtol=tolerance, atol=1e-6, err_msg=path)
    if not case.random:  # other numbers are drawn in float64
        assert_close(one.compiled(*one.point)[1], exact, 1e-3 if case.is_net else 1e-4)


def list_argument_masks(point: Any, together: bool) -> list[tuple[str, Any]]:
    """For each array its name, and a tree of 1 for it and 0 for all others. Or all `together`."""
    leaves, tree = jax.tree.flatten_with_path(point)
    if together:
        return [("all", jax.tree.unflatten(tree, [1.0] * len(leaves)))]
    return [
        (jax.tree_util.keystr(path), jax.tree.unflatten(tree, [float(i == j) for j in range(len(leaves))]))
        for i, (path, _) in enumerate(leaves)
    ]


def has_recorded_rule(case: Case) -> bool:
    """Return whether the type's recorded numbers and gradient check cover all its settings."""
    return types_of(case) <= RECORDED


def types_of(case: Case) -> set[str]:
    return {layer.type for layer in read_net(case.text(3)).layer} - {"Input"}


RECORDED = {
    c["type"] for c in ACCEPTED_CASES if c["has_backward"] and "stochastic" not in c and not is_fork_case(c)
} - {"Python"}


@parametrize_cases(LAYERS + EXTRA_FORK_CASES, has_recorded_rule)
def test_gradient_is_the_rules(case: Case, kernels: str) -> None:
    one = cached_subject(case, kernels)
    by_rule = CaseNet(case, kernels, backward="rules")
    assert_close(by_rule.compiled(*one.point), one.compiled(*one.point), 1e-5)


@pytest.mark.parametrize("kernels", ["fast", "reference"])
def test_a_test_net_without_loss_has_a_gradient_by_its_data(kernels: Any) -> None:
    lenet = next(c for c in COMPILED if c.name == "lenet_TEST")
    one = cached_subject(lenet, kernels)
    assert not any(weight for layer in one.net.graph.layers for weight in layer.loss_weights)

    def score(data: Any) -> Any:
        return one.net.apply(one.params, one.state, {"data": data}, blobs=["prob"])[0]["prob"][0, 1]

    result = jax.grad(score)(one.inputs["data"])
    assert np.all(np.any(result[0], axis=(1, 2)))
    assert not np.any(result[1:]), "of the other images"

"""A custom gradient is used under every transformation. It differs from the derivative, so that its use is visible."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.core.ops.custom_gradient import make_differentiable

X, W = jnp.arange(1.0, 4), jnp.arange(2.0, 5)


def forward(x: jax.Array, w: jax.Array) -> Any:
    return jnp.sin(x) * w, (x, w)


def backward(residuals: Any, dy: jax.Array, needed: Any) -> Any:
    """Return 5 x, which is not the derivative."""
    x, w = residuals
    return (5 * x * w * dy if needed[0] else None), (jnp.sin(x) * dy if needed[1] else None)


f = make_differentiable(forward, backward)


@pytest.mark.parametrize("transform", [jax.jit, lambda f: f, jax.checkpoint], ids=["jit", "eager", "checkpoint"])
def test_the_custom_gradient_is_used_in_forward_and_reverse_mode(transform: Any) -> None:
    run = transform(f)
    np.testing.assert_allclose(run(X, W), jnp.sin(X) * W)
    dx, dw = jax.grad(lambda x, w: run(x, w).sum(), (0, 1))(X, W)
    np.testing.assert_allclose(dx, 5 * X * W)
    np.testing.assert_allclose(dw, jnp.sin(X), rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(run, (X, W), (X, 2 * X))[1], 5 * X * W * X + jnp.sin(X) * 2 * X, rtol=1e-6)
    np.testing.assert_allclose(jax.jacfwd(run)(X, W), jnp.diag(5 * X * W))
    np.testing.assert_allclose(jax.jacrev(run)(X, W), jnp.diag(5 * X * W))


@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("inner", [jax.jacfwd, jax.jacrev])
def test_higher_derivatives_differentiate_the_backward_rule(inner: Any, outer: Any) -> None:
    second_derivative = outer(inner(lambda x: f(x, W).sum()))(X)
    np.testing.assert_allclose(second_derivative, jnp.diag(5 * W))
    third_derivative = jax.jacfwd(outer(inner(lambda x: f(x, x).sum())))(X)  # of 5 x w along x and sin x along w
    expected = np.zeros((3, 3, 3))
    assert third_derivative.shape == expected.shape


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_vmap_equals_a_loop_over_examples(axes: Any) -> None:
    arrays = [jnp.stack([a, 2 * a]) if axis == 0 else a for a, axis in zip((X, W), axes, strict=True)]

    def loop_over_examples(function: Any) -> Any:
        examples = [[a[i] if axis == 0 else a for a, axis in zip(arrays, axes, strict=True)] for i in range(2)]
        return jax.tree.map(lambda *parts: jnp.stack(parts), *(function(*args) for args in examples))

    def gradients(x: jax.Array, w: jax.Array) -> Any:
        return jax.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1))(x, w)

    def tangent(x: jax.Array, w: jax.Array) -> Any:
        return jax.jvp(f, (x, w), (w, x))[1]

    for function in (f, gradients, tangent):
        jax.tree.map(np.testing.assert_allclose, jax.vmap(function, axes)(*arrays), loop_over_examples(function))

    def total(*arrays: jax.Array) -> jax.Array:
        return (jax.vmap(f, axes)(*arrays) ** 2).sum()

    actual, expected = jax.grad(total, (0, 1))(*arrays), loop_over_examples(gradients)
    for result, parts, axis in zip(actual, expected, axes, strict=True):
        np.testing.assert_allclose(result, parts if axis == 0 else parts.sum(0), rtol=1e-6)


def test_only_requested_diffs_are_computed() -> None:
    requests: list[Any] = []

    def record_requests(residuals: Any, dy: Any, needed: Any) -> Any:
        requests.append(needed)
        return backward(residuals, dy, needed)

    jax.grad(lambda w: make_differentiable(forward, record_requests)(X, w).sum())(W)
    assert requests == [(False, True)]


def test_pytrees_integers_keys_and_none_are_accepted() -> None:
    def run(key: Any, x: dict[str, Any], none: None) -> Any:
        return {"y": 2 * x["a"], "n": x["i"] + 1}, (key, x["a"])

    def rule(residuals: Any, diffs: Any, needed: Any) -> Any:
        assert diffs["n"] is None
        assert needed[1] == {"a": True, "b": True, "i": False}
        return None, {"a": 3 * diffs["y"], "b": None, "i": None}, None

    x = {"a": X, "b": W, "i": jnp.arange(3)}
    result = jax.grad(
        lambda floats: make_differentiable(run, rule)(jax.random.key(0), x | floats, None)["y"].sum(), allow_int=True
    )({"a": X, "b": W})
    np.testing.assert_array_equal(result["a"], jnp.full(3, 3.0))
    np.testing.assert_array_equal(result["b"], jnp.zeros(3))


def test_primal_is_called_without_differentiation() -> None:
    g = make_differentiable(forward, backward, primal=lambda x, w: jnp.zeros(3))
    np.testing.assert_array_equal(g(X, W), jnp.zeros(3))
    value, _ = jax.value_and_grad(lambda x: g(x, W).sum())(X)
    np.testing.assert_allclose(value, (jnp.sin(X) * W).sum())

"""Traceable Python layers, which are compiled with the net."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from python_nets import draw_inputs, input_layer, python_layer

from caffejax import GraphError, Net

LOSS_LAYER = 'layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }'


def test_function_is_compiled_with_the_net() -> None:
    net = Net(input_layer((3, 2)) + python_layer("c", "cube", "x0", "y") + LOSS_LAYER)
    assert not net.has_host_layers
    x = draw_inputs((3, 2), seed=1)["x0"]

    def loss(x: Any) -> Any:
        return net.loss({}, {}, {"x0": x})[0]

    np.testing.assert_allclose(jax.jit(loss)(x), np.sum(x**3), rtol=1e-5)
    batch = np.stack([x, 2 * x])
    np.testing.assert_allclose(jax.vmap(loss)(batch), np.sum(batch**3, axis=(1, 2)), rtol=1e-5)


def test_gradients_without_backward() -> None:
    net = Net(input_layer((3, 2)) + python_layer("c", "cube", "x0", "y") + LOSS_LAYER + "force_backward: true")
    x = draw_inputs((3, 2))["x0"]
    result = jax.jit(jax.grad(lambda x: net.loss({}, {}, {"x0": x})[0]))(x)
    np.testing.assert_allclose(result, 3 * x**2, rtol=1e-5)


def test_several_bottoms_and_tops() -> None:
    net = Net(input_layer((3, 2), (3, 2)) + python_layer("t", "sum_and_product", "x0 x1", "sum product"))
    inputs = draw_inputs((3, 2), (3, 2))
    blobs, _ = net.forward({}, {}, inputs)
    np.testing.assert_allclose(blobs["sum"], inputs["x0"] + inputs["x1"], rtol=1e-6)
    np.testing.assert_allclose(blobs["product"], inputs["x0"] * inputs["x1"], rtol=1e-6)


def test_function_of_jax() -> None:
    text = python_layer("s", "softplus", "x0", "y").replace("user_layers", "jax.nn")
    x = draw_inputs((3, 2))["x0"]
    blobs, _ = Net(input_layer((3, 2)) + text).forward({}, {}, {"x0": x})
    np.testing.assert_allclose(blobs["y"], np.log1p(np.exp(x)), rtol=1e-5)


def test_function_that_returns_no_array_is_refused() -> None:
    with pytest.raises(GraphError, match=r"layer 's' \(Python\): user_layers.caffe_train must return an array.* int"):
        Net(python_layer("s", "caffe_train", "", "y"))


def test_each_layer_has_a_different_key() -> None:
    net = Net(input_layer((50, 20)) + python_layer("a", "noise", "x0", "a") + python_layer("b", "noise", "x0", "b"))
    inputs = {"x0": np.zeros((50, 20), np.float32)}

    def run_with_seed(seed: int) -> Any:
        return net.forward({}, {}, inputs, key=jax.random.key(seed))[0]

    first_blobs, same_key_blobs, other_key_blobs = run_with_seed(0), run_with_seed(0), run_with_seed(1)
    np.testing.assert_array_equal(first_blobs["a"], same_key_blobs["a"])
    assert not np.allclose(first_blobs["a"], first_blobs["b"])
    assert not np.allclose(first_blobs["a"], other_key_blobs["a"])
    blobs_without_key, _ = Net(input_layer((2, 2)) + python_layer("n", "no_key", "x0", "y")).forward(
        {}, {}, {"x0": np.ones((2, 2))}
    )
    np.testing.assert_array_equal(blobs_without_key["y"], np.ones((2, 2)))


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_class_with_blobs_param_str_and_phase(backward: Any) -> None:
    text = input_layer((4, 3)) + python_layer("s", "LearnedScale", "x0", "y", param_str="3") + LOSS_LAYER
    net = Net(text, "TRAIN", backward=backward)
    params, state = net.init(jax.random.key(0))
    np.testing.assert_array_equal(params["s"]["0"], [3, 3, 3])
    inputs = draw_inputs((4, 3))
    (loss, _), grads = jax.jit(jax.value_and_grad(net.loss, has_aux=True))(params, state, inputs)
    np.testing.assert_allclose(loss, 3 * inputs["x0"].sum(), rtol=1e-5)
    np.testing.assert_allclose(grads["s"]["0"], inputs["x0"].sum(axis=0), rtol=1e-5, atol=1e-6)
    test_blobs, _ = Net(text, "TEST").forward(params, state, inputs)
    np.testing.assert_allclose(test_blobs["loss"], 2 * loss, rtol=1e-5)


def test_backward_of_a_class_is_used_with_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    import user_layers

    monkeypatch.setattr(
        user_layers.LearnedScale, "backward", lambda self, blobs, x, *, y, dy: ((blobs[0] * 0 + 7,), None)
    )
    text = input_layer((4, 3)) + python_layer("s", "LearnedScale", "x0", "y", param_str="3") + LOSS_LAYER
    for backward, uses_backward in (("autodiff", False), ("rules", True)):
        net = Net(text, "TRAIN", backward=backward)  # type: ignore[arg-type]
        params, state = net.init(jax.random.key(0))
        grads = jax.grad(lambda p, net=net, state=state: net.loss(p, state, draw_inputs((4, 3)))[0])(params)
        assert bool(jnp.all(grads["s"]["0"] == 7)) is uses_backward


def test_in_place_layers() -> None:
    net = Net(input_layer((3, 2)) + python_layer("c", "cube", "x0", "x0") + python_layer("d", "cube", "x0", "x0"))
    x = draw_inputs((3, 2))["x0"]
    blobs, _ = net.forward({}, {}, {"x0": x})
    np.testing.assert_allclose(blobs["x0"], x**9, rtol=1e-5)

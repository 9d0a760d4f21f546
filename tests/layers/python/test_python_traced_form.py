"""Python layers that can be traced: part of the compiled net."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from python_nets import draw_inputs, input_layer, python_layer

from caffejax import GraphError, Net

LOSS = 'layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }'


def test_a_function_fuses() -> None:
    net = Net(input_layer((3, 2)) + python_layer("c", "cube", "x0", "y") + LOSS)
    assert not net.has_host_layers
    x = draw_inputs((3, 2), seed=1)["x0"]

    def loss(x: Any) -> Any:
        return net.loss({}, {}, {"x0": x})[0]

    np.testing.assert_allclose(jax.jit(loss)(x), np.sum(x**3), rtol=1e-5)
    batch = np.stack([x, 2 * x])
    np.testing.assert_allclose(jax.vmap(loss)(batch), np.sum(batch**3, axis=(1, 2)), rtol=1e-5)


def test_gradients_need_no_backward() -> None:
    net = Net(input_layer((3, 2)) + python_layer("c", "cube", "x0", "y") + LOSS + "force_backward: true")
    x = draw_inputs((3, 2))["x0"]
    result = jax.jit(jax.grad(lambda x: net.loss({}, {}, {"x0": x})[0]))(x)
    np.testing.assert_allclose(result, 3 * x**2, rtol=1e-5)


def test_several_bottoms_and_tops() -> None:
    net = Net(input_layer((3, 2), (3, 2)) + python_layer("t", "two", "x0 x1", "sum product"))
    inputs = draw_inputs((3, 2), (3, 2))
    blobs, _ = net.forward({}, {}, inputs)
    np.testing.assert_allclose(blobs["sum"], inputs["x0"] + inputs["x1"], rtol=1e-6)
    np.testing.assert_allclose(blobs["product"], inputs["x0"] * inputs["x1"], rtol=1e-6)


def test_a_function_of_jax_s_own() -> None:
    text = python_layer("s", "softplus", "x0", "y").replace("user_layers", "jax.nn")
    x = draw_inputs((3, 2))["x0"]
    blobs, _ = Net(input_layer((3, 2)) + text).forward({}, {}, {"x0": x})
    np.testing.assert_allclose(blobs["y"], np.log1p(np.exp(x)), rtol=1e-5)


def test_a_function_that_returns_no_array() -> None:
    with pytest.raises(GraphError, match=r"layer 's' \(Python\): user_layers.caffe_train must return an array.* int"):
        Net(python_layer("s", "caffe_train", "", "y"))


def test_a_key_of_the_layer_s_own() -> None:
    net = Net(input_layer((50, 20)) + python_layer("a", "noise", "x0", "a") + python_layer("b", "noise", "x0", "b"))
    inputs = {"x0": np.zeros((50, 20), np.float32)}

    def draw(seed: int) -> Any:
        return net.forward({}, {}, inputs, key=jax.random.key(seed))[0]

    one, again, other = draw(0), draw(0), draw(1)
    np.testing.assert_array_equal(one["a"], again["a"])
    assert not np.allclose(one["a"], one["b"])
    assert not np.allclose(one["a"], other["a"])
    without, _ = Net(input_layer((2, 2)) + python_layer("n", "no_key", "x0", "y")).forward(
        {}, {}, {"x0": np.ones((2, 2))}
    )
    np.testing.assert_array_equal(without["y"], np.ones((2, 2)))


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_a_class_with_blobs_param_str_and_phase(backward: Any) -> None:
    text = input_layer((4, 3)) + python_layer("s", "Scaled", "x0", "y", param_str="3") + LOSS
    net = Net(text, "TRAIN", backward=backward)
    params, state = net.init(jax.random.key(0))
    np.testing.assert_array_equal(params["s"][0], [3, 3, 3])
    inputs = draw_inputs((4, 3))
    (loss, _), grads = jax.jit(jax.value_and_grad(net.loss, has_aux=True))(params, state, inputs)
    np.testing.assert_allclose(loss, 3 * inputs["x0"].sum(), rtol=1e-5)
    np.testing.assert_allclose(grads["s"][0], inputs["x0"].sum(axis=0), rtol=1e-5, atol=1e-6)
    tested, _ = Net(text, "TEST").forward(params, state, inputs)
    np.testing.assert_allclose(tested["loss"], 2 * loss, rtol=1e-5)


def test_the_layers_backward_is_used_with_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    import user_layers

    monkeypatch.setattr(user_layers.Scaled, "backward", lambda self, blobs, x, *, y, dy: ((blobs[0] * 0 + 7,), None))
    text = input_layer((4, 3)) + python_layer("s", "Scaled", "x0", "y", param_str="3") + LOSS
    for backward, seven in (("autodiff", False), ("rules", True)):
        net = Net(text, "TRAIN", backward=backward)  # type: ignore[arg-type]
        params, state = net.init(jax.random.key(0))
        grads = jax.grad(lambda p, net=net, state=state: net.loss(p, state, draw_inputs((4, 3)))[0])(params)
        assert bool(jnp.all(grads["s"][0] == 7)) is seven


def test_in_place() -> None:
    net = Net(input_layer((3, 2)) + python_layer("c", "cube", "x0", "x0") + python_layer("d", "cube", "x0", "x0"))
    x = draw_inputs((3, 2))["x0"]
    blobs, _ = net.forward({}, {}, {"x0": x})
    np.testing.assert_allclose(blobs["x0"], x**9, rtol=1e-5)

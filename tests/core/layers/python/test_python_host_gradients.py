"""Python layers with Caffe's interface: their gradients."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import user_layers
from python_nets import LOSS_LAYER, draw_inputs, input_layer, python_layer

import caffejax.pycaffe as caffe
from caffejax import Net


def compute_loss_and_grads(text: str, inputs: dict[str, Any], backward: Any = "autodiff") -> tuple[Any, Any, Any]:
    net = Net(text, "TRAIN", backward=backward)
    params, state = net.init(jax.random.key(0))
    perturbations = {name: jnp.zeros_like(value) for name, value in inputs.items()}

    def loss(params: Any, perturbations: Any) -> Any:
        key = jax.random.key(1)
        return net.loss(params, state, inputs, key, perturbations=perturbations, required=False)[0]

    return params, *jax.value_and_grad(loss, argnums=(0, 1))(params, perturbations)


def assert_close(actual: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), actual, expected)


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_gradients_of_a_layer_between_compiled_layers(backward: str) -> None:
    linear_layer = python_layer("ip", "Linear", "t", "y", param_str="{'num_output': 2, 'bias': 0.5}")
    text = (
        f'{input_layer((4, 3))} layer {{ name: "t" type: "TanH" bottom: "x0" top: "t" }} {linear_layer} {LOSS_LAYER} '
    )
    inputs = draw_inputs((4, 3))
    params, loss, (grads, diffs) = compute_loss_and_grads(text + "force_backward: true", inputs, backward)
    np.testing.assert_allclose(params["ip"]["0"], np.linspace(-1, 1, 6).reshape(2, 3), rtol=1e-6)
    np.testing.assert_array_equal(params["ip"]["1"], [0.5, 0.5])

    def reference_loss(params: Any, inputs: Any) -> Any:
        weight, bias = params["ip"]["0"], params["ip"]["1"]
        return jnp.sum((jnp.tanh(inputs["x0"]) @ weight.T + bias) ** 2)

    expected, expected_grads = jax.value_and_grad(reference_loss, argnums=(0, 1))(params, inputs)
    assert_close((loss, (grads, diffs)), (expected, expected_grads))


def test_gradient_of_a_shared_blob_is_the_sum() -> None:
    shared = 'param { name: "w" } param { name: "b" }'
    settings = "{'num_output': 3}"
    text = (
        input_layer((4, 3))
        + python_layer("one", "Linear", "x0", "a", shared, settings)
        + python_layer("two", "Linear", "a", "y", shared, settings)
        + LOSS_LAYER
    )
    inputs = draw_inputs((4, 3))
    params, loss, (grads, _) = compute_loss_and_grads(text, inputs)
    assert list(params) == ["one"]

    def reference_loss(params: Any) -> Any:
        weight, bias = params["one"]["0"], params["one"]["1"]
        return jnp.sum(((inputs["x0"] @ weight.T + bias) @ weight.T + bias) ** 2)

    expected, expected_grads = jax.value_and_grad(reference_loss)(params)
    assert_close((loss, grads), (expected, expected_grads))


def test_diff_written_by_backward_is_the_gradient() -> None:
    """The backward of the parameter layer writes 1 for any diff of its top."""
    _, loss, (grads, _) = compute_loss_and_grads(
        python_layer("p", "ParameterLayer", tops="y", fields="loss_weight: 3"), {}
    )
    assert loss == 15
    np.testing.assert_array_equal(grads["p"]["0"], [1])


@pytest.mark.parametrize("weight", [1, 0.25])
def test_python_loss_equals_euclidean_loss(weight: float) -> None:
    """Both layers compute diffs for both bottoms."""
    builtin_loss = (
        f'layer {{ name: "l" type: "EuclideanLoss" bottom: "x0" bottom: "x1" top: "l" loss_weight: {weight} }}'
    )
    inputs = draw_inputs((4, 3, 2), (4, 3, 2))
    python_loss = python_layer("l", "Euclidean", "x0 x1", "l", f"loss_weight: {weight}")
    result, expected = (
        compute_loss_and_grads(f"{input_layer((4, 3, 2), (4, 3, 2))} {text} force_backward: true", inputs)
        for text in (python_loss, builtin_loss)
    )
    assert_close(result, expected)


def test_top_without_loss_weight_is_not_a_loss() -> None:
    _, loss, (_, diffs) = compute_loss_and_grads(
        input_layer((4, 3), (4, 3)) + python_layer("l", "Euclidean", "x0 x1", "l"), draw_inputs((4, 3), (4, 3))
    )
    assert loss == 0
    assert not any(np.any(d) for d in diffs.values())


def test_propagate_down_lists_the_bottoms_that_need_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = []
    backward = user_layers.Euclidean.backward

    def record_flags(self: Any, top: Any, propagate_down: Any, bottom: Any) -> None:
        flags.append(propagate_down)
        assert all(not b.diff.any() for b in bottom)
        backward(self, top, propagate_down, bottom)

    monkeypatch.setattr(user_layers.Euclidean, "backward", record_flags)
    text = input_layer((4, 3), (4, 2)) + python_layer("ip", "Linear", "x0", "ip", param_str="{'num_output': 2}")
    text += python_layer("l", "Euclidean", "ip x1", "l", "loss_weight: 1")
    compute_loss_and_grads(text, draw_inputs((4, 3), (4, 2)))  # by the bottoms, too
    net = Net(text, "TRAIN")
    params, state = net.init(jax.random.key(0))
    jax.grad(lambda params: net.loss(params, state, draw_inputs((4, 3), (4, 2)))[0])(params)
    assert flags == [[True, True], [True, False]]


def test_unwritten_bottom_diff_is_zero() -> None:
    text = (
        input_layer((2, 2))
        + python_layer("s", "ParamStringLayer", "x0", "y", param_str="3")
        + LOSS_LAYER
        + "force_backward: true"
    )
    for seed in (0, 1):
        _, loss, (_, diffs) = compute_loss_and_grads(text, draw_inputs((2, 2), seed=seed))
        assert loss == 36
        assert not diffs["x0"].any()


def test_layer_that_does_not_affect_the_loss_needs_no_backward() -> None:
    text = input_layer((2, 3, 2, 2), (2, 1, 2, 2)) + python_layer("ip", "SimpleLayer", "x0", "score")
    text += 'layer { name: "p" type: "Convolution" bottom: "score" top: "y" convolution_param { num_output: 2 '
    text += 'kernel_size: 1 weight_filler { type: "xavier" } } }' + python_layer("acc", "Score", "y x1", "acc")
    inputs = draw_inputs((2, 3, 2, 2)) | {"x1": np.zeros((2, 1, 2, 2), np.float32)}
    loss = 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "x1" top: "l" }'
    net = Net(text + loss, "TRAIN")
    net.graph.check_backward()
    _, loss_with, (grads, _) = compute_loss_and_grads(text + loss, inputs)
    _, loss_without, (expected, _) = compute_loss_and_grads(
        text.replace(python_layer("acc", "Score", "y x1", "acc"), "") + loss, inputs
    )
    assert_close((loss_with, grads), (loss_without, expected))


def test_gradients_of_an_in_place_layer() -> None:
    """Bottom and top are one blob: backward reads forward's result from it, and overwrites the top's diff."""
    text = (
        input_layer((3, 4))
        + 'layer { name: "e" type: "Exp" bottom: "x0" top: "y" }'
        + python_layer("s", "SquareInPlace", "y", "y")
        + LOSS_LAYER
        + "force_backward: true"
    )
    inputs = draw_inputs((3, 4))
    _, loss, (_, diffs) = compute_loss_and_grads(text, inputs)
    expected, expected_diff = jax.value_and_grad(lambda x: jnp.sum(jnp.exp(x) ** 4))(inputs["x0"])
    assert_close((loss, diffs["x0"]), (expected, expected_diff))


def test_pycaffe_diff_of_an_in_place_layer() -> None:
    """In pycaffe the diffs are the same, and backward does not run forward again."""
    text = input_layer((3, 4)) + python_layer("s", "SquareInPlace", "x0", "x0") + LOSS_LAYER.replace('"y"', '"x0"')
    net = caffe.Net(text + "force_backward: true", caffe.TRAIN)
    x = np.abs(draw_inputs((3, 4))["x0"])
    net.blobs["x0"].data[...] = x
    net.forward()
    net.backward()
    assert_close(net.blobs["x0"].diff, 4 * x**3)


def test_backward_uses_the_arguments_of_its_forward() -> None:
    net = Net(
        input_layer((3, 2), (3, 2))
        + python_layer("l", "Euclidean", "x0 x1", "l", "loss_weight: 1")
        + "force_backward: true"
    )

    def loss(x: Any, y: Any) -> Any:
        return net.loss({}, {}, {"x0": x, "x1": y})[0]

    first_inputs, second_inputs = draw_inputs((3, 2), (3, 2)), draw_inputs((3, 2), (3, 2), seed=1)
    first_vjp = jax.vjp(loss, *first_inputs.values())[1]
    second_vjp = jax.vjp(loss, *second_inputs.values())[1]
    for inputs, vjp in ((first_inputs, first_vjp), (second_inputs, second_vjp)):
        np.testing.assert_allclose(vjp(jnp.float32(1))[0], (inputs["x0"] - inputs["x1"]) / 3, rtol=1e-5)


def test_blob_diffs_accumulate_in_pycaffe(tmp_path: Path) -> None:
    """The layer's blobs share the net's memory: a pass adds to a diff once, even if `backward` accumulates."""
    text = 'force_backward: true layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }'
    (tmp_path / "net.prototxt").write_text(
        text + python_layer("linear", "Linear", "x", "y", param_str="{'num_output': 4}")
    )
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN)
    net.blobs["x"].data[...] = [[1, 2, 3], [4, 5, 6]]
    blobs = net.layers[list(net._layer_names).index("linear")].blobs
    for num_passes in 1, 2, 3:
        net.forward()
        net.blobs["y"].diff[...] = 1
        net.backward()
        np.testing.assert_array_equal(blobs[0].diff, np.tile([5, 7, 9], (4, 1)) * num_passes)
        np.testing.assert_array_equal(net.params["linear"][1].diff, np.full(4, 2 * num_passes))
    net.clear_param_diffs()
    assert not blobs[0].diff.any()

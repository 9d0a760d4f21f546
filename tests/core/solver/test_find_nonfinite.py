"""The search for the first layer with a non-finite value, and its message."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Net, Variables
from caffejax.core.solver.find_nonfinite import NonFinite, find_nonfinite, find_nonfinite_variable

IP = 'inner_product_param { num_output: 3 weight_filler { type: "xavier" } }'
INPUT = """
layer { name: "in" type: "Input" top: "x" top: "label" input_param { shape { dim: 4 dim: 5 } shape { dim: 4 } } }
"""
SOFTMAX = f"""{INPUT}
layer {{ name: "ip1" type: "InnerProduct" bottom: "x" top: "ip1" {IP} }}
layer {{ name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" {IP} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }}
"""
# the log of what an affine layer gives, in place, below another one
LOG = SOFTMAX.replace('type: "ReLU"', 'type: "Log"')
# the square root of zeros, in place: finite forward, with an infinite gradient
ROOT = (
    SOFTMAX.replace(IP, "inner_product_param { num_output: 3 }", 1)
    .replace('name: "relu" type: "ReLU"', 'name: "root" type: "Power"')
    .replace('top: "ip1" }', 'top: "ip1" power_param { power: 0.5 } }')
)
# scores of 1e30 times a slope of 1e20: the weight's gradient is too large for float32
EUCLID = """
layer { name: "in" type: "Input" top: "x" top: "label"
        input_param { shape { dim: 4 dim: 5 } shape { dim: 4 dim: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 1 } }
layer { name: "up" type: "Power" bottom: "ip" top: "up" power_param { scale: 1e30 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "up" bottom: "label" top: "loss" }
"""
X = np.random.default_rng(0).normal(size=(1, 4, 5)).astype(np.float32)
LABELS = np.float32([[0, 1, 2, 0]])


def find_nonfinite_of_step(text: str, x: Any = X, labels: Any = LABELS, *, rate: float = 0.01) -> NonFinite:
    """The culprit of a step of gradient descent on batches that are stacked along a first axis."""
    net = Net(text, "TRAIN")
    batches = {"x": jnp.asarray(x, jnp.float32), "label": jnp.asarray(labels, jnp.float32)}
    keys = list(jax.random.split(jax.random.key(1), len(x)))
    variables = net.init(jax.random.key(0))

    def loss(params: Any) -> Any:
        total, state = 0.0, variables.state
        for i, key in enumerate(keys):
            pass_loss, (_, state) = net.loss(params, state, {name: b[i] for name, b in batches.items()}, key)
            total += pass_loss
        return total, state

    grads, state = jax.jit(jax.grad(loss, has_aux=True))(variables.params)
    params = jax.tree.map(lambda p, g: p - np.float32(rate) * g, variables.params, grads)
    return find_nonfinite(net, variables, batches, keys, Variables(params, state))


def get_layer_name(result: NonFinite) -> str | None:
    return result.layer.name if result.layer else None


def test_a_logarithm_of_a_negative_number_is_named() -> None:
    result = find_nonfinite_of_step(LOG)
    assert get_layer_name(result) == "relu"
    assert re.match(
        r"its output 'ip1' has \d NaN of 12 values \(first at \[\d, \d\]\); ranges of its bottoms: 'ip1' from -",
        result.message,
    )
    assert result.advice.startswith("The layer cannot take some of these numbers")


def test_an_infinite_gradient_of_a_finite_loss_is_named() -> None:
    result = find_nonfinite_of_step(ROOT)
    assert get_layer_name(result) == "root"
    assert result.message == (
        "the gradient of its bottom 'ip1' has 12 infinite of 12 values (first at [0, 0]); everything before it "
        "in the backward pass is finite"
    )


def test_a_parameter_whose_gradient_overflows_is_named() -> None:
    result = find_nonfinite_of_step(EUCLID, np.full((1, 4, 5), 1e10), np.ones((1, 4, 1)))
    assert get_layer_name(result) == "ip"
    assert result.message.startswith("the gradient of its parameter weight has 5 infinite of 5 values")


def test_data_that_is_not_finite_is_named() -> None:
    x = X.copy()
    x[0, 1, 2] = np.inf
    result = find_nonfinite_of_step(SOFTMAX, x)
    assert (get_layer_name(result), result.message) == (
        "in",
        "its output 'x' has 1 infinite of 20 values (first at [1, 2])",
    )
    assert "no setting helps" in result.advice


def test_an_update_that_overflows_is_named() -> None:
    result = find_nonfinite_of_step(SOFTMAX, 1e3 * X, rate=3e38)
    assert get_layer_name(result) == "ip1"
    assert re.match(
        "all gradients are finite, but the update overflows: parameter weight has .* of 15 values", result.message
    )


def test_the_passes_of_a_step_are_run_one_after_the_other() -> None:
    labels = np.float32([[0, 1, 2, 0], [1, 1, 7, 8]])
    result = find_nonfinite_of_step(SOFTMAX, np.concatenate([X, X]), labels)
    assert get_layer_name(result) == "loss"
    assert result.message == (
        "its output 'loss' has 1 NaN of 1 values: label 7 at [2] of 'label' is not one of the classes 0 to 2 "
        "(2 labels are invalid)"
    )
    assert result.advice.startswith("Correct the labels")


@pytest.mark.parametrize(
    ("loss_type", "reported_label"), [("SoftmaxWithLoss", 7), ("MultinomialLogisticLoss", 255), ("HingeLoss", 255)]
)
def test_ignored_labels_are_not_reported(loss_type: str, reported_label: int) -> None:
    text = SOFTMAX.replace('top: "loss"', 'top: "loss" loss_param { ignore_label: 255 }')
    result = find_nonfinite_of_step(text.replace("SoftmaxWithLoss", loss_type), X, np.float32([[0, 255, 7, 0]]))
    assert get_layer_name(result) == "loss"
    assert f"label {reported_label} at " in result.message


def test_a_similarity_is_no_label() -> None:
    """NaN in two batches of features is not attributed to the labels of their similarity, whatever the shapes."""
    text = """
    layer { name: "in" type: "Input" top: "x" top: "label" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
    layer { name: "log" type: "Log" bottom: "x" top: "a" }
    layer { name: "power" type: "Power" bottom: "x" top: "b" power_param { scale: 1e30 } }
    layer { name: "ip" type: "InnerProduct" bottom: "b" top: "c"
            inner_product_param { num_output: 3 weight_filler { type: "constant" value: 1 } } }
    layer { name: "loss" type: "ContrastiveLoss" bottom: "a" bottom: "c" bottom: "label" top: "loss" }
    """
    result = find_nonfinite_of_step(text, np.ones((1, 4, 3)), np.full((1, 4), 9.0))
    assert get_layer_name(result) == "loss"
    assert "ranges of its bottoms: 'a' from 0 to 0, 'c' from 3e+30 to 3e+30, 'label' from 9 to 9" in result.message
    assert "classes" not in result.message


def test_parameters_that_were_not_finite_before_are_named() -> None:
    net = Net(SOFTMAX, "TRAIN")
    variables = net.init(jax.random.key(0))
    variables.params["ip2"]["weight"] = variables.params["ip2"]["weight"].at[0, 0].set(np.nan)
    batches = {"x": jnp.asarray(X), "label": jnp.asarray(LABELS)}
    result = find_nonfinite(net, variables, batches, [jax.random.key(1)], variables)
    assert result == NonFinite(
        "parameter weight has 1 NaN of 9 values (first at [0, 0]) before this step",
        net.graph.layer("ip2"),
        "Start from other weights",
    )


def test_a_step_that_is_finite_layer_by_layer_names_no_layer() -> None:
    result = find_nonfinite_of_step(SOFTMAX)
    assert result.layer is None
    assert result.message.startswith(
        "the loss is not finite, but all numbers are finite when the layers run one by one"
    )


def test_the_first_array_that_is_not_finite_is_named() -> None:
    finite_params = {"b": {"weight": jnp.ones(2)}, "a": {"weight": jnp.ones(3)}}
    assert find_nonfinite_variable(Variables(finite_params, {})) is None
    nonfinite_params = {**finite_params, "a": {"weight": jnp.array([1.0, np.inf, np.nan])}}
    expected = "weight of layer 'a' has 1 NaN and 1 infinite of 3 values (first at [1])"
    assert find_nonfinite_variable(Variables(nonfinite_params, nonfinite_params)) == NonFinite(f"parameter {expected}")
    assert find_nonfinite_variable(Variables(finite_params, nonfinite_params)) == NonFinite(
        f"running statistic {expected}"
    )

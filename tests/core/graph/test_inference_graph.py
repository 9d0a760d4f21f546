"""Graphs reduced to the layers that inference needs give the same numbers with fewer layers."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import GraphError, Net

IN_PLACE = """
  layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 5 } } }
  layer { name: "conv" type: "Convolution" bottom: "data" top: "x"
    convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
  layer { name: "relu" type: "ReLU" bottom: "x" top: "x" }
  layer { name: "power" type: "Power" bottom: "x" top: "x" power_param { scale: 2 shift: 0.5 } }
  layer { name: "tap" type: "Sigmoid" bottom: "x" top: "s" }
  layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "s" top: "sum" }
  layer { name: "aside" type: "TanH" bottom: "x" top: "aside" }
"""
IN_PLACE_ON_INPUT = """
  layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
  layer { name: "scale" type: "Power" bottom: "data" top: "data" power_param { scale: 0.1 } }
  layer { name: "shift" type: "Power" bottom: "data" top: "data" power_param { shift: 2 } }
"""
CLASSIFIER = """
  layer { name: "data" type: "Input" top: "data" top: "label"
    input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
  layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
    inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
  layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
"""
UNNAMED = CLASSIFIER.replace(' top: "loss"', "").replace('name: "accuracy"', 'name: "a" exclude { phase: TEST }')
SIAMESE = """
  layer { name: "pair" type: "Input" top: "a" top: "b" input_param { shape { dim: 2 dim: 3 } } }
  layer { name: "fa" type: "InnerProduct" bottom: "a" top: "fa" param { name: "w" } param { name: "c" }
    inner_product_param { num_output: 4 weight_filler { type: "xavier" } bias_filler { type: "uniform" } } }
  layer { name: "fb" type: "InnerProduct" bottom: "b" top: "fb" param { name: "w" } param { name: "c" }
    inner_product_param { num_output: 4 } }
"""
AUTOENCODER = """
  layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 2 dim: 2 } } }
  layer { name: "flat" type: "Flatten" bottom: "data" top: "flat" }
  layer { name: "code" type: "InnerProduct" bottom: "flat" top: "code" inner_product_param { num_output: 12 } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "code" bottom: "flat" top: "loss" }
  layer { name: "label" type: "Parameter" top: "best" parameter_param { shape { dim: 1 } } }
"""


def make_inputs(net: Net) -> dict[str, jax.Array]:
    shapes = {name: net.graph.blobs[name].shape for name in net.input_names}
    return {name: jax.random.normal(jax.random.key(i), s) for i, (name, s) in enumerate(shapes.items())}


@pytest.mark.parametrize(
    ("text", "outputs", "input_names", "layers"),
    [
        (IN_PLACE, ("sum",), ("data",), "data conv relu power tap sum"),
        (IN_PLACE, ("s", "aside"), ("data",), "data conv relu power tap aside"),
        (IN_PLACE, ("x",), ("data",), "data conv relu power"),
        (CLASSIFIER, ("ip",), ("data",), "data ip"),
        (CLASSIFIER, ("loss", "ip"), ("data", "label"), "data ip loss"),
        (SIAMESE, ("fb",), ("b",), "pair fb"),
    ],
)
def test_an_inference_net_computes_the_same_outputs(
    text: str, outputs: tuple[str, ...], input_names: tuple[str, ...], layers: str
) -> None:
    net = Net(text, "TRAIN")
    inference_net = net.for_inference(outputs)
    assert inference_net.input_names == input_names
    assert inference_net.outputs == outputs
    assert " ".join(layer.name for layer in inference_net.graph.layers) == layers
    variables, inputs = net.init(jax.random.key(1)), make_inputs(net)
    expected, _ = net.apply(*variables, inputs, blobs=outputs)
    result, _ = inference_net.apply(*variables, {name: inputs[name] for name in input_names})
    for name in outputs:
        np.testing.assert_array_equal(result[name], expected[name])


@pytest.mark.parametrize("text", [IN_PLACE, CLASSIFIER, AUTOENCODER])
def test_each_blob_is_computed_once(text: str) -> None:
    counter = Counter(top for layer in Net(text).for_inference().graph.layers for top in layer.tops)
    assert set(counter.values()) == {1}


@pytest.mark.parametrize(
    ("text", "predictions"),
    [
        (IN_PLACE, ("aside", "sum")),
        (CLASSIFIER, ("ip",)),
        (UNNAMED, ("ip",)),
        (SIAMESE, ("fa", "fb")),
        (AUTOENCODER, ("best", "code")),
    ],
)
def test_inference_outputs_are_the_inputs_of_losses_and_scores(text: str, predictions: tuple[str, ...]) -> None:
    assert sorted(Net(text).for_inference().outputs) == list(predictions)


def test_inputs_keep_their_names_if_overwritten() -> None:
    net = Net(IN_PLACE_ON_INPUT)
    inference_net = net.for_inference()
    assert inference_net.input_names == ("data",)
    assert inference_net.outputs == ("data/shift",)
    inputs = make_inputs(net)
    np.testing.assert_array_equal(
        inference_net.apply({}, {}, inputs)[0]["data/shift"], net.apply({}, {}, inputs)[0]["data"]
    )


def test_batch_sizes_may_differ() -> None:
    net = Net(CLASSIFIER).for_inference()
    result, _ = net.apply(*net.init(jax.random.key(0)), {"data": jnp.ones((7, 3))})
    assert result["ip"].shape == (7, 4)


def test_unknown_blobs_raise_an_error() -> None:
    with pytest.raises(GraphError, match=r"no blob 'ipp' in the net; did you mean 'ip'"):
        Net(CLASSIFIER).for_inference(["ipp"])


def test_a_net_that_ends_in_silence_names_its_blobs() -> None:
    """As published colorization nets do."""
    end = """layer { name: "r" type: "ReLU" bottom: "sum" top: "r" }
      layer { name: "quiet" type: "Silence" bottom: "sum" bottom: "aside" }
      layer { name: "q" type: "Silence" bottom: "r" }"""
    net = Net(IN_PLACE + end)
    assert net.outputs == ()
    with pytest.raises(GraphError, match=r"such as 'sum', 'aside', 'r', which end in layer 'quiet' \(Silence\), 'q'"):
        net.for_inference()
    assert net.for_inference(["sum"]).outputs == ("sum",)
    with pytest.raises(GraphError, match=r"no outputs; name the blobs to compute with .* --outputs$"):
        Net('name: "empty"\n').for_inference()

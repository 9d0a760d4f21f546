"""Rare features that Caffe allows: repeated names, shared statistics, blobs in the definition."""

from pathlib import Path

import jax
import numpy as np
import pytest

from caffejax import CaffejaxError, Net, load_weights, read_caffemodel, save_weights

INPUT = 'layer { name: "data" type: "Input" top: "a" top: "b" input_param { shape { dim: 8 dim: 2 } } }'


def test_statistics_shared_by_name_are_updated_one_after_the_other() -> None:
    names = " ".join(f'param {{ name: "{n}" lr_mult: 0 }}' for n in ("mean", "variance", "factor"))
    layers = "".join(
        f'layer {{ name: "bn_{x}" type: "BatchNorm" bottom: "{x}" top: "n_{x}" {names} }}' for x in ("a", "b")
    )
    net = Net(INPUT + layers, "TRAIN")
    params, state = net.init(jax.random.key(0))
    _, state = net.forward(params, state, {"a": np.full((8, 2), 1.0), "b": np.full((8, 2), 3.0)})
    mean, factor = state["bn_a"]["mean"], state["bn_a"]["scale_factor"]
    np.testing.assert_allclose(factor, [1 + 0.999], rtol=1e-6)
    np.testing.assert_allclose(mean, [3 + 0.999 * 1] * 2, rtol=1e-6)
    assert "bn_b" not in state


def test_layers_with_equal_names_draw_different_random_numbers() -> None:
    layers = "".join(f'layer {{ name: "drop" type: "Dropout" bottom: "{x}" top: "d_{x}" }}' for x in ("a", "b"))
    net = Net(INPUT.replace("8 dim: 2", "50 dim: 50") + layers, "TRAIN")
    ones = np.ones((50, 50), np.float32)
    tops, _ = net.forward(*net.init(jax.random.key(0)), {"a": ones, "b": ones}, key=jax.random.key(1))
    assert np.any(tops["d_a"] != tops["d_b"])


def test_layers_with_equal_names_are_saved_and_loaded_as_in_caffe(tmp_path: Path) -> None:
    layers = "".join(
        f'layer {{ name: "ip" type: "InnerProduct" bottom: "{x}" top: "ip_{x}" inner_product_param {{ num_output: 1 '
        f'bias_term: false weight_filler {{ type: "constant" value: {value} }} }} }}'
        for x, value in (("a", 1), ("b", 2))
    )
    net = Net(INPUT + layers)
    variables = net.init(jax.random.key(0))
    save_weights(tmp_path / "two.caffemodel", net.graph, variables)
    np.testing.assert_array_equal(read_caffemodel(tmp_path / "two.caffemodel")["ip"][0], [[2, 2]])  # the last counts
    assert (tmp_path / "two.caffemodel").read_bytes().count(np.float32([1, 1]).tobytes()) == 1
    loaded = load_weights(tmp_path / "two.caffemodel", net.graph, variables)
    np.testing.assert_array_equal(loaded.params["ip"]["weight"], [[2, 2]])
    np.testing.assert_array_equal(loaded.params["ip#2"]["weight"], [[2, 2]])  # untouched: it was 2 before


def test_blobs_in_the_definition_replace_fillers() -> None:
    text = """layer { name: "ip" type: "InnerProduct" bottom: "a" top: "ip" inner_product_param { num_output: 1
      bias_term: false } blobs { shape { dim: 1 dim: 2 } data: 5 data: 7 } }"""
    np.testing.assert_array_equal(Net(INPUT + text).init(jax.random.key(0)).params["ip"]["weight"], [[5, 7]])
    with pytest.raises(CaffejaxError, match=r"layer 'ip'.*\(1, 3\).*\(1, 2\)"):
        Net(INPUT + text.replace("dim: 2 }", "dim: 3 }").replace("data: 5", "data: 5 data: 6")).init(jax.random.key(0))


def test_labels_out_of_range_count_as_wrong() -> None:
    text = 'layer { name: "acc" type: "Accuracy" bottom: "a" bottom: "label" top: "acc" }'
    net = Net(INPUT.replace('top: "b" input_param {', 'top: "label" input_param {').replace(
        "shape { dim: 8 dim: 2 }", "shape { dim: 8 dim: 2 } shape { dim: 8 }") + text)  # fmt: skip
    scores = np.zeros((8, 2), np.float32)
    for label in (2, 7, -1):
        tops, _ = net.forward({}, {}, {"a": scores, "label": np.full(8, float(label))})
        assert not tops["acc"] > 0


def test_a_loss_needs_one_label_per_example() -> None:
    text = """layer { name: "in" type: "Input" top: "s" top: "l" input_param {
      shape { dim: 6 dim: 4 } shape { dim: 2 dim: 3 } } }
      layer { name: "loss" type: "SoftmaxWithLoss" bottom: "s" bottom: "l" top: "loss" }"""
    with pytest.raises(CaffejaxError, match="same first dimension"):
        Net(text)

"""Equal layers are traced once, with unchanged results."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import declare
from caffejax.core.layers import dispatch, register_temporarily
from caffejax.core.ops.program_cache import ProgramCache
from caffejax.core.program.net import Net
from caffejax.core.schema.caffe_pb2 import BlobProto

INPUT_LAYER = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 6 } } }'


def make_stack(num_layers: int, layer_type: str, fields: str = "") -> str:
    """Return a stack of layers, each on the top of the previous one."""
    tops = ["x", *(f"{layer_type}{i}" for i in range(num_layers))]
    text = 'layer { name: "%s" type: "%s" bottom: "%s" top: "%s" %s }'
    return INPUT_LAYER + " ".join(text % (top, layer_type, bottom, top, fields) for bottom, top in pairwise(tops))


def count_traces(monkeypatch: pytest.MonkeyPatch, net: Net) -> int:
    """Return the number of layers that are traced in a forward pass."""
    count = 0

    def counting_call(*args: Any, call: Any = dispatch.call, **values: Any) -> Any:
        nonlocal count
        count += 1
        return call(*args, **values)

    monkeypatch.setattr(dispatch, "call", counting_call)
    monkeypatch.setattr(dispatch, "_programs", ProgramCache())
    params, state = net.init(jax.random.key(0))
    jax.eval_shape(lambda: net.apply(params, state, {"x": jnp.ones((4, 6))}, key=jax.random.key(1)))
    return count


@pytest.mark.parametrize("kernels", ["fast", "reference"])
def test_equal_layers_are_traced_once(monkeypatch: pytest.MonkeyPatch, kernels: Any) -> None:
    text = make_stack(5, "InnerProduct", 'inner_product_param { num_output: 6 weight_filler { type: "xavier" } }')
    assert count_traces(monkeypatch, Net(text, kernels=kernels)) == 1
    changed_text = text.replace("num_output: 6", "num_output: 6 bias_term: false", 2)
    assert count_traces(monkeypatch, Net(changed_text, kernels=kernels)) == 2


def test_equal_random_layers_sample_different_values() -> None:
    net = Net(make_stack(2, "Dropout").replace('bottom: "Dropout0"', 'bottom: "x"'), "TRAIN")
    tops = net.forward({}, {}, {"x": np.ones((4, 6), np.float32)}, key=jax.random.key(1))[0]
    masks = [np.asarray(tops[name]) > 0 for name in ("Dropout0", "Dropout1")]
    assert (masks[0] != masks[1]).any()
    assert all(0 < k.mean() < 1 for k in masks)


def test_types_of_other_packages_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with register_temporarily(declare("TestSquare")(lambda x: x * x)):
        assert count_traces(monkeypatch, Net(make_stack(5, "TestSquare"), kernels="reference")) == 1


def test_seeds_and_folders_do_not_affect_a_context(tmp_path: Path) -> None:
    text = make_stack(1, "InnerProduct", "inner_product_param { num_output: 6 }")
    (tmp_path / "net.prototxt").write_text(text)
    nets = Net(text, seed=1), Net(tmp_path / "net.prototxt", seed=2, workers=3, remat="auto")
    contexts = [net.graph.layer("InnerProduct0").context for net in nets]
    assert contexts[0] == contexts[1]
    assert hash(contexts[0]) == hash(contexts[1])


@pytest.mark.parametrize("options", [{"kernels": "reference"}, {"precision": "bfloat16"}, {"phase": "TRAIN"}])
def test_options_that_concern_layers_affect_a_context(options: Any) -> None:
    text = make_stack(1, "InnerProduct", "inner_product_param { num_output: 6 }")
    nets = Net(text), Net(text, **options)
    assert len({net.graph.layer("InnerProduct0").context for net in nets}) == 2


def test_file_of_a_layer_is_read_for_each_net(tmp_path: Path) -> None:
    text = """
        layer { name: "x" type: "Input" top: "x" top: "l" input_param { shape { dim: 1 dim: 2 } shape { dim: 1 } } }
        layer { name: "loss" type: "InfogainLoss" bottom: "x" bottom: "l" top: "loss"
          infogain_loss_param { source: "h.binaryproto" } }
    """
    (tmp_path / "net.prototxt").write_text(text)
    losses = []
    for weight in (1, 3):
        h = BlobProto(num=1, channels=1, height=2, width=2, data=[weight, 0, 0, weight])
        (tmp_path / "h.binaryproto").write_bytes(h.SerializeToString())
        inputs = {"x": np.ones((1, 2), np.float32), "l": np.zeros(1, np.float32)}
        losses.append(Net(tmp_path / "net.prototxt").forward({}, {}, inputs)[0]["loss"])
    np.testing.assert_allclose(losses[1], 3 * losses[0], rtol=1e-6)

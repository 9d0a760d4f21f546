"""Layers that do the same are traced once, and nobody can tell."""

from __future__ import annotations

import gc
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import caffejax
from caffejax.kernels import compiling
from caffejax.layers import calling, shared
from caffejax.layers.registry import _types
from caffejax.net import Net
from caffejax.schema.caffe_pb2 import BlobProto

INPUT = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 6 } } }'


def stack(layers: int, kind: str, more: str = "") -> str:
    """So many layers, each on the top of the one before."""
    tops = ["x", *(f"{kind}{i}" for i in range(layers))]
    text = 'layer { name: "%s" type: "%s" bottom: "%s" top: "%s" %s }'
    return INPUT + " ".join(text % (top, kind, bottom, top, more) for bottom, top in pairwise(tops))


def traced(monkeypatch: pytest.MonkeyPatch, net: Net) -> int:
    """How many layers are traced in a forward pass."""
    count = 0

    def counting(*args: Any) -> Any:
        nonlocal count
        count += 1
        return calling.call(*args)

    monkeypatch.setattr(shared, "call", counting)
    jax.clear_caches()
    params, state = net.init(jax.random.key(0))
    jax.eval_shape(lambda: net.apply(params, state, {"x": jnp.ones((4, 6))}, key=jax.random.key(1)))
    return count


@pytest.mark.parametrize("kernels", ["fast", "reference"])
def test_layers_alike_are_traced_once(monkeypatch: pytest.MonkeyPatch, kernels: Any) -> None:
    text = stack(5, "InnerProduct", 'inner_product_param { num_output: 6 weight_filler { type: "xavier" } }')
    assert traced(monkeypatch, Net(text, kernels=kernels)) == 1
    other = text.replace("num_output: 6", "num_output: 6 bias_term: false", 2)
    assert traced(monkeypatch, Net(other, kernels=kernels)) == 2


def test_random_layers_alike_draw_for_themselves() -> None:
    net = Net(stack(2, "Dropout").replace('bottom: "Dropout0"', 'bottom: "x"'), "TRAIN")
    tops = net.forward({}, {}, {"x": np.ones((4, 6), np.float32)}, key=jax.random.key(1))[0]
    kept = [np.asarray(tops[name]) > 0 for name in ("Dropout0", "Dropout1")]
    assert (kept[0] != kept[1]).any()
    assert all(0 < k.mean() < 1 for k in kept)


def test_types_of_others_may_look_at_their_names() -> None:
    @caffejax.register("TestNamed")
    def named(ctx: Any, x: jax.Array) -> jax.Array:
        return x + len(ctx.layer.name)

    try:
        net = Net(stack(2, "TestNamed").replace('"TestNamed1"', '"a"'))
        assert (net.forward({}, {}, {"x": np.zeros((4, 6))})[0]["a"] == len("TestNamed0") + 1).all()
    finally:
        del _types["TestNamed"]


def test_a_file_that_a_layer_names_is_read_for_each_net(tmp_path: Path) -> None:
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


def test_garbage_is_collected_again_after_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.Jitted, "collecting", False)

    def failing(x: jax.Array) -> jax.Array:
        assert not gc.isenabled()
        raise TypeError("spoilt")

    with pytest.raises(TypeError, match="spoilt"):
        compiling.jit(failing, "fast")(1.0)
    assert gc.isenabled()

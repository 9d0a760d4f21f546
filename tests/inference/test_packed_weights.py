"""Weights of frozen nets: stored once, in the layouts of the programs, and in Caffe's order on request."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import numpy as np
import pytest
from frozen_nets import inputs_of, net_text, variables_of

from caffejax.inference.frozen_net import Frozen
from caffejax.kernels import onednn_program
from caffejax.kernels.packed_weights import Layout
from caffejax.net import Net, Variables

pytestmark = pytest.mark.skipif(not onednn_program.is_available(), reason="needs oneDNN")

SHAPE = (1, 16, 24, 24)
WINOGRAD = ["a Convolution x | num_output: 64 kernel_size: 1", "y Convolution a | num_output: 64 kernel_size: 3 pad: 1"]
LAYERS = {
    "convolution": ["y Convolution x | num_output: 32 kernel_size: 1"],
    "depthwise": ["y Convolution x | num_output: 16 kernel_size: 3 group: 16"],
    "by groups": ["y Convolution x | num_output: 32 kernel_size: 5 group: 2"],
    "padded channels": ["y Convolution x | num_output: 10 kernel_size: 3 stride: 2"],
    "folded": ["y Convolution x | num_output: 32 kernel_size: 1", "y BatchNorm y"],
    "transposed": ["y Deconvolution x | num_output: 24 kernel_size: 4 stride: 2"],
}


def freeze(layers: list[str], shape: tuple[int, ...] = SHAPE) -> tuple[Net, Variables, Frozen]:
    """Return a net, its variables, and the net frozen."""
    net = Net(net_text(shape, *layers), "TEST")
    variables = variables_of(net)
    return net, variables, net.freeze(variables)


def bits(variables: Any) -> Any:
    """Return copies of arrays as integers, so that NaNs and signs of zeros count."""
    return jax.tree.map(lambda array: np.array(array).view(np.int32), variables)


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each weight was packed, in order."""
    layouts: list[str] = []
    pack = Layout.pack
    monkeypatch.setattr(Layout, "pack", lambda self, weight: (layouts.append(self.kind), pack(self, weight))[1])
    return layouts


@pytest.mark.parametrize("layers", [*LAYERS.values(), WINOGRAD, ["y InnerProduct x | num_output: 3"]])
def test_variables_are_equal_to_the_bit_before_and_after_packing(layers: list[str]) -> None:
    net, variables, call = freeze(layers)
    weight = next(a for a in jax.tree.leaves(variables.params) if a.ndim > 1)
    odd = np.array(weight)
    odd.ravel()[:4] = -0.0, np.nan, np.inf, 1e-42
    variables = jax.tree.map(lambda a: odd if a is weight else a, variables)
    call = net.freeze(variables)
    before = bits(call.variables)
    call(inputs_of(net))
    jax.tree.map(np.testing.assert_array_equal, bits(call.variables), before)


@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_weights_are_stored_only_as_they_are_packed(layers: list[str], packings: list[str]) -> None:
    net, variables, call = freeze(layers)
    weight = weakref.ref(next(a for a in jax.tree.leaves(variables.params) if a.ndim > 1))
    del variables
    assert weight() is not None
    call(inputs_of(net))
    gc.collect()
    assert packings == ["reordered"]
    assert weight() is None


def test_a_weight_that_cannot_be_unpacked_stays(packings: list[str]) -> None:
    net, variables, call = freeze(WINOGRAD)
    call(inputs_of(net))
    assert sorted(packings) == ["reordered", "transformed"]
    jax.tree.map(np.testing.assert_array_equal, bits(call.variables), bits(variables))


def test_weights_in_caffes_order_are_not_copied(packings: list[str]) -> None:
    net, variables, call = freeze(["y InnerProduct x | num_output: 32"], (1, 64))
    call(inputs_of(net))
    assert not packings
    weight = next(a for a in jax.tree.leaves(variables.params) if a.ndim > 1)
    (used,) = (a for a in jax.tree.leaves(call.variables.params) if a.ndim > 1)
    assert np.shares_memory(np.asarray(used), np.asarray(weight))


def test_later_writes_to_an_array_of_numpy_do_not_change_the_net() -> None:
    net, variables, _ = freeze(["y InnerProduct x | num_output: 32"], (1, 64))
    arrays = jax.tree.map(np.array, variables)
    call, inputs = net.freeze(arrays), inputs_of(net)
    before = np.array(call(inputs)["y"])
    for array in jax.tree.leaves(arrays):
        array.fill(7)
    np.testing.assert_array_equal(call(inputs)["y"], before)


@pytest.mark.parametrize("layers", [*LAYERS.values(), WINOGRAD])
def test_sizes_share_packed_weights(layers: list[str], packings: list[str]) -> None:
    call = freeze(layers)[-1]
    for shape in (SHAPE, (1, 16, 32, 24), (1, 16, 24, 32)):
        call({"x": np.zeros(shape, np.float32)})
    assert len(packings) == sum("onvolution" in layer for layer in layers)


def test_nets_with_another_batch_share_packed_weights(packings: list[str]) -> None:
    _, _, call = freeze(LAYERS["folded"])
    call.compile()
    assert len(packings) == 1
    call.with_batch(2)
    assert len(packings) == 1


def test_a_layout_of_dropped_shapes_is_dropped(packings: list[str]) -> None:
    """Only the first layout stays while nothing runs with it: the weight is stored in it."""
    net, _, call = freeze(["y InnerProduct x | num_output: 32"], (1, 4096))
    call(inputs_of(net))
    for _ in range(2):
        other = call.with_batch(64)  # more rows than Caffe's order is fast for
        del other
        gc.collect()
    assert packings == ["reordered"] * 2

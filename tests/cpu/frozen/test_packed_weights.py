"""Weights of frozen nets are stored once, in the layouts of the programs, and returned in Caffe's order on request."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import numpy as np
import pytest
from frozen_nets import draw_inputs, draw_variables, make_net_text

from caffejax.base.variables import Variables
from caffejax.core.program.net import Net
from caffejax.cpu.frozen.frozen_net import Frozen
from caffejax.cpu.kernels import onednn_program
from caffejax.cpu.kernels.packed_weights import Layout

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
    """Return a net, its variables, and its frozen form."""
    net = Net(make_net_text(shape, *layers), "TEST")
    variables = draw_variables(net)
    return net, variables, net.freeze(variables)


def view_bits(variables: Any) -> Any:
    """Return copies of arrays as integers, to compare NaNs and signs of zeros as well."""
    return jax.tree.map(lambda array: np.array(array).view(np.int32), variables)


@pytest.fixture
def packing_kinds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the layout kind of each packed weight is appended."""
    layouts: list[str] = []
    pack = Layout.pack
    monkeypatch.setattr(Layout, "pack", lambda self, weight: (layouts.append(self.kind), pack(self, weight))[1])
    return layouts


@pytest.mark.parametrize("layers", [*LAYERS.values(), WINOGRAD, ["y InnerProduct x | num_output: 3"]])
def test_variables_are_bitwise_equal_before_and_after_packing(layers: list[str]) -> None:
    net, variables, frozen = freeze(layers)
    weight = next(a for a in jax.tree.leaves(variables.params) if a.ndim > 1)
    special_values = np.array(weight)
    special_values.ravel()[:4] = -0.0, np.nan, np.inf, 1e-42
    variables = jax.tree.map(lambda a: special_values if a is weight else a, variables)
    frozen = net.freeze(variables)
    bits_before = view_bits(frozen.variables)
    frozen(draw_inputs(net))
    jax.tree.map(np.testing.assert_array_equal, view_bits(frozen.variables), bits_before)


@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_packed_weights_replace_the_originals(layers: list[str], packing_kinds: list[str]) -> None:
    net, variables, frozen = freeze(layers)
    weight = weakref.ref(next(a for a in jax.tree.leaves(variables.params) if a.ndim > 1))
    del variables
    assert weight() is not None
    frozen(draw_inputs(net))
    gc.collect()
    assert packing_kinds == ["reordered"]
    assert weight() is None


def test_a_weight_that_cannot_be_unpacked_is_kept(packing_kinds: list[str]) -> None:
    net, variables, frozen = freeze(WINOGRAD)
    frozen(draw_inputs(net))
    assert sorted(packing_kinds) == ["reordered", "transformed"]
    jax.tree.map(np.testing.assert_array_equal, view_bits(frozen.variables), view_bits(variables))


def test_weights_in_caffes_order_are_not_copied(packing_kinds: list[str]) -> None:
    net, variables, frozen = freeze(["y InnerProduct x | num_output: 32"], (1, 64))
    frozen(draw_inputs(net))
    assert not packing_kinds
    weight = next(a for a in jax.tree.leaves(variables.params) if a.ndim > 1)
    (used_weight,) = (a for a in jax.tree.leaves(frozen.variables.params) if a.ndim > 1)
    assert np.shares_memory(np.asarray(used_weight), np.asarray(weight))


def test_later_writes_to_an_array_of_numpy_do_not_change_the_net() -> None:
    net, variables, _ = freeze(["y InnerProduct x | num_output: 32"], (1, 64))
    arrays = jax.tree.map(np.array, variables)
    frozen, inputs = net.freeze(arrays), draw_inputs(net)
    output_before = np.array(frozen(inputs)["y"])
    for array in jax.tree.leaves(arrays):
        array.fill(7)
    np.testing.assert_array_equal(frozen(inputs)["y"], output_before)


@pytest.mark.parametrize("layers", [*LAYERS.values(), WINOGRAD])
def test_input_sizes_share_packed_weights(layers: list[str], packing_kinds: list[str]) -> None:
    frozen = freeze(layers)[-1]
    for shape in (SHAPE, (1, 16, 32, 24), (1, 16, 24, 32)):
        frozen({"x": np.zeros(shape, np.float32)})
    assert len(packing_kinds) == sum("onvolution" in layer for layer in layers)


def test_nets_of_different_batch_sizes_share_packed_weights(packing_kinds: list[str]) -> None:
    _, _, frozen = freeze(LAYERS["folded"])
    frozen.compile()
    assert len(packing_kinds) == 1
    frozen.with_batch(2)
    assert len(packing_kinds) == 1


def test_layouts_are_freed_with_the_nets_that_use_them(packing_kinds: list[str]) -> None:
    """Only the first layout is kept without a net that uses it, because the weight is stored in it."""
    net, _, frozen = freeze(["y InnerProduct x | num_output: 32"], (1, 4096))
    frozen(draw_inputs(net))
    for _ in range(2):
        larger_net = frozen.with_batch(64)  # more rows than Caffe's order is fast for
        del larger_net
        gc.collect()
    assert packing_kinds == ["reordered"] * 2

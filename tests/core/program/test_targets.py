"""The matcher of targets: a target that computes with NumPy gives what the net computes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import jax
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import LayerError
from caffejax.core.graph import Layer
from caffejax.core.program.targets import LayerCall, Target, find_readers, translate

NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc"
        inner_product_param { num_output: 6 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "fc" top: "fc" }
layer { name: "parts" type: "Slice" bottom: "fc" top: "a" top: "b" slice_param { axis: 1 } }
layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }
layer { name: "twice" type: "Power" bottom: "sum" top: "y" power_param { scale: 2 } }
layer { name: "shift" type: "Power" bottom: "y" top: "z" power_param { shift: 1 } }
"""


@dataclass
class NumpyCall(LayerCall[np.ndarray]):
    pass


NUMPY = Target[NumpyCall, np.ndarray]()


@NUMPY.rule("InnerProduct")
def inner_product(call: NumpyCall) -> np.ndarray:
    weight, bias = call.arrays
    return call.x @ weight.T + bias


@NUMPY.rule("ReLU")
def relu(call: NumpyCall) -> np.ndarray:
    assert call.top_shape == call.bottom_spec.shape == call.x.shape
    return np.maximum(call.x, 0)


@NUMPY.rule("Slice")
def slice_(call: NumpyCall) -> list[np.ndarray]:
    return np.split(call.x, len(call.top_shapes), call.param.axis)


@NUMPY.rule("Power")
def power(call: NumpyCall) -> np.ndarray | None:
    return call.x * call.param.scale if not call.param.shift else None


@NUMPY.rule("Split")
def split(call: NumpyCall) -> list[np.ndarray]:
    return [call.x]


class Walk:
    """A walk over NET that adds by itself the layers that no rule translates, or refuses them."""

    def __init__(self, refuses: bool = False, includes: bool = False) -> None:
        net = Net(NET).for_inference(["y", "z"])
        self.variables = net.init(jax.random.key(0))
        self.inputs = {"x": np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)}
        self.graph, self.refuses, self.includes = net.graph, refuses, includes
        self.layers = [layer for layer in net.graph.layers if not layer.type.is_input]
        self.unmatched: list[str] = []
        self.values = dict(self.inputs)
        self.problems = translate(
            self.layers, self.values, self.add, lambda blob: np.zeros(net.graph.blobs[blob].shape)
        )
        self.expected = net.apply(*self.variables, self.inputs)[0]

    def add(self, layer: Layer, bottoms: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
        arrays = tuple(map(np.asarray, layer.arrays(*self.variables)))
        tops = NUMPY.match(NumpyCall(layer, arrays, bottoms, self.graph.blobs))
        if tops is not None:
            return {**tops, "z": tops["y"] + 1} if self.includes and layer.tops == ("y",) else tops
        self.unmatched.append(layer.key)
        if self.refuses:
            raise LayerError("is not supported")
        total = sum(bottoms)
        return {layer.tops[0]: total + 1 if layer.key == "shift" else total}


@pytest.mark.parametrize(("includes", "unmatched"), [(False, ["sum", "shift"]), (True, ["sum"])])
def test_a_target_computes_what_the_net_does(includes: bool, unmatched: list[str]) -> None:
    walk = Walk(includes=includes)
    assert walk.unmatched == unmatched
    assert not walk.problems
    for name in ("y", "z"):
        np.testing.assert_allclose(walk.values[name], walk.expected[name], rtol=1e-6)


def test_all_problems_are_found_in_one_walk() -> None:
    """Also those of layers that read the top of one with a problem."""
    walk = Walk(refuses=True)
    assert list(walk.problems) == ["sum", "shift"]
    texts = [str(problem) for problem in chain.from_iterable(walk.problems.values())]
    assert texts == [
        "layer 'sum' (Eltwise): is not supported",
        "layer 'shift' (Power): is not supported",
    ]


def test_a_rule_that_leaves_out_a_top_does_not_match() -> None:
    graph = Net(NET.replace('bottom: "b" top: "sum"', 'bottom: "a" top: "sum"')).graph
    layer = next(layer for layer in graph.layers if layer.is_inserted_split)
    assert len(layer.tops) > 1
    assert NUMPY.match(NumpyCall(layer, (), (np.zeros(graph.blobs[layer.bottoms[0]].shape),), graph.blobs)) is None


def test_readers_are_counted_as_often_as_they_read() -> None:
    graph = Net(NET.replace('bottom: "b" top: "sum"', 'bottom: "a" top: "sum"')).for_inference(["sum", "z"]).graph
    readers = find_readers(graph.layers, graph.outputs)
    keys = {blob: [reader and reader.key for reader in layers] for blob, layers in readers.items()}
    assert keys["a"] == ["sum", "sum"]
    assert keys["sum"] == ["twice", None]
    assert keys["z"] == [None]
    assert "b" not in keys

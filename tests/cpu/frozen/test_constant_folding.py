"""Layers that are folded into preceding layers, and layers that must not be folded."""

from __future__ import annotations

import re

import numpy as np
import pytest
from frozen_nets import assert_frozen_net_equals_net, draw_inputs, draw_variables, make_net_text

from caffejax.core.program.net import Net

CONV = "a Convolution x | num_output: 4 kernel_size: 3"
CHAIN = ["n BatchNorm a", "s Scale n | bias_term: true", "b Bias s"]
SIAMESE = [
    'a Convolution x | param { name: "w" } param { name: "c" } convolution_param { num_output: 4 kernel_size: 3 }',
    'b Convolution x | param { name: "w" } param { name: "c" } convolution_param { num_output: 4 kernel_size: 3 }',
    "c Convolution x | num_output: 4 kernel_size: 3",
]


CASES: list[tuple[list[str], list[str] | None, str]] = [
    ([CONV, *CHAIN], None, "Convolution"),
    ([CONV, "n BatchNorm a"], None, "Convolution"),
    ([CONV.replace("num", "bias_term: false num"), *CHAIN, "r ReLU b"], None, "Convolution ReLU"),
    ([CONV, "a BatchNorm a", "a Scale a", "a ReLU a"], None, "Convolution ReLU"),
    ([CONV, "d Dropout a", "n BatchNorm d", "e Dropout n"], ["e"], "Convolution Dropout"),
    ([CONV, "d Dropout a", "n BatchNorm d", "e Dropout n", "r ReLU e"], None, "Convolution ReLU"),
    (["a InnerProduct x | num_output: 4", *CHAIN], None, "InnerProduct"),
    ([CONV, "p Split a", "n BatchNorm p"], None, "Convolution"),
    ([CONV.replace("num_output: 4", "num_output: 6 group: 3"), *CHAIN], None, "Convolution"),
    # not where something else sees the numbers before
    ([CONV, *CHAIN], ["a", "b"], "Convolution BatchNorm Scale Bias"),
    ([CONV, *CHAIN], ["n", "b"], "Convolution Scale Bias"),
    ([CONV, "n BatchNorm a", "r ReLU a", "e Eltwise n r"], None, "Convolution BatchNorm ReLU Eltwise"),
    ([CONV, "e Eltwise a a", "n BatchNorm e"], None, "Convolution Eltwise BatchNorm"),
    # nor where it is no factor and bias of the outputs
    ([CONV, "n BatchNorm a | use_global_stats: false"], None, "Convolution BatchNorm"),
    ([CONV, "s Scale a | axis: 2 num_axes: 1"], None, "Convolution Scale"),
    ([CONV, "s Scale a | axis: 2 num_axes: -1"], None, "Convolution Scale"),
    ([CONV, "s Scale a | num_axes: 0"], None, "Convolution Scale"),
    ([CONV, "s Scale a | axis: 0 num_axes: 2"], None, "Convolution Scale"),
    ([CONV, "e Pooling a | global_pooling: true", "f Flatten e", "s Scale a f | axis: 0"], None,
     "Convolution Pooling Flatten Scale"),
    (["a InnerProduct x | num_output: 6 axis: -1", "s Scale a"], None, "InnerProduct Scale"),
    (["a InnerProduct x | num_output: 6 axis: 2", "s Scale a"], None, "InnerProduct Scale"),
    (["a InnerProduct x | num_output: 4 transpose: true", "s Scale a"], None, "InnerProduct Scale"),
    (["a Convolution x | num_output: 6 kernel_size: 1 axis: 2", "s Scale a"], None, "Convolution Scale"),
    (["a Deconvolution x | num_output: 4 kernel_size: 2", "s Scale a"], None, "Deconvolution Scale"),
    (["r ReLU x", "n BatchNorm r"], None, "ReLU BatchNorm"),
    # each with its own, where weights are shared
    ([*SIAMESE, "n BatchNorm a", "m BatchNorm b", "s Scale m", "e Eltwise n s c"], None,
     "Convolution Convolution Convolution Eltwise"),
    ([*SIAMESE, "n BatchNorm a", "e Eltwise n b c"], None, "Convolution Convolution Convolution Eltwise"),
]  # fmt: skip


@pytest.mark.parametrize(("layers", "outputs", "expected_types"), CASES)
def test_folded_layers_are_removed(layers: list[str], outputs: list[str] | None, expected_types: str) -> None:
    net = Net(make_net_text((2, 6, 6, 5), *layers), "TEST")
    graph = net.freeze(draw_variables(net), outputs).graph
    assert " ".join(layer.type.name for layer in graph.layers if not layer.type.is_input) == expected_types


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("layers", "outputs"), [case[:2] for case in CASES])
def test_folded_layers_give_equal_outputs(layers: list[str], outputs: list[str] | None, batch: int) -> None:
    assert_frozen_net_equals_net(make_net_text((batch, 6, 6, 5), *layers), outputs)


def test_folded_nets_give_equal_outputs() -> None:
    """All cases are branches of one net, to compile only once."""
    branches, output_names = [], []
    for i, (layers, names, _) in enumerate(CASES):
        for layer in layers:
            words, _, param = layer.partition("|")
            top, layer_type, *bottoms = words.split()
            reads = " ".join(b if b == "x" else f"{b}{i}" for b in bottoms)
            branches.append(f"{top}{i} {layer_type} {reads} | " + re.sub('name: "(.)"', rf'name: "\g<1>{i}"', param))
        output_names += [f"{name}{i}" for name in names or [layers[-1].split()[0]]]
    assert_frozen_net_equals_net(make_net_text((2, 6, 6, 5), *branches), output_names)


def test_folding_does_not_change_its_arguments() -> None:
    net = Net(make_net_text((2, 6, 6, 5), *SIAMESE, "n BatchNorm a", "e Eltwise n b c"), "TEST")
    variables, inputs = draw_variables(net), draw_inputs(net)
    output_before = net.apply(*variables, inputs)[0]["e"]
    net.freeze(variables)(inputs)
    np.testing.assert_array_equal(net.apply(*variables, inputs)[0]["e"], output_before)


def test_nets_of_identity_layers_give_equal_outputs() -> None:
    """Nets in which every layer is an identity still return the requested blobs."""
    for outputs in (None, ["x"], ["d"]):
        assert_frozen_net_equals_net(make_net_text((2, 3, 4, 4), "d Dropout x", "p Split d"), outputs)

"""Nets without state between forward passes: the graph property, compared with the results of passes."""

import jax
import numpy as np
import pytest

from caffejax import Net
from caffejax.core.data.synthetic_inputs import complete_inputs
from caffejax.cpu.frozen.frozen_pass_cache import is_stateless

IMAGES = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 3 dim: 2 dim: 4 dim: 4 } } }'
SEQUENCE = """layer { name: "x" type: "Input" top: "x" top: "cont"
  input_param { shape { dim: 3 dim: 2 dim: 4 } shape { dim: 3 dim: 2 } } }"""
BATCH_NORM = IMAGES + 'layer { name: "bn" type: "BatchNorm" bottom: "x" top: "y" batch_norm_param { %s } }'
CASES = {
    "no state": (IMAGES + 'layer { name: "y" type: "ReLU" bottom: "x" top: "y" }', "TEST", True),
    "stored statistics": (BATCH_NORM % "", "TEST", True),
    "stored statistics in training": (BATCH_NORM % "use_global_stats: true", "TRAIN", True),
    "statistics of the batch": (BATCH_NORM % "", "TRAIN", False),
    "statistics of the batch in a test": (BATCH_NORM % "use_global_stats: false", "TEST", False),
    "two layers alike, and one that is not": (
        BATCH_NORM % ""
        + 'layer { name: "bn2" type: "BatchNorm" bottom: "y" top: "z" }'
        + 'layer { name: "bn3" type: "BatchNorm" bottom: "z" top: "v" batch_norm_param { use_global_stats: false } }',
        "TEST",
        False,
    ),
    "a sequence that goes on": (
        SEQUENCE
        + 'layer { name: "y" type: "LSTM" bottom: "x" bottom: "cont" top: "y" recurrent_param { num_output: 3 '
        + 'weight_filler { type: "xavier" } } }',
        "TEST",
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_is_stateless_agrees_with_the_state_after_a_pass(case: str) -> None:
    prototxt, phase, expected = CASES[case]
    net = Net(prototxt, phase)  # type: ignore[arg-type]
    assert is_stateless(net.graph) == expected
    params, state = net.init(jax.random.key(0))
    _, new_state = net.apply(params, state, complete_inputs(net.graph, {}, np.random.default_rng(0)))
    is_unchanged = jax.tree.map(lambda a, b: bool((a == b).all()), state, new_state)
    assert all(jax.tree.leaves(is_unchanged)) == expected


def test_host_layers_count_as_stateful() -> None:
    net = Net(
        """layer { name: "x" type: "Input" top: "x" top: "s" input_param { shape { dim: 4 dim: 2 } shape { dim: 4 } } }
        layer { name: "y" type: "Filter" bottom: "x" bottom: "s" top: "y" }""",
        "TEST",
    )
    assert not is_stateless(net.graph)

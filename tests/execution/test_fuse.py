"""Fusion: which layers become one step, and which are kept apart."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from schedule_nets import CHAIN, CONVOLUTION, INPUT, in_place, names

from caffejax import Facts, LayerType, Net, Signature, Traced
from caffejax.execution import schedule_of
from caffejax.execution.fuse import fuse, keep_apart
from caffejax.layers import ByChannel, Context, registered

LEAKY = CHAIN.replace('"ReLU"', '"ReLU" relu_param { negative_slope: 0.1 }')
WITHOUT_SCALE = INPUT + in_place("BatchNorm", blob="data") + in_place("ReLU", blob="data")


def fused(net: Net) -> list[list[str]]:
    return [step for step in names(fuse(schedule_of(net.graph))) if len(step) > 1]


@pytest.mark.parametrize(
    ("text", "phase", "options", "expected"),
    [
        (CHAIN, "TEST", {}, [["conv", "batchnorm", "scale", "relu"]]),
        (CHAIN, "TRAIN", {}, [["batchnorm", "scale", "relu"]]),
        (CHAIN, "TEST", {"backward": "rules"}, []),
        (CHAIN, "TEST", {"kernels": "reference"}, []),
        (LEAKY, "TEST", {}, [["conv", "batchnorm", "scale"]]),
        (LEAKY, "TRAIN", {}, [["batchnorm", "scale"]]),
        (WITHOUT_SCALE, "TRAIN", {}, [["batchnorm", "relu"]]),
        (INPUT + CONVOLUTION + in_place("ReLU", "loss_weight: 1"), "TEST", {}, []),
        (INPUT + CONVOLUTION + in_place("ReLU", "propagate_down: false"), "TEST", {}, []),
        (INPUT + CONVOLUTION + in_place("TanH"), "TEST", {}, []),
    ],
)
def test_what_is_fused(text: str, phase: Any, options: Any, expected: list[list[str]]) -> None:
    assert fused(Net(text, phase, **options)) == expected


def test_layers_of_other_packages_are_fused_by_what_they_say() -> None:
    def double(ctx: Context, x: jax.Array) -> jax.Array:
        return 2 * x

    def holds(ctx: Context, shapes: Any, axis: int, channels: int) -> bool:
        return axis == 1

    def factor_and_bias(ctx: Context, blobs: Any) -> Any:
        return jnp.full(4, 2.0), jnp.zeros(4)

    facts = Facts(by_channel=ByChannel(holds, factor_and_bias))
    doubling = LayerType(Signature("TestDouble"), Traced(double), facts=facts)
    relu = LayerType(Signature("TestRectify"), Traced(lambda ctx, x: jnp.maximum(x, 0)), facts=Facts(relu=bool))
    with registered(doubling), registered(relu):
        text = INPUT + CONVOLUTION + in_place("TestDouble") + in_place("TestRectify")
        fast, plain = Net(text), Net(text, kernels="reference")
        assert fused(fast) == [["conv", "testdouble", "testrectify"]]
        variables, inputs = plain.init(jax.random.key(0)), {"data": np.random.default_rng(0).normal(size=(2, 3, 6, 6))}
        one, other = (net.forward(*variables, inputs)[0]["conv"] for net in (fast, plain))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_layers_are_kept_apart_where_a_blob_is_tapped() -> None:
    net = Net(CHAIN)
    assert names(keep_apart(net.schedule, frozenset({"conv"}))) == [[layer.name] for layer in net.graph.layers]
    assert keep_apart(net.schedule, frozenset({"data"})).parts[0].steps[1:] == net.schedule.parts[0].steps[1:]
    assert keep_apart(net.schedule, frozenset()) is net.schedule

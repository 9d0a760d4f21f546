"""Schedules: their parts, the split at host layers, and which layers are fused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from schedule_nets import CHAIN, CONVOLUTION, FILTERED, INPUT, get_step_names, make_in_place_layer

from caffejax import Net, declare
from caffejax.core.layers import ChannelAffine, register_temporarily
from caffejax.core.program.schedule import fuse, make_unfused_schedule, split_at_host_layers, unfuse

LEAKY = CHAIN.replace('"ReLU"', '"ReLU" relu_param { negative_slope: 0.1 }')
BATCH_NORM_RELU = INPUT + make_in_place_layer("BatchNorm", blob="data") + make_in_place_layer("ReLU", blob="data")


def find_fused_names(net: Net) -> list[list[str]]:
    return [step for step in get_step_names(fuse(make_unfused_schedule(net.graph))) if len(step) > 1]


@pytest.mark.parametrize(
    ("text", "phase", "options", "expected"),
    [
        (CHAIN, "TEST", {}, [["conv", "batchnorm", "scale", "relu"]]),
        (CHAIN, "TRAIN", {}, [["batchnorm", "scale", "relu"]]),
        (CHAIN, "TEST", {"backward": "rules"}, []),
        (CHAIN, "TEST", {"kernels": "reference"}, []),
        (LEAKY, "TEST", {}, [["conv", "batchnorm", "scale"]]),
        (LEAKY, "TRAIN", {}, [["batchnorm", "scale"]]),
        (BATCH_NORM_RELU, "TRAIN", {}, [["batchnorm", "relu"]]),
        (INPUT + CONVOLUTION + make_in_place_layer("ReLU", "loss_weight: 1"), "TEST", {}, []),
        (INPUT + CONVOLUTION + make_in_place_layer("ReLU", "propagate_down: false"), "TEST", {}, []),
        (INPUT + CONVOLUTION + make_in_place_layer("TanH"), "TEST", {}, []),
    ],
)
def test_fusible_layers_become_one_step(text: str, phase: Any, options: Any, expected: list[list[str]]) -> None:
    assert find_fused_names(Net(text, phase, **options)) == expected


def test_registered_layers_are_fused_by_their_traits() -> None:
    def double(x: jax.Array) -> jax.Array:
        return 2 * x

    def applies(shapes: Any, axis: int, channels: int) -> bool:
        return axis == 1

    def factor_and_bias(blobs: Any) -> Any:
        return jnp.full(4, 2.0), jnp.zeros(4)

    doubling = declare("TestDouble", channel_affine=ChannelAffine(applies, factor_and_bias))(double)
    relu = declare("TestRectify", is_relu=lambda: True)(lambda x: jnp.maximum(x, 0))
    with register_temporarily(doubling), register_temporarily(relu):
        text = INPUT + CONVOLUTION + make_in_place_layer("TestDouble") + make_in_place_layer("TestRectify")
        fast, plain = Net(text), Net(text, kernels="reference")
        assert find_fused_names(fast) == [["conv", "testdouble", "testrectify"]]
        variables, inputs = plain.init(jax.random.key(0)), {"data": np.random.default_rng(0).normal(size=(2, 3, 6, 6))}
        fused_blob, plain_blob = (net.forward(*variables, inputs)[0]["conv"] for net in (fast, plain))
        np.testing.assert_allclose(fused_blob, plain_blob, rtol=1e-5, atol=1e-6)


def test_layers_that_compute_requested_blobs_are_unfused() -> None:
    net = Net(CHAIN)
    assert get_step_names(unfuse(net.layer_schedule, frozenset({"conv"}))) == [
        [layer.name] for layer in net.graph.layers
    ]
    assert unfuse(net.layer_schedule, frozenset({"data"})).parts[0].steps[1:] == net.layer_schedule.parts[0].steps[1:]
    assert unfuse(net.layer_schedule, frozenset()) is net.layer_schedule


def test_a_schedule_is_split_at_host_layers() -> None:
    net = Net(FILTERED)
    assert [(part.mode, [layer.name for layer in part.layers]) for part in net.layer_schedule.parts] == [
        ("traced", ["data", "wanted", "conv"]),
        ("host", ["filter"]),
        ("bucketed", ["relu", "ip"]),
        ("traced", ["sum"]),
    ]
    assert str(net.layer_schedule).splitlines() == [
        "compiled: data .. conv",
        "on the host: filter",
        "compiled for rows padded to a power of two: relu .. ip",
        "compiled: sum",
    ]


def test_a_schedule_without_host_layers_is_not_split() -> None:
    schedule = make_unfused_schedule(Net(CHAIN).graph)
    assert get_step_names(split_at_host_layers(schedule, trim=True)) == get_step_names(schedule)
    assert len(split_at_host_layers(schedule, trim=True).parts) == 1


def test_parts_list_blobs_read_and_written_and_owners_of_params() -> None:
    net = Net(FILTERED)
    first, host, bucketed, last = net.layer_schedule.parts
    assert (first.reads, host.reads, bucketed.reads, last.reads) == ((), ("conv", "wanted"), ("some",), ("ip",))
    assert (first.writes, bucketed.writes) == ({"data", "wanted", "conv"}, {"some", "ip"})
    assert (first.owners, host.owners, bucketed.owners) == ({"conv"}, frozenset(), {"ip"})
    assert net.layer_schedule.blobs_needed_after[0] == {"conv", "wanted", "some", "ip"}
    assert net.layer_schedule.blobs_needed_after[3] == frozenset()

"""The passes of the compiler, each by itself: what a schedule is before and after, in words and in steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Facts, LayerType, Net, Signature, Traced, register
from caffejax.layers import ByChannel, Context
from caffejax.layers.registry import _types
from caffejax.schedule import Given, Schedule, compute, one_by_one, run, run_parts, schedule_of
from caffejax.schedule.cut import cut_round_host
from caffejax.schedule.fuse import fuse, keep_apart
from caffejax.schedule.groups import Plan
from caffejax.schedule.recompute import recompute

INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }'
CONVOLUTION = """layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
    convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }"""


def in_place(kind: str, more: str = "", blob: str = "conv") -> str:
    return f'layer {{ name: "{kind.lower()}" type: "{kind}" bottom: "{blob}" top: "{blob}" {more} }}'


CHAIN = INPUT + CONVOLUTION + in_place("BatchNorm") + in_place("Scale") + in_place("ReLU") + in_place("TanH")
LEAKY = CHAIN.replace('"ReLU"', '"ReLU" relu_param { negative_slope: 0.1 }')
FILTERED = (
    INPUT
    + 'layer { name: "wanted" type: "Input" top: "wanted" input_param { shape { dim: 2 } } }'
    + CONVOLUTION
    + 'layer { name: "filter" type: "Filter" bottom: "conv" bottom: "wanted" top: "some" }'
    + in_place("ReLU", blob="some")
    + 'layer { name: "ip" type: "InnerProduct" bottom: "some" top: "ip" inner_product_param { num_output: 2 } }'
    + 'layer { name: "sum" type: "Reduction" bottom: "ip" top: "sum" }'
)


def names(schedule: Schedule) -> list[list[str]]:
    """The layers of each step."""
    return [[layer.name for layer in step.layers] for part in schedule.parts for step in part.steps]


def fused(net: Net) -> list[list[str]]:
    return [step for step in names(fuse(schedule_of(net.graph))) if len(step) > 1]


@pytest.mark.parametrize(
    ("text", "phase", "options", "expected"),
    [
        (CHAIN, "TEST", {}, [["conv", "batchnorm", "scale", "relu"]]),
        (CHAIN, "TRAIN", {}, [["batchnorm", "scale"]]),
        (CHAIN, "TEST", {"backward": "rules"}, []),
        (CHAIN, "TEST", {"kernels": "reference"}, []),
        (LEAKY, "TEST", {}, [["conv", "batchnorm", "scale"]]),
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
    register(LayerType(Signature("TestDouble"), Traced(double), facts=facts))
    register(LayerType(Signature("TestRectify"), Traced(lambda ctx, x: jnp.maximum(x, 0)), facts=Facts(relu=bool)))
    try:
        text = INPUT + CONVOLUTION + in_place("TestDouble") + in_place("TestRectify")
        fast, plain = Net(text), Net(text, kernels="reference")
        assert fused(fast) == [["conv", "testdouble", "testrectify"]]
        variables, inputs = plain.init(jax.random.key(0)), {"data": np.random.default_rng(0).normal(size=(2, 3, 6, 6))}
        one, other = (net.forward(*variables, inputs)[0]["conv"] for net in (fast, plain))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    finally:
        del _types["TestDouble"], _types["TestRectify"]


def test_layers_are_kept_apart_where_a_blob_is_tapped() -> None:
    net = Net(CHAIN)
    assert names(keep_apart(net.schedule, frozenset({"conv"}))) == [[layer.name] for layer in net.graph.layers]
    assert keep_apart(net.schedule, frozenset({"data"})).parts[0].steps[1:] == net.schedule.parts[0].steps[1:]
    assert keep_apart(net.schedule, frozenset()) is net.schedule


def test_a_schedule_is_cut_round_host_layers() -> None:
    net = Net(FILTERED)
    assert [(part.how, [layer.name for layer in part.layers]) for part in net.schedule.parts] == [
        ("traced", ["data", "wanted", "conv"]),
        ("host", ["filter"]),
        ("rows", ["relu", "ip"]),
        ("traced", ["sum"]),
    ]
    assert str(net.schedule).splitlines() == [
        "compiled: data .. conv",
        "on the host: filter",
        "compiled for rows padded to a power of two: relu .. ip",
        "compiled: sum",
    ]


def test_nothing_to_cut_is_not_cut() -> None:
    whole = schedule_of(Net(CHAIN).graph)
    assert names(cut_round_host(whole)) == names(whole)
    assert len(cut_round_host(whole).parts) == 1


def test_the_groups_of_a_plan_are_parts_of_which_all_but_the_last_run_again() -> None:
    net = Net(CHAIN + 'layer { name: "loss" type: "Reduction" bottom: "conv" top: "loss" loss_weight: 1 }', "TRAIN")
    (part,) = net.schedule.parts
    again = recompute(net.schedule, Plan((part.steps[:3], part.steps[3:]), fixed=0, peak=0, without=0, fits=True))
    assert names(again) == names(net.schedule)
    assert str(again).splitlines() == [
        "compiled, and run again in the backward pass: data .. scale",
        "  fused: batchnorm + scale",
        "compiled: relu .. loss",
    ]
    variables, inputs = net.init(jax.random.key(0)), {"data": jax.random.normal(jax.random.key(1), (2, 3, 6, 6))}

    def loss(params: Any, schedule: Schedule) -> jax.Array:
        return run(schedule, Given(params, variables.state, inputs, None, {}), wanted=()).loss

    one, other = (jax.grad(loss)(variables.params, schedule) for schedule in (net.schedule, again))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other)


def test_parts_know_what_they_read_make_and_own() -> None:
    net = Net(FILTERED)
    first, host, rows, last = net.schedule.parts
    assert (first.reads, host.reads, rows.reads, last.reads) == ((), ("conv", "wanted"), ("some",), ("ip",))
    assert (first.makes, rows.makes) == ({"data", "wanted", "conv"}, {"some", "ip"})
    assert (first.owners, host.owners, rows.owners) == ({"conv"}, frozenset(), {"ip"})
    assert net.schedule.needed_after(0) == {"conv", "wanted", "some", "ip"}
    assert net.schedule.needed_after(3) == frozenset()


def test_a_range_runs_on_what_was_made_before_it() -> None:
    net = Net(CHAIN)
    variables, inputs = net.init(jax.random.key(0)), {"data": jnp.ones((2, 3, 6, 6))}
    given = Given(*variables, inputs, None, {})
    whole = run(schedule_of(net.graph), given)
    head, tail = schedule_of(net.graph, 0, 2), schedule_of(net.graph, 3)
    assert len(names(head)) + len(names(tail)) == len(net.graph.layers)
    before = run(head, given).values
    np.testing.assert_array_equal(run(tail, given, before=before).values["conv"], whole.values["conv"])


def test_what_nobody_reads_any_more_is_let_go() -> None:
    net = Net(INPUT + CONVOLUTION + 'layer { name: "pool" type: "TanH" bottom: "conv" top: "tanh" }')
    given = Given(*net.init(jax.random.key(0)), {"data": jnp.ones((2, 3, 6, 6))}, None, {})
    apart = one_by_one(net.schedule)
    held = [set(done.result.values) for done in run_parts(apart, given, wanted=["tanh"])]
    assert held == [{"data"}, {"conv"}, {"tanh"}]
    assert set(run(apart, given).values) == {"data", "conv", "tanh"}


def test_a_runner_sees_just_what_its_part_uses() -> None:
    net = Net(FILTERED)
    variables = net.init(jax.random.key(0))
    seen = []

    def looking(part: Any, given: Given, before: Any, keep: Any) -> Any:
        seen.append((sorted(given.params), sorted(given.inputs), sorted(before)))
        return compute(part, given, before, keep)

    inputs = {"data": jnp.ones((2, 3, 6, 6)), "wanted": jnp.ones(2)}
    run(net.schedule, Given(*variables, inputs, None, {}), runner=looking)
    assert seen == [
        (["conv"], ["data", "wanted"], []),
        ([], [], ["conv", "wanted"]),
        (["ip"], [], ["some"]),
        ([], [], ["ip"]),
    ]

"""The interpreter of layers: ranges, and values that are released after their last reader."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from schedule_nets import CHAIN, CONVOLUTION, FILTERED, INPUT, get_step_names

from caffejax import Net
from caffejax.core.program.interpreter import PassInputs, compute_part, iterate_parts, run_schedule
from caffejax.core.program.schedule import make_unfused_schedule, split_by_layer


def test_a_range_of_layers_runs_on_earlier_blobs() -> None:
    net = Net(CHAIN)
    variables, inputs = net.init(jax.random.key(0)), {"data": jnp.ones((2, 3, 6, 6))}
    arguments = PassInputs(*variables, inputs, None, {})
    result = run_schedule(make_unfused_schedule(net.graph), arguments)
    head, tail = make_unfused_schedule(net.graph, 0, 2), make_unfused_schedule(net.graph, 3)
    assert len(get_step_names(head)) + len(get_step_names(tail)) == len(net.graph.layers)
    head_values = run_schedule(head, arguments).values
    np.testing.assert_array_equal(
        run_schedule(tail, arguments, earlier_blobs=head_values).values["conv"], result.values["conv"]
    )


def test_blobs_without_further_readers_are_released() -> None:
    net = Net(INPUT + CONVOLUTION + 'layer { name: "pool" type: "TanH" bottom: "conv" top: "tanh" }')
    inputs = PassInputs(*net.init(jax.random.key(0)), {"data": jnp.ones((2, 3, 6, 6))}, None, {})
    per_layer_schedule = split_by_layer(net.layer_schedule)
    blobs_after_parts = [
        set(result.values) for _, _, result in iterate_parts(per_layer_schedule, inputs, output_names=["tanh"])
    ]
    assert blobs_after_parts == [{"data"}, {"conv"}, {"tanh"}]
    assert set(run_schedule(per_layer_schedule, inputs).values) == {"data", "conv", "tanh"}


def test_runners_get_only_the_inputs_of_their_part() -> None:
    net = Net(FILTERED)
    variables = net.init(jax.random.key(0))
    parts = []

    def record_values(part: Any, pass_inputs: PassInputs, earlier_blobs: Any, needed: Any) -> Any:
        parts.append((sorted(pass_inputs.params), sorted(pass_inputs.blobs), sorted(earlier_blobs)))
        return compute_part(part, pass_inputs, earlier_blobs, needed)

    inputs = {"data": jnp.ones((2, 3, 6, 6)), "wanted": jnp.ones(2)}
    run_schedule(net.layer_schedule, PassInputs(*variables, inputs, None, {}), compute=record_values)
    assert parts == [
        (["conv"], ["data", "wanted"], []),
        ([], [], ["conv", "wanted"]),
        (["ip"], [], ["some"]),
        ([], [], ["ip"]),
    ]

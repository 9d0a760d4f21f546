"""Nets whose devices' batches count as one, on 8 devices: what tests ask in a process that has them."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from case_net import assert_close
from global_batch import AXIS, mesh
from jax.sharding import PartitionSpec as P

from caffejax.errors import CaffejaxError
from caffejax.kernels.normalization_op import _sum_separately, _sum_stacked
from caffejax.net import Net

DEVICES, SHARE = 4, 6
SYNCED = {"axis_name": AXIS, "sync_bn": True}

FED = """
  layer { name: "x" type: "Input" top: "x" input_param { shape { dim: ROWS dim: 3 dim: 2 dim: 2 } } }
  layer { name: "y" type: "Input" top: "y" input_param { shape { dim: ROWS } } }
"""
NORM = """
  layer { name: "norm" type: "BatchNorm" bottom: "x" top: "z" }
  layer { name: "scale" type: "Scale" bottom: "z" top: "z" scale_param { bias_term: true } }
  layer { name: "relu" type: "ReLU" bottom: "z" top: "z" }
"""
LOSSES = """
  layer { name: "ip" type: "InnerProduct" bottom: "z" top: "ip" loss_weight: 0.01
    inner_product_param { num_output: 4 weight_filler { type: "gaussian" std: 1 } } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" loss_weight: 0.7
    loss_param { ignore_label: 1 } }
  layer { name: "square" type: "Power" bottom: "loss" top: "square" power_param { power: 2 } loss_weight: 0.3 }
  layer { name: "param" type: "Parameter" top: "param" parameter_param { shape { dim: 5 } } loss_weight: 0.1 }
  layer { name: "decay" type: "Reduction" bottom: "param" top: "decay" reduction_param { operation: SUMSQ }
    loss_weight: 0.2 }
"""
INPUTS = {"x": P(AXIS), "y": P(AXIS)}


def make_net(layers: str, rows: int, **options: Any) -> Net:
    """Return a net of these layers with this number of rows."""
    return Net((FED + layers).replace("ROWS", str(rows)), "TRAIN", **options)


def make_inputs() -> dict[str, Any]:
    """Return the inputs of all devices; no label of the first device counts."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(DEVICES * SHARE, 3, 2, 2)) + np.arange(DEVICES).repeat(SHARE)[:, None, None, None]
    y = rng.integers(0, 4, DEVICES * SHARE)
    return {"x": x.astype(np.float32), "y": np.where(np.arange(len(y)) < SHARE, 1, y).astype(np.float32)}


def init_variables(model: Net) -> Any:
    """Params, none of them 0, and state."""
    params, state = model.init(jax.random.key(0))
    return jax.tree.map(lambda p: p + 0.5, params), state


def map_over_devices(function: Any, out_specs: Any, **options: Any) -> Any:
    """The function of (params, state, inputs) on all devices."""
    specs = (P(), P(), INPUTS)
    return jax.shard_map(function, mesh=mesh(DEVICES), in_specs=specs, out_specs=out_specs, **options)


def make_step(model: Net) -> Any:
    """Loss, outputs and new state; gradients by params and inputs."""

    def loss(params: Any, inputs: Any, state: Any) -> Any:
        return model.loss(params, state, inputs, blobs=["loss", "square", "decay"])

    def run(params: Any, state: Any, inputs: Any) -> Any:
        return jax.value_and_grad(loss, (0, 1), has_aux=True)(params, inputs, state)

    return run


def check_training_step(**options: Any) -> None:
    """Loss, statistics and gradients of a net with all kinds of layers equal the results for the joined batch."""
    joint_net, shard_net = (
        make_net(NORM + LOSSES, DEVICES * SHARE, **options),
        make_net(NORM + LOSSES, SHARE, **SYNCED, **options),
    )
    inputs = *init_variables(joint_net), make_inputs()
    expected = jax.jit(make_step(joint_net))(*inputs)
    result = jax.jit(map_over_devices(make_step(shard_net), ((P(), P()), (P(), INPUTS))))(*inputs)
    assert_close(result, expected, 1e-5)


def check_forward_mode(backward: str) -> None:
    """Derivatives forwards, too."""
    joint_net, shard_net = (
        make_net(NORM + LOSSES, DEVICES * SHARE),
        make_net(NORM + LOSSES, SHARE, backward=backward, **SYNCED),
    )
    params, state = init_variables(joint_net)
    inputs = make_inputs()

    def slope(model: Net, params: Any, state: Any, inputs: Any) -> Any:
        tangents = jax.tree.map(jnp.cos, params), {"x": jnp.sin(inputs["x"])}

        def loss(params: Any, floats: Any) -> Any:
            return model.loss(params, state, {**inputs, **floats})[0]

        return jax.jvp(loss, (params, {"x": inputs["x"]}), tangents)[1]

    expected = jax.jit(functools.partial(slope, joint_net))(params, state, inputs)
    assert_close(
        jax.jit(map_over_devices(functools.partial(slope, shard_net), P()))(params, state, inputs), expected, 1e-5
    )


def check_unsynced_batch_norm(**options: Any) -> None:
    """Without sync_bn, or without axis_name, BatchNorm is of each device's own batch."""
    part = make_net(NORM, SHARE, **options)
    params, state = init_variables(part)
    inputs = make_inputs()

    def tops(params: Any, state: Any, inputs: Any) -> Any:
        blobs, new = part.apply(params, state, inputs)
        return blobs["z"], jax.tree.map(lambda s: s[None], new)

    result, new = jax.jit(map_over_devices(tops, P(AXIS)))(params, state, inputs)
    for i in range(DEVICES):
        rows = {name: a[i * SHARE :][:SHARE] for name, a in inputs.items()}
        expected = jax.jit(tops)(params, state, rows)
        assert_close((result[i * SHARE :][:SHARE], jax.tree.map(lambda s, i=i: s[i : i + 1], new)), expected, 1e-5)


def check_all_reduce_counts(forward: int, backward: int, **options: Any) -> None:
    """How often devices meet in a BatchNorm, on its way and back."""
    part = make_net(NORM, SHARE, **options)
    params, state = init_variables(part)

    def top(x: Any, params: Any, state: Any, inputs: Any) -> Any:
        return part.apply(params, state, {**inputs, "x": x})[0]["z"]

    def back(params: Any, state: Any, inputs: Any) -> Any:
        return jax.vjp(lambda x: top(x, params, state, inputs), inputs["x"])[1](jnp.ones_like(inputs["x"]))[0]

    def count(function: Any) -> int:
        text = jax.jit(map_over_devices(function, P(AXIS))).lower(params, state, make_inputs()).compile().as_text()
        return len(re.findall(r" all-reduce(?:-start)?\(", text))

    assert count(lambda params, state, inputs: top(inputs["x"], params, state, inputs)) == forward
    assert count(back) == forward + backward


def check_sums_are_stacked(platform: str, shapes: list[str]) -> None:
    """The arrays that a BatchNorm adds up over devices in a forward pass, in the program for a platform."""
    part = make_net(NORM, SHARE, **SYNCED)
    run = map_over_devices(lambda params, state, inputs: part.apply(params, state, inputs)[0]["z"], P(AXIS))
    traced = jax.jit(run).trace(*init_variables(part), make_inputs())
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert re.findall(r"stablehlo\.all_reduce.*?\}\) : \(tensor<(\w+)>", text, re.DOTALL) == shapes


def check_separate_sums() -> None:
    """On TPUs, where this test does not run, the sums over devices are the same."""
    x = jnp.arange(2.0 * DEVICES * 3).reshape(DEVICES, 2, 3)
    for add_up in (_sum_stacked, _sum_separately):
        run = jax.shard_map(lambda x, f=add_up: f(AXIS, *x[0]), mesh=mesh(DEVICES), in_specs=P(AXIS), out_specs=P())
        np.testing.assert_array_equal(run(x), x.sum(0))


def check_no_collectives_without_axis_name() -> None:
    part = make_net(NORM + LOSSES, SHARE)
    run = make_step(part)
    lowered = jax.jit(map_over_devices(lambda *args: run(*args)[1][1], INPUTS)).lower(
        *init_variables(part), make_inputs()
    )
    assert "all-reduce" not in lowered.compile().as_text()


def check_traces_are_not_shared() -> None:
    """One net, on one device, on several, and on one again: what is traced in one is not used in the other."""
    part = make_net(NORM + LOSSES, SHARE, **SYNCED)
    single_device_net = make_net(NORM + LOSSES, SHARE)
    params, state = init_variables(part)
    inputs = make_inputs()
    shard = {name: a[-SHARE:] for name, a in inputs.items()}
    repeated_inputs = jax.tree.map(lambda a: np.concatenate([a] * DEVICES), shard)
    expected = jax.jit(make_step(single_device_net))(params, state, shard)
    specs = ((P(), P()), (P(), INPUTS))
    for _ in range(2):
        assert_close(jax.jit(make_step(part))(params, state, shard), expected, 1e-6)
        assert_close(part.forward(params, state, shard)[0], single_device_net.forward(params, state, shard)[0], 1e-6)
        (loss, _), (by_params, _) = jax.jit(map_over_devices(make_step(part), specs))(params, state, repeated_inputs)
        rows = loss - expected[0][0]  # but for the blob with rows, N times a batch weighs what it does once
        ip = np.sum(single_device_net.forward(params, state, shard, blobs=("ip",))[0]["ip"])
        np.testing.assert_allclose(rows, 0.01 * (DEVICES - 1) * ip, rtol=1e-3)
        assert_close(by_params["param"], expected[1][0]["param"], 1e-6)


def check_unchecked_axes_are_refused() -> None:
    part = make_net(NORM + LOSSES, SHARE, **SYNCED)
    inputs = *init_variables(part), make_inputs()
    try:
        map_over_devices(lambda *inputs: part.loss(*inputs)[0][None], P(AXIS), check_vma=False)(*inputs)
    except CaffejaxError as error:
        (problem,) = error.problems
        assert problem.layer == "norm"
        assert 'axis_name "data" must be an axis of jax.shard_map with check_vma=True' in problem.message
    else:
        raise AssertionError("nothing was refused")

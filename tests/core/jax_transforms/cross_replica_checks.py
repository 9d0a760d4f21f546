"""Checks of nets whose devices share one global batch, run in a process with 8 devices."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from caffejax.base.errors import CaffejaxError
from caffejax.core.ops.channels import _sum_separately, _sum_stacked
from caffejax.core.program.net import Net
from layer_suite import BATCH, Case
from layer_suite.case_net import assert_close
from layer_suite.global_batch import AXIS_NAME, make_mesh

NUM_DEVICES, SHARD_SIZE = 4, 6
SYNC_OPTIONS = {"axis_name": AXIS_NAME, "sync_bn": True}

NORM_LAYERS = """
  layer { name: "norm" type: "BatchNorm" bottom: "x" top: "z" }
  layer { name: "scale" type: "Scale" bottom: "z" top: "z" scale_param { bias_term: true } }
  layer { name: "relu" type: "ReLU" bottom: "z" top: "z" }
"""
LOSS_LAYERS = """
  layer { name: "ip" type: "InnerProduct" bottom: "z" top: "ip" loss_weight: 0.01
    inner_product_param { num_output: 4 weight_filler { type: "gaussian" std: 1 } } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" loss_weight: 0.7
    loss_param { ignore_label: 1 } }
  layer { name: "square" type: "Power" bottom: "loss" top: "square" power_param { power: 2 } loss_weight: 0.3 }
  layer { name: "param" type: "Parameter" top: "param" parameter_param { shape { dim: 5 } } loss_weight: 0.1 }
  layer { name: "decay" type: "Reduction" bottom: "param" top: "decay" reduction_param { operation: SUMSQ }
    loss_weight: 0.2 }
"""
INPUT_SPECS = {"x": P(AXIS_NAME), "y": P(AXIS_NAME)}


def make_net(layers: str, rows: int, **options: Any) -> Net:
    """Return a net of these layers with this number of rows."""
    return Net(Case("net", layers, {"x": (BATCH, 3, 2, 2), "y": (BATCH,)}).prototxt(rows), "TRAIN", **options)


def make_inputs() -> dict[str, Any]:
    """Return the joined inputs of all devices; all labels of the first device are ignored."""
    rng = np.random.default_rng(0)
    x = (
        rng.normal(size=(NUM_DEVICES * SHARD_SIZE, 3, 2, 2))
        + np.arange(NUM_DEVICES).repeat(SHARD_SIZE)[:, None, None, None]
    )
    y = rng.integers(0, 4, NUM_DEVICES * SHARD_SIZE)
    return {"x": x.astype(np.float32), "y": np.where(np.arange(len(y)) < SHARD_SIZE, 1, y).astype(np.float32)}


def init_variables(model: Net) -> Any:
    """Return nonzero params, and state."""
    params, state = model.init(jax.random.key(0))
    return jax.tree.map(lambda p: p + 0.5, params), state


def map_over_devices(function: Any, out_specs: Any, **options: Any) -> Any:
    """Return `function` of (params, state, inputs), mapped over all devices."""
    specs = (P(), P(), INPUT_SPECS)
    return jax.shard_map(function, mesh=make_mesh(NUM_DEVICES), in_specs=specs, out_specs=out_specs, **options)


def make_step(model: Net) -> Any:
    """Return a function that computes (loss, (outputs, new state)), and the gradients by params and inputs."""

    def loss(params: Any, inputs: Any, state: Any) -> Any:
        return model.loss(params, state, inputs, blobs=["loss", "square", "decay"])

    def run(params: Any, state: Any, inputs: Any) -> Any:
        return jax.value_and_grad(loss, (0, 1), has_aux=True)(params, inputs, state)

    return run


def check_training_step(**options: Any) -> None:
    """Loss, statistics and gradients of a net with all kinds of layers equal the results for the joined batch."""
    joint_net, shard_net = (
        make_net(NORM_LAYERS + LOSS_LAYERS, NUM_DEVICES * SHARD_SIZE, **options),
        make_net(NORM_LAYERS + LOSS_LAYERS, SHARD_SIZE, **SYNC_OPTIONS, **options),
    )
    inputs = *init_variables(joint_net), make_inputs()
    expected = jax.jit(make_step(joint_net))(*inputs)
    result = jax.jit(map_over_devices(make_step(shard_net), ((P(), P()), (P(), INPUT_SPECS))))(*inputs)
    assert_close(result, expected, 1e-5)


def check_forward_mode(backward: str) -> None:
    """Check that forward-mode derivatives equal those of the joined batch."""
    joint_net, shard_net = (
        make_net(NORM_LAYERS + LOSS_LAYERS, NUM_DEVICES * SHARD_SIZE),
        make_net(NORM_LAYERS + LOSS_LAYERS, SHARD_SIZE, backward=backward, **SYNC_OPTIONS),
    )
    params, state = init_variables(joint_net)
    inputs = make_inputs()

    def compute_slope(model: Net, params: Any, state: Any, inputs: Any) -> Any:
        tangents = jax.tree.map(jnp.cos, params), {"x": jnp.sin(inputs["x"])}

        def loss(params: Any, floats: Any) -> Any:
            return model.loss(params, state, {**inputs, **floats})[0]

        return jax.jvp(loss, (params, {"x": inputs["x"]}), tangents)[1]

    expected = jax.jit(functools.partial(compute_slope, joint_net))(params, state, inputs)
    assert_close(
        jax.jit(map_over_devices(functools.partial(compute_slope, shard_net), P()))(params, state, inputs),
        expected,
        1e-5,
    )


def check_unsynced_batch_norm(**options: Any) -> None:
    """Check that BatchNorm uses each device's own batch without sync_bn or without axis_name."""
    shard_net = make_net(NORM_LAYERS, SHARD_SIZE, **options)
    params, state = init_variables(shard_net)
    inputs = make_inputs()

    def compute_tops(params: Any, state: Any, inputs: Any) -> Any:
        blobs, new_state = shard_net.apply(params, state, inputs)
        return blobs["z"], jax.tree.map(lambda s: s[None], new_state)

    result, new_state = jax.jit(map_over_devices(compute_tops, P(AXIS_NAME)))(params, state, inputs)
    for i in range(NUM_DEVICES):
        rows = {name: a[i * SHARD_SIZE :][:SHARD_SIZE] for name, a in inputs.items()}
        expected = jax.jit(compute_tops)(params, state, rows)
        assert_close(
            (result[i * SHARD_SIZE :][:SHARD_SIZE], jax.tree.map(lambda s, i=i: s[i : i + 1], new_state)),
            expected,
            1e-5,
        )


def check_all_reduce_counts(forward: int, backward: int, **options: Any) -> None:
    """Check the number of all-reduces of a BatchNorm in the forward pass and in the backward pass."""
    shard_net = make_net(NORM_LAYERS, SHARD_SIZE, **options)
    params, state = init_variables(shard_net)

    def compute_top(x: Any, params: Any, state: Any, inputs: Any) -> Any:
        return shard_net.apply(params, state, {**inputs, "x": x})[0]["z"]

    def compute_input_grad(params: Any, state: Any, inputs: Any) -> Any:
        return jax.vjp(lambda x: compute_top(x, params, state, inputs), inputs["x"])[1](jnp.ones_like(inputs["x"]))[0]

    def count(function: Any) -> int:
        text = jax.jit(map_over_devices(function, P(AXIS_NAME))).lower(params, state, make_inputs()).compile().as_text()
        return len(re.findall(r" all-reduce(?:-start)?\(", text))

    assert count(lambda params, state, inputs: compute_top(inputs["x"], params, state, inputs)) == forward
    assert count(compute_input_grad) == forward + backward


def check_sums_are_stacked(platform: str, shapes: list[str]) -> None:
    """Check the shapes that a BatchNorm all-reduces in a forward pass lowered for a platform."""
    shard_net = make_net(NORM_LAYERS, SHARD_SIZE, **SYNC_OPTIONS)
    run = map_over_devices(lambda params, state, inputs: shard_net.apply(params, state, inputs)[0]["z"], P(AXIS_NAME))
    traced = jax.jit(run).trace(*init_variables(shard_net), make_inputs())
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert re.findall(r"stablehlo\.all_reduce.*?\}\) : \(tensor<(\w+)>", text, re.DOTALL) == shapes


def check_separate_sums() -> None:
    """Check that the separate sums that TPUs use equal the stacked sums, on this platform."""
    x = jnp.arange(2.0 * NUM_DEVICES * 3).reshape(NUM_DEVICES, 2, 3)
    for sum_over_devices in (_sum_stacked, _sum_separately):
        run = jax.shard_map(
            lambda x, f=sum_over_devices: f(AXIS_NAME, *x[0]),
            mesh=make_mesh(NUM_DEVICES),
            in_specs=P(AXIS_NAME),
            out_specs=P(),
        )
        np.testing.assert_array_equal(run(x), x.sum(0))


def check_no_collectives_without_axis_name() -> None:
    shard_net = make_net(NORM_LAYERS + LOSS_LAYERS, SHARD_SIZE)
    run = make_step(shard_net)
    lowered = jax.jit(map_over_devices(lambda *args: run(*args)[1][1], INPUT_SPECS)).lower(
        *init_variables(shard_net), make_inputs()
    )
    assert "all-reduce" not in lowered.compile().as_text()


def check_traces_are_not_shared() -> None:
    """Check that a net run on one device, on several, and on one again does not reuse traces of the other kind."""
    shard_net = make_net(NORM_LAYERS + LOSS_LAYERS, SHARD_SIZE, **SYNC_OPTIONS)
    single_device_net = make_net(NORM_LAYERS + LOSS_LAYERS, SHARD_SIZE)
    params, state = init_variables(shard_net)
    inputs = make_inputs()
    shard_inputs = {name: a[-SHARD_SIZE:] for name, a in inputs.items()}
    repeated_inputs = jax.tree.map(lambda a: np.concatenate([a] * NUM_DEVICES), shard_inputs)
    expected = jax.jit(make_step(single_device_net))(params, state, shard_inputs)
    specs = ((P(), P()), (P(), INPUT_SPECS))
    for _ in range(2):
        assert_close(jax.jit(make_step(shard_net))(params, state, shard_inputs), expected, 1e-6)
        assert_close(
            shard_net.forward(params, state, shard_inputs)[0],
            single_device_net.forward(params, state, shard_inputs)[0],
            1e-6,
        )
        (loss, _), (param_grads, _) = jax.jit(map_over_devices(make_step(shard_net), specs))(
            params, state, repeated_inputs
        )
        row_loss = loss - expected[0][0]  # but for the blob with rows, N times a batch weighs what it does once
        ip = np.sum(single_device_net.forward(params, state, shard_inputs, blobs=("ip",))[0]["ip"])
        np.testing.assert_allclose(row_loss, 0.01 * (NUM_DEVICES - 1) * ip, rtol=1e-3)
        assert_close(param_grads["param"], expected[1][0]["param"], 1e-6)


def check_unchecked_axes_are_rejected() -> None:
    shard_net = make_net(NORM_LAYERS + LOSS_LAYERS, SHARD_SIZE, **SYNC_OPTIONS)
    inputs = *init_variables(shard_net), make_inputs()
    try:
        map_over_devices(lambda *inputs: shard_net.loss(*inputs)[0][None], P(AXIS_NAME), check_vma=False)(*inputs)
    except CaffejaxError as error:
        (problem,) = error.problems
        assert problem.layer == "norm"
        assert 'axis_name "data" must be an axis of jax.shard_map with check_vma=True' in problem.message
    else:
        raise AssertionError("nothing was refused")

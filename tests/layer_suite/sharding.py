"""On 8 simulated devices, values and gradients equal those of one device, and no rows move between devices."""

import functools
import re
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from .case import Case
from .case_net import CaseNet, assert_close, cached_case_net, compile_for, expect_support

NUM_DEVICES = 8
NUM_ROWS = NUM_DEVICES * 13  # a number that no shape of a layer has: of all devices by jit, of each by shard_map
EXCHANGES = r"\b(all-gather|all-to-all|all-reduce|collective-permute)\b"


def jit_over_a_mesh_equals_one_device(case: Case, kernels: str, eight_devices: ProcessPoolExecutor) -> None:
    with expect_support("shard", cached_case_net(case, kernels)):
        eight_devices.submit(check_jit, case, kernels).result()


def shard_map_equals_a_loop_over_shards(case: Case, kernels: str, eight_devices: ProcessPoolExecutor) -> None:
    with expect_support("shard_map", cached_case_net(case, kernels)):
        eight_devices.submit(check_shard_map, case, kernels).result()


def gradients_of_sharded_examples_exchange_nothing(
    case: Case, kernels: str, eight_devices: ProcessPoolExecutor
) -> None:
    if reason := cached_case_net(case, kernels).unsupported_reason("shard"):
        pytest.skip(reason)
    eight_devices.submit(check_gradients_of_examples, case, kernels).result()


@functools.cache
def make_mesh() -> Any:
    return jax.make_mesh((NUM_DEVICES,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))


def case_net_of_all_rows(case: Case, kernels: str) -> CaseNet:
    """Return the net of a case, cached because both checks use its compiled programs one after the other."""
    case_net = _cached_case_net_of_all_rows(case, kernels)
    # a net on the host has no such programs, and may write a file that the net with the other kernels has replaced
    return CaseNet(case, kernels, rows=NUM_ROWS) if case_net.is_on_host else case_net


@functools.lru_cache(maxsize=2)
def _cached_case_net_of_all_rows(case: Case, kernels: str) -> CaseNet:
    return CaseNet(case, kernels, rows=NUM_ROWS)


def check_jit(case: Case, kernels: str) -> None:
    """Check that `jax.jit` over a sharded batch gives the results of one device, and that no device holds all rows."""
    case_net = case_net_of_all_rows(case, kernels)
    expected = case_net.compiled_value_and_grad(*case_net.point)
    point = case_net.point, case_net.state
    shardings = jax.tree.map(make_input_sharding, point)
    sharded_call = compile_for(
        case_net.value_and_grad_with_state, *point, in_shardings=shardings, out_shardings=(None, shardings[0])
    )
    assert_close(sharded_call(*point), expected, 1e-4)
    text = sharded_call.as_text()
    resharding_ops = sorted(set(re.findall(r"\b(all-gather|all-to-all|collective-permute)\b", text)))
    assert not resharding_ops, f"rows go from device to device: {resharding_ops}"
    full_arrays = sorted(set(re.findall(rf"\w+\[(?:\d+,)*{NUM_ROWS}(?:,\d+)*\]", text)))
    assert not full_arrays, f"a device holds all rows: {full_arrays}"


def check_shard_map(case: Case, kernels: str) -> None:
    """Check that `jax.shard_map` equals a loop over the shards: tops, and gradients of the mean loss."""
    case_net = case_net_of_all_rows(case, kernels)
    if not case_net.inputs:
        return
    shard_inputs = [scale_inputs(case_net, 1 + 0.05 * i) for i in range(NUM_DEVICES)]
    losses, tops, param_grads, input_grads = zip(
        *(flatten_result(case_net.compiled_value_and_grad(case_net.params, x)) for x in shard_inputs), strict=True
    )
    joined_inputs = {n: join_shards(case_net, n, [x[n] for x in shard_inputs], np.mean) for n in case_net.inputs}
    result = compile_for(functools.partial(map_over_devices, case_net), case_net.params, joined_inputs)(
        case_net.params, joined_inputs
    )
    average = functools.partial(jax.tree.map, lambda *a: np.mean(a, 0))
    expected_inputs = {
        n: join_shards(case_net, n, [x[n] / NUM_DEVICES for x in input_grads], np.sum) for n in case_net.inputs
    }
    stacked = jax.tree.map(lambda *a: np.stack(a), *tops)
    gradients = average(*param_grads)
    assert_close(result, (np.mean(losses), stacked, gradients, gradients, expected_inputs), 1e-4)


def check_gradients_of_examples(case: Case, kernels: str) -> None:
    """Check that `jit(vmap(grad))` over sharded examples exchanges nothing, and gives the results of one device.

    Each example is one row: for several rows XLA gathers, as for a plain `lax.conv`. Where a layer's plain lowering
    exchanges something, the layer may exchange the same.
    """
    exchanges = _run_gradients_of_examples(case, kernels)
    if exchanges and kernels == "fast":
        exchanges -= _run_gradients_of_examples(case, "reference")
    assert not exchanges, f"examples go from device to device: {sorted(exchanges)}"


def _run_gradients_of_examples(case: Case, kernels: str) -> set[str]:
    """Return the kinds of exchange in the program, after its results have been compared with one device's."""
    case_net = CaseNet(case, kernels, rows=1)
    if not case_net.inputs:
        return set()
    params, inputs = case_net.point
    examples = [scale_inputs(case_net, 1 + 0.05 * i) for i in range(NUM_DEVICES)]
    stacked = {blob: np.stack([example[blob] for example in examples]) for blob in inputs}
    mesh = make_mesh()
    shardings = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("rows"))
    gradients_of_each = jax.vmap(case_net.value_and_grad, (None, 0))
    sharded_call = compile_for(gradients_of_each, params, stacked, in_shardings=shardings, out_shardings=shardings[1])
    expected = [case_net.compiled_value_and_grad(params, example) for example in examples]
    assert_close(sharded_call(params, stacked), jax.tree.map(lambda *a: np.stack(a), *expected), 1e-4)
    return set(re.findall(EXCHANGES, sharded_call.as_text()))


def make_input_sharding(array: np.ndarray) -> NamedSharding:
    """Return the sharding of an array, split along the axis whose length is the batch size."""
    return NamedSharding(make_mesh(), PartitionSpec(*("rows" if n == NUM_ROWS else None for n in array.shape)))


def map_over_devices(case_net: CaseNet, params: Any, inputs: Any) -> Any:
    """Return the mean loss, the shards' tops, and the gradients by replicated params, device copies and inputs."""

    def mean_loss(params: Any, inputs: Any) -> Any:
        loss, tops = case_net.loss(params, inputs)
        return jax.lax.pmean(loss, "rows"), tops

    def step(params: Any, inputs: Any) -> Any:
        (loss, tops), (param_grads, input_grads) = jax.value_and_grad(mean_loss, (0, 1), has_aux=True)(params, inputs)
        copies = jax.lax.pcast(params, "rows", to="varying")
        copy_grads = jax.lax.psum(jax.grad(mean_loss, has_aux=True)(copies, inputs)[0], "rows")
        return loss, jax.tree.map(lambda top: top[None], tops), param_grads, copy_grads, input_grads

    input_specs, replicated = make_partition_specs(case_net)[1], PartitionSpec()
    results = (replicated, PartitionSpec("rows"), replicated, replicated, input_specs)
    return jax.shard_map(step, mesh=make_mesh(), in_specs=(replicated, input_specs), out_specs=results)(params, inputs)


def make_partition_specs(case_net: CaseNet) -> Any:
    """Return the partition specs of params and inputs: batch axes are split, all else is replicated."""

    def make_spec(blob: str) -> PartitionSpec:
        axis = case_net.case.row_axis(blob)
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, "rows")

    return jax.tree.map(lambda _: PartitionSpec(), case_net.params), {name: make_spec(name) for name in case_net.inputs}


def scale_inputs(case_net: CaseNet, factor: float) -> dict[str, np.ndarray]:
    """Return the inputs, with those of float type that have a batch axis multiplied by a factor."""
    unscaled_inputs = {
        name for name in case_net.inputs if name in case_net.index_inputs or case_net.case.row_axis(name) is None
    }
    return {name: a if name in unscaled_inputs else a * np.float32(factor) for name, a in case_net.inputs.items()}


def join_shards(case_net: CaseNet, blob: str, shards: list[Any], reduce: Any) -> Any:
    """Return the shards of a blob as one array; arrays without a batch axis are joined by `reduce`."""
    axis = case_net.case.row_axis(blob)
    return reduce(shards, axis=0) if axis is None else np.concatenate(shards, axis)


def flatten_result(result: Any) -> Any:
    (loss, tops), (param_grads, input_grads) = result
    return loss, tops, param_grads, input_grads

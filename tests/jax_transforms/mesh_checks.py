"""Checks with 8 devices: by jit over a mesh, and by shard_map."""

import functools
import re
from typing import Any

import jax
import numpy as np
from case_net import CaseNet, assert_close, compile_call
from cases import COMPILED, LAYERS
from jax.sharding import NamedSharding, PartitionSpec

DEVICES = 8
ROWS = DEVICES * 13  # a number that no shape of a layer has: of all devices by jit, of each by shard_map
CASES = {case.name: case for case in LAYERS + COMPILED}


@functools.cache
def mesh() -> Any:
    return jax.make_mesh((DEVICES,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))


@functools.lru_cache(maxsize=2)
def cached_subject(name: str, kernels: str) -> CaseNet:
    """Return the subject of both checks, which follow each other, so that its program for one device compiles once."""
    return CaseNet(CASES[name], kernels, rows=ROWS)


def check_jit(name: str, kernels: str) -> None:
    """`jax.jit` with the rows spread over the devices gives what one device gives, and each does its share only."""
    one = cached_subject(name, kernels)
    expected = one.compiled(*one.point)
    point = one.point, one.state
    shardings = jax.tree.map(input_sharding, point)
    sharded_call = compile_call(one.with_state, *point, in_shardings=shardings, out_shardings=(None, shardings[0]))
    assert_close(sharded_call(*point), expected, 1e-4)
    text = sharded_call.as_text()
    resharding_ops = sorted(set(re.findall(r"\b(all-gather|all-to-all|collective-permute)\b", text)))
    assert not resharding_ops, f"rows go from device to device: {resharding_ops}"
    full_arrays = sorted(set(re.findall(rf"\w+\[(?:\d+,)*{ROWS}(?:,\d+)*\]", text)))
    assert not full_arrays, f"a device holds all rows: {full_arrays}"


def check_shard_map(name: str, kernels: str) -> None:
    """`jax.shard_map` is a loop over the shares: tops, and gradients of the mean of their losses."""
    one = cached_subject(name, kernels)
    if not one.inputs:
        return
    shares = [scale_inputs(one, 1 + 0.05 * i) for i in range(DEVICES)]
    losses, tops, by_params, by_inputs = zip(
        *(flatten_result(one.compiled(one.params, x)) for x in shares), strict=True
    )
    joined_inputs = {n: join_shards(one, n, [x[n] for x in shares], np.mean) for n in one.inputs}
    result = compile_call(functools.partial(map_over_devices, one), one.params, joined_inputs)(
        one.params, joined_inputs
    )
    mean = functools.partial(jax.tree.map, lambda *a: np.mean(a, 0))
    expected_inputs = {n: join_shards(one, n, [x[n] / DEVICES for x in by_inputs], np.sum) for n in one.inputs}
    stacked = jax.tree.map(lambda *a: np.stack(a), *tops)
    gradients = mean(*by_params)
    assert_close(result, (np.mean(losses), stacked, gradients, gradients, expected_inputs), 1e-4)


def input_sharding(array: np.ndarray) -> NamedSharding:
    """The axis of that length is the rows', and split."""
    return NamedSharding(mesh(), PartitionSpec(*("rows" if n == ROWS else None for n in array.shape)))


def map_over_devices(subject: CaseNet, params: Any, inputs: Any) -> Any:
    """Loss, tops and state of each share, gradients by params on all devices, by their copies, and by inputs."""

    def mean(params: Any, inputs: Any) -> Any:
        loss, tops = subject.loss(params, inputs)
        return jax.lax.pmean(loss, "rows"), tops

    def step(params: Any, inputs: Any) -> Any:
        (loss, tops), (by_params, by_inputs) = jax.value_and_grad(mean, (0, 1), has_aux=True)(params, inputs)
        copies = jax.lax.pcast(params, "rows", to="varying")
        by_copies = jax.lax.psum(jax.grad(mean, has_aux=True)(copies, inputs)[0], "rows")
        return loss, jax.tree.map(lambda top: top[None], tops), by_params, by_copies, by_inputs

    input_specs, replicated = partition_specs(subject)[1], PartitionSpec()
    results = (replicated, PartitionSpec("rows"), replicated, replicated, input_specs)
    return jax.shard_map(step, mesh=mesh(), in_specs=(replicated, input_specs), out_specs=results)(params, inputs)


def partition_specs(subject: CaseNet) -> Any:
    """For params and inputs: the rows are split, all else is everywhere."""

    def spec(blob: str) -> PartitionSpec:
        axis = subject.case.axis(blob)
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, "rows")

    return jax.tree.map(lambda _: PartitionSpec(), subject.params), {name: spec(name) for name in subject.inputs}


def scale_inputs(subject: CaseNet, factor: float) -> dict[str, np.ndarray]:
    """The inputs, floats with rows times a factor."""
    fixed = {name for name in subject.inputs if name in subject.labels or subject.case.axis(name) is None}
    return {name: a if name in fixed else a * np.float32(factor) for name, a in subject.inputs.items()}


def join_shards(subject: CaseNet, blob: str, shares: list[Any], without_rows: Any) -> Any:
    """Return the shards of a blob as one array; arrays without rows are joined by `without_rows`."""
    axis = subject.case.axis(blob)
    return without_rows(shares, axis=0) if axis is None else np.concatenate(shares, axis)


def flatten_result(result: Any) -> Any:
    (loss, tops), (by_params, by_inputs) = result
    return loss, tops, by_params, by_inputs

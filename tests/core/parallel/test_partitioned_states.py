"""Sharded train states: no large array is ever complete on one device, from the start to a checkpoint."""

import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parallel_nets import make_solver_text, train, write_data

SHARDING = {"model": 2, "shard": "params"}
LARGE_SIZE = 2**16  # numbers; smaller arrays lie whole on each device


def train_sharded(text: str, snapshot: str, checkpoint_only: bool) -> list[float]:
    """Train, test, save and restore, checking that no large array is complete on a device; return the losses."""
    import jax

    import caffejax
    from caffejax.core.parallel import global_arrays

    gather = global_arrays._jit_all_gather
    of_earlier_tests = jax.live_arrays()  # what other tests of this process left, which is not sharded

    def refuse_large_gathers(mesh: Any) -> Callable[[Any], Any]:
        def gather_small(arrays: Any) -> Any:
            assert all(x.size < LARGE_SIZE for x in arrays), "a large array is brought together"
            return gather(mesh)(arrays)

        return gather_small

    def check_shards() -> None:
        earlier = {id(x) for x in of_earlier_tests}
        live = [x for x in jax.live_arrays() if id(x) not in earlier]
        shard_sizes = [shard.data.size for x in live for shard in x.addressable_shards]
        assert max(shard_sizes) < 500 * 800, "a large array lies whole on a device"

    global_arrays._jit_all_gather = refuse_large_gathers
    try:
        solver = caffejax.Solver(
            text, devices=4, parallel=caffejax.Parallel(**SHARDING), checkpoint_only=checkpoint_only
        )
        check_shards()
        losses: list[float] = []
        solver.callbacks.append(lambda s: losses.append(s.smoothed_loss))
        solver.callbacks.append(lambda s: check_shards())
        solver.step(2)
        solver.snapshot()
        solver.step(1)
        solver.restore(snapshot)
        check_shards()
        solver.step(1)
        solver.close()
    finally:
        global_arrays._jit_all_gather = gather
    return losses


@pytest.mark.parametrize("snapshot", ["lenet.orbax", pytest.param("lenet_iter_2.solverstate", marks=pytest.mark.long)])
def test_large_arrays_are_always_sharded(eight_devices: ProcessPoolExecutor, tmp_path: Path, snapshot: str) -> None:
    write_data(tmp_path, "lenet")
    text = make_solver_text(tmp_path, "lenet", 4, "test_iter: 2 test_interval: 2")
    checkpoint_only = snapshot.endswith(".orbax")
    losses = eight_devices.submit(train_sharded, text, f"{tmp_path}/{snapshot}", checkpoint_only).result()
    assert losses[2] == losses[3]
    assert len(set(losses)) == 3
    assert bool(list(tmp_path.glob("*_iter_*"))) != checkpoint_only  # Caffe's files


@pytest.mark.long
def test_initial_params_equal_the_params_of_one_device(eight_devices: ProcessPoolExecutor, tmp_path: Path) -> None:
    write_data(tmp_path, "lenet")
    text = make_solver_text(tmp_path, "lenet", 4)
    single = eight_devices.submit(train, text, 1, {}, iterations=0).result()[1]
    for options in (SHARDING, {"model": 8}):
        actual = eight_devices.submit(train, text, 8, options, iterations=0).result()[1]
        for key, blobs in single.items():
            for expected, blob in zip(blobs, actual[key], strict=True):
                np.testing.assert_array_equal(blob, expected)


INVALID_STATES = {
    "nothing": (lambda state: state.replace(params={}), r"has no 'params/conv1/weight', which this solver needs"),
    "another shape": (
        lambda state: state.replace(params={**state.params, "ip2": state.params["ip1"]}),
        r"'params/ip2/weight' has shape \(500, 800\), but this solver needs \(10, 500\)",
    ),
    "another rule": (lambda state: state.replace(opt_state=()), r"optimizer state belongs to a different solver type"),
}


def set_invalid_state(text: str, devices: int, name: str) -> str:
    """Return the error of setting an invalid state, after which the solver keeps its own state."""
    import caffejax

    solver = caffejax.Solver(text, devices=devices)
    try:
        solver.train_state = INVALID_STATES[name][0](solver.train_state)
    except caffejax.CaffejaxError as error:
        solver.step(1)
        return str(error)
    finally:
        solver.close()
    return ""


@pytest.mark.long
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("name", INVALID_STATES)
def test_a_state_of_another_solver_is_refused(
    eight_devices: ProcessPoolExecutor, tmp_path: Path, name: str, devices: int
) -> None:
    write_data(tmp_path, "lenet")
    message = eight_devices.submit(set_invalid_state, make_solver_text(tmp_path, "lenet", 4), devices, name).result()
    assert re.search(f"train_state does not match this solver: .*{INVALID_STATES[name][1]}", message)


def train_user_sharded(text: str, is_explicit: bool | None) -> list[float] | str:
    """Return the losses of a one-device solver whose state the user shards over four devices, or the error."""
    import jax
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    import caffejax

    solver = caffejax.Solver(text, device=jax.devices()[0])
    axis_type = AxisType.Explicit if is_explicit else AxisType.Auto
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",), axis_types=(axis_type,)), PartitionSpec("x"))
    losses: list[float] = []
    solver.callbacks.append(lambda s: losses.append(s.smoothed_loss))
    try:
        if is_explicit is not None:
            solver.train_state = jax.tree.map(
                lambda x: jax.device_put(x, sharding) if x.shape == (500, 800) else x, solver.train_state
            )
        solver.step(2)
    except caffejax.SolverError as error:
        return str(error)
    finally:
        solver.close()
    return losses


@pytest.mark.long
def test_training_continues_from_a_state_that_a_user_sharded(
    eight_devices: ProcessPoolExecutor, tmp_path: Path
) -> None:
    write_data(tmp_path, "lenet")
    text = make_solver_text(tmp_path, "lenet", 4)
    unsharded, sharded, explicit_error = (
        eight_devices.submit(train_user_sharded, text, is_explicit).result() for is_explicit in (None, False, True)
    )
    np.testing.assert_allclose(sharded, unsharded, rtol=1e-5)
    assert "AxisType.Auto" in explicit_error

"""Checkpoints of many devices resume bit for bit on the same number, and on others as on one device."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parallel_nets import assert_equal, make_solver_text, train, write_data


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lstm", {}),
        pytest.param("resnet", {}, marks=pytest.mark.long),
        pytest.param("resnet", {"shard": "params"}, marks=pytest.mark.long),
    ],
)
def test_resumes_bit_for_bit_from_a_checkpoint(
    eight_devices: ProcessPoolExecutor, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    """The state includes each device's running statistics, and recurrent state."""
    write_data(tmp_path, name)
    text = make_solver_text(tmp_path, name, 4, "snapshot: 4")
    uninterrupted = eight_devices.submit(train, text, 4, options, iterations=9).result()
    resumed = eight_devices.submit(train, text, 4, options, iterations=5, resume=f"{tmp_path}/{name}.orbax/4").result()
    assert resumed[0] == uninterrupted[0][4:]
    for key, blobs in uninterrupted[1].items():
        for expected, blob in zip(blobs, resumed[1][key], strict=True):
            np.testing.assert_array_equal(blob, expected)


@pytest.mark.parametrize("snapshot", [".orbax", pytest.param("_iter_6.solverstate", marks=pytest.mark.long)])
def test_resumes_on_a_different_number_of_devices(
    eight_devices: ProcessPoolExecutor, tmp_path: Path, snapshot: str
) -> None:
    """Trains on 4 devices, then on 2, 8 and 1; each run continues with the next example."""
    write_data(tmp_path, "lenet")
    devices, resume, losses = (4, 2, 8, 1), "", []
    for i, n in enumerate(devices):
        text = make_solver_text(tmp_path, "lenet", 16 // n, "snapshot: 6", prefix=f"run{i}")
        actual = eight_devices.submit(train, text, n, {}, iterations=6, resume=resume).result()
        losses += actual[0]
        resume = f"{tmp_path}/run{i}" + snapshot.replace("_6", f"_{6 * (i + 1)}")
    single = eight_devices.submit(train, make_solver_text(tmp_path, "lenet", 16), 1, {}, iterations=24).result()
    assert_equal((losses, actual[1]), single)


@pytest.mark.long
def test_one_device_resumes_after_several_and_back(eight_devices: ProcessPoolExecutor, tmp_path: Path) -> None:
    """A single device continues with the running statistics of the first device, which is the root solver in Caffe."""
    name = "resnet"
    write_data(tmp_path, name)
    text = make_solver_text(tmp_path, name, 4, "snapshot: 2")
    eight_devices.submit(train, text, 4, {}, iterations=2).result()
    for devices in (1, 2, 8):
        losses, _ = eight_devices.submit(
            train, text, devices, {}, iterations=1, resume=f"{tmp_path}/{name}.orbax/2"
        ).result()
        assert np.isfinite(losses).all()


def train_and_move(text: str, options: dict[str, Any]) -> list[np.ndarray]:
    """Train four devices for two iterations; return the parameters without and with a restore after the first.

    Before it is restored on four devices, the state is restored on one device.
    """
    import jax

    import caffejax

    first_parallel, second_parallel = (
        caffejax.Solver(text, devices=4, parallel=caffejax.Parallel(**options)) for _ in "12"
    )
    single = caffejax.Solver(text, device=jax.devices()[1])
    first_parallel.step(1)
    sharded_state = first_parallel.train_state
    is_sharded = any(not x.is_fully_replicated for x in jax.tree.leaves(sharded_state.params))
    assert is_sharded == (options.get("shard") == "params")
    single.train_state = jax.device_put(sharded_state, jax.devices()[1])
    assert all(x.devices() == {jax.devices()[1]} for x in jax.tree.leaves(single.variables))
    second_parallel.train_state = single.train_state
    second_parallel.loader.set_state(first_parallel.loader.get_state())
    for solver in (single, first_parallel, second_parallel):
        solver.step(1)
    result = [
        np.concatenate([np.ravel(x) for x in jax.tree.leaves(s.variables.params)])
        for s in (first_parallel, second_parallel)
    ]
    for solver in (single, first_parallel, second_parallel):
        solver.close()
    return result


@pytest.mark.parametrize("options", [{}, pytest.param({"shard": "params"}, marks=pytest.mark.long)], ids=str)
def test_states_move_from_several_devices_to_one_and_back(
    eight_devices: ProcessPoolExecutor, tmp_path: Path, options: dict[str, Any]
) -> None:
    write_data(tmp_path, "lenet")
    params, restored = eight_devices.submit(train_and_move, make_solver_text(tmp_path, "lenet", 4), options).result()
    np.testing.assert_array_equal(params, restored)
    assert params.size > 10**5

"""Many devices with a batch each equal one device with the joined batch."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from parallel_nets import CASES, assert_equal, make_solver_text, train, write_data

BATCH = 4  # a device's
DEFAULT_NETS = ("ignored",)  # the others in CI


@pytest.mark.parametrize(
    "name", [name if name in DEFAULT_NETS else pytest.param(name, marks=pytest.mark.long) for name in CASES]
)
def test_eight_devices_train_like_one(eight_devices: ProcessPoolExecutor, tmp_path: Path, name: str) -> None:
    write_data(tmp_path, name)
    n = CASES[name].iterations
    single = eight_devices.submit(train, make_solver_text(tmp_path, name, 8 * BATCH), 1, {}, iterations=n)
    parallel = eight_devices.submit(
        train, make_solver_text(tmp_path, name, BATCH), 8, {}, iterations=n, **CASES[name].options
    )
    assert_equal(parallel.result(), single.result())


@pytest.mark.parametrize(
    ("devices", "options", "settings"),
    [
        pytest.param(2, {}, "iter_size: 2", marks=pytest.mark.long),
        (8, {"batch": "global"}, ""),
        pytest.param(8, {"model": 2}, "", marks=pytest.mark.long),
        pytest.param(8, {"model": 8}, "", marks=pytest.mark.long),
        (8, {"shard": "optimizer"}, 'type: "Adam" momentum2: 0.999 base_lr: 0.0003'),
        pytest.param(8, {"shard": "params"}, "", marks=pytest.mark.long),
        (8, {"model": 2, "shard": "params"}, "clip_gradients: 0.5"),
    ],
    ids=str,
)
def test_devices_and_options_train_equally(
    eight_devices: ProcessPoolExecutor, tmp_path: Path, devices: int, options: dict[str, Any], settings: str
) -> None:
    write_data(tmp_path, "lenet")
    rows = devices // options.get("model", 1)
    global_batch, per_device = 32, 32 if options.get("batch") == "global" else 32 // rows
    text = [make_solver_text(tmp_path, "lenet", batch, settings) for batch in (global_batch, per_device)]
    if "Adam" in settings:
        text = [t.replace("base_lr: 0.005 momentum: 0.9", "momentum: 0.9", 1) for t in text]
    single = eight_devices.submit(train, text[0], 1, {}, iterations=15)
    parallel = eight_devices.submit(train, text[1], devices, options, iterations=15)
    assert_equal(parallel.result(), single.result())


def test_several_steps_per_dispatch_train_like_single_steps(eight_devices: ProcessPoolExecutor, tmp_path: Path) -> None:
    write_data(tmp_path, "ignored")
    text = make_solver_text(tmp_path, "ignored", 4)
    single_steps = eight_devices.submit(train, text, 8, {}, iterations=12).result()
    joint_steps = eight_devices.submit(train, text, 8, {}, iterations=12, steps_per_dispatch=4).result()
    assert_equal((single_steps[0][3::4], single_steps[1]), joint_steps)

"""A checkpoint saved on some number of devices is restored on another."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compile_flags import make_cpu_devices_environment

SCRIPT = """
import sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from caffejax import Solver

n, snapshot, steps, result = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
assert len(jax.devices()) == n
solver = Solver('''net_param {
    layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
        shape { dim: 8 dim: 6 } shape { dim: 8 } data_filler { type: "gaussian" }
        data_filler { type: "constant" value: 1 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
        inner_product_param { num_output: 8 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
  } base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" random_seed: 1 snapshot_prefix: "x" ''')
mesh = Mesh(np.array(jax.devices()), ("rows",))

def place(leaf):
    split = leaf.ndim and leaf.shape[0] == 8  # what has 8 rows is spread over the devices
    return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec("rows") if split else PartitionSpec()))

solver.train_state = jax.tree.map(place, solver.train_state)
if snapshot != "none":
    solver.restore(snapshot)
    assert len(solver.train_state.params["ip"]["weight"].sharding.device_set) == n
solver.step(steps)
solver.snapshot()
solver.close()
np.save(result, np.asarray(solver.train_state.params["ip"]["weight"]))
"""


def run_training(folder: Path, devices: int, snapshot: str, steps: int) -> np.ndarray:
    arguments = [str(devices), snapshot, str(steps), "result.npy"]
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=folder,
        env=os.environ | make_cpu_devices_environment(devices),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return np.load(folder / "result.npy")


@pytest.mark.long
def test_a_checkpoint_is_restored_on_a_different_number_of_devices(tmp_path: Path) -> None:
    (tmp_path / "uninterrupted").mkdir()
    uninterrupted = run_training(tmp_path / "uninterrupted", 1, "none", 6)
    run_training(tmp_path, 4, "none", 2)
    run_training(tmp_path, 2, "x.orbax", 2)
    assert {p.name for p in (tmp_path / "x.orbax").iterdir()} == {"2", "4"}
    last = run_training(tmp_path, 1, "x.orbax", 2)
    np.testing.assert_allclose(last, uninterrupted, rtol=1e-5, atol=1e-6)

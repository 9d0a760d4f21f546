"""Checkpoints to which each process writes its shards, restored on any number of processes."""

import json
import os
import pickle
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster import Cluster, make_train_commands, make_worker_commands
from parallel_nets import make_solver_text, write_data
from test_process_failures import list_snapshots, write_solver

pytestmark = pytest.mark.long

State = Mapping[str, np.ndarray]


def load_states(folder: Path, num_processes: int, num_devices: int, *jobs: Mapping[str, Any]) -> list[State]:
    """Return the results of `parallel_nets.read_full_state` in processes with these numbers of devices."""
    job_texts = [json.dumps({"call": "read_full_state", "devices": None, **job}) for job in jobs]
    with Cluster(folder, make_worker_commands(num_processes, num_devices, folder / "results", job_texts)) as cluster:
        assert cluster.wait() == [0] * num_processes, cluster.read_output(0)
    result: list[State] = pickle.loads((folder / "results").read_bytes())
    return result


def assert_same(actual: State, expected: State) -> None:
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)


def test_a_checkpoint_of_four_processes_is_read_by_any_number(tmp_path: Path) -> None:
    """Four processes save; then two, two with two devices each on other meshes, and one with one device restore."""
    parallel = {"model": 2, "shard": "params"}
    write_data(tmp_path, "lenet")
    text = make_solver_text(tmp_path, "lenet", 4, "snapshot: 2")
    (written,) = load_states(tmp_path, 4, 1, {"text": text, "parallel": parallel, "iterations": 2})
    step = tmp_path / "lenet.orbax" / "2"
    part_names = [path.name for path in (step / "arrays").glob("ocdbt.process_*")]
    assert sorted(part_names) == [f"ocdbt.process_{i}" for i in range(4)]  # all have written
    assert len({name for name in written if "params" in name}) == 8
    job = {"text": text, "resume": str(step)}
    result = load_states(tmp_path, 2, 1, {**job, "parallel": {"shard": "optimizer"}})
    other_configs: list[dict[str, Any]] = [{"model": 2}, {"model": 4, "shard": "params"}]
    result += load_states(tmp_path, 2, 2, *({**job, "parallel": p} for p in other_configs))
    result += load_states(tmp_path, 1, 1, {**job, "parallel": {}, "devices": 1})
    assert len(result) == 4
    for state in result:
        assert_same(state, written)


# the second time that a process with --process_id=1 saves, it takes long to write its parts
SLOW_SAVE_SCRIPT = """
import pathlib, sys, time
import orbax.checkpoint as ocp
from caffejax.cli import main

save, saves = ocp.StandardCheckpointHandler.async_save, []

class Slow:
    def result(self, timeout=None):
        pathlib.Path("saving").touch()
        time.sleep(100)

async def slowly(self, *args, **kwargs):
    saves.append(1)
    return [*await save(self, *args, **kwargs), *[Slow()] * (len(saves) == 2)]

if "--process_id=1" in sys.argv:
    ocp.StandardCheckpointHandler.async_save = slowly
sys.exit(main())
"""


def test_a_process_killed_while_all_save_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    """The previous checkpoint remains the last one, and no unfinished files remain."""
    flags, killed_index = ["--mesh=data=1,model=2", "--shard=params"], 1
    solver = write_solver(tmp_path, 12, "snapshot: 4", "lenet")
    commands = [
        [sys.executable, "-c", SLOW_SAVE_SCRIPT, *words[3:]] for words in make_train_commands(2, solver, *flags)
    ]
    with Cluster(tmp_path, commands) as cluster:
        cluster.wait_until(lambda: (tmp_path / "saving").exists())
        cluster.kill(killed_index)
        codes = cluster.wait(60)
        output = cluster.read_output(1 - killed_index)
    assert codes[killed_index] == -signal.SIGKILL
    assert codes[1 - killed_index] == 1
    assert output.count("another process has ended, or cannot be reached") == 1, output
    assert list_snapshots(tmp_path) == [4]
    with Cluster(tmp_path, make_train_commands(2, solver, *flags, f"--snapshot={tmp_path}/snap.orbax")) as cluster:
        assert cluster.wait() == [0, 0]
        assert "Restored iteration 4" in cluster.read_output(0)
    assert list_snapshots(tmp_path) == [4, 8, 12]
    assert not [path for path in os.listdir(tmp_path / "snap.orbax") if "tmp" in path]

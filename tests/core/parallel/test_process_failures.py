"""The other processes of a run when one is killed, asked to stop, or slow."""

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from cluster import Cluster, make_train_commands
from parallel_nets import make_solver_text, write_data

from caffejax.core.checkpoints.caffemodel import read_caffemodel

# how often processes are killed at random; ten take five minutes on two cores
NUM_KILLS = int(os.environ.get("CAFFEJAX_KILLS", "2"))


def write_solver(folder: Path, iterations: int, settings: str = "", net: str = "ignored") -> str:
    """Write a solver that trains a small net with the batches of two processes."""
    write_data(folder, net)
    text = make_solver_text(folder, net, 2, settings, prefix="snap").replace("max_iter: 50", f"max_iter: {iterations}")
    path = folder / "solver.prototxt"
    path.write_text(text.replace("snapshot_after_train: false", "snapshot_after_train: true"))
    return f"--solver={path}"


def read_weights(folder: Path, iteration: int) -> list[np.ndarray]:
    """Return the weights of a snapshot."""
    model = read_caffemodel(folder / f"snap_iter_{iteration}.caffemodel")
    return [np.asarray(blob) for blobs in model.values() for blob in blobs]


def list_snapshots(folder: Path) -> list[int]:
    """Return the iterations of the checkpoints."""
    return sorted(int(path.name) for path in folder.glob("snap.orbax/*") if path.name.isdigit())


@pytest.mark.parametrize("killed_index", [1, pytest.param(0, marks=pytest.mark.long)])
def test_a_killed_process_ends_the_others(tmp_path: Path, killed_index: int) -> None:
    solver = write_solver(tmp_path, 100000, "display: 5")
    with Cluster(tmp_path, make_train_commands(2, solver)) as cluster:
        cluster.wait_for(0, "Iteration 5,")
        cluster.kill(killed_index)
        codes = cluster.wait(60)
        survivor = 1 - killed_index
        assert codes[killed_index] == -signal.SIGKILL
        assert codes[survivor] == 1
        output = cluster.read_output(survivor)
        assert output.count("caffejax: ") == output.count("another process has ended, or cannot be reached") == 1, (
            output
        )
        assert "stack trace" not in output, output
        assert "Traceback" not in output, output


@pytest.mark.parametrize("limited_index", [1, pytest.param(0, marks=pytest.mark.long)])
def test_a_checkpoint_that_one_process_cannot_write_ends_all(tmp_path: Path, limited_index: int) -> None:
    """The file size limit is as a full disk of one host."""
    solver = write_solver(tmp_path, 100000, "snapshot: 3 display: 1", net="lenet")
    commands = make_train_commands(2, solver, "--shard=params")
    commands[limited_index] = ["bash", "-c", 'ulimit -f 300; exec "$@"', "train", *commands[limited_index]]
    with Cluster(tmp_path, commands) as cluster:
        assert cluster.wait(60) == [1, 1]
        reason = f"{tmp_path}/snap.orbax/3: cannot be written: File too large"
        assert f"caffejax: [process {limited_index}] {reason}" in cluster.read_output(limited_index)
        message = f"caffejax: [process {1 - limited_index}] process {limited_index} has ended: {reason}; start all proc"
        assert message in cluster.read_output(1 - limited_index)
    assert list_snapshots(tmp_path) == []


def test_sigterm_while_a_process_waits_for_the_others_to_start(tmp_path: Path) -> None:
    with Cluster(tmp_path, make_train_commands(2, write_solver(tmp_path, 3))[:1]) as cluster:
        time.sleep(3)  # to start; what it does when the signal comes does not matter
        cluster.kill(0, signal.SIGTERM)
        assert cluster.wait(20) == [1]
        message = (
            "caffejax: [process 0] stopped by SIGTERM before training began, or after it had ended, so no snapshot"
        )
        assert message in cluster.read_output(0)


@pytest.mark.long
def test_sigterm_ends_processes_that_wait_for_one_that_reads_forever(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(
        "import time, caffe, jax\n"
        "class Rows(caffe.Layer):\n"
        "    def setup(self, bottom, top): self.read = 0\n"
        "    def reshape(self, bottom, top): top[0].reshape(2, 3)\n"
        "    def forward(self, bottom, top):\n"
        "        self.read += 1\n"
        "        while self.read > 8 and jax.process_index() == 1: time.sleep(1)\n"
        "    def backward(self, top, propagate_down, bottom): pass\n"
    )
    solver = tmp_path / "solver.prototxt"
    solver.write_text(
        'net_param { layer { name: "rows" type: "Python" top: "x" python_param { module: "endless" layer: "Rows" } } '
        'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } } '
        'layer { name: "sum" type: "Reduction" bottom: "ip" top: "sum" loss_weight: 1 } } '
        f'base_lr: 0.01 lr_policy: "fixed" max_iter: 100 display: 1 random_seed: 1 snapshot_prefix: "{tmp_path}/x"'
    )
    with Cluster(tmp_path, make_train_commands(2, f"--solver={solver}")) as cluster:
        cluster.wait_for(0, "Iteration 2")
        for i in range(2):
            cluster.kill(i, signal.SIGTERM)
        assert cluster.wait(60) == [1, 1]
        assert "SIGTERM: waited 30 s for other processes" in cluster.read_output(0)
        assert "process 0 has ended: SIGTERM: waited 30 s" in cluster.read_output(1)


@pytest.mark.long
def test_sigterm_to_one_process_saves_in_all_and_they_resume_bit_for_bit(tmp_path: Path) -> None:
    uninterrupted_folder, stopped_folder = tmp_path / "uninterrupted", tmp_path / "stopped"
    for folder in (uninterrupted_folder, stopped_folder):
        folder.mkdir()
    with Cluster(uninterrupted_folder, make_train_commands(2, write_solver(uninterrupted_folder, 300))) as cluster:
        assert cluster.wait() == [0, 0]
        assert "Optimization Done" in cluster.read_output(0)
        assert "Iteration" not in cluster.read_output(1)  # only the first logs
    solver = write_solver(stopped_folder, 300, "display: 5")
    with Cluster(stopped_folder, make_train_commands(2, solver)) as cluster:
        cluster.wait_for(0, "Iteration 5,")
        cluster.kill(1, signal.SIGTERM)
        assert cluster.wait(60) == [0, 0]
        assert "Optimization stopped early" in cluster.read_output(0)
    assert len(list_snapshots(stopped_folder)) == 1
    with Cluster(stopped_folder, make_train_commands(2, solver, "--snapshot=auto")) as cluster:
        assert cluster.wait() == [0, 0]
        assert "Restored iteration" in cluster.read_output(0)
    for expected, blob in zip(read_weights(uninterrupted_folder, 300), read_weights(stopped_folder, 300), strict=True):
        np.testing.assert_array_equal(blob, expected)


@pytest.mark.long
def test_a_slow_reader_only_delays_training(tmp_path: Path) -> None:
    """Reading takes longer than the time without a heartbeat after which a process counts as lost."""
    (tmp_path / "slow.py").write_text(
        "import time, caffe, jax, numpy as np\n"
        "class Rows(caffe.Layer):\n"
        "    def setup(self, bottom, top): self.read = 0\n"
        "    def reshape(self, bottom, top): top[0].reshape(2, 3); top[1].reshape(2)\n"
        "    def forward(self, bottom, top):\n"
        "        self.read += 1\n"
        "        if self.read == 1 and jax.process_index() == 1: time.sleep(40)\n"
        "        top[0].data[...] = self.read; top[1].data[...] = 1\n"
        "    def backward(self, top, propagate_down, bottom): pass\n"
    )
    solver = tmp_path / "solver.prototxt"
    solver.write_text(
        'net_param { layer { name: "rows" type: "Python" top: "x" top: "y" '
        'python_param { module: "slow" layer: "Rows" } } '
        'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } } '
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" } } '
        f'base_lr: 0.01 lr_policy: "fixed" max_iter: 6 random_seed: 1 snapshot_prefix: "{tmp_path}/x"'
    )
    with Cluster(tmp_path, make_train_commands(2, f"--solver={solver}")) as cluster:
        assert cluster.wait(150) == [0, 0], cluster.read_output(0) + cluster.read_output(1)


@pytest.mark.long
def test_random_kills_do_not_change_the_result(tmp_path: Path) -> None:
    """Params are sharded over four processes; after each kill all processes restart from the last checkpoint."""
    net, flags = "lenet", ["--mesh=data=2,model=2", "--shard=params"]
    uninterrupted_folder, killed_folder = tmp_path / "uninterrupted", tmp_path / "killed"
    for folder in (uninterrupted_folder, killed_folder):
        folder.mkdir()
    rng = random.Random(5)
    iterations = 100 + 20 * NUM_KILLS
    with Cluster(
        uninterrupted_folder, make_train_commands(4, write_solver(uninterrupted_folder, iterations, net=net), *flags)
    ) as cluster:
        assert cluster.wait(200) == [0] * 4
    solver = write_solver(killed_folder, iterations, "snapshot: 7 display: 1", net)
    for remaining_kills in range(NUM_KILLS, -1, -1):
        resume = [f"--snapshot={killed_folder}/snap.orbax"] if list_snapshots(killed_folder) else []
        with Cluster(killed_folder, make_train_commands(4, solver, *flags, *resume)) as cluster:
            if remaining_kills:
                last = list_snapshots(killed_folder)[-1] if resume else 0
                cluster.wait_for(0, f"Iteration {last + rng.randrange(20)} (")
                time.sleep(rng.uniform(0, 0.1))  # the moment, not a synchronisation
                cluster.kill(rng.randrange(4))
                codes = cluster.wait(60)
                assert all(codes), codes
            else:
                assert cluster.wait(200) == [0] * 4
    for expected, blob in zip(
        read_weights(uninterrupted_folder, iterations), read_weights(killed_folder, iterations), strict=True
    ):
        np.testing.assert_array_equal(blob, expected)

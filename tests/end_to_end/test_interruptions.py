"""Interrupted training runs: signals, kill -9 at any moment, and failing disks and files."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from caffejax import Callback, Solver, read_caffemodel
from caffejax.core.solver import Scores
from subprocesses import Program

DIGITS = Path(__file__).parents[2] / "configs" / "digits" / "digits_train_lmdb"
# all that a run must remember: crops and mirrors, the place in the data, dropout, momentum
NET = f"""
layer {{ name: "digits" type: "Data" top: "data" top: "label"
  transform_param {{ scale: 0.00390625 crop_size: 24 mirror: true }}
  data_param {{ source: "{DIGITS}" batch_size: 10 backend: LMDB }} }}
layer {{ name: "drop" type: "Dropout" bottom: "data" top: "drop" }}
layer {{ name: "ip" type: "InnerProduct" bottom: "drop" top: "ip"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.01 lr_policy: "inv" gamma: 0.001 power: 0.75 momentum: 0.9
max_iter: %d snapshot: 10 snapshot_prefix: "x" solver_mode: CPU random_seed: 5 display: 100
"""

pytestmark = pytest.mark.long


def write_job(folder: Path, max_iter: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(SOLVER % max_iter)
    return folder


def start_training(folder: Path, *flags: str) -> Program:
    command = [sys.executable, "-m", "caffejax", "train", "--solver=solver.prototxt", "--keep_last=2"]
    command += ["--snapshot=auto", *flags]
    return Program(command, cwd=folder, stderr=subprocess.PIPE)


def read_log_until(process: Program, text: str) -> str:
    """Reads the log up to a line with that text; all of it if none comes."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            break
    return "".join(lines)


def read_weights(folder: Path, iteration: int) -> np.ndarray:
    return read_caffemodel(folder / f"x_iter_{iteration}.caffemodel")["ip"][0]


def test_a_run_killed_five_times_ends_with_the_same_params(tmp_path: Path) -> None:
    rng = random.Random(0)
    max_iter = 300
    undisturbed_folder, killed_folder = (
        write_job(tmp_path / "undisturbed", max_iter),
        write_job(tmp_path / "killed", max_iter),
    )
    with start_training(undisturbed_folder) as process:
        read_log_until(process, "(no such line)")
    assert process.returncode == 0
    kills = 0
    while True:
        with start_training(killed_folder) as process:
            read_log_until(process, "Snapshotting solver state")
            time.sleep(rng.uniform(0, 0.1) if kills < 5 else 0)  # the moment, not a synchronisation
            if kills < 5:
                os.kill(process.pid, signal.SIGKILL)
            log = read_log_until(process, "(no such line)")
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, log
        kills += 1
    assert kills == 5
    np.testing.assert_array_equal(read_weights(killed_folder, max_iter), read_weights(undisturbed_folder, max_iter))
    assert len([p for p in (killed_folder / "x.orbax").iterdir() if p.name.isdigit()]) == 2  # --keep_last=2


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_write_a_snapshot_and_stop_or_continue(tmp_path: Path, name: str) -> None:
    folder = write_job(tmp_path / "run", 100_000_000)
    (folder / "solver.prototxt").write_text((SOLVER % 100_000_000).replace("snapshot: 10 ", ""))
    with start_training(folder) as process:
        read_log_until(process, "Iteration 100 ")
        process.send_signal(getattr(signal, name))
        log = read_log_until(process, "Snapshotting solver state")
        if name == "SIGHUP":
            log += read_log_until(process, "Iteration ")  # it goes on
            process.send_signal(signal.SIGTERM)
        log += read_log_until(process, "(no such line)")
    assert process.returncode == 0, log
    assert f"{name}: a snapshot" in log  # after the snapshot's line if the signal came after the iteration's callbacks
    assert re.search(
        r"Optimization stopped early\.\n.*Resume with: caffejax train --solver=solver\.prototxt --keep_last=2 "
        r"--snapshot=x\.orbax\n",
        log,
    )
    saved_iterations = [int(p.name) for p in (folder / "x.orbax").iterdir() if p.name.isdigit()]
    assert len(saved_iterations) == (2 if name == "SIGHUP" else 1)
    assert all((folder / f"x_iter_{i}.caffemodel").is_file() for i in saved_iterations)


def test_effects_of_signals_can_be_changed(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "run", 100_000_000)
    with start_training(folder, "--sigint_effect=none", "--sighup_effect=stop") as process:
        read_log_until(process, "Iteration 100 ")
        process.send_signal(signal.SIGINT)
        assert "SIGINT: ignored" in read_log_until(process, "SIGINT: ignored")
        process.send_signal(signal.SIGHUP)
        assert "stopped early" in read_log_until(process, "stopped early")
    assert process.returncode == 0


def test_a_damaged_checkpoint_is_reported_with_the_last_good_step(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "run", 30)
    with start_training(folder) as process:
        read_log_until(process, "(no such line)")
    data = max((folder / "x.orbax" / "30").rglob("*"), key=lambda p: p.stat().st_size if p.is_file() else -1)
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0x10
    data.write_bytes(content)
    files = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with start_training(folder) as process:
        log = read_log_until(process, "(no such line)")
    assert process.returncode == 1
    assert re.search(r"x\.orbax: .* step 20 is the newest good one; step 30 is damaged: ", log), log
    assert "Traceback" not in log
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == files
    shutil.rmtree(folder / "x.orbax" / "30")
    for path in folder.glob("x_iter_30.*"):  # the newest state, which would be continued
        path.unlink()
    with start_training(folder) as process:
        assert "Restored iteration 20" in read_log_until(process, "(no such line)")
    assert process.returncode == 0


def test_the_best_checkpoint_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (SOLVER % 100 + "test_iter: 2 test_interval: 10").replace('net: "net.prototxt"', f"net_param {{ {NET} }}")
    text = text.replace("base_lr: 0.01", "base_lr: 0.5")  # so that the loss jumps
    losses: dict[int, float] = {}

    class Losses(Callback):
        def on_test(self, solver: Solver, results: list[Scores]) -> None:
            losses[solver.iteration] = float(results[0].outputs["loss"])

    solver = Solver(text, keep_last=1, keep_best="loss")
    solver.callbacks.append(Losses())
    solver.solve()
    solver.close()
    best = min((i for i in losses if i), key=lambda i: losses[i])
    assert {int(p.name) for p in Path("x.orbax").iterdir() if p.name.isdigit()} == {best, 100}


def test_a_second_run_on_the_same_prefix_is_refused(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "run", 100_000)
    with start_training(folder) as first_run:
        read_log_until(first_run, "Iteration 100,")
        with start_training(folder) as second_run:
            _, output = second_run.communicate(timeout=120)
        assert second_run.returncode == 1
        refusal = rf"caffejax: x\.lock: another run trains .* locked by process {first_run.pid} on .*"
        assert re.fullmatch(refusal, output.splitlines()[-1])
        assert "Traceback" not in output
        first_run.kill()
    assert (folder / "x.lock").exists()
    unfinished = folder / "x.orbax" / "7.orbax-checkpoint-tmp-1"
    unfinished.mkdir()
    with start_training(folder) as third_run:
        log = read_log_until(third_run, "Starting Optimization")
        # the first run may have been killed while it wrote one, too
        assert re.search(r"Removed unfinished files of an earlier run: .*\b7\.orbax-checkpoint-tmp-1", log)
        assert "Restored iteration" in log
        third_run.send_signal(signal.SIGTERM)
        third_run.communicate(timeout=120)
    assert not unfinished.exists()
    assert not (folder / "x.lock").exists()

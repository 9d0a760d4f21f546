"""Starting training on several devices and processes from the command line, and errors before the start."""

import argparse
import contextlib
import io
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cluster import TRAIN, Cluster, make_train_commands
from parallel_nets import make_solver_text, write_data

import caffejax
from caffejax.cli import device_flags, main
from caffejax.core.parallel.multihost import initialize_distributed
from fresh_processes import spawn_jax_process

SLURM = {"SLURM_JOB_ID": "{job}", "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "2", "SLURM_PROCID": "{i}"}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "{job}.0;tcp://127.0.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_RANK": "{i}",
    "OMPI_COMM_WORLD_LOCAL_RANK": "{i}",
}
SLURM["SLURM_LOCALID"] = "{i}"


def write_solver(folder: Path, net: str = "", settings: str = "") -> str:
    """Write a solver for the given net or the default one."""
    write_data(folder, "ignored")
    text = make_solver_text(folder, "ignored", 2, settings).replace("max_iter: 50", "max_iter: 3")
    if net:
        text = re.sub(r"net_param \{.*\} (?=base_lr)", f"net_param {{ {net} }} ", text, flags=re.DOTALL)
    (folder / "solver.prototxt").write_text(text)
    return f"--solver={folder / 'solver.prototxt'}"


@pytest.mark.parametrize(
    "scheduler", [pytest.param(SLURM, id="slurm"), pytest.param(OPEN_MPI, id="open_mpi", marks=pytest.mark.long)]
)
def test_schedulers_are_detected(tmp_path: Path, scheduler: dict[str, str]) -> None:
    job = str(1000 + hash(str(tmp_path)) % 3000)  # it says the port
    command = [*TRAIN, "--coordinator=auto", write_solver(tmp_path)]
    environments = [{k: v.format(job=job, i=i) for k, v in scheduler.items()} for i in range(2)]
    with Cluster(tmp_path, [command] * 2, environments) as cluster:
        assert cluster.wait() == [0, 0], cluster.read_output(0) + cluster.read_output(1)
        assert "Process 0 of 2; 2 devices in total" in cluster.read_output(0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_processes", "process_ids", "message"),
    [
        (2, [0], "not all processes started within 2 s"),
        (2, [1], "not all processes started within 2 s"),
        (3, [0, 1, 1], "another process has the same --process_id"),
    ],
    ids=str,
)
def test_missing_and_duplicate_processes_are_reported(
    tmp_path: Path, num_processes: int, process_ids: list[int], message: str
) -> None:
    commands = make_train_commands(num_processes, write_solver(tmp_path), "--start_timeout=2")
    with Cluster(tmp_path, [commands[i] for i in process_ids]) as cluster:
        assert cluster.wait(60) == [1] * len(process_ids)
        outputs = [cluster.read_output(i) for i in range(len(process_ids))]
    assert message in "".join(outputs)
    for output in outputs:
        assert re.fullmatch(r"caffejax: \[process \d\] .*\n", output), output


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--processes=2"], "--processes needs --coordinator"),
        (["--coordinator=localhost:1"], "--processes=N and --process_id=I"),
        (["--coordinator=auto", "--process_id=0"], "--process_id cannot be combined with"),
        (["--coordinator=localhost:1", "--processes=2", "--process_id=2"], "must be from 0 to 1 with --processes=2"),
        (["--gpu=0,x"], "--gpu=0,x must be numbers"),
        (["--gpu=0,1", "--device=tpu"], "not both"),
        (["--gpu=all"], "JAX sees no gpu"),
        (["--mesh=data=64,model=2"], "128 devices are needed, but JAX has"),
    ],
    ids=str,
)
def test_invalid_flags_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    import jax

    if jax.default_backend() != "cpu" and "--gpu=all" in flags:  # JAX runs, and simulates no more devices
        pytest.skip("there is an accelerator here")
    assert main(["train", write_solver(tmp_path), *flags]) == 1
    output = capsys.readouterr().err
    assert message in output
    assert "Traceback" not in output


@pytest.mark.parametrize("text", ["data", "data=0", "rows=2", "data=2,data=2", "data=2;model=2"])
def test_an_invalid_mesh_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit):
        main(["train", write_solver(tmp_path), f"--mesh={text}"])
    assert "is not a mesh such as data=4,model=2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("localhost:x", "not of the form host:port"),
        ("localhost:99999", "not of the form host:port"),
        ("no.such.host.invalid:4000", "the host 'no.such.host.invalid' cannot be found"),
        ("{taken}", "cannot listen at the address"),
    ],
)
def test_invalid_addresses_are_refused(address: str, message: str) -> None:
    with socket.socket() as busy_socket:
        busy_socket.bind(("127.0.0.1", 0))
        busy_socket.listen()
        address = address.format(taken=f"127.0.0.1:{busy_socket.getsockname()[1]}")
        with pytest.raises(caffejax.CaffejaxError, match=message):
            initialize_distributed(address, 2, 0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--solver={other_solver}", "differ in layer 'rows' of the train net"),
        pytest.param(
            "--devices=2", "different numbers of devices: 1 in process 0, 2 in process 1", marks=pytest.mark.long
        ),
    ],
)
def test_processes_with_different_settings_are_refused(tmp_path: Path, flags: str, message: str) -> None:
    solver = write_solver(tmp_path)
    other_solver = tmp_path / "other.prototxt"
    other_solver.write_text((tmp_path / "solver.prototxt").read_text().replace("batch_size: 2", "batch_size: 3"))
    commands = make_train_commands(2, solver)
    commands[1].append(flags.format(other_solver=other_solver))
    with Cluster(tmp_path, commands) as cluster:
        assert cluster.wait(90) == [1, 1]
        for i in range(2):
            assert message in cluster.read_output(i)
            assert "Traceback" not in cluster.read_output(i)


HOST_LAYER_NET = """
layer { name: "rows" type: "DummyData" top: "x" top: "keep" dummy_data_param {
    shape { dim: 4 dim: 3 } shape { dim: 4 } data_filler { type: "constant" value: 1 } } }
layer { name: "some" type: "Filter" bottom: "x" bottom: "keep" top: "some" }
layer { name: "bn" type: "BatchNorm" bottom: "some" top: "some" }
layer { name: "size" type: "Reduction" bottom: "some" top: "size" loss_weight: 1 }
"""


def run_command(words: list[str]) -> tuple[int, str]:
    """Run a command in this process; return its exit status and what it wrote to stderr."""
    with contextlib.redirect_stderr(io.StringIO()) as output:
        status = main(words)
    return status, output.getvalue()


@pytest.fixture(scope="module")
def four_devices() -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of one process whose JAX has four devices, in which commands may change JAX's settings."""
    with spawn_jax_process(4) as pool:
        yield pool


@pytest.mark.parametrize(
    ("net", "flags", "message"),
    [
        (
            HOST_LAYER_NET,
            [],
            "layer 'bn' (BatchNorm): depends on all rows of a blob whose number of rows depends on values, so the net "
            "cannot be trained on several devices",
        ),
        ("", ["--batch=global"], "batch"),
        ("", ["--mesh=data=1,model=2"], "--mesh has 2 devices, but there are 4"),
        ("", ["--debug_nans"], "train on one"),
    ],
    ids=["host layer", "batch", "mesh", "debug_nans"],
)
def test_nets_that_cannot_train_on_several_devices_are_refused(
    tmp_path: Path, four_devices: ProcessPoolExecutor, net: str, flags: list[str], message: str
) -> None:
    words = ["train", write_solver(tmp_path, net), "--devices=4", *flags]
    status, output = four_devices.submit(run_command, words).result()
    assert status == 1
    assert message in output
    assert "Traceback" not in output


@pytest.mark.long
def test_a_missing_scheduler_is_reported(tmp_path: Path) -> None:
    with Cluster(tmp_path, [[*TRAIN, write_solver(tmp_path), "--devices=4", "--coordinator=auto"]]) as cluster:
        assert cluster.wait(60) == [1]
        assert "no srun, mpirun or TPU pod was detected" in cluster.read_output(0)
        assert "Traceback" not in cluster.read_output(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 0}, "devices must be an integer of at least 1 or a list"),
        ({"devices": 1000}, "1000 devices are needed, but JAX has"),
        ({"devices": ["cpu"]}, "devices must be"),
        ({"parallel": "data"}, "parallel must be a caffejax.Parallel"),
        ({"devices": 1, "device": "cpu"}, "device must be"),
    ],
    ids=str,
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    write_solver(tmp_path)
    with pytest.raises(caffejax.SolverError, match=message):
        caffejax.Solver(tmp_path / "solver.prototxt", **options)  # type: ignore[arg-type]


def parse_flags(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    device_flags.add_device_flags(parser)
    device_flags.add_distributed_flags(parser)
    return parser.parse_args(flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device=cpu:1"], "each process trains on all devices of a kind"),
        (["--device=tpu"], "JAX sees no tpu"),
        (["--devices=1000"], "1000 devices are needed, but JAX has"),
    ],
    ids=str,
)
def test_unavailable_devices_of_several_processes_are_refused(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], message: str
) -> None:
    monkeypatch.setattr("jax.process_count", lambda: 2)
    with pytest.raises(caffejax.CaffejaxError, match=message):
        device_flags.pick_devices(parse_flags(*flags), prefer_gpu=False, device_id=0)


def test_several_processes_use_the_first_devices_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [SimpleNamespace(process_index=i // 3, id=i) for i in (5, 4, 3, 0, 1, 2)]
    monkeypatch.setattr("jax.process_count", lambda: 2)
    monkeypatch.setattr("jax.devices", lambda kind: devices)
    monkeypatch.setattr("jax.local_devices", lambda backend: devices[3:])
    for flags, ids in (("--devices=2",), [0, 1, 3, 4]), ((), [5, 4, 3, 0, 1, 2]):
        result: Any = device_flags.pick_devices(parse_flags(*flags), prefer_gpu=False, device_id=0)
        assert [device.id for device in result] == ids


def test_several_processes_must_stop_on_snapshot_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_solver(tmp_path)
    monkeypatch.setattr("jax.process_count", lambda: 2)
    with pytest.raises(caffejax.SolverError, match="on_snapshot_error must be 'stop' if several processes train"):
        caffejax.Solver(tmp_path / "solver.prototxt", on_snapshot_error="continue")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": "all"}, "batch must be"),
        ({"model": 0}, "model must be"),
        ({"shard": 1}, "shard must be"),
        ({"reduce_dtype": "bfloat16"}, "reduce_dtype must be"),
    ],
    ids=str,
)
def test_invalid_parallel_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(caffejax.CaffejaxError, match=message):
        caffejax.Parallel(**options)  # type: ignore[arg-type]

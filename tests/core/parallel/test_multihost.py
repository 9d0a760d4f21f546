"""Several processes on the loopback interface train like one device with the joined batch."""

import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from cluster import Cluster, make_worker_commands
from parallel_nets import CASES, assert_equal, make_solver_text, make_source_text, train, write_data


@pytest.mark.parametrize(
    ("num_processes", "num_devices", "names"),
    [
        (2, 1, ["lenet"]),
        pytest.param(2, 4, ["resnet", "ignored"], marks=pytest.mark.long),
        pytest.param(4, 1, ["cifar10_full", "lstm"], marks=pytest.mark.long),
    ],
)
def test_processes_train_like_one_device(
    eight_devices: ProcessPoolExecutor, tmp_path: Path, num_processes: int, num_devices: int, names: list[str]
) -> None:
    jobs = []
    for name in names:
        write_data(tmp_path, name)
        text = make_solver_text(tmp_path, name, 16 // (num_processes * num_devices))
        job = {"text": text, "devices": None, "parallel": {}, "iterations": CASES[name].iterations}
        jobs.append(json.dumps(job | CASES[name].options))
    source = make_source_text(tmp_path)  # a Python layer: each process takes its part of the rows
    jobs.append(json.dumps({"text": source, "devices": None, "parallel": {"batch": "global"}, "iterations": 10}))
    out = tmp_path / "results"
    with Cluster(tmp_path, make_worker_commands(num_processes, num_devices, out, jobs)) as cluster:
        codes = cluster.wait(400)
        assert codes == [0] * num_processes, "\n".join(map(cluster.read_output, range(num_processes)))
    *results, result = pickle.loads(out.read_bytes())
    assert_equal(result, eight_devices.submit(train, source, 1, {}, iterations=10).result())
    for name, actual in zip(names, results, strict=True):
        single = eight_devices.submit(
            train, make_solver_text(tmp_path, name, 16), 1, {}, iterations=CASES[name].iterations
        )
        assert_equal(actual, single.result())

"""Processes that do not train the same job are refused, each with the part that differs, before they train."""

import pickle
import shutil
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from cluster import FOLDER, Cluster

import caffejax
from caffejax.base.databases.lmdb import write_lmdb
from caffejax.core.parallel.coordination import format_by_process
from caffejax.core.schema.caffe_pb2 import BlobProto, Datum
from caffejax.core.solver.fingerprint import _describe_options

CLASSIFIER = """
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {
    num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
TEST = 'layer { name: "top" type: "Accuracy" bottom: "ip" bottom: "label" top: "top" accuracy_param { top_k: %d } }'
DATA = {
    "lmdb": 'layer { name: "d" type: "Data" top: "data" top: "label" transform_param { mean_file: "mean.binaryproto" } '
    'data_param { source: "train" batch_size: 2 backend: LMDB } }',
    "hdf5": 'layer { name: "d" type: "HDF5Data" top: "data" top: "label" hdf5_data_param { '
    'source: "rows.txt" batch_size: 2 } }',
    "images": 'layer { name: "d" type: "ImageData" top: "data" top: "label" image_data_param { source: "list.txt" '
    "batch_size: 2 is_color: false } }",
    "input": 'layer { name: "d" type: "Input" top: "data" top: "label" input_param { '
    "shape { dim: 2 dim: 1 dim: 4 dim: 4 } shape { dim: 2 } } }",
}
ROWS = np.random.default_rng(1).integers(0, 255, (12, 1, 4, 4)).astype(np.uint8)
LABELS = np.arange(12) % 3


def write_records(path: Path, rows: Any) -> None:
    """Write rows with these numbers as an LMDB."""
    shutil.rmtree(path, ignore_errors=True)
    records = [
        Datum(channels=1, height=4, width=4, data=ROWS[i].tobytes(), label=int(LABELS[i])).SerializeToString()
        for i in rows
    ]
    write_lmdb(path, [(f"{n:03}".encode(), record) for n, record in enumerate(records)])


def write_mean(folder: Path, value: float) -> None:
    blob = BlobProto(num=1, channels=1, height=4, width=4, data=[value] * 16)
    (folder / "mean.binaryproto").write_bytes(blob.SerializeToString())


def write_rows(folder: Path, rows: Any) -> None:
    with h5py.File(folder / "rows.h5", "w") as file:
        file["data"], file["label"] = ROWS[rows].astype(np.float32), LABELS[rows].astype(np.float32)


def write_host(folder: Path) -> Path:
    """Write the files of a host: each kind of data, nets, and a solver for each."""
    import cv2

    folder.mkdir()
    write_records(folder / "train", range(12))
    write_records(folder / "test", range(12))
    write_mean(folder, 3)
    write_rows(folder, np.arange(12))
    (folder / "rows.txt").write_text("rows.h5\n")
    for i, row in enumerate(ROWS):
        cv2.imwrite(str(folder / f"{i}.png"), row[0])
    (folder / "list.txt").write_text("".join(f"{i}.png {LABELS[i]}\n" for i in range(12)))
    for name, layer in DATA.items():
        (folder / f"{name}.prototxt").write_text(layer + CLASSIFIER)
        (folder / f"{name}_test.prototxt").write_text(layer.replace("train", "test") + CLASSIFIER + TEST % 1)
        (folder / f"{name}_solver.prototxt").write_text(
            f'train_net: "{name}.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.5 random_seed: 1 max_iter: 10 '
            f'snapshot_prefix: "../shared/{name}"'
        )
    tested = 'test_net: "lmdb_test.prototxt" test_iter: 1 test_interval: 5'
    (folder / "tested.prototxt").write_text((folder / "lmdb_solver.prototxt").read_text() + tested)
    for name in "own", "missing":
        text = (folder / "hdf5_solver.prototxt").read_text().replace("../shared", name)
        (folder / f"{name}.prototxt").write_text(f"{text} snapshot: 5")
    (folder / "own").mkdir()
    for seed in (1, 2):
        text = (folder / "hdf5_solver.prototxt").read_text().replace("random_seed: 1", f"random_seed: {seed}")
        param = caffejax.read_solver(text.replace("../shared/hdf5", f"{folder}/seed{seed}"))
        solver = caffejax.Solver(param, file=folder / "hdf5_solver.prototxt")
        solver.step(1)
        solver.snapshot()
        solver.close()
    return folder


def replace_text(name: str, old: str, new: str) -> Callable[[Path], object]:
    """Return a function that replaces a text in a file of a host."""

    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


class Case:
    """What differs: files or keywords of the second process, and the part that the message names.

    Args:
        part: the part.
        keywords: keywords of both processes.
        others: other keywords of the second process.
        change: a function that changes the files of the second process, or None.
        data: the data of the net.
    """

    def __init__(
        self,
        part: str,
        keywords: dict[str, Any] | None = None,
        others: dict[str, Any] | None = None,
        change: Callable[[Path], object] | None = None,
        data: str = "hdf5",
    ) -> None:
        self.part, self.change = part, change
        first = {"solver": f"{data}_solver.prototxt"} | (keywords or {})
        self.keywords = first, first | (others or {})
        self.control = f"same {first}"  # the case in which nothing differs, which several cases may share


ARRAYS = {"data": ROWS, "label": LABELS}
SHUFFLED = {name: rows[np.random.default_rng(2).permutation(12)] for name, rows in ARRAYS.items()}
CASES = {
    "learning rate": Case("the solver's base_lr", change=replace_text("hdf5_solver.prototxt", "0.01", "0.02")),
    "train net": Case("layer 'ip' of the train net", change=replace_text("hdf5.prototxt", "xavier", "msra")),
    "test net": Case(
        "layer 'top' of test net #0",
        {"solver": "tested.prototxt"},
        change=replace_text("lmdb_test.prototxt", "top_k: 1", "top_k: 2"),
    ),
    "keep_best": Case("the option keep_best", {"solver": "tested.prototxt"}, {"keep_best": "top"}),
    "keep_last": Case("the option keep_last", others={"keep_last": 2}),
    "dispatch": Case("the option steps_per_dispatch", others={"steps_per_dispatch": 2}),
    "precision": Case("the option precision", others={"precision": "bfloat16"}),
    "checkpoints": Case("the option checkpoint_only", others={"checkpoint_only": True}),
    "images to skip": Case("the option skip_bad_images", others={"skip_bad": True}),
    "seed": Case("the solver's random_seed", change=replace_text("hdf5_solver.prototxt", "seed: 1", "seed: 2")),
    "optimizer": Case("the optimizer", {"learning_rate": 0.1}, {"learning_rate": 0.2}),
    "optimizer of one": Case("the solver's type", others={"learning_rate": 0.2}),
    "shorter database": Case("the data of 'd'", change=lambda f: write_records(f / "train", range(9)), data="lmdb"),
    "other records": Case(
        "the data of 'd'", change=lambda f: write_records(f / "train", [0, 1, 2, 3, 5, *range(5, 12)]), data="lmdb"
    ),
    "data of a test net": Case(
        "the data of 'd' of test net #0",
        {"solver": "tested.prototxt"},
        change=lambda f: write_records(f / "test", range(9)),
    ),
    "mean file": Case("the data of 'd'", change=lambda f: write_mean(f, 4), data="lmdb"),
    "fewer rows": Case("the data of 'd'", change=lambda f: write_rows(f, np.arange(9))),
    "other rows": Case("the data of 'd'", change=lambda f: write_rows(f, np.arange(12)[::-1])),
    "list of images": Case("the data of 'd'", change=replace_text("list.txt", "5.png 2", "5.png 1"), data="images"),
    "image": Case("the data of 'd'", change=lambda f: shutil.copy(f / "3.png", f / "0.png"), data="images"),
    "shuffled arrays": Case("the data of 'Input'", {"data": ARRAYS}, {"data": SHUFFLED}, data="input"),
    "arrays in parts": Case(
        "the data of 'Input'",
        {"data": {name: rows[::2] for name, rows in ARRAYS.items()}},
        {"data": {name: rows[1::2] for name, rows in ARRAYS.items()}},
        data="input",
    ),
    "checkpoint": Case("the snapshot to resume", {"resume": "seed1.orbax"}, {"resume": "seed2.orbax"}),
    "checkpoint of one": Case("the snapshot to resume", others={"resume": "seed1.orbax/1"}),
    "checkpoint of a running solver": Case(
        "the snapshot to resume", {"restore": "seed1.orbax"}, {"restore": "seed2.orbax"}
    ),
    "solverstate": Case(
        "the snapshot to resume",
        {"resume": "seed1_iter_1.solverstate"},
        change=lambda f: shutil.copy(f / "seed2_iter_1.solverstate", f / "seed1_iter_1.solverstate"),
    ),
    "weights of a solverstate": Case(
        "the snapshot to resume",
        {"resume": "seed1_iter_1.solverstate"},
        change=lambda f: shutil.copy(f / "seed2_iter_1.caffemodel", f / "seed1_iter_1.caffemodel"),
    ),
    "first weights": Case(
        "the first weights",
        {"weights": "seed1_iter_1.caffemodel"},
        change=lambda f: shutil.copy(f / "seed2_iter_1.caffemodel", f / "seed1_iter_1.caffemodel"),
    ),
}
Results = list[dict[str, list[str]]]  # by process and case, the messages


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return the results of two processes that try all cases, and their controls, one after the other."""
    root = tmp_path_factory.mktemp("same_job")
    first = write_host(root / "first")
    jobs: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    same = shutil.copytree(first, root / "same")
    for name, case in CASES.items():
        other = shutil.copytree(first, root / name)
        if case.change is not None:
            case.change(other)
        keywords, other_keywords = case.keywords
        jobs[name] = {"folder": str(first), **keywords}, {"folder": str(other), **other_keywords}
        jobs[case.control] = {"folder": str(first), **keywords}, {"folder": str(same), **keywords}
    for name in "own", "missing":
        solver = {"solver": f"{name}.prototxt"}
        jobs[f"{name} folder"] = {"folder": str(first), **solver}, {"folder": str(same), **solver}
    (root / "cases").write_bytes(pickle.dumps(jobs))
    worker = [sys.executable, str(FOLDER / "same_job_worker.py"), "{address}"]
    with Cluster(root, [[*worker, str(i), str(root / "cases"), str(root / "out")] for i in range(2)]) as cluster:
        assert cluster.wait(120) == [0, 0], cluster.read_output(0) + cluster.read_output(1)
    return [pickle.loads((root / f"out{i}").read_bytes()) for i in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_processes_that_differ_are_refused(results: Results, name: str) -> None:
    for result in results:
        problems = result[name]
        assert [p for p in problems if p.startswith(f"the processes differ in {CASES[name].part}")], problems
        assert all("in process 0, " in p and "in process 1; " in p for p in problems)
        assert result[CASES[name].control] == []


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("own", "own: process 1 has another folder of this path; all processes must write snapshots to one folder"),
        ("missing", "missing: process 1 has no such folder; all processes must write snapshots to one folder"),
    ],
)
def test_the_folder_of_snapshots_must_be_one(results: Results, folder: str, message: str) -> None:
    """In the controls of the other cases it is."""
    for result in results:
        [problem] = result[f"{folder} folder"]
        assert problem.startswith(message)


def test_all_options_are_compared_but_those_that_hosts_may_choose() -> None:
    configs = caffejax.TrainConfig, caffejax.NetConfig, caffejax.Parallel
    names = {field.metadata.get("flag") or field.name for config in configs for field in fields(config)}
    compared = dict(_describe_options(caffejax.TrainConfig()))
    groups = {"parallel", "net_config"}  # of options
    elsewhere = {"weights", "snapshot", "device", "devices", "optimizer", "seed", "shard"}  # by content
    assert names - set(compared) == groups | elsewhere | {"memory_limit", "workers"}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (["a", "b"], "a in process 0, b in process 1"),
        (["a", "b", "a", "a"], "a in processes 0, 2 and 3, b in process 1"),
        (["a"] * 12, "a in processes 0, 1, 2, 3, 4, 5, 6, 7 and 4 more"),
    ],
)
def test_values_are_listed_with_their_processes(values: list[str], text: str) -> None:
    assert format_by_process(values) == text

"""Layers that count from pass to pass: after a resume they continue as if training had not been interrupted."""

import ast
import itertools
import shutil
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

import caffejax.core.layers
import caffejax.pycaffe as caffe
from caffejax.base.errors import CaffejaxError, DataError
from caffejax.cli import main
from caffejax.core.data.loader import Loader
from caffejax.core.program.net import Net
from caffejax.core.solver import Solver
from caffejax.forks.detection import result_files

NUM_IMAGES, BATCH, TEST_ITER = 12, 5, 3  # a test reads 15 images
SIZES = [(4, 4) if i % 3 == 0 else (100, 100) for i in range(NUM_IMAGES)]
THRESHOLD = 0.74

# a detection overlaps its object by 0.7 in relative coordinates; in pixels, where sides are x2 - x1 + 1, by more in a
# small image
TRUTH, DETECTION = np.array([0, 0, 0.5, 0.5]), np.array([0, 0, 0.35, 0.5])

NET = f"""
layer {{ name: "x" type: "DummyData" top: "x" include {{ phase: TRAIN }}
  dummy_data_param {{ shape {{ dim: 2 dim: 3 }} }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" include {{ phase: TRAIN }}
  inner_product_param {{ num_output: 1 }} }}
layer {{ name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 include {{ phase: TRAIN }} }}
layer {{ name: "data" type: "HDF5Data" top: "det" top: "truth" top: "loc" top: "conf" include {{ phase: TEST }}
  hdf5_data_param {{ source: "list.txt" batch_size: {BATCH} }} }}
layer {{ name: "evaluate" type: "DetectionEvaluate" bottom: "det" bottom: "truth" top: "eval" include {{ phase: TEST }}
  detection_evaluate_param {{ num_classes: 2 overlap_threshold: {THRESHOLD} name_size_file: "sizes.txt" }} }}
layer {{ name: "prior" type: "DummyData" top: "prior" include {{ phase: TEST }}
  dummy_data_param {{ shape {{ dim: 1 dim: 2 dim: 4 }} }} }}
layer {{ name: "output" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "out"
  include {{ phase: TEST }} detection_output_param {{ num_classes: 2 code_type: CORNER variance_encoded_in_target: true
  nms_param {{ nms_threshold: 0.5 }} save_output_param {{ output_directory: "results" output_format: "VOC"
  label_map_file: "labels.prototxt" name_size_file: "sizes.txt" }} }} }}
layer {{ name: "mat" type: "MatWrite" bottom: "conf" include {{ phase: TEST }}
  mat_write_param {{ prefix: "mat/" period: 2 }} }}
layer {{ name: "hdf5" type: "HDF5Output" bottom: "loc" bottom: "conf" include {{ phase: TEST }}
  hdf5_output_param {{ file_name: "out.h5" }} }}
layer {{ name: "silence" type: "Silence" bottom: "out" include {{ phase: TEST }} }}
"""
# the snapshot follows the test at 2; the test at 4 reads the images 3 to 11 and 0 to 5
SOLVER = f"""
net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 4 snapshot: 3 snapshot_prefix: "s" random_seed: 1
test_iter: {TEST_ITER} test_interval: 2 test_initialization: false eval_type: "detection" ap_version: "Integral"
snapshot_after_train: false
"""


def score_of(row: int) -> float:
    return 0.5 + (row * 7 % 60) / 200


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = np.arange(NUM_IMAGES * BATCH)
    columns = rows[:, None] % BATCH
    scores = np.array([score_of(row) for row in rows.tolist()])
    boxes = [np.broadcast_to(box, (len(rows), 4)) for box in (DETECTION, TRUTH)]
    zeros, ones = np.zeros((len(rows), 1)), np.ones((len(rows), 1))
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["det"] = np.concatenate([columns, ones, scores[:, None], boxes[0]], axis=1).astype(np.float32)
        file["truth"] = np.concatenate([columns, ones, zeros, boxes[1], zeros], axis=1).astype(np.float32)
        file["loc"] = np.stack([0.01 * (rows % 10), 0.1 * ones[:, 0], 0.5 * ones[:, 0], 0.6 * ones[:, 0]], 1)
        file["conf"] = np.stack([1 - scores, scores], axis=1).astype(np.float32)
    (tmp_path / "list.txt").write_text("data.h5\n")
    (tmp_path / "sizes.txt").write_text("".join(f"image{i} {h} {w}\n" for i, (h, w) in enumerate(SIZES)))
    (tmp_path / "labels.prototxt").write_text('item { name: "a" label: 0 } item { name: "b" label: 1 }')
    (tmp_path / "mat").mkdir()
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def expected_precision() -> float:
    """Return the average precision of the test at 4, of images 15 to 29, if image i has the size i."""

    def overlap(size: int) -> float:
        truth, detection = TRUTH * size, DETECTION * size
        areas = [(box[2] + 1) * (box[3] + 1) for box in (truth, detection)]
        return float(min(areas) / max(areas))

    rows = range(15, 30)
    is_positive = [overlap(SIZES[row % NUM_IMAGES][0]) >= THRESHOLD for row in rows]
    order = np.argsort([-score_of(row) for row in rows])
    hits = np.array(is_positive)[order]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float(np.sum(precision[hits]) / len(hits))


def run_command(snapshot: str | None) -> None:
    assert main(["train", "--solver=solver.prototxt", *([f"--snapshot={snapshot}"] if snapshot else [])]) == 0


def run_solver(snapshot: str | None) -> None:
    solver = Solver("solver.prototxt")
    solver.solve(snapshot)
    solver.close()


def run_pycaffe(snapshot: str | None) -> None:
    caffe.get_solver("solver.prototxt").solve(snapshot)


def read_files(folder: Path) -> dict[str, Any]:
    """Return all that the test wrote."""
    with h5py.File(folder / "out.h5") as file:
        data_sets = {name: file[name][...].tolist() for name in file}
    return {
        **{f"hdf5 {name}": values for name, values in data_sets.items()},
        "voc": (folder / "results" / "b.txt").read_text(),
        "mat": sorted(path.name for path in (folder / "mat").iterdir()),
    }


@pytest.mark.parametrize(
    ("run", "snapshot"), [(run_command, "s_iter_3.solverstate"), (run_solver, "s.orbax"), (run_pycaffe, "s.orbax/3")]
)
def test_counters_of_a_test_net_are_restored(
    folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], run: Any, snapshot: str
) -> None:
    caplog.set_level("INFO", "caffejax")

    def scores() -> list[str]:
        written, lines = capfd.readouterr().err.splitlines(), list(caplog.messages)
        caplog.clear()
        return [line.split("eval = ")[1].split()[0] for line in lines or written if "eval = " in line]

    run(None)
    (_, uninterrupted), files = scores(), read_files(folder)
    np.testing.assert_allclose(float(uninterrupted), expected_precision(), rtol=1e-5)
    assert [line.split()[0] for line in files["voc"].splitlines()] == [f"image{i}" for i in range(NUM_IMAGES)]
    assert len(files["hdf5 data"]) == 2 * TEST_ITER * BATCH
    assert files["mat"] == [f"iter_{i}_blob_0.mat" for i in (0, 2, 4)]
    shutil.rmtree("results")  # the test at 4 writes the files again, the rows of the test at 2 among them
    (folder / "mat" / "iter_4_blob_0.mat").unlink()
    run(snapshot)
    assert scores() == [uninterrupted]
    assert read_files(folder) == files


def test_positions_of_earlier_snapshots_and_damaged_ones(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    loader = Loader(Net("net.prototxt", phase="TEST").graph)
    state = loader.get_state()
    assert set(state) == {"data", "evaluate", "output", "mat", "hdf5"}
    loader.set_state({"data": state["data"]})  # of a version that did not store counters
    for name in ("evaluate", "output", "mat", "hdf5"):
        assert any(f"no position of layer '{name}'" in message for message in caplog.messages), name
    counting = ("evaluate", "output", "mat", "hdf5")
    damaged: list[tuple[str, Any]] = [
        *itertools.product(counting, (None, [], {}, {"images": -1})),
        *(("output", {"images": 1, "detections": rows}) for rows in (3, {}, {"shape": [1], "float32": "AAAA"})),
        ("output", {"images": 1, "detections": {"shape": [0, 6], "float32": ""}}),
    ]
    for name, value in damaged:
        with pytest.raises(DataError, match=f"layer '{name}'"):
            loader.set_state({**state, name: value})
    loader.close()


def test_detections_beyond_the_limit_are_left_out_with_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "_MAX_STORED", 4)
    net = Net("net.prototxt", phase="TEST")
    variables, loader = net.init(jax.random.key(0)), Loader(net.graph)

    def read_batches(n: int) -> None:
        for _ in range(n):
            net.apply(*variables, next(loader))

    read_batches(1)
    state = loader.get_state()
    assert state["output"] == {"images": BATCH}
    loader.set_state(state)
    read_batches(2)
    assert not (folder / "results").exists()
    assert any("result files in results are not written" in message for message in caplog.messages)
    read_batches(2)
    assert (folder / "results" / "b.txt").read_text().count("\n") == NUM_IMAGES
    loader.set_state({**state, "output": {"images": NUM_IMAGES}})
    with pytest.raises(CaffejaxError, match=r"12 images were added before the snapshot, but sizes\.txt has 12 now"):
        read_batches(1)
    loader.close()


def test_rows_that_are_missing_from_a_file_are_an_error(folder: Path) -> None:
    net = Net("net.prototxt", phase="TEST")
    variables, loader = net.init(jax.random.key(0)), Loader(net.graph)
    loader.set_state({**loader.get_state(), "hdf5": {"rows": 7}})
    with pytest.raises(DataError, match=r"out\.h5: .*is absent, but had 7 rows"):
        net.apply(*variables, next(loader))
    loader.set_state({**loader.get_state(), "hdf5": {"rows": 0}})
    net.apply(*variables, next(loader))
    loader.set_state({**loader.get_state(), "hdf5": {"rows": 7}})
    with pytest.raises(DataError, match=r"out\.h5: .*has 5 rows, but had 7"):
        net.apply(*variables, next(loader))
    loader.close()


def classes_that_change(path: Path) -> dict[str, set[str]]:
    """Return the classes of a module with methods that assign to `self`, each with the names of all its methods."""
    classes = {}
    for node in ast.walk(ast.parse(path.read_text())):
        methods = [m for m in ast.iter_child_nodes(node) if isinstance(m, ast.FunctionDef)]
        if isinstance(node, ast.ClassDef) and any(
            isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store)
            for method in methods
            if method.name != "__init__"
            for x in ast.walk(method)
        ):
            classes[node.name] = {method.name for method in methods}
    return classes


def test_all_that_layers_count_has_a_position() -> None:
    """An object in `layers` whose attributes change can be saved, and so can the file of HDF5Output."""
    package = Path(caffejax.core.layers.__file__).parent
    sources = ("data", "pose", "video", "segmentation_data.py", "image_gt_data.py", "frcnn_roi_data.py")
    forks = [p for p in (package.parents[1] / "forks").rglob("*.py") if not set(sources) & {*p.parts}]
    paths = [*package.rglob("*.py"), *forks, package.parent / "data" / "hdf5_layers.py"]
    classes = {name: methods for path in paths for name, methods in classes_that_change(path).items()}
    unsaved = {name for name, methods in classes.items() if not {"get_state", "set_state"} <= methods}
    assert set(classes) - unsaved == {
        "_Evaluation",
        "ResultFiles",
        "_MatWriter",
        "_OutputFile",
        "HostLayer",
        "HostSource",
    }
    assert unsaved == {
        "Blob",  # arrays of a Python layer
        "_Hdf5Batches",  # files that stay open
        "HostCall",  # the exception that a call raised
        "HostCalls",
        "Declaration",  # of a type
    }

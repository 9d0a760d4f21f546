"""`caffejax test --eval_type=detection` prints the mean average precision; without it, detections are refused."""

import json
from pathlib import Path

import h5py
import jax
import numpy as np
import pytest

from caffejax import Net, save_weights
from caffejax.base.errors import GraphError
from caffejax.cli import main
from caffejax.core.solver import Solver
from caffejax.core.solver.detection_scores import average_precision

BATCH, NUM_BATCHES = 3, 2
NET = f"""
layer {{ name: "data" type: "HDF5Data" top: "det" top: "truth"
  hdf5_data_param {{ source: "list.txt" batch_size: {BATCH} }} }}
layer {{ name: "x" type: "DummyData" top: "x" dummy_data_param {{ shape {{ dim: 1 dim: 2 }} }}
  include {{ phase: TRAIN }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {{ num_output: 1 }}
  include {{ phase: TRAIN }} }}
layer {{ name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 include {{ phase: TRAIN }} }}
layer {{ name: "evaluate" type: "DetectionEvaluate" bottom: "det" bottom: "truth" top: "map" include {{ phase: TEST }}
  detection_evaluate_param {{ num_classes: 3 }} }}
layer {{ name: "silence" type: "Silence" bottom: "det" bottom: "truth" include {{ phase: TRAIN }} }}
"""
SOLVER = f"""net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "x" random_seed: 1 max_iter: 1
test_iter: {NUM_BATCHES} test_interval: 1"""
# of each image: the class, the score, and whether the box is right
DETECTIONS = [(1, 0.9, 1), (1, 0.8, 0), (2, 0.7, 1), (1, 0.6, 1), (2, 0.95, 0), (2, 0.3, 1)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [
        ([i % BATCH, label, score, 0, 0, 0.5, 0.5 if is_right else 0.1], [i % BATCH, label, 0, 0, 0, 0.5, 0.5, 0])
        for i, (label, score, is_right) in enumerate(DETECTIONS)
    ]
    with h5py.File("data.h5", "w") as file:
        file["det"] = np.array([det for det, _ in rows], np.float32)
        file["truth"] = np.array([truth for _, truth in rows], np.float32)
    Path("list.txt").write_text("data.h5")
    Path("net.prototxt").write_text(NET)
    net = Net("net.prototxt", "TRAIN")
    save_weights("net.npz", net.graph, net.init(jax.random.key(0)))
    return tmp_path


def expected_precisions(version: str) -> dict[int, float]:
    return {
        label: average_precision([(s, r, 1 - r) for n, s, r in DETECTIONS if n == label], 3, version)
        for label in (1, 2)
    }


def get_messages(log: str) -> list[str]:
    return [line.split("] ", 1)[1] for line in log.splitlines() if "] " in line]


@pytest.mark.parametrize("version", ["Integral", "MaxIntegral", "11point", "101point"])
def test_the_command_prints_what_the_solver_prints(
    folder: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--eval_type=detection", f"--ap_version={version}", "--show_per_class_result", "--json"]
    command = ["test", "--model=net.prototxt", "--weights=net.npz", f"--iterations={NUM_BATCHES}", *flags]
    assert main(command) == 0
    output = capsys.readouterr()
    precisions = expected_precisions(version)
    result = json.loads(output.out)
    np.testing.assert_allclose(result["outputs"]["map"], np.mean(list(precisions.values())), rtol=1e-6)
    assert result["precisions"]["map"] == {str(n): pytest.approx(value) for n, value in precisions.items()}
    lines = get_messages(output.err)
    solver = Solver(f'{SOLVER} eval_type: "detection" ap_version: "{version}" show_per_class_result: true')
    solver.test()
    *classes, score = [m for m in get_messages(capsys.readouterr().err) if m.startswith("class") or "map = " in m]
    assert lines[-3:] == [*classes, score.split(": ")[1]]


def test_detections_without_eval_type_are_refused_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["test", "--model=net.prototxt", "--weights=net.npz"]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert "output 'map' of layer 'evaluate' (DetectionEvaluate)" in error
    assert "--eval_type=detection" in error
    assert "Silence" not in error
    with pytest.raises(GraphError, match=r"'map' of layer 'evaluate'.* set eval_type: \"detection\""):
        Solver(SOLVER)

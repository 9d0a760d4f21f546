"""Test rounds with eval_type "detection" compute average precisions, and log them like the SSD fork."""

import logging
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffejax.base.errors import GraphError, SolverError
from caffejax.core.solver import Solver
from caffejax.core.solver.detection_scores import compute_average_precisions, compute_mean_precision

PADDING = [-1, -1, -1, -1, -1]
# two batches: class 1 has 3 objects, class 2 has 1 that is never found, class 3 has none but is found
BATCHES = [
    [[-1, 1, 2, -1, -1], [-1, 2, 1, -1, -1], [0, 1, 0.9, 1, 0], [0, 1, 0.4, 0, 1], [0, 3, 0.7, 0, 1]],
    [[-1, 1, 1, -1, -1], [0, 1, 0.8, 0, 1], [0, 1, 0.6, 1, 0], [0, 1, 0.95, 0, 0], PADDING],
]
# of class 1, in the order of the scores: hit, miss, hit, miss; of 3
AVERAGE_PRECISIONS = {"Integral": (1 + 2 / 3) / 3, "MaxIntegral": (1 + 2 / 3) / 3, "11point": (4 * 1 + 3 * 2 / 3) / 11}

TRAIN = """
layer { name: "data" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


def make_test_net(rows: Any, folder: Path, fields: str = "", segmentation: Any = None) -> str:
    """Return a test net that outputs rows in the format of DetectionEvaluate, one batch at a time."""
    tops = {"detection_eval": np.array(rows, np.float32)[:, None]}
    if segmentation is not None:
        tops["segmentation_eval"] = segmentation
    with h5py.File(folder / "rows.h5", "w") as file:
        for name, values in tops.items():
            file[name] = values
    (folder / "rows.txt").write_text(f"{folder}/rows.h5\n")
    return f"""layer {{ name: "rows" type: "HDF5Data" {" ".join(f'top: "{name}"' for name in tops)}
        hdf5_data_param {{ source: "{folder}/rows.txt" batch_size: 1 }} }} {fields}"""


def make_solver(
    folder: Path, settings: str, rows: Any = BATCHES, fields: str = "", segmentation: Any = None, **options: Any
) -> Solver:
    test_net = make_test_net(rows, folder, fields, segmentation)
    return Solver(
        f"train_net_param {{ {TRAIN} }} test_net_param {{ {test_net} }} test_iter: 2 "
        f'test_interval: 1 max_iter: 2 base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "{folder}/x" {settings}',
        **options,
    )


@pytest.mark.parametrize("version", AVERAGE_PRECISIONS)
def test_a_test_round_logs_map_as_the_fork_does(version, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        [scores] = make_solver(
            tmp_path, f'eval_type: "detection" ap_version: "{version}" show_per_class_result: true'
        ).test()
    ap = AVERAGE_PRECISIONS[version]
    assert scores.precisions == {"detection_eval": {1: pytest.approx(ap), 2: 0}}
    np.testing.assert_allclose(scores.outputs["detection_eval"], ap / 2, rtol=1e-6)
    messages = [record.getMessage() for record in caplog.records if record.name == "caffejax.solver"]
    assert messages[-4:] == [
        "Missing true_pos for label: 2",
        f"class1: {ap:g}",
        "class2: 0",
        f"    Test net output #0: detection_eval = {ap / 2:g}",
    ]


IOUS = [[0.5, -1, 0, 1, -1], [0.25, 0.5, 0.5, -1, -1]]  # of 5 classes, -1 without pixels


@pytest.mark.parametrize("ious", [IOUS, [row[:3] for row in IOUS]])
def test_segmentations_are_scored_beside_detections(ious, tmp_path, caplog):
    """Each class's mean is over the batches that have it, and the log is MobileNet-YOLO's."""
    expected = [0.375, 0.5, 0.25, 1, 0][: len(ious[0])]
    with caplog.at_level(logging.INFO):
        [scores] = make_solver(
            tmp_path,
            'eval_type: "detection_segmentation" show_per_class_result: true',
            segmentation=np.array(ious)[:, None, None, None],
        ).test()
    ap = AVERAGE_PRECISIONS["Integral"]
    assert scores.ious == {"segmentation_eval": dict(enumerate(expected))}
    assert scores.precisions == {"detection_eval": {1: pytest.approx(ap), 2: 0}}
    np.testing.assert_allclose(scores.outputs["segmentation_eval"], np.mean(expected), rtol=1e-6)
    messages = [record.getMessage() for record in caplog.records if record.name == "caffejax.solver"]
    assert messages[-len(expected) - 5 :] == [
        *(f"Seg Classes {n} IOU : {iou:g}" for n, iou in enumerate(expected)),
        f"Seg mIOU : {np.mean(expected):g}",
        f"class1: {ap:g}",
        "class2: 0",
        f"    Test net output #0: detection_eval = {ap / 2:g}",
        f"    Test net output #1: segmentation_eval = {np.mean(expected):g}",
    ]


def test_class_precisions_are_logged_only_if_enabled(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        make_solver(tmp_path, 'eval_type: "detection"').test()
    assert not any(record.getMessage().startswith("class") for record in caplog.records)


def test_keep_best_keeps_the_checkpoint_of_the_highest_map(tmp_path):
    solver = make_solver(tmp_path, 'eval_type: "detection" snapshot: 1', keep_best="detection_eval")
    solver.solve()
    assert solver.test()[0].outputs["detection_eval"] > 0.2
    assert list(tmp_path.glob("x.orbax/*"))


def test_classification_outputs_are_still_averaged(tmp_path):
    [scores] = make_solver(tmp_path, "").test()
    np.testing.assert_allclose(scores.outputs["detection_eval"][0, 0], np.mean(BATCHES, axis=0), rtol=1e-6)
    assert scores.precisions == {}


def test_invalid_outputs_and_settings_are_refused(tmp_path):
    extra_layer = 'layer { name: "more" type: "Power" bottom: "detection_eval" top: "flat" } '
    extra_layer += (
        'layer { name: "flat" type: "Reshape" bottom: "flat" top: "other" reshape_param { shape { dim: -1 } } }'
    )
    with pytest.raises(GraphError, match=r"output 'other' has shape \(25,\), but .* takes rows of 5"):
        make_solver(tmp_path, 'eval_type: "detection"', fields=extra_layer)
    with pytest.raises(GraphError, match=r'"detection_segmentation" takes two: .* DetectionEvaluate, then'):
        make_solver(tmp_path, 'eval_type: "detection_segmentation"')
    with pytest.raises(SolverError, match=r"unknown eval_type 'detect'; .* or detection_segmentation; did you mean"):
        make_solver(tmp_path, 'eval_type: "detect"')
    with pytest.raises(
        SolverError, match="unknown ap_version 'area'; it must be 11point or 101point or MaxIntegral or Integral"
    ):
        make_solver(tmp_path, 'ap_version: "area"')


def reference_average_precision(rows: list[list[float]], label: int) -> float:
    """Return the area under the precision-recall curve, with one step for each true positive."""
    positives = sum(int(row[2]) for row in rows if row[0] == -1 and row[1] == label)
    detections = [row for row in rows if row[0] >= 0 and row[1] == label and row[3] + row[4] > 0]
    hits, area = 0, 0.0
    for n, row in enumerate(sorted(detections, key=lambda row: -row[2]), 1):
        if row[3]:
            hits += 1
            area += hits / n / positives
    return area


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("hmi")), max_size=20), st.integers(1, 5), st.integers(1, 4)
)
def test_precisions_do_not_depend_on_the_batches(outcomes, split, padding):
    """The precision of each class is that of all rows, however they are divided into batches and padded."""
    scores = np.random.default_rng(len(outcomes)).permutation(len(outcomes)).tolist()
    counts: list[list[float]] = [[-1, label, 20, -1, -1] for label in range(3)]
    rows = [[0, label, s, kind == "h", kind == "m"] for (label, kind), s in zip(outcomes, scores, strict=True)]
    parts = [counts + rows[:split], *([part] for part in rows[split:]), [PADDING] * padding]
    batches = [{"x": np.array(part, np.float32)[None, None]} for part in parts]
    actual = compute_average_precisions(batches, "Integral")["x"]
    assert actual == {
        label: pytest.approx(reference_average_precision(counts + rows, label), abs=1e-6) for label in range(3)
    }
    np.testing.assert_allclose(compute_mean_precision(actual), np.mean(list(actual.values())), atol=1e-6)


def test_the_mean_precision_without_objects_is_0():
    assert compute_mean_precision(compute_average_precisions([{"x": np.array([PADDING])}], "Integral")["x"]) == 0

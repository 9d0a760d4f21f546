"""Export of entire nets in both forms, and detection of a wrong export by `scripts/check_exports.py`."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export import run_exports
from export.compare_outputs import judge_form, relative_errors, unordered_distances
from export.flax_nets import make_residual_net

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
SCRIPT = ROOT / "scripts" / "check_exports.py"
SMALL_NETS = [  # nets that are quickly compiled, no two of one family
    "BVLC__caffe__examples__cifar10__cifar10_full_sigmoid_train_test_bn.prototxt",
    "BVLC__caffe__examples__siamese__mnist_siamese.prototxt",
    "farmingyard__ShuffleNet__shufflenet_1x_g3_deploy.prototxt",
    "kpzhang93__MTCNN_face_detection_alignment__code__codes__MTCNNv2__model__det4.prototxt",
    "s9xie__hed__examples__hed__deploy.prototxt",
]


def run_script(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_all_nets_of_a_folder_are_checked(tmp_path: Path) -> None:
    nets, out = tmp_path / "nets", tmp_path / "out.jsonl"
    nets.mkdir()
    (nets / "a.prototxt").write_text(make_residual_net(1))
    (nets / "b.prototxt").write_text('layer { name: "x" type: "Convolutoin" top: "x" }')
    result = run_script(nets, "--out", out)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-3:] == [f"{form}: 1 equal, 1 does not load" for form in run_exports.FORMS]
    good_report, bad_report = sorted(map(json.loads, out.read_text().splitlines()), key=lambda row: str(row["net"]))
    assert good_report["outputs"].keys() == good_report["onnx"].keys() == {"prob", "fc"}
    assert all(moved > 1e-3 for moved in good_report["moves"].values())
    assert "Convolutoin" in bad_report["refused"]


def test_a_wrong_export_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.prototxt").write_text(make_residual_net(1))
    monkeypatch.setitem(run_exports._FORMS, "onnx", lambda subject, inputs: _scale_outputs(subject, inputs))
    result = run_exports.assess(str(tmp_path / "net.prototxt"), forms=("onnx",))
    assert result["onnx"]["fc"] == pytest.approx(1e-3, rel=0.2)
    assert judge_form(result, "onnx") == "differs"
    assert judge_form(result | {"sways": dict.fromkeys(result["sways"], 0.01)}, "onnx") == "unstable"
    assert judge_form(result | {"onnx": {"fc": float("nan")}}, "onnx") == "differs"
    assert judge_form(result | {"moves": dict.fromkeys(result["moves"], 0.0)}, "onnx") == "constant"


def test_reordered_rows_are_distinguished_from_different_rows() -> None:
    boxes = np.random.default_rng(0).uniform(size=(1, 1, 9, 7))
    swapped_boxes, changed_boxes = boxes.copy(), boxes.copy()
    swapped_boxes[0, 0, [3, 4]] = boxes[0, 0, [4, 3]]
    changed_boxes[0, 0, 3, 2] += 0.5
    assert _judge_boxes(swapped_boxes, boxes) == "reordered"
    assert _judge_boxes(changed_boxes, boxes) == "differs"
    assert _judge_boxes(boxes, boxes) == "equal"


def _judge_boxes(actual: np.ndarray, expected: np.ndarray) -> str:
    ours, others = {"boxes": actual}, {"boxes": expected}
    report = {"onnx": relative_errors(ours, others), "onnx_in_any_order": unordered_distances(ours, others)}
    return judge_form({**report, "moves": {"boxes": 1.0}, "sways": {"boxes": 0.0}}, "onnx")


def _scale_outputs(subject: Any, inputs: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(blob) * 1.001 for name, blob in subject.run(inputs).items()}


@pytest.mark.long
@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"needs the corpus of public nets in {CORPUS}, which is absent")
@pytest.mark.parametrize("name", SMALL_NETS)
def test_public_nets_are_equal(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(CORPUS / "nets.zip") as archive:
        path = archive.extract(next(n for n in archive.namelist() if Path(n).name == name), tmp_path)
    result = run_exports.assess(path)
    for form in run_exports.FORMS:
        assert max(result[form].values()) < 1e-4, result[form]

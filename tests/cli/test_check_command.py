"""`caffejax check`: its table, its JSON, its exit codes."""

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

from caffejax import Net
from caffejax.cli import main
from caffejax.core.layers import layer_types, registry
from caffejax.tools.model_check import check
from caffejax.tools.model_check.check_report import Finding, PhaseReport, Report, WeightsReport, format_outcome
from caffejax.tools.model_check.html_report import render_html_report

INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }\n'
LOADS, FAILS = PhaseReport("TRAIN", "loads"), PhaseReport("TEST", "fails")
MISMATCHED_WEIGHTS = WeightsReport("w", mismatched=(Finding("weights", "x"),))
MODULE = """
import caffejax
caffejax.register("Unheard")(lambda x: 3 * x)
"""
IP = 'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }'
RELU = 'layer { name: "relu" type: "%s" bottom: "data" top: "relu" }\n'


class LastingWorker(check._Worker):
    """A worker process that outlives the command that uses it."""

    def __init__(self) -> None:
        super().__init__(())
        self._lock = threading.Lock()

    def check(self, *request: Any) -> Report:
        with self._lock:
            return super().check(*request)

    def end(self, hangs: bool = False) -> int | None:
        return super().end(hangs) if hangs else None


@pytest.fixture(scope="module")
def lasting_worker() -> Iterator[LastingWorker]:
    worker = LastingWorker()
    yield worker
    check._Worker.end(worker)


@pytest.fixture(autouse=True)
def _one_worker(lasting_worker: LastingWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command without imports uses the same process, because a process takes seconds to start."""
    new_worker = check._Worker
    monkeypatch.setattr(check, "_Worker", lambda imports: new_worker(imports) if imports else lasting_worker)


@pytest.fixture
def models_folder(tmp_path: Path) -> Path:
    (tmp_path / "good.prototxt").write_text(INPUT + RELU % "ReLU")
    (tmp_path / "labels.pbtxt").write_text("item { id: 1 }")
    (tmp_path / ("a_long_name_" * 6 + ".pt")).write_text(INPUT + RELU % "Unheard")
    return tmp_path


def test_the_table_lists_nets_that_fail_and_other_files(
    models_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(models_folder), "-j", "1"]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert all(len(line) <= 100 for line in lines if str(models_folder) not in line)
    assert lines[0].split() == ["model", "loads", "in", "params", "memory"]
    assert any("FAILS" in line for line in lines)
    assert "  TRAIN, TEST: unknown layer type 'Unheard' (layer 'relu')" in lines
    assert any(line.split()[-3:-2] == ["-"] and "TRAIN TEST" in line for line in lines)
    assert "1 of 2 nets loads." in lines
    assert "Neither net nor solver: 1 file" in lines
    assert "labels.pbtxt: the file is a label map" in " ".join(out.split())
    assert err == "caffejax: 1 of 2 nets does not load\n"
    assert any(f"a_long_name_{'a_long_name_' * 5}.pt" in line for line in lines)


def test_names_are_shortened_only_in_a_terminal(
    models_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(models_folder / ("a_long_name_" * 6 + ".pt"))
    main(["check", file])
    assert f"\n{file}\n{' ' * 52}FAILS " in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    main(["check", file])
    assert f"\n…{file[-49:]}  FAILS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (Report("n", "net", phases=(LOADS, FAILS)), "TRAIN; TEST FAILS"),
        (Report("n", "net", phases=(LOADS, FAILS, replace(FAILS, state="TEST+a"))), "TRAIN; TEST, TEST+a FAIL"),
        (Report("n", "net", phases=(FAILS,)), "FAILS"),
        (Report("n", "net", phases=(LOADS,)), "TRAIN"),
        (Report("n", "net", phases=(replace(LOADS, weights=(MISMATCHED_WEIGHTS,)),)), "TRAIN; WEIGHTS FAIL"),
        (Report("n", "net", (Finding("text", "line 3"),), (LOADS,)), "TRAIN; TEXT FAILS"),
        (Report("n", "solver", (Finding("setting", "x"),), (LOADS,)), "TRAIN; SETTINGS FAIL"),
        (Report("n", "solver", (Finding("setting", "x"),)), "FAILS (settings)"),
        (Report("n", "solver"), "(settings)"),
        (
            Report("n", "net", phases=(LOADS, *(replace(FAILS, state="T" * i) for i in range(1, 9)))),
            "TRAIN; 8 states FAIL",
        ),
        (Report("n", "unreadable", (Finding("text", "x"),)), "FAILS"),
    ],
)
def test_the_outcome_names_what_loads_and_what_fails(report: Report, outcome: str) -> None:
    assert format_outcome(report, 12) == outcome
    assert f"<span>{'loads' if report.loads else outcome}</span>" in render_html_report([report], "")


def test_nets_in_old_forms_are_listed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(5):
        (tmp_path / f"{i}.prototxt").write_text('input: "x" input_shape { dim: 2 dim: 3 }')
    assert main(["check", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "note:" not in out
    files = ", ".join(str(tmp_path / f"{i}.prototxt") for i in range(3))
    assert f"`caffejax upgrade OLD NEW` rewrites them: {files} and 2 more" in out


def test_absent_weights_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.prototxt").write_text(INPUT + RELU % "ReLU")
    rule = "(a file belongs to the net with the same base name; `--weights` names one)."
    main(["check", str(tmp_path)])
    assert f"No weights were found for 1 of 1 net {rule}" in " ".join(capsys.readouterr().out.split())
    for name in ("other.caffemodel", "a.b.caffemodel.h5", "data.h5"):
        (tmp_path / name).write_bytes(b"")
    main(["check", str(tmp_path / "net.prototxt")])
    files = f"{tmp_path / 'a.b.caffemodel.h5'}, {tmp_path / 'other.caffemodel'}"
    assert f"1 of 1 net; 2 weights files belong to no net: {files} {rule}" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "other.caffemodel").rename(tmp_path / "net.caffemodel")
    main(["check", str(tmp_path)])
    assert f"1 weights file belongs to no net: {tmp_path / 'a.b.caffemodel.h5'} {rule}" in " ".join(
        capsys.readouterr().out.split()
    )
    main(["check", str(tmp_path), f"--weights={tmp_path / 'net.caffemodel'}"])
    assert rule not in capsys.readouterr().out
    for i in range(6):
        (tmp_path / f"iter_{i}.caffemodel").write_bytes(b"")
    main(["check", str(tmp_path)])
    assert "and 2 more (" in " ".join(capsys.readouterr().out.split())


def test_json_lists_findings_and_sizes_of_each_phase(models_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(models_folder), "--json", "-j", "2"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert [Path(f).name for f in result["skipped"]] == ["labels.pbtxt"]
    failing_model, loading_model = result["models"]
    assert {(phase["parameters"], phase["memory"]) for phase in failing_model["phases"]} == {(None, None)}  # unknown
    assert (failing_model["loads"], loading_model["loads"]) == (False, True)
    assert failing_model["phases"][0]["findings"] == [
        {"cause": "type", "message": "unknown layer type 'Unheard'", "layers": ["relu"]}
    ]
    assert loading_model["phases"][1] | {"memory": 0} == {
        **{"state": "TEST", "outcome": "loads", "findings": [], "assumed": [], "compiled": 1, "on_host": []},
        **{"parameters": 0, "memory": 0, "weights": []},
    }


def test_weights_that_fit_all_phases_are_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test_only = INPUT + RELU.replace("}", "include { phase: TEST } }") % "ReLU"  # the phases differ in their layers
    (tmp_path / "net.prototxt").write_text(test_only + IP)
    net = Net(test_only + IP)
    net.save(*net.init(jax.random.key(0)), tmp_path / "net.npz")
    assert main(["check", str(tmp_path / "net.prototxt"), f"--weights={tmp_path / 'net.npz'}"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("blobs for 1 layer fit") == out.count("TRAIN, TEST: ") == 1


def test_the_exit_code_is_2_for_invalid_arguments_and_1_without_models(
    models_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_types", layer_types())  # all, or one that a test imports first would be lost
    (tmp_path / "of_my_own.py").write_text(MODULE)
    assert (
        main(["check", str(models_folder), "--import=of_my_own"]) == 0
    )  # the process that looks at the nets imports it, too
    for arguments in (
        ["check"],
        ["check", str(tmp_path / "absent")],
        ["check", str(models_folder), "--weights=absent"],
    ):
        with pytest.raises(SystemExit) as exc_info:
            main(arguments)
        assert exc_info.value.code == 2
    (tmp_path / "empty").mkdir()
    assert main(["check", str(tmp_path / "empty")]) == 1
    assert "there are no *.prototxt" in capsys.readouterr().err


NET_WITH_TYPO = (INPUT + RELU % "ReLU").replace("layer {", "lyer {")
DAMAGED_FILES = {
    "typos": (NET_WITH_TYPO.encode(), "lines 1, 2: NetParameter has no field 'lyer'; did you mean 'layer'?"),
    "no_beginning": (b"  }\n}\n" + (INPUT + RELU % "ReLU").encode(), "line 1: expected the name of a field"),
    "page": (b"\n<!DOCTYPE html>\n<html><style>input { color: red }</style></html>", "this is an HTML page"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "`git lfs pull`"),
    "empty": (b" # nothing\n", "the file is empty"),
    "binary": (b"\x89\0", "this is a binary file"),
    "picture": (b"\x89PNG\r\n\x1a\n", "this is a picture"),
    "archive": (b"\x1f\x8b\x08\0", "this is a compressed file; unpack it first"),
}


@pytest.mark.parametrize("name", DAMAGED_FILES)
def test_a_damaged_file_fails(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / f"{name}.prototxt"
    content, reason = DAMAGED_FILES[name]
    file.write_bytes(content)
    assert main(["check", str(file)]) == 1
    out = capsys.readouterr().out
    assert reason in " ".join(out.split())
    assert ("\n0 of 1 net loads.\n" if name in ("typos", "no_beginning") else "\n0 nets load.\n") in out


def test_damaged_files_beside_nets_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.prototxt").write_text(INPUT + RELU % "ReLU")
    for name, (content, _) in DAMAGED_FILES.items():
        (tmp_path / f"{name}.prototxt").write_bytes(content)
    assert main(["check", str(tmp_path), "-j", "1", "--json"]) == 1
    models = {Path(model["file"]).stem: model for model in json.loads(capsys.readouterr().out)["models"]}
    assert {name for name, model in models.items() if not model["loads"]} == set(DAMAGED_FILES)
    for name, (_, reason) in DAMAGED_FILES.items():
        assert any(reason in finding["message"] for finding in models[name]["findings"])


def test_other_files_fail_only_where_they_are_named_or_nothing_is_a_net(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, weights = tmp_path / "labels.prototxt", tmp_path / "torch.pt"
    labels.write_text("item { id: 1 }")
    weights.write_bytes(b"PK\3\4\0")
    assert main(["check", str(tmp_path), "-j", "1"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == ["0 nets load.", "Neither net nor solver: 2 files"]
    assert err == "caffejax: there is neither a net nor a solver in these folders\n"
    (tmp_path / "good.prototxt").write_text(INPUT + RELU % "ReLU")
    assert main(["check", str(tmp_path), "-j", "1"]) == 0
    assert "this is a zip archive" in " ".join(capsys.readouterr().out.split())
    for file in (labels, weights):
        assert main(["check", str(tmp_path), str(file), "-j", "1"]) == 1


def test_a_solver_with_wrong_settings_has_single_brackets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "solver.prototxt").write_text("base_lr: 0.1 lr_policy: 'unheard'")
    assert main(["check", str(tmp_path)]) == 1
    assert "  FAILS (settings)" in capsys.readouterr().out

"""Commands that replace Caffe's Python tools and upgrade old files."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from test_help_and_errors import run_with_error
from test_logs import CURRENT_LOG

from caffejax.cli import main
from caffejax.core.schema import caffe_pb2, parse_text, read_net, read_solver

CONFIGS = Path(__file__).parents[2] / "configs" / "digits"
WEIGHTS = Path(__file__).parents[1] / "golden" / "weights"
LENET = str(CONFIGS / "lenet_train_test.prototxt")

V1_NET = """
input: "data" input_dim: [1, 3, 8, 8]
layers { name: "c" type: CONVOLUTION bottom: "data" top: "c" blobs_lr: 2
  convolution_param { num_output: 4 kernel_size: 3 } }
layers { name: "r" type: RELU bottom: "c" top: "c" }
"""


def run_command(*arguments: object) -> None:
    assert main([str(a) for a in arguments]) == 0


@pytest.mark.parametrize("flags", [(), ("--rankdir=BT", "--phase=TRAIN", "--display_lrm")])
def test_draw_net_draws_the_layers_of_a_phase(tmp_path: Path, flags: tuple[str, ...]) -> None:
    run_command("draw_net", LENET, tmp_path / "net.dot", *flags)
    dot = (tmp_path / "net.dot").read_text()
    assert ("rankdir=BT" in dot, "lr mult: 1.0, 2.0" in dot) == (bool(flags), bool(flags))
    assert dot.count("(Data)") == (1 if flags else 2)  # one per phase


def test_draw_net_takes_old_nets(tmp_path: Path) -> None:
    (tmp_path / "old.prototxt").write_text(V1_NET)
    run_command("draw_net", tmp_path / "old.prototxt", tmp_path / "net.dot")
    assert "c_Convolution" in (tmp_path / "net.dot").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("draw_net", "absent.prototxt", "net.dot"), r"absent.prototxt: no such file"),
        (
            ("draw_net", LENET, "no_folder/net.dot"),
            r"no_folder/net.dot: cannot be written: .*; create the folder first",
        ),
        (("draw_net", LENET, "net"), "net: the file's extension must be an image format"),
        (
            ("draw_net", "net.prototxt", "net.svg", "--phase=TRAIN"),
            "net.prototxt: layer a has both include and exclude",
        ),
        (
            ("draw_net", "net.prototxt", "net.svg", "--display_lrm"),
            "net.prototxt: layer 'b' has 3 param entries, but at most two are allowed, for weights and biases",
        ),
        (("parse_log", "absent.log", "."), "absent.log: cannot be read"),
        (("upgrade_net_proto_text", "absent", "new"), "absent: no such file"),
        (("upgrade_net_proto_text", "junk", "new"), "junk:1:1: .*junk"),
        (("upgrade_net_proto_text", LENET, "no_folder/new"), "no_folder/new: cannot be written"),
        (("upgrade_solver_proto_text", LENET, "new"), "lenet_train_test.prototxt:"),
        (("upgrade_net_proto_binary", "absent", "new"), "absent: no such file"),
        (("upgrade_net_proto_binary", "junk", "new"), "junk: this is not a NetParameter"),
    ],
)
def test_mistakes_are_reported_and_no_file_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk").write_text("junk: 1")
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "a" type: "ReLU" bottom: "x" top: "x" include { phase: TRAIN } exclude { stage: "s" } }'
        'layer { name: "b" type: "InnerProduct" bottom: "x" top: "y" param { } param { } param { } }'
    )
    assert re.search(message, run_with_error(capsys, *arguments))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["junk", "net.prototxt"]


def test_parse_log_writes_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(CURRENT_LOG)
    run_command("parse_log", tmp_path / "a.log", tmp_path, "--delimiter=\\t", "--verbose")
    with open(tmp_path / "a.log.test") as file:
        header, *rows = csv.reader(file, delimiter="\t")
    assert header == ["NumIters", "Seconds", "LearningRate", "accuracy", "loss"]
    assert rows == [["0.0", "1.5", "9.9e-05", "0.1", "2.5"], ["200.0", "5.0", "9.9e-05", "1.0", "1e-05"]]
    assert "NumIters 200, Seconds 5, LearningRate 9.9e-05, accuracy 1, loss 1e-05" in capsys.readouterr().out


def test_parse_log_of_a_run_without_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text("\n".join(line for line in CURRENT_LOG.splitlines() if "Test" not in line))
    run_command("parse_log", tmp_path / "a.log", tmp_path)
    assert "contains no outputs of a test net" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.log", "a.log.train"]


@pytest.mark.parametrize("chart", [*range(8), "train_loss_vs_iters", "Test accuracy  vs. Seconds"])
def test_plot_training_log_draws_each_chart_type(tmp_path: Path, chart: Any) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(CURRENT_LOG)
    run_command("plot_training_log", chart, tmp_path / "p.svg", tmp_path / "a.log", tmp_path / "b.log")
    assert "</svg>" in (tmp_path / "p.svg").read_text()


def test_plots_show_the_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    figures: list[Any] = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, *_, **__: figures.append(self))
    (tmp_path / "a.log").write_text(CURRENT_LOG)
    for chart in range(8):
        run_command("plot_training_log", chart, tmp_path / "p.png", tmp_path / "a.log")
    curves = [[tuple(map(float, p)) for p in f.axes[0].lines[0].get_xydata()] for f in figures]
    assert curves[:6] == [
        [(0, 0.1), (200, 1)],
        [(1.5, 0.1), (5, 1)],
        [(0, 2.5), (200, 1e-05)],
        [(1.5, 2.5), (5, 1e-05)],
        [(0, 0.01), (100, 9.9e-05)],
        [(2.5, 0.01), (3.5, 9.9e-05)],
    ]
    assert [x for x, _ in curves[6]] == [0, 100, 200]
    assert figures[1].axes[0].get_title() == "Test accuracy vs. Seconds"
    assert figures[0].axes[0].get_legend().get_texts()[0].get_text() == "a.log: accuracy"


@pytest.mark.parametrize(
    ("chart", "target", "log", "message"),
    [
        ("0", "p.png", "train_only.log", r"train_only\.log: has no output to plot as test accuracy; .*: none"),
        ("6", "p.nonsense", "a.log", r"p\.nonsense: .*not a picture format; choose one of"),
        ("6", "no_folder/p.png", "a.log", "create the folder first"),
    ],
)
def test_plots_that_cannot_be_drawn_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    chart: str,
    target: str,
    log: str,
    message: str,
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text(CURRENT_LOG)
    (tmp_path / "train_only.log").write_text("\n".join(x for x in CURRENT_LOG.splitlines() if "Test" not in x))
    assert re.search(message, run_with_error(capsys, "plot_training_log", chart, target, log), re.DOTALL)


@pytest.mark.parametrize("chart", ["8", " -1", "loss"])
def test_unknown_charts_are_refused(capsys: pytest.CaptureFixture[str], chart: str) -> None:
    with pytest.raises(SystemExit) as exc_info:
        main(["plot_training_log", chart, "p.png", "a.log"])
    assert exc_info.value.code == 2
    assert "is not a chart type: 0 to 7, or test_accuracy_vs_iters" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["upgrade", "upgrade_net_proto_text"])
def test_text_nets_are_upgraded(tmp_path: Path, command: str) -> None:
    old_path, new_path = tmp_path / "old.prototxt", tmp_path / "new.prototxt"
    old_path.write_text(V1_NET)
    run_command(command, old_path, new_path)
    net = parse_text(new_path.read_text(), caffe_pb2.NetParameter)  # without upgrading it once more
    assert [(layer.type, layer.name) for layer in net.layer] == [
        ("Input", "input"),
        ("Convolution", "c"),
        ("ReLU", "r"),
    ]
    assert net.layer[1].param[0].lr_mult == 2
    assert net == read_net(old_path)
    run_command(command, new_path, new_path)
    assert parse_text(new_path.read_text(), caffe_pb2.NetParameter) == net


@pytest.mark.parametrize("command", ["upgrade", "upgrade_solver_proto_text"])
def test_solvers_are_upgraded(tmp_path: Path, command: str) -> None:
    old_path, new_path = tmp_path / "old.prototxt", tmp_path / "new.prototxt"
    old_path.write_text("solver_type: ADAM base_lr: 0.1 net_param { " + V1_NET + " }")
    run_command(command, old_path, new_path)
    solver = parse_text(new_path.read_text(), caffe_pb2.SolverParameter)
    assert solver.type == "Adam"
    assert not solver.HasField("solver_type")
    assert [layer.type for layer in solver.net_param.layer][1:] == ["Convolution", "ReLU"]
    assert solver == read_solver(old_path)


@pytest.mark.parametrize("command", ["upgrade", "upgrade_net_proto_binary"])
@pytest.mark.parametrize("name", ["v0_legacy4d", "v1_legacy4d"])
def test_binary_nets_are_upgraded_as_caffe_does(tmp_path: Path, name: str, command: str) -> None:
    run_command(command, WEIGHTS / f"{name}.caffemodel", tmp_path / "new.caffemodel")
    actual = caffe_pb2.NetParameter.FromString((tmp_path / "new.caffemodel").read_bytes())
    expected = caffe_pb2.NetParameter.FromString((WEIGHTS / f"{name}.upgraded.caffemodel").read_bytes())
    assert actual == expected

"""Gradient checks of nets, from Python and the command line, and their error messages."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from caffejax import Net, check_gradients, layer_types, save_weights
from caffejax.base.errors import CaffejaxError
from caffejax.cli import main
from caffejax.core.data.synthetic_inputs import complete_inputs
from caffejax.core.layers import register_temporarily
from caffejax.core.layers.types import Gradient

NET = """
name: "small"
layer { name: "in" type: "Input" top: "data" top: "label"
        input_param { shape { dim: 4 dim: 2 dim: 6 dim: 6 } shape { dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
        inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.fixture
def net_file(tmp_path: Path) -> Path:
    path = tmp_path / "net.prototxt"
    path.write_text(NET)
    return path


def test_all_layers_of_a_net_are_checked() -> None:
    report = check_gradients(Net(NET, "TRAIN"), samples=8)
    assert report.ok, report
    assert [row.layer for row in report.rows] == ["conv"] * 3 + ["relu", "drop"] + ["ip"] * 3 + ["loss"]
    # in place: ReLU is checked at what the convolution computed, so that some of it is negative
    assert not report.rows[3].zero


def test_labels_are_valid_classes() -> None:
    inputs = complete_inputs(Net(NET, "TEST").graph, {}, np.random.default_rng(0))
    assert set(inputs["label"]) <= set(range(5))
    assert inputs["data"].dtype == np.float64


def test_the_command_prints_a_report(net_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, data=np.random.default_rng(3).normal(size=(4, 2, 6, 6)))
    weights, net = tmp_path / "w.caffemodel", Net(NET)
    save_weights(weights, net.graph, net.init(jax.random.key(5)))
    flags = ["--layers=ip,loss", "--json", f"--inputs={inputs}", f"--weights={weights}", "--samples=8"]
    assert main(["gradcheck", f"--model={net_file}", *flags]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert [row["layer"] for row in report["rows"]] == ["ip", "ip", "ip", "loss"]
    assert report["rows"][0]["rule_autodiff"]["error"] < 1e-6


def test_the_command_reports_a_wrong_rule(net_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    relu = layer_types()["ReLU"]
    wrong_gradient = Gradient(lambda x, *, y, dy: dy)
    with register_temporarily(dataclasses.replace(relu, gradient=wrong_gradient)):
        assert main(["gradcheck", f"--model={net_file}", "--layers=relu"]) == 1
    output = capsys.readouterr()
    assert "rule is wrong" in output.out
    assert "layer 'relu' (ReLU): gradient of bottom 0 (conv): rule is wrong" in output.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--layers=lost"], "the net has no layer 'lost' in phase TRAIN; did you mean 'loss'?"),
        (["--layers=gm"], "the net has no layer 'gm' in phase TRAIN; it has in, conv, relu, drop, ip, loss"),
        (["--layers=in"], "no layer has a bottom or parameter to differentiate"),
        (["--inputs=nowhere.npz"], "nowhere.npz: no such file"),
        (["--weights=nowhere.caffemodel"], "nowhere.caffemodel"),
        (["--samples=0"], "samples must be at least 1, not 0"),
    ],
)
def test_the_command_refuses_invalid_input(
    net_file: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gradcheck", f"--model={net_file}", *flags]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_gradients("InerProduct"), "unknown layer type 'InerProduct'; did you mean 'InnerProduct'"),
        (lambda: check_gradients("ReLU", bottoms=[(2,), (2,)]), "takes exactly 1 bottom, but has 2"),
        (lambda: check_gradients("LRN", bottoms=[(2, 3)]), r"layer 'layer' \(LRN\).*4 axes"),
        (
            lambda: check_gradients("ReLU", 'type: "TanH"', bottoms=[(2,)]),
            "has the type 'TanH', but .* has the type 'ReLU'",
        ),
        (
            lambda: check_gradients(
                "InnerProduct", "inner_product_param { num_output: 3 }", bottoms=[(2, 5)], blobs=[np.ones((3, 4))]
            ),
            r"the blobs have shapes \[\(3, 4\)\], but the layer needs \[\(3, 5\), \(3,\)\]",
        ),
        (
            lambda: check_gradients(Net(NET), inputs={"datum": np.ones(3)}),
            "has no input 'datum'; did you mean 'data'",
        ),
        (
            lambda: check_gradients(Net(NET), inputs={"data": np.ones((4, 2, 6))}),
            r"input 'data' has shape \(4, 2, 6\), but the net expects \(4, 2, 6, 6\)",
        ),
    ],
)
def test_invalid_arguments_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(CaffejaxError, match=message):
        call()


@pytest.mark.long
@pytest.mark.parametrize("with_boxes", [False, True])
def test_layers_that_label_boxes_are_ok_as_declared(
    with_boxes: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Faster R-CNN stops the gradient in three layers, and its losses are checked with labels that are not ignored."""
    random = np.random.default_rng(0)
    boxes = np.array([[8, 8, 40, 48, 1], [30, 20, 90, 80, 2]], np.float32)
    data = 40 * random.standard_normal((1, 3, 96, 96)).astype(np.float32)
    np.savez(tmp_path / "inputs.npz", data=data, im_info=np.array([[96, 96, 1]], np.float32), gt_boxes=boxes)
    model = Path(__file__).parents[3] / "configs" / "faster_rcnn_toy" / "train.prototxt"
    layers = "rpn_data,rpn_loss_cls,rpn_loss_bbox,proposal,roi_data,loss_cls"
    inputs = [f"--inputs={tmp_path / 'inputs.npz'}"] if with_boxes else []
    assert main(["gradcheck", str(model), f"--layers={layers}", "--samples=4", "--json", *inputs]) == 0
    verdicts: dict[str, set[str]] = {}
    report = json.loads(capsys.readouterr().out)
    for row in report["rows"]:
        verdicts.setdefault(row["layer"], set()).add(row["verdict"])
        assert row["verdict"] != "ok" or not row["zero"]
    for layer in layers.split(","):
        is_stop = layer in ("rpn_data", "proposal", "roi_data")
        assert verdicts[layer] == {"ok (no gradient, as declared)" if is_stop else "ok"}

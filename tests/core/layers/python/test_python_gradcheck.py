"""Gradient checks of Python layers, alone and in nets."""

from typing import Any

import numpy as np
import pytest
import user_layers
from python_nets import draw_inputs, input_layer, python_layer

from caffejax import LayerError, Net, check_gradients
from caffejax.cli import main


@pytest.mark.parametrize(
    ("layer", "param", "bottoms", "num_arguments"),
    [
        (user_layers.SimpleLayer, "", [(2, 3)], 1),
        (user_layers.Euclidean, "", [(4, 3), (4, 3)], 2),
        (user_layers.Euclidean, "propagate_down: true propagate_down: false", [(4, 3), (4, 3)], 1),
        (user_layers.Linear, "python_param { param_str: \"{'num_output': 3}\" }", [(4, 2, 2)], 3),
        (user_layers.cube, "", [(2, 3)], 1),
        (user_layers.sum_and_product, 'top: "a" top: "b"', [(2, 3), (2, 3)], 2),
        (user_layers.noise, "", [(2, 3)], 1),
        (user_layers.LearnedScale, 'python_param { param_str: "2" }', [(2, 3)], 2),
    ],
)
def test_correct_gradients_pass(layer: Any, param: str, bottoms: Any, num_arguments: int) -> None:
    report = check_gradients(layer, param, bottoms=bottoms)
    assert report.ok, report
    assert len(report.rows) == num_arguments
    assert all(row.checked > 0 and not row.zero for row in report.rows)


def test_wrong_backward_is_reported() -> None:
    report = check_gradients(user_layers.WrongGradient, bottoms=[(2, 3)])
    assert [row.verdict for row in report.rows] == ["backward is wrong"]


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_slightly_wrong_backward_is_reported(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    original_backward = user_layers.Euclidean.backward

    def backward(self: Any, top: Any, propagate_down: Any, bottom: Any) -> None:
        original_backward(self, top, propagate_down, bottom)
        bottom[1].diff[...] *= factor

    monkeypatch.setattr(user_layers.Euclidean, "backward", backward)
    report = check_gradients(user_layers.Euclidean, bottoms=[(4, 3), (4, 3)])
    assert [row.ok for row in report.rows] == [True, False]


def test_missing_backward_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(user_layers.SimpleLayer, "backward")
    report = check_gradients(user_layers.SimpleLayer, bottoms=[(2, 3)])
    assert [row.verdict for row in report.rows] == ["has no backward, but a gradient"]


def test_local_class_is_refused() -> None:
    class Local(user_layers.SimpleLayer):
        pass

    with pytest.raises(LayerError, match=r"Local cannot be imported from module .* at the top level of a module"):
        check_gradients(Local, bottoms=[(2, 3)])


NET_TEXT = (
    input_layer((4, 3), (4, 2))
    + python_layer("ip", "Linear", "x0", "ip", param_str="{'num_output': 2}")
    + python_layer("cube", "cube", "ip", "cube")
    + 'layer { name: "tanh" type: "TanH" bottom: "cube" top: "t" }'
    + python_layer("loss", "Euclidean", "t x1", "loss", "loss_weight: 1")
)


def test_gradients_of_a_net() -> None:
    report = check_gradients(Net(NET_TEXT, "TRAIN"), inputs=draw_inputs((4, 3), (4, 2)))
    assert report.ok, report
    # of the loss only what the net asks for: its second bottom is data
    assert [(row.layer, row.argument[:8]) for row in report.rows] == [
        ("ip", "blob 0"),
        ("ip", "blob 1"),
        ("cube", "bottom 0"),
        ("tanh", "bottom 0"),
        ("loss", "bottom 0"),
    ]
    errors_by_layer = {row.layer: row.autodiff_differences.error for row in report.rows if row.autodiff_differences}
    assert errors_by_layer["cube"] < 1e-6  # what is compiled is checked in float64 as ever


def test_gradients_of_a_net_with_a_data_layer(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = python_layer("data", "Images", "", "image label", param_str="{'seed': 1}")
    text += 'layer { name: "conv" type: "Convolution" bottom: "image" top: "y" convolution_param { num_output: 2 '
    text += 'kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }' + python_layer(
        "ten", "WrongGradient", "y", "ten"
    )
    text += 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ten" bottom: "label" top: "loss" }'
    (tmp_path / "net.prototxt").write_text(text)
    assert main(["gradcheck", f"--model={tmp_path / 'net.prototxt'}", "--samples=4"]) == 1
    out, err = capsys.readouterr()
    assert "backward is wrong" in out
    assert "layer 'ten' (Python): gradient of bottom 0 (y): backward is wrong" in err
    assert "'conv'" not in err
    assert np.char.count(out, "ok") >= 2

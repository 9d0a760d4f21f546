"""Layers that users write in Python for OpenCV, with `cv2.dnn_registerLayer`."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffejax import dnn
from caffejax.base.errors import CaffejaxError
from caffejax.core.checkpoints.caffemodel import write_caffemodel
from caffejax.core.schema import read_net

TEXT = """
layer { name: "data" type: "Input" top: "data" top: "small" input_param {
  shape { dim: 1 dim: 3 dim: 8 dim: 8 } shape { dim: 1 dim: 3 dim: 4 dim: 4 } } }
layer { name: "abs" type: "AbsVal" bottom: "data" top: "abs" }
layer { name: "crop" type: "Crop" bottom: "abs" bottom: "small" top: "crop" crop_param { offset: 1 offset: 2 } }
layer { name: "two" type: "Shift" bottom: "crop" bottom: "small" top: "two" top: "other"
  convolution_param { num_output: 3 kernel_size: 3 kernel_size: 4 bias_term: false engine: CAFFE
    weight_filler { type: "xavier" std: 0.5 } } }
layer { name: "relu" type: "ReLU" bottom: "two" top: "two" }
"""
IMAGE = np.arange(192, dtype=np.float32).reshape(1, 3, 8, 8)


class CropLayer:
    """The class of OpenCV's edge_detection.py, which crops at the center."""

    def __init__(self, params: Any, blobs: Any) -> None:
        self.calls = 0

    def getMemoryShapes(self, inputs: Any) -> Any:
        self.calls += 1
        (n, c, height, width), target = inputs[0], inputs[1]
        self.y, self.x = (height - target[2]) // 2, (width - target[3]) // 2
        return [[n, c, target[2], target[3]]]

    def forward(self, inputs: Any) -> Any:
        assert self.calls == 1
        height, width = inputs[1].shape[2:]
        return [inputs[0][:, :, self.y : self.y + height, self.x : self.x + width]]


class Shift:
    """A type that Caffe does not have, with two tops."""

    calls: list[Any] = []  # noqa: RUF012

    def __init__(self, params: Any, blobs: Any) -> None:
        self.calls.append((params, blobs))

    def getMemoryShapes(self, inputs: Any) -> Any:
        return [inputs[0], inputs[1]]

    def forward(self, inputs: Any) -> Any:
        return [inputs[0] - 30, inputs[1]]


@pytest.fixture
def _register_layers() -> Iterator[None]:
    dnn.registerLayer("Crop", CropLayer)
    dnn.registerLayer("Shift", Shift)
    Shift.calls.clear()
    yield
    dnn.unregisterLayer("Crop")
    dnn.unregisterLayer("Shift")


def run_net(net: dnn.Net, layer: str = "") -> Any:
    net.setInput(IMAGE, "data")
    net.setInput(np.ones((1, 3, 4, 4)), "small")
    return net.forward(layer)


@pytest.mark.usefixtures("_register_layers")
def test_registered_layers_compute() -> None:
    net = dnn.readNetFromCaffe(TEXT.encode())
    cropped = IMAGE[:, :, 2:6, 2:6]  # with Caffe's layer, the crop would begin at (1, 2)
    np.testing.assert_array_equal(run_net(net, "crop"), cropped)
    np.testing.assert_array_equal(run_net(net), np.maximum(cropped - 30, 0))
    assert net.getLayerNames() == ("abs", "crop", "two", "relu")
    assert net.getLayerTypes() == ("AbsVal", "Crop", "ReLU", "Shift", "__NetInputLayer__")
    assert net.getLayer("two").blobs == ()
    assert net.getFLOPS([IMAGE.shape, (1, 3, 4, 4)]) == 192 + 48  # OpenCV 4.11's count, without registered layers


@pytest.mark.usefixtures("_register_layers")
def test_objects_get_settings_and_blobs_like_opencvs(tmp_path: Path) -> None:
    weights = tmp_path / "net.caffemodel"
    write_caffemodel(weights, read_net(TEXT), {"two": [np.ones(3, np.float32)]})
    run_net(dnn.readNetFromCaffe(TEXT.encode(), str(weights)))
    ((params, blobs),) = Shift.calls  # one object, though the net is built more than once
    assert params == {
        "bias_term": 0,
        "engine": "CAFFE",
        "kernel_size": (3, 4),
        "num_output": 3,
        "std": 0.5,
        "type": "xavier",
    }  # OpenCV 4.11's
    np.testing.assert_array_equal(blobs, [np.ones(3)])


@pytest.mark.usefixtures("_register_layers")
@pytest.mark.parametrize(
    ("text", "params"),  # OpenCV 4.11's
    [
        ("my_param { k: 3 }", {"k": "3"}),
        ("my_param { k: 3, k: 0.5 }", {"k": "0.5"}),
        ("own: 7", {"own": "7"}),
        ("my_param { sub { z: 1 } k: 2 }", {"k": "2", "z": "1"}),
        ("my_param { k: 1 } other_param < k: 2 >", {"k": "2"}),
        ("crop_param { axis: 1 } my_param { axis: 5 } # { comment", {"axis": "5"}),
        ("my_param { k: [1, 2, 3] b: 1 }", {"b": "1", "k": "1"}),
        ("my_param { k: [-3, 2] }", {"k": "3"}),
        ("my_param { k: [5], c: 4; k: 7 }", {"c": "4", "k": "7"}),
        ("my_param { k: [x, y] sub { z: [4.5, 1] } }", {"k": "x", "z": "4.5"}),
        ("own: [1, 2]", {"own": "1"}),
    ],
)
def test_settings_that_only_the_class_knows_are_passed_as_text(text: str, params: Any, tmp_path: Path) -> None:
    net = TEXT.replace("crop_param { offset: 1 offset: 2 }", "").replace(
        "convolution_param { num_output: 3 kernel_size: 3 kernel_size: 4 bias_term: false engine: CAFFE\n"
        '    weight_filler { type: "xavier" std: 0.5 } }',
        f"{text}\n",
    )
    (tmp_path / "net.prototxt").write_text(net)
    for source in (net.encode(), str(tmp_path / "net.prototxt")):
        Shift.calls.clear()
        run_net(dnn.readNetFromCaffe(source))
        assert Shift.calls == [(params, ())]
    with pytest.raises(CaffejaxError, match="expected"):
        dnn.readNetFromCaffe(net.replace('top: "abs" }', "top: ", 1).encode())


def test_registrations_are_undone() -> None:
    dnn.registerLayer("Crop", Shift)
    dnn.registerLayer("Crop", CropLayer)
    text = TEXT[: TEXT.index('layer { name: "two"')].encode()
    custom_net = dnn.readNetFromCaffe(text)
    for _ in range(3):  # without effect if nothing is registered, as in OpenCV
        dnn.unregisterLayer("Crop")
    np.testing.assert_array_equal(run_net(dnn.readNetFromCaffe(text)), IMAGE[:, :, 1:5, 2:6])
    np.testing.assert_array_equal(run_net(custom_net), IMAGE[:, :, 2:6, 2:6])


@pytest.mark.usefixtures("_register_layers")
def test_invalid_registered_layers_raise_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CaffejaxError, match=r"'Crop': int has no method getMemoryShapes and no method forward"):
        dnn.registerLayer("Crop", int)
    monkeypatch.setattr(Shift, "getMemoryShapes", lambda self, inputs: [inputs[0]])
    with pytest.raises(CaffejaxError, match=r"'two'.*1 shape.*2 tops"):
        dnn.readNetFromCaffe(TEXT.encode())
    monkeypatch.undo()
    net = dnn.readNetFromCaffe(TEXT.encode())
    monkeypatch.setattr(Shift, "forward", lambda self, inputs: inputs[:1])
    with pytest.raises(CaffejaxError, match=r"Shift.forward must return"):
        run_net(net)


def test_unknown_types_lead_to_registration() -> None:
    with pytest.raises(CaffejaxError, match=r"'two'.*'Shift'(.|\n)*registerLayer"):
        dnn.readNetFromCaffe(TEXT.encode())


SCRIPT = """
import cv2, sys
import numpy as np
sys.path.insert(0, {folder!r})
from test_registered_layers import TEXT, CropLayer, Shift, IMAGE
cv2.dnn_registerLayer("Crop", CropLayer)
cv2.dnn_registerLayer("Shift", Shift)
net = cv2.dnn.readNetFromCaffe(TEXT.encode())
cv2.dnn_unregisterLayer("Crop")
cv2.dnn_unregisterLayer("Shift")
net.setInput(IMAGE, "data")
net.setInput(np.ones((1, 3, 4, 4)), "small")
print(net.forward("crop")[0, 0, 0].tolist())
"""


def test_opencvs_functions_under_caffejax_run(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parent)))
    command = [sys.executable, "-m", "caffejax", "run", str(script)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout == "[18.0, 19.0, 20.0, 21.0]\n", result.stderr

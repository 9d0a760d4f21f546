"""OpenCV 5 runs the ONNX exports of nets with equal results."""

import re
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest

from caffejax import Net
from caffejax.cli import main
from caffejax.export import InferenceModel, make_inference_model
from caffejax.export.onnx import export_onnx
from export.onnx.test_onnx_nets import CLASSIFICATION, CONFIGS, SEGMENTATION
from export.random_params import draw_variables

pytestmark = pytest.mark.skipif(int(cv2.__version__.split(".")[0]) < 5, reason=f"needs OpenCV 5, not {cv2.__version__}")

BOXES = Path(__file__).parents[2] / "golden" / "opencv_dnn" / "boxes.prototxt"
NETS = {"classification": CLASSIFICATION, "segmentation": SEGMENTATION, "detection": BOXES}
LARGE_NETS = ("squeezenet", "mobilenet", "mobilenet_ssd")


def run_in_opencv(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    net = cv2.dnn.readNetFromONNX(np.frombuffer(model.SerializeToString(), np.uint8))
    for name, array in inputs.items():
        net.setInput(array, name)
    names = [output.name for output in model.graph.output]
    return dict(zip(names, net.forward(names), strict=True))


def assert_equal_in_opencv(subject: InferenceModel) -> None:
    random = np.random.default_rng(1)
    inputs = {name: random.normal(size=b.shape).astype(b.dtype) for name, b in subject.inputs.items()}
    actual = run_in_opencv(export_onnx(subject, symbolic_batch=False, pad_rows=True), inputs)
    expected, _ = subject.net.apply(*subject.variables, inputs)
    for name, actual_output in actual.items():
        expected_output = np.asarray(expected[name])
        assert actual_output.shape == expected_output.shape
        np.testing.assert_allclose(actual_output, expected_output, rtol=0, atol=1e-4 * np.abs(expected_output).max())


@pytest.mark.parametrize("name", NETS)
def test_opencv_gives_equal_outputs(name: str) -> None:
    net = Net(NETS[name])
    assert_equal_in_opencv(make_inference_model(net, draw_variables(net)))


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE_NETS)
def test_opencv_gives_equal_outputs_of_larger_nets(name: str) -> None:
    net = Net(CONFIGS / name / "train_val.prototxt")
    assert_equal_in_opencv(make_inference_model(net, draw_variables(net)))


@pytest.mark.long
def test_opencv_gives_equal_outputs_of_segnet(tmp_path: Path) -> None:
    """On a small image: at full size some windows have two maxima that differ by no more than rounding does."""
    text = (CONFIGS / "segnet" / "train_val.prototxt").read_text().replace("dim: 360 dim: 480", "dim: 64 dim: 96")
    model = tmp_path / "segnet.prototxt"
    model.write_text(re.sub(r"upsample_[hw]: \d+", "", text))
    net = Net(model)
    assert_equal_in_opencv(make_inference_model(net, draw_variables(net)))


def test_pad_rows_keeps_padding_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weights = f"--weights={BOXES.with_suffix('.caffemodel')}"
    for flags, rows in ([], "rows"), (["--pad_rows", "--batch=1"], 12):
        assert main(["export", str(BOXES), weights, "--to=boxes.onnx", *flags]) == 0
        dims = onnx.load("boxes.onnx").graph.output[0].type.tensor_type.shape.dim
        assert rows in (dims[2].dim_value, dims[2].dim_param)
    model = onnx.load("boxes.onnx")
    assert "Loop" not in {node.op_type for node in model.graph.node}
    net = Net(BOXES)
    inputs = {"data": np.random.default_rng(0).uniform(-1, 1, (1, 3, 16, 16)).astype(np.float32)}
    expected = np.asarray(net.apply(*net.load(BOXES.with_suffix(".caffemodel")), inputs)[0]["found"])
    detections = run_in_opencv(model, inputs)["found"]
    np.testing.assert_allclose(detections, expected, atol=1e-5)
    assert detections.shape == (1, 1, 12, 7)

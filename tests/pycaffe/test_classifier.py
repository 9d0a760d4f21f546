"""Classifier, Detector and their commands, on a net whose probabilities NumPy computes."""

import csv
import re
from pathlib import Path
from typing import Any

import cv2
import h5py
import jax
import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe
from caffejax.base.errors import CaffejaxError
from caffejax.cli import main
from caffejax.core.schema import format_text
from caffejax.pycaffe import NetSpec
from caffejax.pycaffe import layers as L
from caffejax.pycaffe import params as P
from caffejax.pycaffe.classifier import Classifier
from caffejax.pycaffe.detector import Detector
from caffejax.pycaffe.io import load_image, oversample, resize_image

MEAN = np.array([104.0, 117.0, 123.0])
SETTINGS: dict[str, Any] = dict(mean=MEAN, raw_scale=255, channel_swap=(2, 1, 0), input_scale=0.02)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a net, its weights, and images."""
    folder = tmp_path_factory.mktemp("job")
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[4, 3, 10, 10]))
    n.pool = L.Pooling(n.data, pool=P.Pooling.AVE, kernel_size=5, stride=5)
    n.ip = L.InnerProduct(n.pool, num_output=5, weight_filler=dict(type="xavier"))
    n.prob = L.Softmax(n.ip)
    (folder / "deploy.prototxt").write_text(format_text(n.to_proto()))
    net = caffejax.Net(folder / "deploy.prototxt", "TEST")
    caffejax.save_weights(folder / "net.caffemodel", net.graph, net.init(jax.random.key(3)))
    for i, shape in enumerate([(20, 30, 3), (31, 17, 3), (20, 30, 3)]):
        pixels = np.random.default_rng(i).integers(0, 256, shape).astype(np.uint8)
        assert cv2.imwrite(str(folder / f"{i}.png"), cv2.GaussianBlur(pixels, (5, 5), 2))
    return folder


def compute_probabilities(net: caffe.Net, batch: np.ndarray) -> np.ndarray:
    """Return the net's probabilities for RGB images (N, 10, 10, 3) in 0..1, computed with NumPy."""
    x = ((batch[..., ::-1] * 255 - MEAN) * 0.02).transpose(0, 3, 1, 2)
    x = x.reshape(-1, 3, 2, 5, 2, 5).mean(axis=(3, 5)).reshape(len(x), -1)
    weight, bias = (blob.data.astype(np.float64) for blob in net.params["ip"])
    z = np.exp(x @ weight.T + bias)
    return z / z.sum(axis=1, keepdims=True)


def test_center_crops(model_folder: Path) -> None:
    classifier = Classifier(
        str(model_folder / "deploy.prototxt"), str(model_folder / "net.caffemodel"), (12, 15), **SETTINGS
    )
    images = [load_image(model_folder / f"{i}.png") for i in range(3)]
    crops = np.stack([resize_image(image, (12, 15))[1:11, 2:12] for image in images])
    result = classifier.predict(images, oversample=False)
    np.testing.assert_allclose(result, compute_probabilities(classifier, crops), atol=1e-5)


def test_oversampling_averages_ten_crops(model_folder: Path) -> None:
    classifier = Classifier(
        str(model_folder / "deploy.prototxt"), str(model_folder / "net.caffemodel"), (12, 15), **SETTINGS
    )
    images = [load_image(model_folder / f"{i}.png") for i in range(3)]
    crops = oversample([resize_image(image, (12, 15)) for image in images], (10, 10))
    expected = compute_probabilities(classifier, crops).reshape(3, 10, 5).mean(axis=1)
    np.testing.assert_allclose(classifier.predict(images), expected, atol=1e-5)


def test_images_are_resized_to_the_input_by_default(model_folder: Path) -> None:
    classifier = Classifier(model_folder / "deploy.prototxt", model_folder / "net.caffemodel", **SETTINGS)
    image = load_image(model_folder / "0.png")
    expected = compute_probabilities(classifier, resize_image(image, (10, 10))[np.newaxis])
    np.testing.assert_allclose(classifier.predict([image], oversample=False), expected, atol=1e-5)
    for flag in (True, False):
        classifier.image_dims = (8, 20)
        with pytest.raises(ValueError, match="8 x 20 cannot be cropped to 10 x 10"):
            classifier.predict([image], oversample=flag)


def test_windows_without_context(model_folder: Path) -> None:
    detector = Detector(model_folder / "deploy.prototxt", model_folder / "net.caffemodel", **SETTINGS)
    windows = [
        (str(model_folder / "0.png"), [(2, 3, 17, 20), [0, 0, 20, 30]]),
        (str(model_folder / "1.png"), np.array([[5, 5, 9, 9]])),
    ]
    result = detector.detect_windows(windows)
    assert [Path(f["filename"]).name for f in result] == ["0.png", "0.png", "1.png"]
    assert [list(f["window"]) for f in result] == [[2, 3, 17, 20], [0, 0, 20, 30], [5, 5, 9, 9]]
    crops = [
        resize_image(load_image(f["filename"])[a:c, b:d], (10, 10)) for f in result for a, b, c, d in [f["window"]]
    ]
    expected = compute_probabilities(detector, np.stack(crops))
    np.testing.assert_allclose(np.stack([f["prediction"] for f in result]), expected, atol=1e-5)
    assert detector.detect_windows([(str(model_folder / "0.png"), [])]) == []


def test_context_around_a_window(model_folder: Path) -> None:
    detector = Detector(model_folder / "deploy.prototxt", model_folder / "net.caffemodel", context_pad=1, **SETTINGS)
    image = load_image(model_folder / "0.png")
    # 8 pixels show the window of 8, so 10 show 10: one more on each side
    np.testing.assert_allclose(
        detector.crop(image, (4, 4, 11, 11)), resize_image(image[3:13, 3:13], (10, 10)), atol=1e-6
    )


def test_pixels_outside_the_image_have_the_mean(model_folder: Path) -> None:
    detector = Detector(model_folder / "deploy.prototxt", model_folder / "net.caffemodel", context_pad=2, **SETTINGS)
    image = load_image(model_folder / "0.png")
    window = detector.transformer.preprocess("data", detector.crop(image, np.array([0, 12, 11, 23])))
    np.testing.assert_allclose(window[:, :2], 0, atol=1e-5)
    assert np.abs(window[:, 2:]).mean() > 0.1
    corner = detector.transformer.preprocess("data", detector.crop(image, np.array([12, 20, 20, 30])))
    np.testing.assert_allclose(corner[:, -1], 0, atol=1e-5)
    np.testing.assert_allclose(corner[:, :, -1], 0, atol=1e-5)


def test_context_is_filled_with_a_mean_image(model_folder: Path) -> None:
    mean = np.random.default_rng(0).uniform(90, 130, (3, 10, 10))
    detector = Detector(
        model_folder / "deploy.prototxt",
        model_folder / "net.caffemodel",
        context_pad=2,
        mean=mean,
        raw_scale=255,
        channel_swap=(2, 1, 0),
    )
    window = detector.transformer.preprocess("data", detector.crop(load_image(model_folder / "0.png"), (0, 12, 11, 23)))
    np.testing.assert_allclose(window[:, :2], 0, atol=1e-4)


def test_invalid_windows_and_context_are_rejected(model_folder: Path) -> None:
    with pytest.raises(ValueError, match="context_pad=5 needs a square input"):
        Detector(model_folder / "deploy.prototxt", model_folder / "net.caffemodel", context_pad=5)
    detector = Detector(model_folder / "deploy.prototxt", model_folder / "net.caffemodel")
    for window in ((5, 5, 5, 9), (25, 0, 30, 9)):
        with pytest.raises(CaffejaxError, match=r"0\.png: window \(.*\) is outside the image, which is 20 x 30"):
            detector.detect_windows([(model_folder / "0.png", [window])])
    with pytest.raises(CaffejaxError, match="selective_search_ijcv_with_python"):
        detector.detect_selective_search([str(model_folder / "0.png")])


# The commands.


def make_flags(model_folder: Path) -> list[str]:
    np.save(model_folder / "mean.npy", MEAN)
    return [
        f"--model_def={model_folder / 'deploy.prototxt'}",
        f"--pretrained_model={model_folder / 'net.caffemodel'}",
        f"--mean_file={model_folder / 'mean.npy'}",
        "--input_scale=0.02",
    ]


@pytest.mark.parametrize("source_type", ["image", "folder", "array"])
def test_classify_writes_the_classifiers_predictions(model_folder: Path, tmp_path: Path, source_type: str) -> None:
    files = [model_folder / "0.png"] if source_type == "image" else [model_folder / "0.png", model_folder / "2.png"]
    images = [load_image(file) for file in files]
    source = files[0]
    if source_type == "folder":
        source = tmp_path / "images"
        source.mkdir()
        for file in files:
            (source / file.name).write_bytes(file.read_bytes())
    elif source_type == "array":
        source = tmp_path / "images.npy"
        np.save(source, np.stack(images))
    extra_flags = ["--images_dim=12,15", "--ext=png"]
    assert main(["classify", str(source), str(tmp_path / "out.npy"), *make_flags(model_folder), *extra_flags]) == 0
    classifier = Classifier(model_folder / "deploy.prototxt", model_folder / "net.caffemodel", (12, 15), **SETTINGS)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), classifier.predict(images), rtol=1e-5)


def test_a_net_for_gray_images_needs_no_channel_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 1, 10, 10]))
    n.ip = L.InnerProduct(n.data, num_output=5, weight_filler=dict(type="xavier"))
    n.prob = L.Softmax(n.ip)
    Path("deploy.prototxt").write_text(format_text(n.to_proto()))
    net = caffejax.Net("deploy.prototxt", "TEST")
    caffejax.save_weights("net.caffemodel", net.graph, net.init(jax.random.key(3)))
    cv2.imwrite("gray.png", np.random.default_rng(0).integers(0, 256, (10, 10)).astype(np.uint8))
    Path("in.csv").write_text("filename,ymin,xmin,ymax,xmax\ngray.png,0,0,10,10\n")
    files = ["--model_def=deploy.prototxt", "--pretrained_model=net.caffemodel", "--mean_file="]
    command = ["classify", "gray.png", "out.npy", "--images_dim=10,10", "--center_only", *files]
    assert main(command) == 0
    expected = Classifier("deploy.prototxt", "net.caffemodel", raw_scale=255).predict(
        [load_image("gray.png", color=False)], oversample=False
    )
    np.testing.assert_allclose(np.load("out.npy"), expected, rtol=1e-5)
    assert main(["detect", "in.csv", "out.csv", "--context_pad=0", *files]) == 0
    with open("out.csv") as file:
        row = list(csv.reader(file))[1]
    np.testing.assert_allclose(np.array(row[5:], float), expected[0], rtol=1e-4)
    capsys.readouterr()
    assert main([*command, "--channel_swap=2,1,0"]) == 1
    assert "channel_swap 2,1,0 does not fit 'data' of shape (1, 1, 10, 10): give one index per channel, such as 0" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("command", ["classify", "detect"])
def test_three_channels_are_reversed_by_default(model_folder: Path, tmp_path: Path, command: str) -> None:
    if command == "classify":
        source, name = model_folder / "0.png", "out.npy"
    else:
        source, name = tmp_path / "in.csv", "out.csv"
        source.write_text(f"filename,ymin,xmin,ymax,xmax\n{model_folder}/0.png,2,3,17,20\n")
    outputs = []
    for i, swap in enumerate(([], ["--channel_swap=2,1,0"], ["--channel_swap=0,1,2"])):
        out = tmp_path / f"{i}{name}"
        swap += ["--context_pad=2"] if command == "detect" else []
        assert main([command, str(source), str(out), *make_flags(model_folder), *swap]) == 0
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1] != outputs[2]


@pytest.mark.parametrize("suffix", ["csv", "h5"])
def test_detect_writes_the_detectors_predictions(model_folder: Path, tmp_path: Path, suffix: str) -> None:
    windows = [(str(model_folder / "0.png"), (2, 3, 17, 20)), (str(model_folder / "1.png"), (5, 5, 9, 9))]
    with open(tmp_path / "in.csv", "w") as file:
        writer = csv.writer(file)
        writer.writerow(["filename", "ymin", "xmin", "ymax", "xmax"])
        writer.writerows([name, *window] for name, window in windows)
    target = tmp_path / f"out.{suffix}"
    assert main(["detect", str(tmp_path / "in.csv"), str(target), *make_flags(model_folder), "--context_pad=2"]) == 0
    detector = Detector(model_folder / "deploy.prototxt", model_folder / "net.caffemodel", context_pad=2, **SETTINGS)
    expected = np.stack([f["prediction"] for f in detector.detect_windows((n, [w]) for n, w in windows)])
    if suffix == "csv":
        with open(target) as file:
            header, *rows = csv.reader(file)
        assert header == ["filename", "ymin", "xmin", "ymax", "xmax", *(f"class{i}" for i in range(5))]
        assert [row[0] for row in rows] == [name for name, _ in windows]
        assert [[int(n) for n in row[1:5]] for row in rows] == [list(window) for _, window in windows]
        predictions = np.array([[float(n) for n in row[5:]] for row in rows])
    else:
        with h5py.File(target) as stored:
            assert [name.decode() for name in stored["filename"][()]] == [name for name, _ in windows]
            np.testing.assert_array_equal(stored["window"], [window for _, window in windows])
            predictions = stored["prediction"][()]
    np.testing.assert_allclose(predictions, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("classify", "absent.png", "out.npy"), r"absent\.png: no such file"),
        (("classify", "junk.npy", "out.npy"), r"junk\.npy: is not a \.npy file"),
        (
            ("classify", "words.npy", "out.npy"),
            r"words\.npy: is not a \.npy file of real numbers, .*: its dtype is <U1",
        ),
        (("classify", "number.npy", "out.npy"), r"number\.npy: has shape \(\), so it is not an array of images"),
        (("classify", "huge.npy", "out.npy"), r"huge\.npy: is not a \.npy file .* takes 8000000000000 bytes"),
        (("classify", "flat.npy", "out.npy"), r"flat\.npy: has shape \(4,\), so it is not an array of images"),
        (("classify", "{job}", "out.npy"), r"contains no \*\.jpg images; --ext"),
        (("classify", "{job}/0.png", "out.npy", "--images_dim=5,5"), r"5 x 5 cannot be cropped to 10 x 10"),
        (("classify", "{job}/0.png", "out.npy", "--mean_file=flat.npy"), r"Mean channels incompatible"),
        (("classify", "{job}/0.png", "out.npy", "--channel_swap=0"), r"swap 0 does not fit 'data' .* such as 2,1,0"),
        (("classify", "{job}/0.png", "out.npy", "--model_def=no_input.prototxt"), r"no input in phase TEST"),
        (("classify", "{job}/0.png", "out.npy", "--pretrained_model=absent"), r"absent: no such file"),
        (("classify", "{job}/0.png", "no_folder/out.npy"), r"create the folder first"),
        (("detect", "bad.csv", "out.csv"), r"bad\.csv:2: ymin.*\n.*bad\.csv:3: ymin"),
        (("detect", "columns.csv", "out.csv"), r"columns\.csv:1: the first line must name the columns xmax"),
        (("detect", "empty.csv", "out.csv"), r"empty\.csv lists no windows"),
        (("detect", "list.txt", "out.csv"), r"selective search needs MATLAB"),
        (("detect", "list.txt", "out.txt"), r"out\.txt: the name must end in \.csv or \.h5"),
        (("detect", "absent.csv", "out.csv"), r"absent\.csv: no such file"),
    ],
)
def test_errors_are_reported_and_leave_no_file(
    model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    header = "filename,ymin,xmin,ymax,xmax\n"
    Path("junk.npy").write_text("junk")
    Path("no_input.prototxt").write_text(
        'layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 1 } } }'
    )
    np.save("flat.npy", np.zeros(4))
    np.save("words.npy", np.full((1, 10, 10, 3), "x"))
    np.save("number.npy", 1.0)
    content = Path("number.npy").read_bytes()
    Path("huge.npy").write_bytes(content.replace(b"(), }" + 14 * b" ", b"(1000000000000,), }"))
    Path("bad.csv").write_text(header + "a.png,1,2,x,4\nb.png,1,2\n")
    Path("columns.csv").write_text("filename,ymin,xmin,ymax\n")
    Path("empty.csv").write_text(header)
    Path("list.txt").write_text("a.png\n")
    files_before = sorted(tmp_path.iterdir())
    inputs = [a.format(job=model_folder) for a in arguments]
    assert (
        main(
            [*inputs[:3], *make_flags(model_folder), *inputs[3:], *(["--context_pad=2"] if "detect" in inputs else [])]
        )
        == 1
    )
    out, err = capsys.readouterr()
    assert not out
    assert "Traceback" not in err
    assert re.search(message, err), err
    assert sorted(tmp_path.iterdir()) == files_before


@pytest.mark.parametrize("mean_source", ["CAFFE_ROOT", "PYTHONPATH", "none", "nowhere"])
@pytest.mark.parametrize("command", ["classify", "detect"])
def test_the_default_mean_is_read_from_caffes_folder(
    model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    mean_source: str,
) -> None:
    """The file is in Caffe's own folder. As in Caffe's script, `detect` subtracts its mean color."""
    monkeypatch.delenv("CAFFE_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    mean = np.random.default_rng(0).uniform(90, 130, (3, 14, 14))
    folder = tmp_path / "root" / "python"
    (folder / "caffe" / "imagenet").mkdir(parents=True)
    np.save(folder / "caffe" / "imagenet" / "ilsvrc_2012_mean.npy", mean)
    if mean_source == "CAFFE_ROOT":
        monkeypatch.setenv("CAFFE_ROOT", str(tmp_path / "root"))
    elif mean_source == "PYTHONPATH":
        monkeypatch.syspath_prepend(str(folder))
    Path("in.csv").write_text(f"filename,ymin,xmin,ymax,xmax\n{model_folder / '0.png'},2,3,17,20\n")
    source = "in.csv" if command == "detect" else str(model_folder / "0.png")
    arguments = [f for f in make_flags(model_folder) if "mean" not in f] + ["--mean_file="] * (mean_source == "none")
    arguments += ["--context_pad=2"] * (command == "detect")
    status = main([command, source, "out.csv" if command == "detect" else "out.npy", *arguments])
    assert status == 0
    assert ("Give --mean_file=FILE" in capsys.readouterr().err) == (mean_source == "nowhere")
    files = model_folder / "deploy.prototxt", model_folder / "net.caffemodel"
    has_no_mean = mean_source in ("none", "nowhere")
    settings = {**SETTINGS, "mean": None if has_no_mean else mean}
    if command == "classify":
        expected = Classifier(*files, (256, 256), **settings).predict([load_image(model_folder / "0.png")])
        result = np.load("out.npy")
    else:
        settings["mean"] = None if has_no_mean else mean.mean(axis=(1, 2))
        window = [(str(model_folder / "0.png"), [(2, 3, 17, 20)])]
        expected = Detector(*files, context_pad=2, **settings).detect_windows(window)[0]["prediction"]
        result = np.array([float(n) for n in Path("out.csv").read_text().splitlines()[1].split(",")[5:]])
    np.testing.assert_allclose(result, expected, rtol=1e-5)

"""`caffejax predict` on tiny nets, whose outputs NumPy computes from the pictures' pixels."""

import json
import re
from pathlib import Path
from typing import Any

import cv2
import jax
import numpy as np
import pytest

from caffejax import Net, save_weights
from caffejax.base.variables import Variables
from caffejax.cli import main
from caffejax.core.schema import read_net
from caffejax.core.schema.caffe_pb2 import LayerParameter, NetParameter
from caffejax.tools.prediction.preprocessing import PUBLISHED_PREPROCESSING, find_preprocessing
from caffejax.tools.prediction.results import make_palette, read_names

CONFIGS = Path(__file__).parents[2] / "configs"
HEIGHT, WIDTH = 4, 6
CLASSIFIER = f"""
layer {{ name: "data" type: "Input" top: "data"
  input_param {{ shape {{ dim: 1 dim: 3 dim: {HEIGHT} dim: {WIDTH} }} }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: 7 weight_filler {{ type: "gaussian" std: 0.01 }} }} }}
layer {{ name: "prob" type: "Softmax" bottom: "ip" top: "prob" }}
"""
CONV = """layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 1 } }"""
SEGMENTER = CLASSIFIER.split('\nlayer { name: "ip"')[0] + CONV
DETECTOR = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 2 dim: 2 } } }
layer { name: "loc" type: "Convolution" bottom: "data" top: "loc" convolution_param { num_output: 4 kernel_size: 1 } }
layer { name: "conf" type: "Convolution" bottom: "data" top: "conf" convolution_param { num_output: 3 kernel_size: 1 } }
layer { name: "loc_" type: "Permute" bottom: "loc" top: "loc_"
  permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "conf_" type: "Permute" bottom: "conf" top: "conf_"
  permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "rows" type: "Reshape" bottom: "conf_" top: "rows"
  reshape_param { shape { dim: 0 dim: -1 dim: 3 } } }
layer { name: "softmax" type: "Softmax" bottom: "rows" top: "softmax" softmax_param { axis: 2 } }
layer { name: "flat" type: "Flatten" bottom: "softmax" top: "flat" }
layer { name: "flat_loc" type: "Flatten" bottom: "loc_" top: "flat_loc" }
layer { name: "prior" type: "PriorBox" bottom: "loc" bottom: "data" top: "prior"
  prior_box_param { min_size: 1 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }
layer { name: "found" type: "DetectionOutput" bottom: "flat_loc" bottom: "flat" bottom: "prior" top: "found"
  detection_output_param { num_classes: 3 code_type: CENTER_SIZE nms_param { nms_threshold: 0.5 } } }
"""


def make_published_layers(name: str) -> str:
    """Return layers that identify a published net, whose blobs no output needs; they must come first in the net."""
    entry = PUBLISHED_PREPROCESSING[name]
    return "".join(
        f"""layer {{ name: "{layer}" type: "InnerProduct" bottom: "data" top: "{layer}"
          inner_product_param {{ num_output: {num_output} }} }} layer {{ name: "s" type: "Silence" bottom: "{layer}" }}
        """
        for layer, num_output in ((entry.first_layer, 1), (entry.layer, entry.num_output))
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_net(text: str, weights: dict[str, list[Any]] | None = None, file: str = "net.prototxt") -> Variables:
    """Write a net and its weights, net.npz; return the weights."""
    Path(file).write_text(text)
    net = Net(text)
    variables = net.init(jax.random.key(1))
    for layer, arrays in (weights or {}).items():
        for param, array in zip(net.graph.layer(layer).params, arrays, strict=True):
            variables.params[layer][param.slot.name] = np.asarray(array, np.float32).reshape(param.spec.shape)
    save_weights("net.npz", net.graph, variables)
    return variables


def write_pictures(n: int, height: int = HEIGHT, width: int = WIDTH) -> list[np.ndarray]:
    """Draw pictures, 0.png and so on, of random pixels."""
    images = np.random.default_rng(0).integers(0, 256, (n, height, width, 3)).astype(np.uint8)
    for i, picture in enumerate(images):
        cv2.imwrite(f"{i}.png", picture)
    return list(images)


def run_predict(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    assert main(["predict", "net.prototxt", "--weights=net.npz", "--json", *arguments]) == 0
    out, _ = capsys.readouterr()
    report = json.loads(out)
    return report["images"], report["preprocessing"]


def compute_probabilities(picture: np.ndarray, variables: Variables, mean: Any, scale: float) -> np.ndarray:
    x = (picture.astype(np.float64).transpose(2, 0, 1) - np.reshape(mean, (-1, 1, 1))) * scale
    scores = np.asarray(variables.params["ip"]["weight"], np.float64) @ x.ravel() + np.asarray(
        variables.params["ip"]["bias"]
    )
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


@pytest.mark.parametrize(
    ("name", "transform_param", "flags", "mean", "scale", "rgb", "source"),
    [
        ("mine", "", "", (0, 0, 0), 1, False, "Caffe's defaults"),
        ("CaffeNet", "", "", (104, 117, 123), 1, False, "the published CaffeNet"),
        ("CIFAR10_full", "", "", (125.3, 123, 113.9), 1, True, "the published CIFAR10_full"),
        ("MOBILENET", "mean_value: 9 scale: 0.5", "", (9, 9, 9), 0.5, False, "transform_param of train_val.prototxt"),
        ("mine", "mean_value: 1 mean_value: 2 mean_value: 3", "--scale=2", (1, 2, 3), 2, False, "--scale, otherwise"),
        ("mine", 'mean_file: "mean.npy"', "--mean=7,8,9", (7, 8, 9), 1, False, "--mean, otherwise transform_param"),
        ("CaffeNet", 'mean_file: "absent"', "", (104, 117, 123), 1, False, "the published CaffeNet"),
        (
            "CaffeNet",
            "scale: 3",
            "--mean=4 --scale=0.25 --channels=RGB",
            (4, 4, 4),
            0.25,
            True,
            "--mean, --scale, --ch",
        ),
        ("mine", "", "--mean=mean.npy", (1, 5, 9), 1, False, "--mean, otherwise Caffe's defaults"),
    ],
)
def test_classes_and_the_source_of_the_preprocessing(
    capsys: pytest.CaptureFixture[str],
    name: str,
    transform_param: str,
    flags: str,
    mean: Any,
    scale: float,
    rgb: bool,
    source: str,
) -> None:
    data, layers = CLASSIFIER.split('\nlayer { name: "ip"')
    published_layers = make_published_layers(name) if name in PUBLISHED_PREPROCESSING else ""
    text = f'name: "{name}" {data}\n{published_layers}layer {{ name: "ip"{layers}'
    variables = write_net(text)
    (picture,) = write_pictures(1)
    np.save("mean.npy", np.broadcast_to(np.reshape([1, 5, 9], (3, 1, 1)), (3, 8, 8)))  # of another size: averaged
    if transform_param:
        Path("train_val.prototxt").write_text(
            text.replace("}\nlayer", f"transform_param {{ {transform_param} }} }}\nlayer", 1)
        )
    ((prediction,), preprocessing) = run_predict(capsys, "0.png", *flags.split())
    expected = compute_probabilities(picture[:, :, ::-1] if rgb else picture, variables, mean, scale)
    best_labels = np.argsort(-expected)[:5]
    assert [row["label"] for row in prediction["results"]["prob"]] == best_labels.tolist()
    np.testing.assert_allclose(
        [row["probability"] for row in prediction["results"]["prob"]], expected[best_labels], rtol=1e-3
    )
    assert preprocessing["from"].startswith(source)
    assert (preprocessing["size"], preprocessing["channels"]) == ([HEIGHT, WIDTH], "RGB" if rgb else "BGR")
    np.testing.assert_allclose((preprocessing["mean"] * 3)[:3], mean, rtol=1e-6)


def test_a_training_net_without_its_database(capsys: pytest.CaptureFixture[str]) -> None:
    square_net = CLASSIFIER.replace(f"dim: {WIDTH}", f"dim: {HEIGHT}")
    variables = write_net(square_net)
    data = """layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "absent" batch_size: 9 }
      transform_param { crop_size: 4 mean_value: 100 } }"""
    loss = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'
    layers = square_net[square_net.index('layer { name: "ip"') : square_net.index('layer { name: "prob"')]
    Path("net.prototxt").write_text(data + layers + loss)
    (picture,) = write_pictures(1, HEIGHT, HEIGHT)
    ((image,), preprocessing) = run_predict(capsys, "0.png")
    assert (preprocessing["mean"], preprocessing["size"]) == ([100] * 3, [HEIGHT] * 2)
    expected = compute_probabilities(picture, variables, 100, 1)  # of the loss
    rows = image["results"]["ip"]
    np.testing.assert_allclose([row["probability"] for row in rows], np.sort(expected)[:-6:-1], rtol=1e-3)


@pytest.mark.parametrize(("side", "channels"), [(64, 3), (32, 3), (28, 1)])
def test_the_input_size_of_a_net_without_data_fits_the_weights(
    capsys: pytest.CaptureFixture[str], side: int, channels: int
) -> None:
    ip = 'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }'
    shape = f"input_param {{ shape {{ dim: 1 dim: {channels} dim: {side} dim: {side} }} }}"
    write_net(f'layer {{ name: "data" type: "Input" top: "data" {shape} }}{ip}')
    Path("net.prototxt").write_text(f'layer {{ name: "d" type: "Data" top: "data" data_param {{ source: "no" }} }}{ip}')
    write_pictures(1)
    _, preprocessing = run_predict(capsys, "0.png")
    assert (preprocessing["size"], preprocessing["channels"]) == ([side, side], "gray" if channels == 1 else "BGR")


@pytest.mark.parametrize(
    ("weight", "flags", "outputs"),
    [(0.3, [], {"ip"}), (1, [], {"ip", "aux"}), (2, [], {"aux"}), (0.3, ["--output=aux"], {"aux"})],
)
def test_auxiliary_classifiers_are_omitted(
    capsys: pytest.CaptureFixture[str], weight: float, flags: list[str], outputs: set[str]
) -> None:
    net = CLASSIFIER[: CLASSIFIER.index('layer { name: "prob"')].replace('"ip"', '"%s"')
    net = net % ("ip", "ip") + net[net.index('layer { name: "%s"') :] % ("aux", "aux")
    net = net.replace('top: "data"', 'top: "data" top: "label"').replace("} } }", "} shape { dim: 1 } } }", 1)
    for name, loss_weight in (("ip", 1), ("aux", weight)):
        net += f"""layer {{ name: "{name}_loss" type: "SoftmaxWithLoss" bottom: "{name}" bottom: "label"
          top: "{name}_loss" loss_weight: {loss_weight} }}
        layer {{ name: "{name}_right" type: "Accuracy" bottom: "{name}" bottom: "label" top: "{name}_right" }}"""
    write_net(net)
    write_pictures(1)
    ((image,), _) = run_predict(capsys, "0.png", *flags)
    assert set(image["results"]) == outputs


def test_several_pictures_are_run_in_batches(capsys: pytest.CaptureFixture[str]) -> None:
    variables = write_net(CLASSIFIER)
    written_pictures = write_pictures(5)
    predictions, _ = run_predict(capsys, *(f"{i}.png" for i in range(5)), "--batch=2", "--top=1", "--scale=0.1")
    best_labels = [compute_probabilities(picture, variables, 0, 0.1).argmax() for picture in written_pictures]
    assert [image["results"]["prob"][0]["label"] for image in predictions] == best_labels
    assert [image["image"] for image in predictions] == [f"{i}.png" for i in range(5)]
    assert len(set(best_labels)) > 1


def test_class_names_are_printed_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    write_net(CLASSIFIER)
    write_pictures(1, 40, 60)
    Path("names.txt").write_text("\n".join(f"class {i}" for i in range(7)))
    command = ["predict", "net.prototxt", "0.png", "--weights=net.npz", "--labels=names.txt", "--out=drawn.png"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0.png"
    assert lines[1].split() == ["probability", "label", "name"]
    for line in lines[2:]:
        assert re.fullmatch(r" +0\.\d{4} +(\d) +class \1", line)
    assert len(lines) == 7
    assert cv2.imread("drawn.png").shape == (240, 360, 3)
    Path("names.txt").write_text("a\nb\nc\n\n")
    assert main(command) == 0
    assert "names.txt: has names for 3 classes, but the output 'prob' has 7" in capsys.readouterr().err


def test_detections_are_listed_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    """A cell with green is class 1, with red is class 2; each prior box is a quarter of the picture."""
    conf = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 1]]) / 10
    write_net(DETECTOR, {"loc": [np.zeros((4, 3)), np.zeros(4)], "conf": [conf, [5, 0, 0]]})
    picture = np.zeros((40, 80, 3), np.uint8)
    picture[:20, 40:, 2], picture[20:, :40, 1] = 80, 60
    for name in ("0.png", "1.png"):
        cv2.imwrite(name, picture[:, ::-1] if name == "1.png" else picture)
    Path("map.prototxt").write_text('item { name: "n1" label: 1 display_name: "leaf" } item { name: "rose" label: 2 }')
    images, _ = run_predict(capsys, "0.png", "1.png", "--labels=map.prototxt", "--threshold=0.4")
    scores = {2: np.exp(8) / (np.exp(5) + 1 + np.exp(8)), 1: np.exp(6) / (np.exp(5) + 1 + np.exp(6))}
    for image, boxes in zip(
        images, ([[40, 0, 80, 20], [0, 20, 40, 40]], [[0, 0, 40, 20], [40, 20, 80, 40]]), strict=True
    ):
        rows = image["results"]["found"]
        assert [(row["label"], row["name"], row["box"]) for row in rows] == [
            (2, "rose", boxes[0]),
            (1, "leaf", boxes[1]),
        ]
        np.testing.assert_allclose([row["score"] for row in rows], [scores[2], scores[1]], rtol=1e-5)
    assert [len(image["results"]["found"]) for image in run_predict(capsys, "0.png", "--threshold=0.9")[0]] == [1]
    save_param = 'save_output_param { output_directory: "o" label_map_file: "map.prototxt" name_size_file: "absent" }'
    Path("net.prototxt").write_text(DETECTOR.replace("num_classes: 3 code", f"{save_param} num_classes: 3 code"))
    ((image,), _) = run_predict(capsys, "0.png", "--threshold=0.9")
    assert [row["name"] for row in image["results"]["found"]] == ["rose"]
    assert not Path("o").exists()
    assert main("predict net.prototxt 0.png 1.png --weights=net.npz --out=drawn".split()) == 0
    picture_with_boxes = cv2.imread("drawn/0.png")
    enlargement = len(picture_with_boxes) // 40
    assert (
        picture_with_boxes[enlargement * 15, enlargement * 40].tolist() == make_palette()[2].tolist()
    )  # on the left edge of the red box
    assert picture_with_boxes[enlargement * 10, enlargement * 20].tolist() == [0, 0, 0]


def test_pixel_labels_are_counted_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    write_net(SEGMENTER, {"conv": [np.eye(3), np.zeros(3)]})
    picture = np.zeros((40, 60, 3), np.uint8)
    picture[:, :20, 0], picture[:, 20:, 2] = 90, 100
    cv2.imwrite("0.png", picture)
    ((image,), _) = run_predict(capsys, "0.png", "--out=drawn.png")
    fractions = [(row["label"], row["share"]) for row in image["results"]["conv"]]
    assert fractions == [(2, pytest.approx(2 / 3)), (0, pytest.approx(1 / 3))]
    overlay = cv2.imread("drawn.png")
    assert overlay[-1, 0].tolist() == [90, 0, 0]  # label 0 stays
    assert overlay[-1, -1].tolist() == [0, 64, 50]


def test_the_size_flag_enlarges_the_input(capsys: pytest.CaptureFixture[str]) -> None:
    write_net(SEGMENTER, {"conv": [np.eye(3), np.zeros(3)]})
    picture = np.zeros((40, 60, 3), np.uint8)
    picture[:, :3, 0], picture[:, 3:, 2] = 90, 100
    cv2.imwrite("0.png", picture)
    ((image,), _) = run_predict(capsys, "0.png", "--size=40,60")
    assert [row["share"] for row in image["results"]["conv"]] == [pytest.approx(0.95), pytest.approx(0.05)]


@pytest.mark.parametrize(
    ("last_layers", "message"),
    [
        (
            'layer { name: "sum" type: "Reduction" bottom: "ip" top: "sum" }',
            "no output has class scores (N, C), pixel",
        ),
        (
            'layer { name: "b" type: "Input" top: "b" input_param { shape { dim: 1 dim: 7 } } } '
            'layer { name: "sum" type: "Eltwise" bottom: "ip" bottom: "b" top: "sum" }',
            "predict needs one input of images, (N, 1, H, W) or (N, 3, H, W), "
            "but the net's inputs are 'data' (1, 3, 4, 6)",
        ),
    ],
)
def test_nets_without_outputs_for_pictures_are_refused(
    capsys: pytest.CaptureFixture[str], last_layers: str, message: str
) -> None:
    write_net(CLASSIFIER[: CLASSIFIER.index('layer { name: "prob"')] + last_layers)
    write_pictures(1)
    assert main("predict net.prototxt 0.png --weights=net.npz".split()) == 1
    assert f"caffejax: net.prototxt: {message}" in capsys.readouterr().err


def test_outputs_with_nan_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write_net(CLASSIFIER, {"ip": [np.full((7, 72), np.nan), np.zeros(7)]})
    write_pictures(1)
    assert main("predict net.prototxt 0.png --weights=net.npz --out=drawn.png".split()) == 1
    assert "caffejax: net.prototxt: the output 'prob' contains NaN: check the weights" in capsys.readouterr().err
    assert not Path("drawn.png").exists()


def test_colors_are_those_of_pascal_voc() -> None:
    assert make_palette()[[0, 1, 2, 15, 20], ::-1].tolist() == [
        *([0, 0, 0], [128, 0, 0], [0, 128, 0], [192, 128, 128], [0, 64, 128])
    ]


def test_warnings_about_train_nets_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    write_net(CLASSIFIER)
    write_pictures(1)
    Path("old_train.prototxt").write_text('input: "data" input_dim: 1 input_dim: 3 input_dim: 4 input_dim: 6')
    assert main("predict net.prototxt 0.png --weights=net.npz".split()) == 0
    err = capsys.readouterr().err
    assert "Preprocessing: " in err
    assert "old" not in err


@pytest.mark.parametrize("out", ["drawn", "new/drawn", "drawn.v2/", "existing.v2"])
def test_an_output_without_extension_is_a_folder(out: str) -> None:
    write_net(CLASSIFIER)
    write_pictures(1)
    Path("existing.v2").mkdir()
    command = ["predict", "net.prototxt", "0.png", "--weights=net.npz", f"--out={out}"]
    assert main([*command, "--labels=absent.txt"]) == 1
    assert Path(out).is_dir() == (out == "existing.v2")  # a command that fails leaves no folder
    assert main(command) == 0
    assert cv2.imread(str(Path(out, "0.png"))) is not None


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ("0.png absent.png bad.png", ["absent.png: no such file", "bad.png: its image of 3 bytes cannot be decoded"]),
        ("0.png --out=0.png", ["0.png: the output would overwrite an input file"]),
        ("0.png 1.png --out=drawn.png", ["--out=drawn.png must be a folder, because there are 2 pictures"]),
        ("0.png --out=file", ["--out=file must be a folder, but 'file' is a file"]),
        ("0.png --out=file/drawn", ["--out=file/drawn must be a folder, but "]),
        ("0.png --out=drawn.xyz", ["drawn.xyz: '.xyz' is not a picture format"]),
        ("0.png --mean=1,2", ["--mean: the mean has 2 channels, but the net's input has 3"]),
        ("0.png --mean=absent.npy", ["absent.npy: the mean cannot be read"]),
        ("0.png --mean=words.npy", ["words.npy: is not a .npy file of real numbers, or damaged: its dtype is <U1"]),
        ("0.png --size=3", ["--size must be a height and a width"]),
        ("0.png --output=absent", ["net.prototxt: outputs: no blob 'absent'"]),
        ("0.png --labels=absent.txt", ["absent.txt: no such file"]),
        ("0.png --labels=0.png", ["0.png: must have one class name on each line, but is a picture"]),
        ("0.png --weights=other.npz", ["other.npz: has no blobs for any layer of the net"]),
    ],
)
def test_invalid_arguments_are_refused(capsys: pytest.CaptureFixture[str], arguments: str, messages: list[str]) -> None:
    write_net(CLASSIFIER.replace('"ip"', '"other"'))
    Path("net.npz").rename("other.npz")
    write_net(CLASSIFIER)
    write_pictures(2)
    Path("bad.png").write_bytes(b"abc")
    Path("file").touch()
    np.save("words.npy", np.full(3, "x"))
    assert main(["predict", "net.prototxt", "--weights=net.npz", *arguments.split()]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert [
        line.removeprefix("caffejax: ")[: len(message)]
        for message, line in zip(messages, err.splitlines()[-len(messages) :], strict=True)
    ] == messages
    assert not Path("drawn.png").exists()


def test_the_page_of_configs_has_the_preprocessing_of_predict() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in (CONFIGS / "README.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) > 20
    for folder, net, size, channels, mean, scale, _ in rows:
        model = Net(CONFIGS / folder.strip("`") / "train_val.prototxt")
        published = PUBLISHED_PREPROCESSING[model.graph.name]
        assert net.startswith(model.graph.name)
        shape = model.graph.blobs[model.input_names[0]].shape
        assert size == f"{shape[2]} x {shape[3]}"
        assert (channels == "gray") == (shape[1] == 1)
        documented_settings = [float(value) for value in mean.split(",")], float(scale), channels
        assert documented_settings == ([*map(float, published.mean)], published.scale, published.channels)
    assert len({net for _, net, *_ in rows}) == len(rows)


def make_net(name: str, layers: str) -> NetParameter:
    """Make a net of layers `name` or `name:num_output`, by turns inner products and convolutions."""
    net = NetParameter(name=name, layer=[LayerParameter(name="data", top=["data"])])
    for i, text in enumerate(layers.split()):
        layer_name, _, num_output = text.partition(":")
        layer = net.layer.add(name=layer_name, bottom=["data"])
        (layer.convolution_param if i % 2 else layer.inner_product_param).num_output = int(num_output or 5)
    return net


@pytest.mark.parametrize(
    ("name", "layers", "published"),
    [
        ("VGG_coco_SSD_512x512_deploy", "conv4_3_norm_mbox_loc", "VGG_VOC0712_SSD_300x300"),
        ("", "layer_64_1_conv1_h conv4_3_norm_mbox_loc", "res10_300x300_ssd"),
        ("", "fire2/squeeze1x1", "SqueezeNet_v1.1"),
        ("CaffeNet_fine_tuned", "conv1 fc8:1000", "CaffeNet"),
        ("ResNet-50", "conv1 fc1000:1000", "ResNet-50"),
        ("MobileNet-SSD", "conv0 conv17_2_mbox_loc:24", "MobileNet-SSD"),
        ("", "conv1 fc8:1000", None),
        ("", "conv17_2_mbox_loc:24", None),
        ("CaffeNet-Places365", "conv1 fc8:365", None),
        ("", "conv1", None),
        # nets that have the name of the net that they were made from: age, gender, detection, BatchNorm of the pixels
        ("CaffeNet", "conv1 fc8:8", None),
        ("CaffeNet", "conv1 fc8:2", None),
        ("CaffeNet", "conv1 fc8_pascal:21", None),
        ("CaffeNet", "data/bn conv1 fc8:1000", None),
        ("CaffeNet", "conv1_1 fc8:1000", None),
        ("ResNet-50", "conv1 my-classifier:3", None),
        ("VGG_ILSVRC_16_layers", "conv1_1 fc7:4096 cls_score:21", None),
    ],
)
def test_published_nets_are_recognized_by_their_layers(
    folder: Path, caplog: pytest.LogCaptureFixture, name: str, layers: str, published: str | None
) -> None:
    net = make_net(name, layers)
    preprocessing = find_preprocessing(net, folder / "deploy.prototxt", (3, 4, 4))
    if published:
        assert preprocessing.source == f"the published {published}"
        return
    assert preprocessing.source.startswith("Caffe's defaults")
    assert not preprocessing.mean.any()
    assert preprocessing.scale == 1
    has_published_name = name in PUBLISHED_PREPROCESSING
    assert ("mean is unknown: give --mean" in caplog.text) == has_published_name
    assert (f"not those of the published {name}" in preprocessing.source) == has_published_name


def test_no_entry_identifies_nets_by_their_name_alone(folder: Path) -> None:
    for name, entry in PUBLISHED_PREPROCESSING.items():
        channels = len(entry.mean)
        file = folder / "deploy.prototxt"
        layers = f"{entry.first_layer or 'x'} {entry.layer}:{entry.num_output or 7}"
        assert find_preprocessing(make_net(name, layers), file, (channels, 4, 4)).source == f"the published {name}"
        others = ["conv1 prob", *([f"{entry.first_layer} {entry.layer}:7"] if entry.num_output else [])]
        for other_layers in others:
            source = find_preprocessing(make_net(name, other_layers), file, (channels, 4, 4)).source
            assert source.startswith("Caffe's defaults"), name


def test_class_names_are_read_line_by_line(folder: Path) -> None:
    (folder / "synset_words.txt").write_text("n01440764 tench\nn01443537 goldfish\n")
    assert read_names("synset_words.txt") == {0: "n01440764 tench", 1: "n01443537 goldfish"}


def test_layers_without_weights_are_refused_unless_they_may_be_random(capsys: pytest.CaptureFixture[str]) -> None:
    write_net(SEGMENTER)
    ip = 'layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 7 } }'
    Path("net.prototxt").write_text(f"{SEGMENTER}\n{ip}")
    write_pictures(1)
    command = "predict net.prototxt 0.png --weights=net.npz".split()
    assert main(command) == 1
    message = "layer 'ip' (InnerProduct): has no weights in net.npz, but each layer needs weights here"
    assert message in capsys.readouterr().err
    assert main([*command, "--random_weights"]) == 0
    command.remove("--weights=net.npz")
    assert main(command) == 1
    assert "name the net's weights with --weights=FILE; --random_weights" in capsys.readouterr().err
    assert main([*command, "--random_weights"]) == 0


def test_a_train_net_with_other_classes_in_the_folder_has_another_mean(folder: Path) -> None:
    transform = "transform_param { mean_value: 9 }"
    layers = """layer { name: "data" type: "Data" top: "data" %s }
      layer { name: "conv1" type: "Convolution" bottom: "data" top: "c"
        convolution_param { num_output: 4 } }
      layer { name: "fc8" type: "InnerProduct" bottom: "c" top: "d" inner_product_param { num_output: %d } }"""
    (folder / "a_train_val.prototxt").write_text(layers % (transform, 8))
    (folder / "b_train_val.prototxt").write_text(layers % (transform.replace("9", "7"), 2))
    for num_classes, mean in ((8, 9), (2, 7), (3, 0)):
        net = read_net(layers % ("", num_classes))
        preprocessing = find_preprocessing(net, folder / "deploy.prototxt", (3, 4, 4))
        assert preprocessing.mean.ravel().tolist() in ([mean], [mean] * 3)


# By name: the layers after a Convolution "map" with a window of 5 x 5, and the results at 5 x 5 and at 9 x 9 pixels
OUTPUTS = {
    "scores": ("", "score", "share"),
    "probabilities": ('layer { name: "p" type: "Softmax" bottom: "map" top: "p" }', "probability", "share"),
    "labels": (
        'layer { name: "a" type: "ArgMax" bottom: "map" top: "a" argmax_param { axis: 1 } }',
        "share",
        "share",
    ),
    "classes": (
        'layer { name: "m" type: "Pooling" bottom: "map" top: "m" pooling_param { pool: AVE global_pooling: true } }',
        "score",
        "score",
    ),
    "boxes": (DETECTOR[DETECTOR.index('layer { name: "loc"') :].replace('"data" top', '"map" top'), "box", "box"),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_results_have_the_kind_of_the_arrays_that_come_out(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """The size in the prototxt changes neither `--json` nor `--out`, if `--size` names another."""
    layers, *keys = OUTPUTS[kind]
    conv = CONV.replace("num_output: 3 kernel_size: 1", 'num_output: 4 kernel_size: 5 weight_filler { type: "xavier" }')
    text = f"""layer {{ name: "data" type: "Input" top: "data"
      input_param {{ shape {{ dim: 1 dim: 3 dim: %d dim: %d }} }} }}
      {conv.replace('"conv"', '"map"')} {layers}"""
    write_net(text % (9, 9))
    write_pictures(2, 40, 60)
    Path("names.txt").write_text("a\nb\nc\nd\n")
    flags = ["0.png", "1.png", "--labels=names.txt", "--threshold=0", "--scale=0.01", "--out=drawn"]
    for size, key in zip((5, 9), keys, strict=True):
        Path("net.prototxt").write_text(text % (size, size))
        expected, _ = run_predict(capsys, *flags)
        drawn = [Path(f"drawn/{i}.png").read_bytes() for i in range(2)]
        for image in expected:
            (rows,) = image["results"].values()
            assert len(rows) > 0
            assert all(key in row for row in rows)
            assert all(row["label"] in range(4) for row in rows)
        Path("net.prototxt").write_text(text % (14 - size, 14 - size))
        assert run_predict(capsys, *flags, f"--size={size},{size}")[0] == expected
        assert [Path(f"drawn/{i}.png").read_bytes() for i in range(2)] == drawn


CONV_1X1 = CONV.replace("num_output: 3", "num_output: 4")


@pytest.mark.parametrize(
    ("height", "width", "layers", "message"),
    [
        (1, 1, CONV_1X1, "the input 'data' has 1 x 1 pixels, a placeholder: give its size with --size=H,W"),
        (1, 40, CONV_1X1, "the input 'data' has 1 x 40 pixels, a placeholder"),
        (40, 1, CONV_1X1, "the input 'data' has 40 x 1 pixels, a placeholder"),
        (
            16,
            16,
            CONV_1X1.replace("kernel_size: 1", "kernel_size: 8 stride: 8"),
            "'conv' has only 2 x 2: give the size",
        ),
    ],
)
def test_a_placeholder_for_the_size_of_the_input_is_refused(
    capsys: pytest.CaptureFixture[str], height: int, width: int, layers: str, message: str
) -> None:
    shape = f"dim: {height} dim: {width}"
    write_net(
        f"""layer {{ name: "data" type: "Input" top: "data"
          input_param {{ shape {{ dim: 1 dim: 3 {shape} }} }} }}{layers}"""
    )
    write_pictures(1, 20, 30)
    command = ["predict", "net.prototxt", "0.png", "--weights=net.npz"]
    assert main(command) == 1
    assert message in capsys.readouterr().err
    assert main([*command, "--size=24,32"]) == 0
    assert "share" in capsys.readouterr().out


def test_rows_that_do_not_belong_to_pictures_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    reshape = 'layer { name: "r" type: "Reshape" bottom: "prob" top: "r" reshape_param { shape { dim: %s dim: %s } } }'
    write_pictures(2)
    for dims, pictures, code in ((("-1", "1"), 1, 1), (("7", "-1"), 1, 1), (("1", "-1"), 1, 0), (("1", "-1"), 2, 1)):
        write_net(CLASSIFIER + reshape % dims)
        assert main(["predict", "net.prototxt", *["0.png", "1.png"][:pictures], "--weights=net.npz"]) == code
        out, err = capsys.readouterr()
        assert bool(out) == (code == 0)
        assert code == 0 or "do not belong to pictures" in err or "no output has" in err


def test_numbers_of_argmax_are_not_scores(capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures(1)
    for settings in ("axis: 1 top_k: 2", "axis: 1 out_max_val: true", "top_k: 3", "out_max_val: true"):
        write_net(
            f'{SEGMENTER} layer {{ name: "a" type: "ArgMax" bottom: "conv" top: "a" argmax_param {{ {settings} }} }}'
        )
        assert main(["predict", "net.prototxt", "0.png", "--weights=net.npz"]) == 1
        assert "no output has class scores" in capsys.readouterr().err

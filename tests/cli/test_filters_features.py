"""Pictures of filters and feature maps, for image files and for the data of the net."""

import re
from pathlib import Path

import cv2
import h5py
import jax
import numpy as np
import pytest
from test_help_and_errors import run_with_error

from caffejax import Net, save_weights
from caffejax.cli import main
from caffejax.pycaffe import io
from caffejax.pycaffe.classifier import Classifier
from caffejax.tools.debugging.visualize import enlarge, make_feature_maps, make_filter_maps, make_grid

LAYERS = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 5 kernel_size: 3
  weight_filler { type: "gaussian" std: 1 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "one" type: "Convolution" bottom: "conv" top: "one" convolution_param { num_output: 2 kernel_size: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "one" top: "ip" inner_product_param { num_output: 7
  weight_filler { type: "gaussian" std: 1 } } }
"""
IMAGE_INPUT = 'layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 6 } } }'
HDF5_DATA = """layer { name: "in" type: "HDF5Data" top: "data" top: "label" hdf5_data_param {
  source: "list.txt" batch_size: 3 } }
layer { name: "quiet" type: "Silence" bottom: "label" }"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a deploy net, a net with data, weights for both, and an image."""
    path = tmp_path_factory.mktemp("nets")
    rng = np.random.default_rng(3)
    with h5py.File(path / "data.h5", "w") as file:
        file["data"], file["label"] = rng.normal(size=(9, 3, 8, 6)).astype(np.float32), np.arange(9, dtype=np.float32)
    (path / "list.txt").write_text(f"{path / 'data.h5'}\n")
    (path / "deploy.prototxt").write_text(IMAGE_INPUT + LAYERS)
    (path / "train_val.prototxt").write_text(HDF5_DATA.replace("list.txt", str(path / "list.txt")) + LAYERS)
    (path / "data_only.prototxt").write_text('layer { name: "x" type: "DummyData" top: "x" dummy_data_param {'
        " shape { dim: 1 } } }")  # fmt: skip
    (path / "deep.prototxt").write_text(
        IMAGE_INPUT.replace("data", "x").replace("dim: 3", "dim: 5").replace("dim: 2", "dim: 1")
    )
    net = Net(path / "deploy.prototxt", "TEST")
    save_weights(path / "w.caffemodel", net.graph, net.init(jax.random.key(1)))
    cv2.imwrite(str(path / "cat.png"), rng.integers(0, 256, (20, 30, 3)).astype(np.uint8))
    return path


@pytest.fixture(autouse=True)
def _use_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def draw_picture(*arguments: str) -> np.ndarray:
    """Run a command and return the picture that it draws."""
    model = [] if arguments[1:2] == ("train_val.prototxt",) else ["deploy.prototxt"]
    command, flags = arguments[0], arguments[1:]
    assert main([command, *model, *flags, "--weights=w.caffemodel", "--out=p.png"]) == 0
    return cv2.imread("p.png", cv2.IMREAD_UNCHANGED)


def make_classifier() -> Classifier:
    return Classifier("deploy.prototxt", "w.caffemodel", (10, 9), raw_scale=255.0, channel_swap=(2, 1, 0))


@pytest.mark.parametrize("rgb", [False, True])
def test_filters_of_the_first_layer_are_drawn_in_color(rgb: bool) -> None:
    weights = make_classifier().params["conv"][0].data
    expected = enlarge(make_grid(make_filter_maps(weights, rgb=rgb)), 800)
    np.testing.assert_array_equal(draw_picture("draw", "--filters", *["--rgb"] * rgb), expected)


def test_filters_of_a_layer_are_drawn_in_gray_by_channel() -> None:
    weights = make_classifier().params["one"][0].data
    expected = enlarge(make_grid(weights.reshape(10, 1, 1)[:4], per_map=True), 50)
    np.testing.assert_array_equal(
        draw_picture("draw", "--filters", "--layer=one", "--maps=4", "--each", "--size=50"), expected
    )


@pytest.mark.parametrize("blob", ["data", "conv", "ip"])
def test_features_of_an_image_are_those_that_classify_computes(blob: str) -> None:
    net = make_classifier()
    net.predict([io.load_image("cat.png")], oversample=False)
    expected = enlarge(make_grid(make_feature_maps(net.blobs[blob].data[0])), 800)
    result = draw_picture("draw", f"--blob={blob}", "--image=cat.png", "--images_dim=10,9")
    np.testing.assert_allclose(result.astype(int), expected, atol=1)


@pytest.mark.parametrize("example", [0, 2, 7])
def test_features_of_an_example_of_the_net_are_drawn(folder: Path, example: int) -> None:
    net = make_classifier()
    with h5py.File(folder / "data.h5") as file:
        net.blobs["data"].data[0] = file["data"][example]
    net.forward()
    expected = enlarge(make_grid(net.blobs["conv"].data[0]), 800)
    result = draw_picture("draw", "train_val.prototxt", "--blob=conv", f"--example={example}")
    np.testing.assert_allclose(result.astype(int), expected, atol=1)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "draw deploy.prototxt --filters --layer=conf",
            r"no layer 'conf' with filters.*did you mean 'conv'\?.*: conv, one",
        ),
        (
            "draw deploy.prototxt --filters --layer=ip",
            r"no layer 'ip' with filters \(weights with four axes\).*conv, one",
        ),
        ("draw data_only.prototxt --filters", r"data_only\.prototxt: no layer has filters larger than 1 x 1; .*none"),
        ("draw deploy.prototxt --filters --out=p.doc", r"p\.doc: '\.doc' is not a picture format"),
        ("draw deploy.prototxt --filters --out=none/p.png", "create the folder first"),
        ("draw deploy.prototxt --filters --weights=cat.png", r"cat\.png"),
        ("draw deploy.prototxt --blob=conf --image=cat.png", r"no blob 'conf' in the net; did you mean 'conv'"),
        ("draw deploy.prototxt --blob=conv", r"deploy\.prototxt: the net has no data layer.*give --image"),
        ("draw deploy.prototxt --blob=conv --image=cat.png --out=cat.png", "would overwrite an input file"),
        ("draw deploy.prototxt --blob=conv --image=none.png", r"none\.png: no such file"),
        ("draw deploy.prototxt --blob=conv --image=list.txt", r"list\.txt: its image of"),
        ("draw deploy.prototxt --blob=conv --image=cat.png --images_dim=4,4", "4 x 4 cannot be cropped to 8 x 6"),
        ("draw data_only.prototxt --blob=x --image=cat.png", r"data_only\.prototxt: no input takes images"),
        (
            "draw deep.prototxt --blob=x --image=cat.png",
            r"images, \(N, 1, H, W\) or \(N, 3, H, W\); .*'x': \(1, 5,",
        ),
        ("draw train_val.prototxt --blob=conv --example=9", r"--example=9: the net's data has examples 0 to 8"),
    ],
)
def test_drawings_that_cannot_work_are_refused(capsys: pytest.CaptureFixture[str], command: str, message: str) -> None:
    arguments = {f.partition("=")[0]: f for f in ("--weights=w.caffemodel", "--out=q.png")}
    arguments |= {f.partition("=")[0]: f for f in command.split()[1:]}
    assert re.search(message, run_with_error(capsys, command.split()[0], *arguments.values()))
    assert not Path("q.png").exists()

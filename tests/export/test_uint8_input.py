"""Images as inputs of exported nets: converted to the net's input as by Caffe's tools."""

from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import pytest

from caffejax import CaffejaxError, Net, save_weights
from caffejax.base.databases import write_lmdb
from caffejax.cli import main
from caffejax.core.schema import caffe_pb2
from caffejax.export import Uint8Preprocessing, make_inference_model, read_data_layer_preprocessing
from caffejax.pycaffe.classifier import Classifier

LAYERS = """
  layer { name: "pool" type: "Pooling" bottom: "data" top: "pool"
    pooling_param { pool: AVE kernel_size: 5 stride: 5 } }
  layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
    inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
"""
DATA_LAYER = """layer { name: "data" type: "Data" top: "data" top: "label" transform_param { TRANSFORM }
  data_param { source: "db" batch_size: 4 backend: LMDB } }"""
IMAGES = np.random.default_rng(3).integers(0, 256, (4, 12, 14, 3), np.uint8)  # R, G, B


def make_deploy_net(channels: int = 3) -> str:
    dims = f"dim: 2 dim: {channels} dim: 10 dim: 10"
    return f'layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ {dims} }} }} }} {LAYERS}'


@pytest.fixture
def net_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a net and its weights; also the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(make_deploy_net())
    net = Net(tmp_path / "net.prototxt")
    save_weights(tmp_path / "net.caffemodel", net.graph, net.init(jax.random.key(1)))
    return tmp_path


def export_net(*arguments: str) -> Any:
    """Export with the command; return a function of images."""
    assert main(["export", "net.prototxt", "--weights=net.caffemodel", "--to=net.stablehlo", *arguments]) == 0
    result = jax.export.deserialize(bytearray(Path("net.stablehlo").read_bytes()))
    assert [str(aval.dtype) for aval in result.in_avals] == ["uint8"]
    return lambda images: np.asarray(result.call({"data": images})["ip"])


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({"raw_scale": 255.0, "channel_swap": (2, 1, 0)}, []),
        (
            {"raw_scale": 1.0, "channel_swap": (0, 1, 2), "input_scale": 0.5, "mean": np.array([0.1, 0.2, 0.3])},
            ["--raw_scale=1", "--channel_swap=0,1,2", "--input_scale=0.5", "--mean_file=mean.npy"],
        ),
        (
            {"raw_scale": 255.0, "channel_swap": (2, 1, 0), "mean": np.linspace(0, 255, 3 * 6 * 8).reshape(3, 6, 8)},
            ["--mean_file=mean.npy"],
        ),
    ],
    ids=["bytes", "all_settings", "mean_of_another_size"],
)
def test_classify_preprocessing_equals_the_classifier(
    net_folder: Path, settings: dict[str, Any], arguments: list[str]
) -> None:
    if "mean" in settings:
        np.save(net_folder / "mean.npy", settings["mean"])
    exported = export_net("--preprocess=classify", "--images_dim=12,14", *arguments)
    classifier = Classifier(net_folder / "net.prototxt", net_folder / "net.caffemodel", (12, 14), **settings)
    expected = classifier.predict([image.astype(np.float32) / 255 for image in IMAGES], oversample=False)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(exported(IMAGES), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_images_have_the_size_of_the_input_by_default(net_folder: Path) -> None:
    cropped_images = IMAGES[:, 1:11, 2:12]
    cropped = export_net("--preprocess=classify", "--images_dim=12,14")(IMAGES)
    np.testing.assert_array_equal(export_net("--preprocess=classify")(cropped_images), cropped)


@pytest.mark.parametrize(
    "transform",
    [
        "crop_size: 10 scale: 0.01 mean_value: 104 mean_value: 117 mean_value: 123",
        "crop_size: 10 mean_value: 100",
        'crop_size: 10 scale: 0.5 mean_file: "mean.binaryproto"',
    ],
    ids=["values", "one_value", "file"],
)
def test_transform_param_preprocessing_equals_the_data_layer(net_folder: Path, transform: str) -> None:
    """As the layer itself reads the images, which Caffe's tools store in B, G, R."""
    bgr_images = [np.ascontiguousarray(image[:, :, ::-1].transpose(2, 0, 1)) for image in IMAGES]
    datums = [caffe_pb2.Datum(channels=3, height=12, width=14, data=image.tobytes()) for image in bgr_images]
    write_lmdb(net_folder / "db", ((b"%d" % i, datum.SerializeToString()) for i, datum in enumerate(datums)))
    mean = caffe_pb2.BlobProto(num=1, channels=3, height=12, width=14, data=np.linspace(0, 255, 3 * 12 * 14))
    (net_folder / "mean.binaryproto").write_bytes(mean.SerializeToString())
    (net_folder / "net.prototxt").write_text(DATA_LAYER.replace("TRANSFORM", transform) + LAYERS)
    exported = export_net("--preprocess=transform_param", "--images_dim=12,14")
    net = Net(net_folder / "net.prototxt")
    (source,) = net.sources().values()
    (layer,) = (layer for layer in net.graph.layers if layer.type.is_input)
    data, _ = layer.transform_on_device(next(source))
    source.close()
    weights = jax.tree.map(np.asarray, net.init(jax.random.key(1)))
    expected = np.asarray(net.apply(*weights, {"data": data, "label": np.zeros(4, np.float32)})[0]["ip"])
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(exported(IMAGES), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_channels_are_swapped_only_for_three_channels(net_folder: Path) -> None:
    net = Net(make_deploy_net(channels=1))
    subject = make_inference_model(net, net.init(jax.random.key(0)))
    with pytest.raises(CaffejaxError, match=r"layer 'data' \(Input\).*without a transform_param"):
        read_data_layer_preprocessing(net, subject)
    gray = Uint8Preprocessing("data", (10, 10, 1), (10, 10), (0,))
    np.testing.assert_array_equal(gray(IMAGES[:, :10, :10, :1])[:, 0], IMAGES[:, :10, :10, 0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--images_dim=12,14"], "--images_dim needs --preprocess=classify"),
        (["--raw_scale=2", "--preprocess=transform_param"], "works only with --preprocess=classify"),
        (["--preprocess=transform_param"], "layer 'data' (Input): computes 'data' without a transform_param"),
        (["--preprocess=classify", "--images_dim=12"], "must be a height and a width"),
        (["--preprocess=classify", "--images_dim=12,9"], "images of 12x9 are smaller than the input 'data', 10x10"),
        (["--preprocess=classify", "--channel_swap=0,1"], "same number of dimensions as the input channels"),
        (["--preprocess=classify", "--channel_swap=1,2,3"], "channels, 0 to 2, not [1, 2, 3]"),
        (["--preprocess=classify", "--mean_file=none.npy"], "none.npy"),
        (["--preprocess=classify", "--mean_file=two.npy"], "Mean channels incompatible"),
        (["--preprocess=classify", "--to=flax"], "--preprocess works only with stablehlo and onnx"),
        (["--preprocess=classify", "--outputs=aside"], "needs exactly one input of four axes"),
    ],
)
def test_inconsistent_flags_are_refused(
    net_folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    np.save(net_folder / "two.npy", np.zeros(2))
    flat_input = 'layer { name: "flat" type: "Input" top: "flat" input_param { shape { dim: 2 dim: 3 } } }'
    aside_layer = 'layer { name: "aside" type: "TanH" bottom: "flat" top: "aside" }'
    (net_folder / "net.prototxt").write_text(make_deploy_net() + flat_input + aside_layer)
    files_before = sorted(net_folder.iterdir())
    flags = ["--outputs=ip", *arguments]
    assert main(["export", "net.prototxt", "--weights=net.caffemodel", "--to=net.stablehlo", *flags]) == 1
    assert message in capsys.readouterr().err
    assert sorted(net_folder.iterdir()) == files_before

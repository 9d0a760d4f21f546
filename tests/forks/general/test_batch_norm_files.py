"""BatchNorm's blobs in the orders, shapes and values in which versions of NVIDIA Caffe and DIGITS stored them."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffejax.dnn
from caffejax import Net
from caffejax.base.errors import WeightsError
from caffejax.base.glog import collect_warnings
from caffejax.cli import main
from caffejax.core.schema import caffe_pb2 as pb
from caffejax.tools.model_check.check import compare_weights

NET = """layer {{ name: "data" type: "Input" top: "data"
  input_param {{ shape {{ dim: 2 dim: {channels} dim: 2 dim: 3 }} }} }}
layer {{ name: "bn" type: "BatchNorm" bottom: "data" top: "bn" batch_norm_param {{ {settings} }} }}"""
SCALED = "scale_bias: true"


def write(path: Path, arrays: list[np.ndarray], legacy: bool = False) -> Path:
    net = pb.NetParameter()
    layer = net.layer.add(name="bn", type="BatchNorm")
    for array in arrays:
        blob = layer.blobs.add(data=array.ravel())
        if legacy:
            blob.num, blob.channels, blob.height, blob.width = (1,) * (4 - array.ndim) + array.shape
        else:
            blob.shape.dim.extend(array.shape)
    path.write_bytes(net.SerializeToString())
    return path


def make_blobs(channels: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    names = ("scale", "bias", "mean", "variance")
    return {name: rng.uniform(0.5, 2, channels).astype(np.float32) for name in names}


def compute(x: np.ndarray, blobs: dict[str, np.ndarray]) -> np.ndarray:
    """Port of NVIDIA Caffe's BatchNorm in TEST with scale and bias, which does not read its blob 2."""
    scale, bias, mean, variance = (blobs[k].reshape(-1, 1, 1) for k in ("scale", "bias", "mean", "variance"))
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + bias


ORDERS = {
    "DIGITS 5": ("scale", "bias", "mean", "variance", "reserved"),
    "NVIDIA Caffe 0.16": ("mean", "variance", "reserved", "scale", "bias"),
}
SHAPES: dict[str, Any] = {
    "C": lambda a: a,
    "1 x C x 1 x 1": lambda a: a if a.size == 1 else a.reshape(1, -1, 1, 1),
    "all 1 x C x 1 x 1": lambda a: a.reshape(1, -1, 1, 1),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("reserved", [0, 1, 7.5])
def test_five_blobs_are_read_in_every_order_and_shape(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, order: str, reserved: float
) -> None:
    blobs = {**make_blobs(3), "reserved": np.array([reserved], np.float32)}
    x = np.random.default_rng(0).normal(size=(2, 3, 2, 3)).astype(np.float32)
    net = Net(NET.format(channels=3, settings=SCALED))
    for (shape, reshape), legacy in itertools.product(SHAPES.items(), (False, True)):
        path = write(tmp_path / "x.caffemodel", [reshape(blobs[name]) for name in ORDERS[order]], legacy)
        tops, _ = net.apply(*net.load(path), {"data": x})
        np.testing.assert_allclose(tops["bn"], compute(x, blobs), rtol=2e-5, atol=2e-6, err_msg=f"{shape} {legacy}")
    frozen = net.freeze(net.load(path))({"data": x})["bn"]
    np.testing.assert_allclose(frozen, compute(x, blobs), rtol=2e-5, atol=2e-6)
    assert "blob 2" not in caplog.text  # NVIDIA Caffe uses no factor here


def test_three_blobs_may_have_four_axes(tmp_path: Path) -> None:
    blobs = make_blobs(3)
    x = np.ones((2, 3, 2, 3), np.float32)
    net = Net(NET.format(channels=3, settings=""))
    expected = (1 - blobs["mean"] / 4) / np.sqrt(blobs["variance"] / 4 + 1e-5)
    for legacy, shape in itertools.product((False, True), SHAPES.values()):
        arrays = [shape(a) for a in (blobs["mean"], blobs["variance"], np.array([4.0]))]
        tops, _ = net.apply(*net.load(write(tmp_path / "x.caffemodel", arrays, legacy)), {"data": x})
        np.testing.assert_allclose(np.asarray(tops["bn"])[1, :, 1, 2], expected, rtol=2e-5)


def test_one_channel_is_read_in_the_present_order(tmp_path: Path) -> None:
    """All sizes are 1, so that they do not tell the orders apart."""
    blobs = {**make_blobs(1), "reserved": np.array([1], np.float32)}
    x = np.random.default_rng(0).normal(size=(2, 1, 2, 3)).astype(np.float32)
    net = Net(NET.format(channels=1, settings=SCALED))
    path = write(tmp_path / "x.caffemodel", [blobs[name] for name in ORDERS["NVIDIA Caffe 0.16"]])
    np.testing.assert_allclose(
        net.apply(*net.load(path), {"data": x})[0]["bn"], compute(x, blobs), rtol=2e-5, atol=2e-6
    )


@pytest.mark.parametrize(
    "shapes",
    [[(3,), (3,), (3,), (3,), (2,)], [(2,), (3,), (3,), (3,), (1,)], [(3, 2), (3,), (3,), (3,), (1,)], [(3,)] * 5],
)
def test_blobs_that_fit_no_order_are_refused(tmp_path: Path, shapes: list[tuple[int, ...]]) -> None:
    net = Net(NET.format(channels=3, settings=SCALED))
    path = write(tmp_path / "x.caffemodel", [np.ones(shape) for shape in shapes])
    with pytest.raises(WeightsError, match="layer 'bn'"):
        net.load(path)


@pytest.mark.parametrize(
    ("settings", "mean", "factor", "warns"),
    [
        ("", 0.5, 0, True),
        ("", 0, 0, False),
        ("", 0.5, 1, False),
        ("", np.nan, 0, True),
        ("bias_term: true", 0.5, 0, True),  # Intel Caffe's, with sums
        (SCALED, 0.5, 0, False),
    ],
)
def test_a_factor_of_zero_beside_statistics_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: str, mean: float, factor: float, warns: bool
) -> None:
    text = NET.format(channels=3, settings=settings)
    arrays = [np.full(3, mean), np.zeros(3), np.array([factor]), np.ones(3), np.ones(3)][: 5 if settings else 3]
    path = write(tmp_path / "x.caffemodel", arrays)
    with caplog.at_level(logging.WARNING, "caffejax"):
        Net(text).load(path)
        assert [record.levelname for record in caplog.records] == ["WARNING"] * warns
        for message in caplog.messages:
            assert message.startswith(f"{path}: 1 layer: bn: ")
            assert "set blob 2 to 1" in message


def test_check_export_and_dnn_tell_a_factor_of_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.prototxt").write_text(NET.format(channels=3, settings=""))
    path = write(tmp_path / "x.caffemodel", [np.ones(3), np.ones(3), np.zeros(1)])
    with collect_warnings() as messages:
        compare_weights(Net(tmp_path / "net.prototxt").graph, path)
    caffejax.dnn.readNetFromCaffe(tmp_path / "net.prototxt", path.read_bytes())
    assert "set blob 2 to 1" in messages[0]
    main(["export", str(tmp_path / "net.prototxt"), f"--weights={path}", f"--to={tmp_path / 'net.onnx'}"])
    assert "set blob 2 to 1" in capsys.readouterr().err

"""Files without the weights of some layers: the layers are named, and the file is refused if all are required."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import jax
import numpy as np
import pytest

from caffejax import pycaffe as caffe
from caffejax.base.errors import WeightsError
from caffejax.cli import main
from caffejax.core.checkpoints.load_save import load_weights, save_weights
from caffejax.core.program import initial_variables as init
from caffejax.core.program.net import Net
from caffejax.core.solver import Solver

LAYERS = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "relu" type: "ReLU" bottom: "bn" top: "bn" }
layer { name: "ip" type: "InnerProduct" bottom: "bn" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
"""
INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }'
DUMMY = (
    'layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }'
)
LOSS = 'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "loss" }'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Write nets, and weight files: for all layers, for the layers before `ip` (a truncated file), and for none."""
    path: Path = tmp_path_factory.mktemp("coverage")
    (path / "deploy.prototxt").write_text(INPUT + LAYERS)
    (path / "test.prototxt").write_text(DUMMY + LAYERS + LOSS)
    (path / "solver.prototxt").write_text(
        'net: "test.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "s" snapshot_after_train: 0'
    )
    net = Net(path / "deploy.prototxt")
    variables = net.init(jax.random.key(3))
    save_weights(path / "all.caffemodel", net.graph, variables)
    data = (path / "all.caffemodel").read_bytes()
    layer_offsets = list(iterate_layer_ends(data))
    assert layer_offsets[-1] == len(data)
    (path / "partial.caffemodel").write_bytes(data[: layer_offsets[-2]])
    renamed_data = data.replace(b"\x04conv", b"\x04cnvo").replace(b"\x02bn", b"\x02nb").replace(b"\x02ip", b"\x02pi")
    (path / "none.caffemodel").write_bytes(renamed_data)
    cv2.imwrite(str(path / "im.png"), np.zeros((8, 8, 3), np.uint8))
    (path / "windows.csv").write_text("filename,ymin,xmin,ymax,xmax\nim.png,0,0,8,8\n")
    return path


def iterate_layer_ends(data: bytes) -> Iterator[int]:
    """Where the fields of a message end: key, length and content of each."""
    position = 0
    while position < len(data):
        position, _ = read_varint(data, position)
        position, size = read_varint(data, position)
        yield (position := position + size)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Where a number ends, and the number."""
    value = shift = 0
    while True:
        value |= (data[position] & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if data[position - 1] < 0x80:
            return position, value


def load_file(net: Net, path: Any, **options: Any) -> Any:
    return load_weights(path, net.graph, net.init(jax.random.key(0)), **options)


@pytest.mark.parametrize(("phase", "level"), [("TEST", logging.WARNING), ("TRAIN", logging.INFO)])
def test_layers_without_weights_are_named(
    phase: Any, level: int, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net(folder / "deploy.prototxt", phase)
    with caplog.at_level(logging.INFO, "caffejax"):
        load_file(net, folder / "partial.caffemodel")
    messages = {record.message.replace(f"{folder}/", ""): record.levelno for record in caplog.records}
    assert messages["Weights from partial.caffemodel for 2 layers: conv, bn"] == logging.INFO
    assert messages["No weights in partial.caffemodel for 1 layer: ip: initialized by their fillers"] == level


def test_nothing_is_logged_if_no_layer_is_missing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = Net(folder / "deploy.prototxt")
    with caplog.at_level(logging.INFO, "caffejax"):
        load_file(net, folder / "all.caffemodel", strict=True)
        load_file(net, [folder / "partial.caffemodel", folder / "all.caffemodel"], strict=True)
        load_file(net, (), strict=True)
    assert not caplog.records


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("partial", "layer 'ip' .*: has no weights in .*partial.caffemodel, but each layer needs weights here"),
        ("none", "has no blobs for any layer of the net"),
    ],
)
def test_strict_loading_refuses_layers_without_weights(folder: Path, file: str, message: str) -> None:
    path = folder / f"{file}.caffemodel"
    with pytest.raises(WeightsError, match=message) as exc_info:
        load_file(Net(folder / "deploy.prototxt"), path, strict=True)
    assert len(exc_info.value.problems) == 1
    with pytest.raises(WeightsError, match=message):
        caffe.Net(str(folder / "deploy.prototxt"), caffe.TEST, weights=str(path), strict_weights=True)
    with pytest.raises(WeightsError, match=message):
        Solver(folder / "solver.prototxt", weights=[path], strict_weights=True)


NO_MATCH_MESSAGE = (
    "none.caffemodel: has no blobs for any layer of the net, and layers match by name: the net's are 3 (conv, bn, ip), "
    "the file's 3 (cnvo, nb, pi); nearest (net and file): 'conv' and 'cnvo', 'bn' and 'nb', 'ip' and 'pi'; "
)


def test_a_file_of_another_net_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(folder)
    net = Net("deploy.prototxt")
    for load in (net.load, lambda file: load_file(net, ["all.caffemodel", file])):
        with pytest.raises(WeightsError, match=f"^{re.escape(NO_MATCH_MESSAGE)}"):
            load("none.caffemodel")
    net.load("none.caffemodel", exclude=["conv", "bn", "ip"])  # nothing was wanted
    caffe_net = caffe.Net("deploy.prototxt", "all.caffemodel", caffe.TEST)
    weights_before = caffe_net.params["conv"][0].data.copy()
    with caplog.at_level(logging.WARNING, "caffejax"):
        caffe_net.copy_from("none.caffemodel")  # Caffe goes on
    assert any(record.message.startswith(NO_MATCH_MESSAGE) for record in caplog.records)
    np.testing.assert_array_equal(caffe_net.params["conv"][0].data, weights_before)


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_a_file_for_less_than_half_of_the_layers_causes_a_warning(
    phase: Any, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    renamed_layers = LAYERS.replace('name: "bn"', 'name: "bn1"').replace('name: "ip"', 'name: "ip1"')
    with caplog.at_level(logging.WARNING, "caffejax"):
        Net(INPUT + renamed_layers, phase).load(folder / "all.caffemodel")
        Net(INPUT + renamed_layers.replace("ip1", "ip"), phase).load(folder / "all.caffemodel")  # two of three
    assert [record.message for record in caplog.records if "only" in record.message] == [
        f"{folder / 'all.caffemodel'}: only 1 of the net's 3 layers with weights are in the file; layers match by "
        "name; nearest (net and file): 'bn1' and 'bn', 'ip1' and 'ip'"
    ]


def test_blobs_in_the_net_are_not_reported_missing(tmp_path: Path, folder: Path) -> None:
    """Shared blobs are their owner's."""
    shared_layers = LAYERS + LAYERS[LAYERS.index('layer { name: "ip"') :].replace('"ip"', '"again"')
    shared_layers = shared_layers.replace('top: "ip"', 'top: "ip" param { name: "w" } param { name: "b" }').replace(
        'top: "again"', 'top: "again" param { name: "w" } param { name: "b" }'
    )
    load_file(Net(INPUT + shared_layers), folder / "all.caffemodel", strict=True)


COMMANDS = {
    "test": "test --model=test.prototxt --weights={w} --iterations=1",
    "time": "time --model=test.prototxt --weights={w} --iterations=1",
    "train": "train --solver=solver.prototxt --weights={w}",
    "extract_features": "extract_features {w} test.prototxt ip {out} 1 lmdb",
    "classify": "classify im.png {out} --mean_file= --model_def=deploy.prototxt --pretrained_model={w} --center_only "
    "--images_dim=8,8",
    "detect": "detect windows.csv {out}.csv --mean_file= --model_def=deploy.prototxt --pretrained_model={w} "
    "--context_pad=0",
    "draw blob": "draw deploy.prototxt --weights={w} --image=im.png --blob=conv --out={out}.png",
    "draw filters": "draw deploy.prototxt --filters --weights={w} --out={out}.png",
    "collect": "collect --model=test.prototxt --weights={w} --out={out}.npz",
}
LOGGING_COMMANDS = ("test", "extract_features", "classify", "detect")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_missing_layers_with_strict_weights(
    command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    arguments = COMMANDS[command].format(w="partial.caffemodel", out=tmp_path / "out").split()
    assert main([*arguments, "--strict_weights"]) == 1
    output = capfd.readouterr().err
    assert re.search(r"layer 'ip' \(InnerProduct\): has no weights in partial.caffemodel", output)
    assert "Traceback" not in output
    assert not list(tmp_path.iterdir())
    if command in LOGGING_COMMANDS:
        assert main(arguments) == 0
        assert re.search(r"^W.*No weights in partial.caffemodel for 1 layer: ip", capfd.readouterr().err, re.MULTILINE)
    assert main(COMMANDS[command].format(w="none.caffemodel", out=tmp_path / "none").split()) == 1
    assert f"caffejax: {NO_MATCH_MESSAGE}" in capfd.readouterr().err


@pytest.mark.parametrize(("weights", "shapes"), [("all", []), ("partial", [(4, 108), (4,)])])
def test_finetuning_runs_no_filler_of_a_blob_that_a_file_provides(
    weights: str, shapes: list[tuple[int, ...]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    fill, filled_shapes = init.fill, []

    def record_fill(filler: Any, key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        filled_shapes.append(shape)
        return fill(filler, key, shape, dtype)

    monkeypatch.setattr(init, "fill", record_fill)
    Solver("solver.prototxt", weights=[f"{weights}.caffemodel"]).close()
    assert filled_shapes == shapes

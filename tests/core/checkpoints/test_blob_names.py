"""Names of blobs in files: what is written, files of earlier versions with numbers, and files of other frameworks."""

import logging
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import caffejax
from caffejax import Net, Solver
from caffejax.core.checkpoints.caffemodel import read_caffemodel
from caffejax.core.checkpoints.weight_formats import convert
from caffejax.core.layers.context import ParamSpec
from caffejax.core.schema import caffe_pb2

NUMBERED = (
    Path(__file__).parent / "numbered"
)  # written when blobs had numbers: Adam, 3 iterations, and 2 more in `after`
NET = caffejax.read_net(NUMBERED / "net.prototxt")
NAMES = {
    "bn": ["mean", "variance", "scale_factor"],
    "sc/ale": ["weight", "bias"],
    "lstm": ["weight_x", "bias", "weight_h"],
}
ROOT = Path(__file__).parents[3]


def draw_variables(net: Net) -> caffejax.Variables:
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), net.init(jax.random.key(0)))


def assert_saved_equal(actual: caffejax.Variables, expected: caffejax.Variables) -> None:
    for layer, names in NAMES.items():
        for name in names:
            (array,) = (tree[layer][name] for tree in actual if name in tree.get(layer, {}))
            (saved,) = (tree[layer][name] for tree in expected if name in tree.get(layer, {}))
            np.testing.assert_array_equal(array, saved, err_msg=f"{layer} {name}")


INPUTS = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 3 dim: 2 dim: 4 dim: 4 } } }
layer { name: "c" type: "Input" top: "c" input_param { shape { dim: 3 dim: 2 } } }
layer { name: "s" type: "Input" top: "s" input_param { shape { dim: 2 dim: 5 } } }
"""
RECURRENT = 'bottom: "c" bottom: "s" recurrent_param { num_output: 2 }'
FIELDS = {
    "Convolution": "convolution_param { num_output: 2 kernel_size: 1 }",
    "Deconvolution": "convolution_param { num_output: 2 kernel_size: 1 }",
    "InnerProduct": "inner_product_param { num_output: 2 }",
    "Embed": "embed_param { num_output: 2 input_dim: 2 }",
    "Scale": "scale_param { bias_term: true }",
    "Bias": "",
    "PReLU": "",
    "Parameter": "parameter_param { shape { dim: 1 } }",
    "BatchNorm": "",
    "LSTM": RECURRENT,
    "RNN": RECURRENT,
}


@pytest.mark.parametrize("type_name", FIELDS)
def test_the_page_lists_the_names_of_a_type(type_name: str) -> None:
    bottom = "" if type_name == "Parameter" else 'bottom: "x"'
    net = Net(f'{INPUTS} layer {{ name: "l" type: "{type_name}" {bottom} {FIELDS[type_name]} top: "y" }}')
    page = (ROOT / "docs" / "weights.md").read_text()
    (cell,) = re.findall(rf"^\| [^|]*\b{type_name}\b[^|]*\| ([^|]*)\|", page, re.MULTILINE)
    listed_names = re.findall(r"`(\w+)`", cell.partition("; with `scale_bias`")[0])
    assert [p.slot.name for p in net.graph.layer("l").all_params] == listed_names


@pytest.mark.parametrize("extension", [".npz", ".safetensors", ".orbax", ".caffemodel"])
def test_files_use_the_names_and_load_again(tmp_path: Path, extension: str) -> None:
    net = Net(NET, "TRAIN")
    variables = draw_variables(net)
    path = tmp_path / f"x{extension}"
    net.save(*variables, path)
    assert_saved_equal(net.load(path), variables)
    if extension in (".npz", ".safetensors"):
        stored = load_file(path) if extension == ".safetensors" else np.load(path)
        assert sorted(stored) == sorted(f"{layer}.{name}" for layer, names in NAMES.items() for name in names)
    target = tmp_path / "y.caffemodel"
    convert(str(path), str(target))  # without the net, the names of BVLC's types say the order
    assert_saved_equal(net.load(target), variables)


def test_files_with_numbers_load(tmp_path: Path) -> None:
    with zipfile.ZipFile(NUMBERED / "checkpoint.zip") as archive:
        archive.extractall(tmp_path)
    net = Net(NET, "TRAIN")
    variables = [net.load(path) for path in (NUMBERED / "numbered.npz", NUMBERED / "numbered.safetensors")]
    assert_saved_equal(*variables)
    assert_saved_equal(net.load(tmp_path / "numbered.orbax"), variables[0])
    convert(str(tmp_path / "numbered.orbax"), str(tmp_path / "x.caffemodel"))
    assert_saved_equal(net.load(tmp_path / "x.caffemodel"), variables[0])


def test_a_checkpoint_with_numbers_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(NUMBERED / "checkpoint.zip") as archive:
        archive.extractall(tmp_path)
    for name in ("net.prototxt", "solver.prototxt"):
        shutil.copy(NUMBERED / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    solver = Solver("solver.prototxt")
    solver.restore("numbered.orbax")
    assert solver.iteration == 3
    solver.step(2)
    variables = solver.variables
    expected = np.load(NUMBERED / "after.npz")
    for layer in solver.net.graph.layers:
        for param in layer.all_params:
            recorded = expected[f"{param.slot.layer}|{param.index}"]
            np.testing.assert_allclose(param.array(*variables), recorded, rtol=2e-5, atol=1e-6, err_msg=str(param.slot))
    solver.close()


def test_a_file_of_another_framework_loads_by_a_map_of_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = Net(NET, "TRAIN")
    variables = draw_variables(net)
    arrays: dict[str, Any] = {f"torch.{name}": variables.params["lstm"][name] for name in NAMES["lstm"]}
    path = tmp_path / "torch.safetensors"
    save_file({**arrays, "epoch": np.array([3]), "sc/ale.weight": variables.params["sc/ale"]["weight"],
               "sc/ale.bias": variables.params["sc/ale"]["bias"]}, path)  # fmt: skip
    names = {f"torch.{name}": f"lstm.{name}" for name in NAMES["lstm"]}
    with caplog.at_level(logging.WARNING, logger="caffejax"):
        loaded = net.load(path, names=names)
    assert "left out 'epoch': no numbers named <layer>.<blob>" in caplog.text
    jax.tree.map(np.testing.assert_array_equal, loaded.params, variables.params)
    with pytest.raises(caffejax.WeightsError, match=r"has no array 'torch.wight_x'; did you mean 'torch.weight_x'\?"):
        net.load(path, names={"torch.wight_x": "lstm.weight_x"})
    with pytest.raises(caffejax.WeightsError, match=r"layer 'lstm'.*the file has blobs weight, the net weight_x, bias"):
        net.load(path, names={"torch.weight_x": "lstm.weight"})
    with pytest.raises(caffejax.WeightsError, match=r"only the arrays of an \.npz or \.safetensors file"):
        net.load(tmp_path / "x.caffemodel", names=names)


@pytest.mark.parametrize(
    ("names", "type_name", "order"),
    [
        ("bias weight", "", "weight bias"),
        ("scale_factor variance mean", "", "mean variance scale_factor"),
        ("weight_h weight_x bias", "", "weight_x bias weight_h"),
        ("alpha", "", "alpha"),
        ("alpha beta", "", None),
        ("weight bias", "LSTM", None),
    ],
)
def test_conversion_takes_the_order_from_the_types(
    tmp_path: Path, names: str, type_name: str, order: str | None
) -> None:
    numbers = {name: float(i) for i, name in enumerate(names.split())}
    np.savez(tmp_path / "x.npz", **{f"l.{name}": np.full(1, number) for name, number in numbers.items()})
    layer = caffe_pb2.LayerParameter(name="l", type=type_name)
    net = caffe_pb2.NetParameter(layer=[layer]) if type_name else None
    target = tmp_path / "x.caffemodel"
    if order is None:
        with pytest.raises(
            caffejax.WeightsError, match=f"'l': the order of its blobs {', '.join(numbers)} is not known"
        ):
            convert(str(tmp_path / "x.npz"), str(target), net)
        assert not target.exists()
    else:
        convert(str(tmp_path / "x.npz"), str(target), net)
        assert [blob.item() for blob in read_caffemodel(str(target))["l"]] == [numbers[n] for n in order.split()]


@pytest.mark.parametrize("name", ["a.b", "a/b"])
def test_names_do_not_separate_layers(name: str) -> None:
    with pytest.raises(caffejax.LayerError, match="must not contain"):
        ParamSpec((1,), name=name)

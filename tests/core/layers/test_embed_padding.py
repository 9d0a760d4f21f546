"""Embed's index -1, with which data sets pad sentences, gives zeros and no gradient, in every way to run a net."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax import Net
from caffejax.base.errors import DataError, LayerError
from caffejax.base.variables import Variables
from caffejax.core.data.loader import Loader
from caffejax.core.gradcheck import check_gradients
from caffejax.dnn import readNetFromCaffe

INPUT = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }\n'
EMBED = """
layer { name: "e" type: "Embed" bottom: "x" top: "y" embed_param { num_output: 2 input_dim: 4 BIAS } }
layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 reduction_param { operation: SUMSQ } }
"""
INDICES = np.array([[-1, 2, 0], [-1.9, -0.9, 3.5]], np.float32)  # truncated: -1, 2, 0, -1, 0, 3
WEIGHT = np.arange(8, dtype=np.float32).reshape(4, 2)
BIAS = np.array([10, 20], np.float32)


def compute_expected(has_bias: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the top, and the gradients of weight and bias of half the sum of its squares, by a loop."""
    top, weight_diff, bias_diff = np.zeros((6, 2), np.float32), np.zeros((4, 2)), np.zeros(2)
    for row, index in enumerate(INDICES.ravel()):
        if int(index) != -1:
            top[row] = WEIGHT[int(index)] + BIAS * has_bias
            weight_diff[int(index)] += 2 * top[row]
            bias_diff += 2 * top[row]
    return top.reshape(2, 3, 2), weight_diff, bias_diff


def make_variables(has_bias: bool) -> Variables:
    return Variables({"e": {"weight": WEIGHT, "bias": BIAS} if has_bias else {"weight": WEIGHT}}, {})


def run_frozen(text: str, variables: Variables, _: Path) -> Any:
    return Net(text).freeze(variables, ["y"])({"x": INDICES})["y"]


def run_bfloat16(text: str, variables: Variables, _: Path) -> Any:
    return Net(text, precision="bfloat16").apply(*variables, {"x": INDICES}, blobs=("y",))[0]["y"]


def run_pycaffe(text: str, variables: Variables, _: Path) -> Any:
    net = caffe.Net(text, caffe.TEST)
    for blob, array in zip(net.params["e"], variables.params["e"].values(), strict=True):
        blob.data[...] = array
    return net.forward(blobs=["y"], x=INDICES)["y"]


def run_dnn(text: str, variables: Variables, folder: Path) -> Any:
    (folder / "net.prototxt").write_text(text)
    Net(text).save(*variables, folder / "net.caffemodel")
    net = readNetFromCaffe(str(folder / "net.prototxt"), str(folder / "net.caffemodel"))
    net.setInput(INDICES, "x")
    return net.forward("e")


@pytest.mark.parametrize("run", [run_frozen, run_bfloat16, run_pycaffe, run_dnn])
@pytest.mark.parametrize("has_bias", [True, False])
def test_inference(run: Callable[..., Any], has_bias: bool, tmp_path: Path) -> None:
    text = INPUT + EMBED.replace("BIAS", "" if has_bias else "bias_term: false")
    np.testing.assert_array_equal(run(text, make_variables(has_bias), tmp_path), compute_expected(has_bias)[0])


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("options", [{}, {"backward": "rules"}, {"kernels": "reference"}], ids=str)
def test_gradients(has_bias: bool, options: Any) -> None:
    net = Net(INPUT + EMBED.replace("BIAS", "" if has_bias else "bias_term: false"), "TRAIN", **options)
    params, state = make_variables(has_bias)
    (_, outputs), grads = jax.value_and_grad(net.loss, has_aux=True)(params, state, {"x": INDICES}, jax.random.key(0))
    _, *expected = compute_expected(has_bias)
    assert np.isfinite(outputs.blobs["loss"])
    for name, gradient in grads["e"].items():
        np.testing.assert_allclose(gradient, expected[("weight", "bias").index(name)], rtol=1e-6)


def test_diffs_of_pycaffe_and_gradcheck() -> None:
    text = INPUT + EMBED.replace("BIAS", "")
    net = caffe.Net(text, caffe.TRAIN)
    net.params["e"][0].data[...], net.params["e"][1].data[...] = WEIGHT, BIAS
    net.forward(x=INDICES)
    net.backward()
    for blob, expected in zip(net.params["e"], compute_expected(True)[1:], strict=True):
        np.testing.assert_allclose(blob.diff, expected, rtol=1e-6)
    report = check_gradients("Embed", "embed_param { num_output: 2 input_dim: 4 }", bottoms=[INDICES])
    assert report.ok, report


def test_indices_of_data_and_computed_indices(tmp_path: Path) -> None:
    """From a data layer, and computed by the net: -1 is read, -2 and 4 are refused as before."""
    data = 'layer { name: "d" type: "HDF5Data" top: "x" hdf5_data_param { source: "%s" batch_size: 1 } }'
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x"] = np.array([[-1.0], [-2], [4]], np.float32)
    (tmp_path / "list.txt").write_text(f"{tmp_path}/data.h5\n")
    loader = Loader(Net(data % (tmp_path / "list.txt") + EMBED.replace("BIAS", ""), "TRAIN").graph)
    assert next(loader)["x"] == -1
    for value in (-2, 4):
        with pytest.raises(DataError, match=f"'e' .*blob 'x' holds {value} in row 0"):
            next(loader)
    loader.close()
    shift = 'layer { name: "shift" type: "Power" bottom: "i" top: "x" power_param { shift: -1 } }'
    net = caffe.Net(INPUT.replace('top: "x"', 'top: "i"') + shift + EMBED.replace("BIAS", ""), caffe.TRAIN)
    assert (net.forward(i=np.zeros((2, 3)), blobs=["y"])["y"] == 0).all()
    for value in (-1, 5):
        with pytest.raises(LayerError, match=rf"index {value - 1} at \[0, 0\] .* from 0 to 3, or -1"):
            net.forward(i=np.full((2, 3), value))

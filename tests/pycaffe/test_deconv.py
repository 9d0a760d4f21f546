"""Backward and deconvolution passes from within a net, as in the fork of the Deep Visualization Toolbox."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe
from caffejax.cpu.kernels.executable_cache import ProgramCacheConfig

from .conftest import CLOSE

NET = """
force_backward: true
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 2 dim: 2 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: "gaussian" std: 1 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param { negative_slope: SLOPE } }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" lrn_param { local_size: 3 alpha: 2 deconv_ignore: IGNORE } }
layer { name: "fc" type: "InnerProduct" bottom: "norm" top: "fc"
  inner_product_param { num_output: 5 weight_filler { type: "gaussian" std: 1 } } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""


def make_net(slope: float = 0, ignore: bool = True) -> Any:
    net = caffe.Net(NET.replace("SLOPE", str(slope)).replace("IGNORE", str(ignore).lower()), caffe.TEST)
    net.blobs["data"].data[...] = np.random.default_rng(0).normal(size=net.blobs["data"].shape)
    net.forward()
    return net


def reference_deconv(net: Any, diff: np.ndarray) -> np.ndarray:
    """Return the deconvolution from "fc" to "data": transposed weights, and only positive diffs at the ReLU."""
    weight, fc = net.params["conv"][0].data[:, :, 0, 0], net.params["fc"][0].data
    at_relu = np.maximum((diff @ fc).reshape(2, 4, 2, 2), 0)
    return np.einsum("oi,nohw->nihw", weight, at_relu)


@pytest.mark.parametrize("slope", [0, 0.5])
def test_deconv_passes_positive_diffs(slope: float) -> None:
    net = make_net(slope)
    diff = np.random.default_rng(1).normal(size=(2, 5))
    net.blobs["prob"].diff[...] = 7
    result = net.deconv_from_layer("fc", diff, diffs=["norm"])
    np.testing.assert_allclose(result["data"], reference_deconv(net, diff), **CLOSE)
    np.testing.assert_allclose(result["norm"], (diff @ net.params["fc"][0].data).reshape(2, 4, 2, 2), **CLOSE)
    np.testing.assert_allclose(net.blobs["data"].diff, result["data"])
    assert (net.blobs["prob"].diff == 7).all()
    net.deconv_from_layer("fc", diff, zero_higher=True)
    assert (net.blobs["prob"].diff == 0).all()
    np.testing.assert_allclose(net.blobs["fc"].diff, diff, **CLOSE)


def test_a_stored_program_of_a_backward_pass_is_not_used_for_a_deconvolution_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProgramCacheConfig, "folder", tmp_path)
    diff = np.random.default_rng(1).normal(size=(2, 5))
    make_net().backward_from_layer("fc", diff)
    assert any(tmp_path.iterdir())
    net = make_net()
    np.testing.assert_allclose(net.deconv_from_layer("fc", diff)["data"], reference_deconv(net, diff), **CLOSE)


def test_a_backward_pass_from_a_layer_is_the_gradient() -> None:
    net, expected_net = make_net(), make_net()
    diff = np.random.default_rng(1).normal(size=(2, 5))
    result = net.backward_from_layer("fc", diff, zero_higher=True)["data"].copy()
    for name, blobs in net.params.items():
        for expected_blob, blob in zip(expected_net.params[name], blobs, strict=True):
            expected_blob.data[...] = blob.data
    expected_net.forward()
    expected_net.blobs["fc"].diff[...] = diff
    np.testing.assert_allclose(result, expected_net.backward(start="fc")["data"], **CLOSE)
    assert np.abs(result - reference_deconv(net, diff)).max() > 0.1


def test_lrn_is_differentiated_unless_it_is_ignored() -> None:
    net = make_net(ignore=False)
    diff = np.random.default_rng(1).normal(size=(2, 5))
    net.backward_from_layer("fc", diff)
    at_conv = net.blobs["conv"].diff.copy()  # after the ReLU in place: the gradient of LRN where the ReLU passes
    is_positive = net.blobs["conv"].data > 0
    net.deconv_from_layer("fc", diff)
    np.testing.assert_allclose(net.blobs["conv"].diff[is_positive], np.maximum(at_conv, 0)[is_positive], **CLOSE)


def test_start_diffs_of_wrong_shapes_are_rejected() -> None:
    net = make_net()
    with pytest.raises(caffejax.GraphError, match=r"shape \(2, 5\) but got \(5,\).*'fc'"):
        net.deconv_from_layer("fc", np.zeros(5))
    with pytest.raises(caffejax.GraphError, match="no blob 'fd'"):
        net.backward_from_layer("fd", np.zeros(5))

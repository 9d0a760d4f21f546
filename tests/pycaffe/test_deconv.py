"""Backward and deconvolution passes from within a net, as in the fork of the Deep Visualization Toolbox."""

from typing import Any

import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe

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


def net(slope: float = 0, ignore: bool = True) -> Any:
    net = caffe.Net(NET.replace("SLOPE", str(slope)).replace("IGNORE", str(ignore).lower()), caffe.TEST)
    net.blobs["data"].data[...] = np.random.default_rng(0).normal(size=net.blobs["data"].shape)
    net.forward()
    return net


def reference_deconv(net: Any, diff: np.ndarray) -> np.ndarray:
    """From "fc" to "data": the transposed weights, and between them what is positive of a diff."""
    weight, fc = net.params["conv"][0].data[:, :, 0, 0], net.params["fc"][0].data
    at_relu = np.maximum((diff @ fc).reshape(2, 4, 2, 2), 0)
    return np.einsum("oi,nohw->nihw", weight, at_relu)


@pytest.mark.parametrize("slope", [0, 0.5])
def test_deconv_passes_what_is_positive(slope: float) -> None:
    subject = net(slope)
    diff = np.random.default_rng(1).normal(size=(2, 5))
    subject.blobs["prob"].diff[...] = 7
    result = subject.deconv_from_layer("fc", diff, diffs=["norm"])
    np.testing.assert_allclose(result["data"], reference_deconv(subject, diff), **CLOSE)
    np.testing.assert_allclose(result["norm"], (diff @ subject.params["fc"][0].data).reshape(2, 4, 2, 2), **CLOSE)
    np.testing.assert_allclose(subject.blobs["data"].diff, result["data"])
    assert (subject.blobs["prob"].diff == 7).all()
    subject.deconv_from_layer("fc", diff, zero_higher=True)
    assert (subject.blobs["prob"].diff == 0).all()
    np.testing.assert_allclose(subject.blobs["fc"].diff, diff, **CLOSE)


def test_a_backward_pass_from_a_layer_is_the_gradient() -> None:
    subject, other = net(), net()
    diff = np.random.default_rng(1).normal(size=(2, 5))
    result = subject.backward_from_layer("fc", diff, zero_higher=True)["data"].copy()
    for name, blobs in subject.params.items():
        for mine, blob in zip(other.params[name], blobs, strict=True):
            mine.data[...] = blob.data
    other.forward()
    other.blobs["fc"].diff[...] = diff
    np.testing.assert_allclose(result, other.backward(start="fc")["data"], **CLOSE)
    assert np.abs(result - reference_deconv(subject, diff)).max() > 0.1


def test_lrn_takes_part_unless_it_is_ignored() -> None:
    subject = net(ignore=False)
    diff = np.random.default_rng(1).normal(size=(2, 5))
    subject.backward_from_layer("fc", diff)
    at_conv = subject.blobs["conv"].diff.copy()  # after the ReLU in place: the gradient of LRN where the ReLU passes
    passes = subject.blobs["conv"].data > 0
    subject.deconv_from_layer("fc", diff)
    np.testing.assert_allclose(subject.blobs["conv"].diff[passes], np.maximum(at_conv, 0)[passes], **CLOSE)


def test_start_diffs_of_other_shapes() -> None:
    subject = net()
    with pytest.raises(caffejax.GraphError, match=r"shape \(2, 5\) but got \(5,\).*'fc'"):
        subject.deconv_from_layer("fc", np.zeros(5))
    with pytest.raises(caffejax.GraphError, match="no blob 'fd'"):
        subject.backward_from_layer("fd", np.zeros(5))

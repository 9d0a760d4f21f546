"""Blobs whose shapes change by reshape, by a host layer or by a source."""

from typing import Any

import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe

from .conftest import CLOSE, INPUT_NET, make_input_net


def test_reshape_keeps_params_and_compiles_once_per_shape() -> None:
    net = make_input_net()
    full_batch = net.forward(blobs=["sum"])["sum"].copy()
    x = net.blobs["data"].data.copy()
    ranges = []
    for n, size in ((1, 9), (4, 6), (1, 9)):
        net.blobs["data"].reshape(n, 2, size, size)
        net.blobs["label"].reshape(n)
        net.reshape()
        assert net.blobs["conv"].shape == (n, 3, size - 2, size - 2)
        assert net.blobs["sum"].data.shape == (n, 5)
        net.blobs["data"].data[...] = x if size == 6 else 1
        net.forward()
        ranges.append(net._executor._history.get_last_pass(0).layer_range)
    assert ranges[0] is ranges[2]
    net.blobs["data"].reshape(4, 2, 6, 6)
    net.blobs["label"].reshape(4)
    net.blobs["data"].data[...] = x
    net.forward()  # reshapes too
    np.testing.assert_allclose(net.blobs["sum"].data, full_batch, **CLOSE)


def test_reshape_raises_an_error_if_a_layer_does_not_fit() -> None:
    prototxt = INPUT_NET.replace("global_pooling: true pool: AVE", "kernel_size: 1")
    net = make_input_net(prototxt=prototxt)
    net.blobs["data"].reshape(4, 2, 9, 9)
    with pytest.raises(caffejax.GraphError, match=r"'fc1'.*blob 0 has shape \(5, 48\).*needs shape \(5, 147\)"):
        net.reshape()


FILTERED = """
layer { name: "x" type: "Input" top: "x" top: "s" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "filter" type: "Filter" bottom: "fc" bottom: "s" top: "kept" }
layer { name: "twice" type: "Power" bottom: "kept" top: "twice" power_param { scale: 2 } }
"""


def test_a_host_layer_may_change_the_number_of_rows() -> None:
    net = caffe.Net(FILTERED, caffe.TEST)
    net.blobs["x"].data[...] = np.random.default_rng(0).normal(size=(4, 3))
    for selector in ([1, 0, 1, 1], [0, 1, 0, 0]):
        net.blobs["s"].data[...] = selector
        out = net.forward()["twice"]
        rows = np.flatnonzero(selector)
        assert net.blobs["twice"].shape == out.shape == (len(rows), 2)
        np.testing.assert_allclose(out, 2 * net.blobs["fc"].data[rows], **CLOSE)


class VaryingRows(caffe.Layer):
    """A source with a varying number of rows; each row also has the number of its batch."""

    def setup(self, bottom: Any, top: Any) -> None:
        self.number = 0
        top[0].reshape(2, 3)
        top[1].reshape(2)

    def forward(self, bottom: Any, top: Any) -> None:
        rows = (2, 5, 2, 3, 2, 2)[self.number % 6]
        self.number += 1
        top[0].reshape(rows, 3)
        top[1].reshape(rows)
        top[0].data[...] = np.random.default_rng(self.number).normal(size=(rows, 3))
        top[1].data[...] = self.number


SOURCE = f"""
force_backward: true
layer {{ name: "rows" type: "Python" top: "x" top: "n" python_param {{ module: "{__name__}" layer: "VaryingRows" }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param {{ num_output: 4 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "tanh" type: "TanH" bottom: "ip" top: "tanh" }}
layer {{ name: "twice" type: "Power" bottom: "ip" top: "twice" power_param {{ scale: 2 }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "twice" bottom: "tanh" top: "loss" }}
"""


def test_a_python_source_may_change_the_number_of_rows() -> None:
    net = caffe.Net(SOURCE, caffe.TRAIN)
    w, b = (blob.data.copy() for blob in net.params["ip"])
    for _ in range(8):
        net.clear_param_diffs()
        loss = float(net.forward()["loss"])
        net.backward()
        x = net.blobs["x"].data
        ip = x @ w.T + b
        error = (2 * ip - np.tanh(ip)) / len(x)
        dip = error * (1 + np.tanh(ip) ** 2)
        np.testing.assert_allclose(loss, (error**2).sum() * len(x) / 2, rtol=1e-4)
        shapes = {name: (blob.data.shape, blob.diff.shape) for name, blob in net.blobs.items()}
        assert shapes.pop("loss") == ((), ())
        assert {shape[:1] for pair in shapes.values() for shape in pair} == {x.shape[:1]}
        np.testing.assert_allclose(net.blobs["twice"].data, 2 * ip, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(net.blobs["ip_ip_0_split_1"].data, ip, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(net.blobs["ip"].diff, dip, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(net.params["ip"][0].diff, dip.T @ x, rtol=1e-4, atol=1e-5)


CONVOLUTIONAL_NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 8 dim: 8 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
  convolution_param { num_output: 2 kernel_size: 2 weight_filler { type: "xavier" } } }
layer { name: "fc" type: "InnerProduct" bottom: "conv2" top: "fc"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "class" type: "ArgMax" bottom: "fc" top: "class" }
force_backward: true
"""


def make_convolutional_net(size: int, params: Any = None) -> Any:
    net = caffe.Net(CONVOLUTIONAL_NET.replace("dim: 8 dim: 8", f"dim: {size} dim: {size}"), caffe.TEST)
    for name in params or ():
        for blob, source_blob in zip(net.params[name], params[name], strict=True):
            if blob.shape == source_blob.shape:
                blob.data[...] = source_blob.data
    return net


def test_ranges_of_layers_run_at_sizes_that_later_layers_reject() -> None:
    net = make_convolutional_net(8)
    net.forward()
    for size, previous_size in ((13, 2), (11, 5)):
        reference_net = make_convolutional_net(size, net.params)
        x = np.random.default_rng(size).normal(size=(1, 2, size, size))
        for caffe_net in (net, reference_net):
            caffe_net.blobs["data"].reshape(*x.shape)
            caffe_net.blobs["data"].data[...] = x
        reference_net.forward()
        out = net.forward(end="pool1")["pool1"]
        np.testing.assert_allclose(out, reference_net.blobs["pool1"].data, **CLOSE)
        assert net.blobs["conv2"].shape == (1, 2, previous_size, previous_size)  # as it last ran
        out = net.forward(start="conv2", end="conv2")["conv2"]
        np.testing.assert_allclose(out, reference_net.blobs["conv2"].data, **CLOSE)
        for caffe_net in (net, reference_net):
            caffe_net.blobs["conv2"].diff[...] = caffe_net.blobs["conv2"].data
            caffe_net.backward(start="conv2")  # the layer without a gradient does not run
        np.testing.assert_allclose(net.blobs["data"].diff, reference_net.blobs["data"].diff, **CLOSE)
        np.testing.assert_allclose(net.params["conv1"][0].diff, reference_net.params["conv1"][0].diff, **CLOSE)
        net.clear_param_diffs()
    with pytest.raises(caffejax.GraphError, match="'fc'"):
        net.forward()
    with pytest.raises(caffejax.GraphError, match="'fc'"):
        net.forward(start="conv2", end="fc")
    with pytest.raises(caffejax.GraphError, match=r"'class'.*no backward pass"):
        net.backward()
    net.blobs["data"].reshape(1, 2, 8, 8)
    net.blobs["data"].data[...] = 0
    np.testing.assert_allclose(net.forward()["class"].shape, (1, 1, 1))
    net.blobs["pool1"].reshape(1, 3, 5, 6)  # a range follows shapes that the user sets in its midst
    net.blobs["pool1"].data[...] = 1
    assert net.forward(start="conv2", end="conv2")["conv2"].shape == (1, 2, 4, 5)

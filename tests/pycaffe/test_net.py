"""The net: how it is made, its names, its memory, its weights in files and shared."""

import gc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe

from .conftest import CLOSE, DUMMY_DATA_NET, INPUT_NET, Write, make_dummy_data_net, make_input_net


def test_memory_outlives_the_net(write: Write) -> None:
    net = make_dummy_data_net(write)
    net.forward()
    params = [blob for blobs in net.params.values() for blob in blobs]
    blobs = list(net.blobs.values())
    del net
    gc.collect()
    total = sum(b.data.sum() + b.diff.sum() for b in params + blobs)
    assert np.isfinite(total)
    assert blobs[2].data.any()  # never looked at before


def test_names_and_order() -> None:
    net = make_input_net()
    assert net.name == "fed"
    assert list(net.blobs) == [
        "data", "label", "conv", "pool", "pool_pool_0_split_0", "pool_pool_0_split_1", "fc1", "fc2", "sum", "loss",
    ]  # fmt: skip
    assert list(net._blob_names) == list(net.blobs)
    assert (net.inputs, net.outputs) == (["data", "label"], ["loss"])
    assert (net._inputs, net._outputs) == ([0, 1], [9])
    assert list(net.params) == ["conv", "fc1", "fc2"]
    assert [len(blobs) for blobs in net.params.values()] == [2, 2, 2]
    assert list(net._layer_names) == list(net.layer_dict)
    assert net._layer_names[:4] == ["data", "label", "conv", "relu"]
    assert [net.layer_dict[n].type for n in ("conv", "relu", "loss")] == ["Convolution", "ReLU", "SoftmaxWithLoss"]
    assert net.layer_dict["fc1"].blobs[1] is net.params["fc1"][1]
    assert net.bottom_names["sum"] == ["fc1", "fc2"]
    assert net.top_names["pool"] == ["pool"]
    sum_ = net._layer_names.index("sum")
    assert (net._bottom_ids(sum_), net._top_ids(sum_)) == ([6, 7], [8])
    assert net.blob_loss_weights["loss"] == 1
    assert net._blob_loss_weights == [0.0] * 9 + [1.0]


def test_legacy_shape_names() -> None:
    blob = make_input_net().blobs["data"]
    assert (blob.num, blob.channels, blob.height, blob.width) == (4, 2, 6, 6)
    assert blob.count == 4 * 2 * 6 * 6
    assert tuple(blob.shape) == blob.data.shape == blob.diff.shape
    assert blob.data.dtype == np.float32


@pytest.mark.parametrize(
    "call",
    [
        lambda p, w: caffe.Net(p, caffe.TEST, weights=w),
        lambda p, w: caffe.Net(p, w, caffe.TEST),
        lambda p, w: caffe.Net(network_file=p, phase=caffe.TEST, level=0, stages=[], weights=w),
        lambda p, w: caffe.Net(p, caffe.TEST, 0, None, w),
    ],
)
def test_the_constructor_accepts_all_argument_orders(call: Any, write: Write, tmp_path: Path) -> None:
    path = write("net.prototxt", INPUT_NET)
    first_net = caffe.Net(path, caffe.TEST)
    weights = str(tmp_path / "w.caffemodel")
    first_net.save(weights)
    second_net = call(path, weights)
    for name, blobs in first_net.params.items():
        for a, b in zip(blobs, second_net.params[name], strict=True):
            np.testing.assert_array_equal(a.data, b.data)


def test_missing_files_are_named(write: Write) -> None:
    with pytest.raises(RuntimeError, match="no such file"):  # Caffe's
        caffe.Net("missing.prototxt", caffe.TEST)
    with pytest.raises(caffejax.CaffejaxError, match=r"absent\.prototxt"):
        caffe.Net("absent.prototxt", caffe.TEST)
    with pytest.raises(caffejax.CaffejaxError, match=r"absent\.caffemodel"):
        caffe.Net(write("net.prototxt", INPUT_NET), caffe.TEST, weights="absent.caffemodel")


STAGED = """
layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 1 dim: 2 dim: 2 } } }
layer { name: "lo" type: "InnerProduct" bottom: "data" top: "lo" inner_product_param { num_output: 1 }
  include { min_level: 0 max_level: 0 } }
layer { name: "hi" type: "InnerProduct" bottom: "data" top: "hi" inner_product_param { num_output: 1 }
  include { min_level: 1 } }
layer { name: "a" type: "InnerProduct" bottom: "data" top: "a" inner_product_param { num_output: 1 }
  include { stage: "A" } }
layer { name: "ab" type: "InnerProduct" bottom: "data" top: "ab" inner_product_param { num_output: 1 }
  include { stage: "A" stage: "B" } }
layer { name: "test" type: "InnerProduct" bottom: "data" top: "test" inner_product_param { num_output: 1 }
  include { phase: TEST } }
"""


@pytest.mark.parametrize(
    ("phase", "level", "stages", "layers"),
    [
        (caffe.TRAIN, 0, None, {"lo"}),
        (caffe.TRAIN, 1, None, {"hi"}),
        (caffe.TRAIN, 0, ["A"], {"lo", "a"}),
        (caffe.TEST, 0, ["A", "B"], {"lo", "a", "ab", "test"}),
    ],
)
def test_levels_and_stages(phase: int, level: int, stages: Any, layers: set[str]) -> None:
    net = caffe.Net(STAGED, phase, level=level, stages=stages)
    assert set(net.params) == layers


@pytest.mark.parametrize("file_format", ["caffemodel", "h5"])
def test_saved_weights_can_be_loaded(file_format: str, write: Write, tmp_path: Path) -> None:
    first_net = make_dummy_data_net(write)
    first_net.forward()
    first_net.backward()
    path = str(tmp_path / f"net.{'caffemodel' if file_format == 'caffemodel' else 'caffemodel.h5'}")
    first_net.save(path) if file_format == "caffemodel" else first_net.save_hdf5(path, True)
    second_net = make_dummy_data_net(write)
    assert not np.allclose(second_net.params["conv"][0].data, first_net.params["conv"][0].data)
    second_net.copy_from(path) if file_format == "caffemodel" else second_net.load_hdf5(path)
    for name, blobs in first_net.params.items():
        for a, b in zip(blobs, second_net.params[name], strict=True):
            np.testing.assert_array_equal(a.data, b.data)
    if file_format == "h5":
        diffs = caffejax.core.checkpoints.caffe_hdf5.read_caffemodel_h5(path, "diff")
        np.testing.assert_array_equal(diffs["conv"][0], first_net.params["conv"][0].diff)


@pytest.mark.parametrize("name", ["weights", "weights.h5", "weights.caffemodel"])
def test_the_method_and_not_the_name_selects_the_file_format(name: str, write: Write) -> None:
    net = make_dummy_data_net(write)
    net.save_hdf5(name)
    with h5py.File(name) as file:
        assert file["data/conv/0"].shape == (11, 2, 2, 2)
    net.save(name)
    assert len(caffejax.read_caffemodel(name)["conv"]) == 2
    assert not h5py.is_hdf5(name)


def test_share_with_shares_the_memory_of_params() -> None:
    a, b = make_input_net(), make_input_net()
    b.share_with(a)
    a.params["fc1"][0].data[...] = 7
    assert (b.params["fc1"][0].data == 7).all()
    np.testing.assert_allclose(a.forward()["loss"], b.forward()["loss"], **CLOSE)
    b.backward()
    assert not a.params["fc1"][0].diff.any()  # diffs stay apart
    with pytest.raises(caffejax.GraphError, match="layer 'fc1'"):
        b.share_with(make_input_net(prototxt=INPUT_NET.replace("num_output: 5", "num_output: 6")))


def test_the_name_of_a_net_can_be_set() -> None:
    net = make_input_net()
    assert net.name == "fed"
    net.name = "mine"  # as scripts that test detectors do
    assert net.name == "mine"


@pytest.mark.parametrize("phase", ["TEST", "net.caffemodel"])
def test_an_unknown_phase_is_refused(write: Write, phase: str) -> None:
    with pytest.raises(caffejax.CaffejaxError, match=f'give a phase, caffe.TEST or caffe.TRAIN, not "{phase}"'):
        caffe.Net(write("net.prototxt", DUMMY_DATA_NET), phase)

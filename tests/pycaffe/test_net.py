"""The net: what Caffe's interface promises of it, and equality with the pure one and with Caffe itself."""

import gc
import json
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe

from .conftest import FED, SMALL, Write

GOLDEN = Path(__file__).parents[1] / "golden"
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def fed(phase: int = caffe.TEST, prototxt: str = FED) -> Any:
    net = caffe.Net(prototxt, phase)
    r = np.random.default_rng(0)
    net.blobs["data"].data[...] = r.normal(size=net.blobs["data"].shape)
    net.blobs["label"].data[...] = r.integers(0, 5, net.blobs["label"].shape)
    return net


def small(write: Write) -> Any:
    return caffe.Net(write("small.prototxt", SMALL), caffe.TRAIN)


def test_memory_outlives_the_net(write: Write) -> None:
    net = small(write)
    net.forward()
    params = [blob for blobs in net.params.values() for blob in blobs]
    blobs = list(net.blobs.values())
    del net
    gc.collect()
    total = sum(b.data.sum() + b.diff.sum() for b in params + blobs)
    assert np.isfinite(total)
    assert blobs[2].data.any()  # never looked at before


def test_names_and_order() -> None:
    net = fed()
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
    blob = fed().blobs["data"]
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
def test_forms_of_the_constructor(call: Any, write: Write, tmp_path: Path) -> None:
    path = write("net.prototxt", FED)
    first = caffe.Net(path, caffe.TEST)
    weights = str(tmp_path / "w.caffemodel")
    first.save(weights)
    second = call(path, weights)
    for name, blobs in first.params.items():
        for a, b in zip(blobs, second.params[name], strict=True):
            np.testing.assert_array_equal(a.data, b.data)


def test_missing_files_are_named(write: Write) -> None:
    with pytest.raises(RuntimeError, match="no such file"):  # Caffe's
        caffe.Net("missing.prototxt", caffe.TEST)
    with pytest.raises(caffejax.CaffejaxError, match=r"absent\.prototxt"):
        caffe.Net("absent.prototxt", caffe.TEST)
    with pytest.raises(caffejax.CaffejaxError, match=r"absent\.caffemodel"):
        caffe.Net(write("net.prototxt", FED), caffe.TEST, weights="absent.caffemodel")


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


def test_forward_and_backward_run(write: Write) -> None:
    net = small(write)
    net.forward()
    net.backward()
    assert net.params["conv"][0].diff.any()


def test_forward_to_and_from_a_layer() -> None:
    net = caffe.Net(SMALL.replace('"constant" value: 1', '"gaussian" std: 1'), caffe.TRAIN)
    conv = net.blobs["conv"]
    net.forward(end="data")
    assert net.blobs["data"].data.any()
    assert not conv.data.any()
    out = net.forward(start="conv", end="conv")
    assert list(out) == ["conv"]
    before = conv.data.copy()
    data = net.blobs["data"].data.copy()
    net.forward(start="ip")
    np.testing.assert_array_equal(conv.data, before)
    np.testing.assert_array_equal(net.blobs["data"].data, data)
    assert net.blobs["loss"].data > 0


def test_a_partial_pass_uses_what_stands_in_the_blobs() -> None:
    net = fed()
    net.forward()
    net.blobs["pool"].data[...] = 1  # its copies for two readers are the same memory, as in Caffe
    out = net.forward(start="fc1", end="sum")["sum"]
    w = [net.params[n][0].data.sum(1) for n in ("fc1", "fc2")]
    np.testing.assert_allclose(out, np.tile(w[0] + w[1], (4, 1)), **CLOSE)
    net.forward()  # a whole pass writes over it
    assert not np.allclose(net.blobs["pool"].data, 1)


def test_clear_param_diffs(write: Write) -> None:
    net = small(write)
    net.forward()
    net.backward()
    diff = net.params["conv"][0].diff
    assert (diff != 0).any()
    net.clear_param_diffs()
    assert (net.params["conv"][0].diff == 0).all()
    assert (diff == 0).all()  # the array in hand is that memory


def test_param_diffs_add_up() -> None:
    net = fed()
    net.forward()
    net.backward()
    once = net.params["fc1"][0].diff.copy()
    net.backward()
    np.testing.assert_allclose(net.params["fc1"][0].diff, 2 * once, rtol=1e-5)
    net.params["fc1"][0].diff[...] = 0
    net.backward()
    np.testing.assert_allclose(net.params["fc1"][0].diff, once, rtol=1e-5)


@pytest.mark.slow
def test_equal_to_the_pure_net() -> None:
    """Blobs, gradients and diffs in the middle, with one dropout mask for all that is asked of a pass."""
    net = fed(caffe.TRAIN)
    out = net.forward()
    sum_ = net.blobs["sum"].data.copy()
    net.backward()
    args = net._workspace._history.last(-1).args
    reference = caffejax.Net(FED, "TRAIN")
    inputs = {n: jnp.asarray(net.blobs[n].data) for n in net.inputs}
    taps = {n: jnp.zeros(reference.graph.blobs[n].shape) for n in ("sum", "pool", "conv")}
    key = jax.random.fold_in(*args.key)

    def loss(params: Any, taps: Any) -> Any:
        return reference.loss(params, {}, inputs, key, blobs=["loss", "sum", "conv"], taps=taps)

    params = {name: tuple(jnp.asarray(b.data) for b in blobs) for name, blobs in net.params.items()}
    (_, outputs), (grads, diffs) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, taps)
    np.testing.assert_allclose(out["loss"], outputs.blobs["loss"], **CLOSE)
    np.testing.assert_allclose(sum_, outputs.blobs["sum"], **CLOSE)
    np.testing.assert_allclose(net.blobs["conv"].data, outputs.blobs["conv"], **CLOSE)
    for name, blobs in grads.items():
        for i, grad in enumerate(blobs):
            np.testing.assert_allclose(net.params[name][i].diff, grad, **CLOSE)
    for name, diff in diffs.items():
        np.testing.assert_allclose(net.blobs[name].diff, diff, err_msg=name, **CLOSE)


def test_backward_from_given_diffs_and_over_a_part() -> None:
    net = fed(prototxt="force_backward: true\n" + FED.rsplit("layer {", 1)[0])  # without the loss
    net.forward()
    top = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    back = net.backward(sum=top, label=np.zeros(4), diffs=["fc1"])
    assert set(back) == {"data", "label", "fc1"}
    np.testing.assert_array_equal(back["fc1"], top)
    np.testing.assert_allclose(net.params["fc2"][1].diff, top.sum(0), rtol=1e-5)
    whole = net.blobs["data"].diff.copy()
    assert whole.any()
    net.blobs["pool"].diff[...] *= 2
    back = net.backward(start="pool", end="conv")
    assert list(back) == ["data"]
    np.testing.assert_allclose(back["data"], 2 * whole, rtol=1e-5)


def test_a_losses_diff_is_its_weight_and_scales_the_gradient() -> None:
    net = fed(prototxt=FED.replace('top: "loss"', 'top: "loss" loss_weight: 3'))
    assert net.blobs["loss"].diff == 3
    net.forward()
    net.backward()
    once = net.params["conv"][0].diff.copy()
    net.clear_param_diffs()
    net.blobs["loss"].diff[...] = 6
    net.backward()
    np.testing.assert_allclose(net.params["conv"][0].diff, 2 * once, rtol=1e-5)


def test_backward_sees_what_was_written_after_forward() -> None:
    net = fed()
    net.forward()
    net.backward()
    diff = net.blobs["sum"].diff.copy()
    net.blobs["pool"].data[...] = 5
    net.clear_param_diffs()
    net.backward()
    np.testing.assert_allclose(net.params["fc1"][0].diff, np.tile(diff.sum(0)[:, None] * 5, (1, 3)), **CLOSE)
    assert net.params["conv"][0].diff.any()
    net.params["fc2"][0].data[...] = 0  # and params
    net.params["fc1"][0].data[...] = 0
    net.backward()
    assert not net.blobs["pool"].diff.any()


def test_backward_of_two_partial_passes() -> None:
    net = fed()
    net.forward()
    net.backward()
    expected = {name: blobs[0].diff.copy() for name, blobs in net.params.items()}
    net.clear_param_diffs()
    net.forward(end="pool")
    net.forward(start="fc1")
    net.backward()
    for name, diff in expected.items():
        np.testing.assert_allclose(net.params[name][0].diff, diff, **CLOSE)


def test_wrong_arguments() -> None:
    net = fed()
    with pytest.raises(Exception, match="do not match net inputs"):
        net.forward(data=np.zeros((4, 2, 6, 6)))
    with pytest.raises(Exception, match="not batch sized"):
        net.forward(data=np.zeros((3, 2, 6, 6)), label=np.zeros(4))
    with pytest.raises(Exception, match="do not match net outputs"):
        net.backward(sum=np.zeros((4, 5)))
    with pytest.raises(Exception, match="not batch sized"):
        net.backward(loss=np.zeros(3))
    with pytest.raises(Exception, match=r"no layer 'covn'.*did you mean 'conv'"):
        net.forward(start="covn")
    with pytest.raises(Exception, match=r"no blob 'summ'.*did you mean 'sum'"):
        net.forward(blobs=["summ"])


def test_forward_all_cuts_and_fills_batches() -> None:
    net = fed()
    r = np.random.default_rng(3)
    data, label = r.normal(size=(10, 2, 6, 6)).astype(np.float32), r.integers(0, 5, 10)
    found = net.forward_all(blobs=["sum"], data=data, label=label)
    assert found["sum"].shape == (10, 5)
    net.forward(data=data[4:8], label=label[4:8])
    np.testing.assert_allclose(found["sum"][4:8], net.blobs["sum"].data, **CLOSE)
    assert [len(batch["data"]) for batch in net._batch({"data": data})] == [4, 4, 4]
    without_loss = fed(prototxt="force_backward: true\n" + FED.rsplit("layer {", 1)[0])
    blobs, diffs = without_loss.forward_backward_all(
        blobs=["pool"], diffs=["fc2"], data=data, label=label, sum=np.ones((10, 5), np.float32)
    )
    assert (blobs["pool"].shape, diffs["fc2"].shape, diffs["data"].shape) == ((10, 3, 1, 1), (10, 5), data.shape)
    np.testing.assert_array_equal(diffs["fc2"], 1)


def test_reshape_keeps_params_and_compiles_once_per_shape() -> None:
    net = fed()
    whole = net.forward(blobs=["sum"])["sum"].copy()
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
        ranges.append(net._workspace._history.last(0).range)
    assert ranges[0] is ranges[2]
    net.blobs["data"].reshape(4, 2, 6, 6)
    net.blobs["label"].reshape(4)
    net.blobs["data"].data[...] = x
    net.forward()  # reshapes too
    np.testing.assert_allclose(net.blobs["sum"].data, whole, **CLOSE)


def test_reshape_that_a_layer_cannot_take() -> None:
    prototxt = FED.replace("global_pooling: true pool: AVE", "kernel_size: 1")
    net = fed(prototxt=prototxt)
    net.blobs["data"].reshape(4, 2, 9, 9)
    with pytest.raises(caffejax.GraphError, match=r"'fc1'.*blob 0 is of shape \(5, 48\).*needs \(5, 147\)"):
        net.reshape()


@pytest.mark.parametrize("kind", ["caffemodel", "h5"])
def test_save_and_read(kind: str, write: Write, tmp_path: Path) -> None:
    first = small(write)
    first.forward()
    first.backward()
    path = str(tmp_path / f"net.{'caffemodel' if kind == 'caffemodel' else 'caffemodel.h5'}")
    first.save(path) if kind == "caffemodel" else first.save_hdf5(path, True)
    second = small(write)
    assert not np.allclose(second.params["conv"][0].data, first.params["conv"][0].data)
    second.copy_from(path) if kind == "caffemodel" else second.load_hdf5(path)
    for name, blobs in first.params.items():
        for a, b in zip(blobs, second.params[name], strict=True):
            np.testing.assert_array_equal(a.data, b.data)
    if kind == "h5":
        diffs = caffejax.checkpoints.caffemodel_h5.read_caffemodel_h5(path, "diff")
        np.testing.assert_array_equal(diffs["conv"][0], first.params["conv"][0].diff)


@pytest.mark.parametrize("name", ["weights", "weights.h5", "weights.caffemodel"])
def test_the_method_says_the_kind_of_file_not_its_name(name: str, write: Write) -> None:
    net = small(write)
    net.save_hdf5(name)
    with h5py.File(name) as file:
        assert file["data/conv/0"].shape == (11, 2, 2, 2)
    net.save(name)
    assert len(caffejax.read_caffemodel(name)["conv"]) == 2
    assert not h5py.is_hdf5(name)


def test_share_with_is_one_memory() -> None:
    a, b = fed(), fed()
    b.share_with(a)
    a.params["fc1"][0].data[...] = 7
    assert (b.params["fc1"][0].data == 7).all()
    np.testing.assert_allclose(a.forward()["loss"], b.forward()["loss"], **CLOSE)
    b.backward()
    assert not a.params["fc1"][0].diff.any()  # diffs stay apart
    with pytest.raises(caffejax.GraphError, match="layer 'fc1'"):
        b.share_with(fed(prototxt=FED.replace("num_output: 5", "num_output: 6")))


def test_callbacks_go_round_each_layer() -> None:
    net, plain = fed(), fed()
    plain.share_with(net)
    calls: list[tuple[str, int]] = []
    for what in ("before_forward", "after_forward", "before_backward", "after_backward"):
        getattr(net, what)(lambda i, what=what: calls.append((what, i)))
    for part, first, last in (({}, 0, len(net.layers) - 1), ({"start": "fc1", "end": "sum"}, 6, 9)):
        calls.clear()
        net.forward(**part)
        assert calls == [(f"{w}_forward", i) for i in range(first, last + 1) for w in ("before", "after")]
    calls.clear()
    net.backward()
    assert calls == [(f"{w}_backward", i) for i in range(len(net.layers) - 1, -1, -1) for w in ("before", "after")]
    plain.forward()
    plain.backward()
    for name, blobs in plain.params.items():
        np.testing.assert_allclose(net.params[name][0].diff, blobs[0].diff, **CLOSE)


def test_a_callback_may_change_blobs_on_the_way() -> None:
    net = fed()

    def zero(i: int) -> None:
        if net._layer_names[i] == "fc2":
            net.blobs["fc2"].data[...] = 0

    net.after_forward(zero)
    net.forward()
    np.testing.assert_array_equal(net.blobs["sum"].data, net.blobs["fc1"].data)


MEMORY = """
layer { name: "m" type: "MemoryData" top: "data" top: "label"
  memory_data_param { batch_size: 2 channels: 1 height: 2 width: 3 } }
layer { name: "double" type: "Power" bottom: "data" top: "double" power_param { scale: 2 } }
"""


def test_memory_data() -> None:
    net = caffe.Net(MEMORY, caffe.TEST)
    assert net.inputs == []
    with pytest.raises(caffejax.GraphError, match="set_input_arrays"):
        net.forward()
    data = np.arange(24, dtype=np.float32).reshape(4, 1, 2, 3)
    net.set_input_arrays(data, np.arange(4, dtype=np.float32))
    for rows in ([0, 1], [2, 3], [0, 1]):
        out = net.forward()
        np.testing.assert_array_equal(out["double"], 2 * data[rows])
        np.testing.assert_array_equal(out["label"], rows)


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        (np.zeros((4, 1, 2, 3)), np.zeros(4, np.float32), "data array must be float32"),
        (np.zeros((4, 1, 2, 3), np.float32)[::2], np.zeros(2, np.float32), "C contiguous"),
        (np.zeros((4, 1, 3, 3), np.float32), np.zeros(4, np.float32), "must be of shape"),
        (np.zeros((4, 1, 2, 3), np.float32), np.zeros(2, np.float32), "same first dimension"),
        (np.zeros((3, 1, 2, 3), np.float32), np.zeros(3, np.float32), "multiple of the batch size 2"),
    ],
)
def test_memory_data_refuses(data: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(caffejax.GraphError, match=message):
        caffe.Net(MEMORY, caffe.TEST).set_input_arrays(data, labels)
    with pytest.raises(caffejax.GraphError, match="first layer is MemoryData"):
        fed().set_input_arrays(data, labels)


FILTERED = """
layer { name: "x" type: "Input" top: "x" top: "s" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "filter" type: "Filter" bottom: "fc" bottom: "s" top: "kept" }
layer { name: "twice" type: "Power" bottom: "kept" top: "twice" power_param { scale: 2 } }
"""


def test_a_layer_on_the_host_with_tops_of_changing_shape() -> None:
    net = caffe.Net(FILTERED, caffe.TEST)
    net.blobs["x"].data[...] = np.random.default_rng(0).normal(size=(4, 3))
    for kept in ([1, 0, 1, 1], [0, 1, 0, 0]):
        net.blobs["s"].data[...] = kept
        out = net.forward()["twice"]
        rows = np.flatnonzero(kept)
        assert net.blobs["twice"].shape == out.shape == (len(rows), 2)
        np.testing.assert_allclose(out, 2 * net.blobs["fc"].data[rows], **CLOSE)


class Rows(caffe.Layer):
    """A source of as many rows as it likes, and the batch's number for each."""

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
layer {{ name: "rows" type: "Python" top: "x" top: "n" python_param {{ module: "{__name__}" layer: "Rows" }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param {{ num_output: 4 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "tanh" type: "TanH" bottom: "ip" top: "tanh" }}
layer {{ name: "twice" type: "Power" bottom: "ip" top: "twice" power_param {{ scale: 2 }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "twice" bottom: "tanh" top: "loss" }}
"""


def test_a_source_whose_batches_change_shape_there_and_back() -> None:
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


def test_a_net_can_be_given_a_name() -> None:
    net = fed()
    assert net.name == "fed"
    net.name = "mine"  # as scripts that test detectors do
    assert net.name == "mine"


def recorded_nets() -> list[str]:
    index = json.loads((GOLDEN / "nets" / "index.json").read_text())["nets"]
    return [c["case"] for c in index if (GOLDEN / "nets" / f"{c['case']}.npz").exists()]


SPOILED = {"loss_weights": {"a", "a/0", "a/1"}}  # see tests/graph/test_golden_nets.py


LAYER_BY_LAYER = ("share_permissive", "propagate_one_branch", "loss_weight_non_loss")


@pytest.mark.parametrize(
    ("name", "layer_by_layer"), [*((n, False) for n in recorded_nets()), *((n, True) for n in LAYER_BY_LAYER)]
)
def test_what_caffe_computed(name: str, layer_by_layer: bool) -> None:
    values = dict(np.load(GOLDEN / "nets" / f"{name}.npz"))
    built = json.loads((GOLDEN / "nets" / f"{name}.json").read_text())["runs"][0]
    phase = caffe.TRAIN if built["phase"] == "TRAIN" else caffe.TEST
    net = caffe.Net(str(GOLDEN / "nets" / f"{name}.prototxt"), phase)
    assert list(net.blobs) == [b["name"] for b in built["built"]["blobs"]]
    assert [layer.type for layer in net.layers] == [layer["type"] for layer in built["built"]["layers"]]

    def group(prefix: str) -> list[tuple[str, np.ndarray]]:
        return [(k.removeprefix(f"{prefix}/"), v) for k, v in values.items() if k.startswith(f"{prefix}/")]

    def blob(slot: str) -> Any:
        layer, index = slot.rsplit("/", 1)
        return net.params[layer][int(index)]

    for slot, value in group("param"):
        blob(slot).data[...] = value
    for top, value in group("in"):
        net.blobs[top].data[...] = value
    if layer_by_layer:
        net.after_forward(lambda i: None)
    loss = net._forward(0, len(net.layers) - 1)
    net.backward()
    np.testing.assert_allclose(loss, values["total_loss"], **CLOSE)
    for top, value in group("blob"):
        np.testing.assert_allclose(net.blobs[top].data, value, err_msg=top, **CLOSE)
    for top, value in group("blobdiff"):
        if top not in SPOILED.get(name, ()):
            np.testing.assert_allclose(net.blobs[top].diff, value, err_msg=f"diff of {top}", **CLOSE)
    for slot, value in group("paramdiff"):
        if slot not in SPOILED.get(name, ()):
            np.testing.assert_allclose(blob(slot).diff, value, err_msg=slot, **CLOSE)

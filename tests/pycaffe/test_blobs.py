"""The memory of blobs: writes take effect, existing views follow, and nothing unnecessary is copied or computed."""

from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import caffejax.pycaffe as caffe
from caffejax.pycaffe._passes import Pass
from caffejax.pycaffe._synced_memory import Memory, SyncedBlob

DEVICE = jax.devices()[0]

CHAIN_NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "a" type: "Power" bottom: "x" top: "a" power_param { scale: 2 } }
layer { name: "b" type: "Power" bottom: "a" top: "b" power_param { shift: 1 } }
layer { name: "relu" type: "ReLU" bottom: "b" top: "b" }
layer { name: "c" type: "Power" bottom: "b" top: "c" power_param { scale: 3 } }
"""


@pytest.fixture
def net() -> Any:
    return caffe.Net("force_backward: true\n" + CHAIN_NET, caffe.TEST)


def test_writes_through_any_view_are_seen(net: Any) -> None:
    net.blobs["x"].data[...] = 1
    assert (net.forward()["c"] == 9).all()
    view = net.blobs["x"].data
    row = view[1]
    del view
    net.forward()
    row[:] = 2  # a view of a view, long after it was asked for
    np.testing.assert_array_equal(net.forward()["c"], [[9] * 3, [15] * 3])
    net.blobs["x"].data.flat = np.arange(6)
    np.testing.assert_array_equal(net.forward()["c"].ravel(), 3 * (2 * np.arange(6) + 1))
    memoryview(net.blobs["x"].data)[0, 0] = 5
    assert net.forward()["c"][0, 0] == 33


def test_held_views_show_each_new_value(net: Any) -> None:
    views = {name: net.blobs[name].data for name in ("a", "b", "c")}
    for value in (1, 4):
        net.blobs["x"].data[...] = value
        out = net.forward()
        assert out["c"].base is views["c"].base
        assert (views["a"] == 2 * value).all()
        assert (views["b"] == 2 * value + 1).all()
        assert (views["c"] == 6 * value + 3).all()
    held_diff = net.blobs["a"].diff
    net.backward(c=np.full((2, 3), 2.0))
    assert (held_diff == 6).all()


def test_in_place_layers_leave_the_last_value(net: Any) -> None:
    net.blobs["x"].data[...] = -3
    net.forward()
    assert (net.blobs["b"].data == 0).all()  # the ReLU's
    net.blobs["b"].data[...] = -1
    net.forward(start="relu", end="relu")
    assert (net.blobs["b"].data == 0).all()


@pytest.mark.parametrize("layer_by_layer", [False, True])
def test_in_place_layers_differentiate_at_the_overwritten_bottom(layer_by_layer: bool) -> None:
    """This holds even if params were written since: Caffe keeps a copy of the bottom, but not of the params."""
    net = caffe.Net(
        """
        force_backward: true
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "a" type: "Power" bottom: "x" top: "a" power_param { shift: 1 } }
        layer { name: "scale" type: "Scale" bottom: "a" top: "a" scale_param { filler { value: 3 } } }
        layer { name: "exp" type: "Exp" bottom: "a" top: "a" }
        """,
        caffe.TRAIN,
    )
    if layer_by_layer:
        net.before_backward(lambda i: None)
    x = net.blobs["x"].data[...] = np.linspace(-1, 1, 6).reshape(2, 3)
    net.forward()
    net.params["scale"][0].data[...] = 5
    net.blobs["a"].diff[...] = 1
    dy = np.exp(3 * (x + 1))
    np.testing.assert_allclose(net.backward()["x"], 5 * dy, rtol=1e-5)
    np.testing.assert_allclose(net.params["scale"][0].diff, (dy * (x + 1)).sum(0), rtol=1e-5)


def test_in_place_layers_differentiate_at_recomputed_bottoms(net: Any) -> None:
    net.blobs["x"].data[...] = 1
    net.forward()
    net.blobs["x"].data[...] = -1
    net.forward(end="b")  # the ReLU has not run on this
    net.blobs["c"].diff[...] = 1
    assert (net.backward()["x"] == 0).all()


def test_a_blob_is_computed_on_read_and_returned_by_passes_after_repeated_reads(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[str, ...]] = []
    original_run = Pass.run

    def record_run(self: Any, names: tuple[str, ...], **options: bool) -> Any:
        requests.append(names)
        return original_run(self, names, **options)

    monkeypatch.setattr(Pass, "run", record_run)
    for i in range(5):
        net.blobs["x"].data[...] = i
        net.forward()
        assert (net.blobs["a"].data == 2 * i).all()
    all_blobs = ("a", "b", "c")
    assert requests == [("c",), all_blobs] * 2 + [("a", "c")] * 3


def test_a_read_after_a_write_shows_the_earlier_pass(net: Any) -> None:
    net.blobs["x"].data[...] = 1
    net.forward()
    net.blobs["x"].data[...] = 100
    assert (net.blobs["a"].data == 2).all()


def test_reading_a_blob_does_not_advance_statistics() -> None:
    net = caffe.Net(
        """
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 8 dim: 2 } } }
        layer { name: "bn" type: "BatchNorm" bottom: "x" top: "bn" }
        layer { name: "y" type: "Power" bottom: "bn" top: "y" }
        """,
        caffe.TRAIN,
    )
    for i in range(4):
        net.blobs["x"].data[...] = np.random.default_rng(i).normal(size=(8, 2))
        net.forward()
        assert net.blobs["bn"].data.any()
        np.testing.assert_allclose(net.params["bn"][2].data, sum(0.999**k for k in range(i + 1)), rtol=1e-6)


def test_dropout_is_fixed_within_a_pass_and_new_in_the_next() -> None:
    net = caffe.Net(
        """
        force_backward: true
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 64 } } }
        layer { name: "drop" type: "Dropout" bottom: "x" top: "drop" }
        layer { name: "y" type: "Power" bottom: "drop" top: "y" }
        """,
        caffe.TRAIN,
    )
    net.blobs["x"].data[...] = 1
    masks = []
    for _ in range(2):
        mask = net.forward()["y"].copy()
        np.testing.assert_array_equal(net.blobs["drop"].data, mask)
        np.testing.assert_array_equal(net.backward(y=np.ones(64))["x"], mask)
        masks.append(mask)
    assert (masks[0] != masks[1]).any()


def test_the_seed_determines_initial_params() -> None:
    prototxt = CHAIN_NET + 'layer { name: "fc" type: "InnerProduct" bottom: "c" top: "fc" inner_product_param { num_output: 4 weight_filler { type: "gaussian" } } }'  # fmt: skip # noqa: E501

    def make_weights() -> np.ndarray:
        return caffe.Net(prototxt, caffe.TEST).params["fc"][0].data

    caffe.set_random_seed(5)
    first, second = make_weights(), make_weights()
    assert (first != second).any()
    caffe.set_random_seed(5)
    np.testing.assert_array_equal(make_weights(), first)


def test_blob_reshape_keeps_the_memory_that_fits(net: Any) -> None:
    blob = net.blobs["x"]
    blob.data[...] = np.arange(6).reshape(2, 3)
    data = blob.data
    blob.reshape(3, 2)
    np.testing.assert_array_equal(blob.data, np.arange(6).reshape(3, 2))
    assert np.shares_memory(blob.data, data)
    blob.reshape(1, 3)
    assert (net.forward()["c"] == 3 * (2 * np.arange(3) + 1)).all()
    with pytest.raises(ValueError, match="-1"):
        blob.reshape(-1)
    with pytest.raises(TypeError, match="float"):
        blob.reshape(2.5, 3)


def test_nan_in_a_blob_is_not_a_change(net: Any) -> None:
    net.blobs["x"].data[...] = np.nan
    held_view = net.blobs["x"].data
    net.forward()
    version = net.blobs["x"].data_memory.version
    assert net.blobs["x"].data_memory.current_version() == version
    held_view[0, 0] = 0
    assert net.blobs["x"].data_memory.current_version() > version


steps = st.lists(
    st.sampled_from(["host write", "device write", "hold", "drop", "read", "write held", "clear", "upload"]),
    max_size=25,
)


@settings(max_examples=150)
@given(steps)
def test_host_and_device_have_the_last_value(actions: list[str]) -> None:
    """For any order of writes on host and device, both sides and existing views read the last value."""
    blob = SyncedBlob((2, 3))
    value = np.zeros((2, 3), np.float32)
    held: np.ndarray | None = None
    for i, action in enumerate(actions, 1):
        if action == "host write":
            value = np.full((2, 3), i, np.float32)
            blob.data[...] = value
        elif action == "device write":
            value = np.full((2, 3), -i, np.float32)
            blob.data_memory.store(jnp.asarray(value))
        elif action == "hold":
            held = blob.data[0]
        elif action == "drop":
            held = None
        elif action == "write held" and held is not None:
            held[1] = i
            value = value.copy()
            value[0, 1] = i
        elif action == "clear":
            value = np.zeros((2, 3), np.float32)
            blob.data_memory.clear()
        elif action == "upload":
            np.testing.assert_array_equal(blob.get_data(DEVICE), value)
        elif action == "read":
            np.testing.assert_array_equal(blob.data, value)
        if held is not None:
            np.testing.assert_array_equal(held, value[0])
    np.testing.assert_array_equal(blob.get_data(DEVICE), value)
    np.testing.assert_array_equal(blob.data, value)


def test_an_uploaded_array_does_not_share_the_hosts_memory() -> None:
    blob = SyncedBlob((1000,))
    view = blob.data
    view[...] = 1
    array = blob.get_data(DEVICE)
    view[...] = 2
    assert (np.asarray(array) == 1).all()
    assert (np.asarray(blob.get_data(DEVICE)) == 2).all()


def test_unchanged_blobs_are_not_uploaded_again() -> None:
    memory = Memory(jnp.ones(3))
    assert memory.get_array((3,), DEVICE) is memory.get_array((3,), DEVICE)
    memory.view((3,))
    first_array = memory.get_array((3,), DEVICE)
    assert memory.get_array((3,), DEVICE) is first_array


def test_gpu_mode_without_a_gpu_warns_once_and_runs(net: Any) -> None:
    if any(d.platform == "gpu" for d in jax.devices()):
        pytest.skip("there is a GPU here")
    caffe.set_mode_gpu()
    caffe.set_device(0)
    net.blobs["x"].data[...] = 1
    with pytest.warns(UserWarning, match="no GPU here"):
        assert (net.forward()["c"] == 9).all()
    net.forward()
    caffe.set_mode_cpu()
    net.forward()

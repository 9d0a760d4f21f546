"""Forward and backward passes of entire nets and of ranges of layers, from the values in the blobs."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe
from caffejax.cpu.kernels.executable_cache import ProgramCacheConfig
from caffejax.pycaffe._layer_range import LayerRange

from .conftest import CLOSE, DUMMY_DATA_NET, INPUT_NET, Write, make_dummy_data_net, make_input_net


def test_forward_and_backward_run(write: Write) -> None:
    net = make_dummy_data_net(write)
    net.forward()
    net.backward()
    assert net.params["conv"][0].diff.any()


def test_forward_to_and_from_a_layer() -> None:
    net = caffe.Net(DUMMY_DATA_NET.replace('"constant" value: 1', '"gaussian" std: 1'), caffe.TRAIN)
    conv = net.blobs["conv"]
    net.forward(end="data")
    assert net.blobs["data"].data.any()
    assert not conv.data.any()
    out = net.forward(start="conv", end="conv")
    assert list(out) == ["conv"]
    old_conv = conv.data.copy()
    data = net.blobs["data"].data.copy()
    net.forward(start="ip")
    np.testing.assert_array_equal(conv.data, old_conv)
    np.testing.assert_array_equal(net.blobs["data"].data, data)
    assert net.blobs["loss"].data > 0


def test_a_partial_pass_uses_the_current_blobs() -> None:
    net = make_input_net()
    net.forward()
    net.blobs["pool"].data[...] = 1  # its copies for two readers are the same memory, as in Caffe
    out = net.forward(start="fc1", end="sum")["sum"]
    w = [net.params[n][0].data.sum(1) for n in ("fc1", "fc2")]
    np.testing.assert_allclose(out, np.tile(w[0] + w[1], (4, 1)), **CLOSE)
    net.forward()  # a whole pass writes over it
    assert not np.allclose(net.blobs["pool"].data, 1)


def test_clear_param_diffs(write: Write) -> None:
    net = make_dummy_data_net(write)
    net.forward()
    net.backward()
    diff = net.params["conv"][0].diff
    assert (diff != 0).any()
    net.clear_param_diffs()
    assert (net.params["conv"][0].diff == 0).all()
    assert (diff == 0).all()  # the array in hand is that memory


def test_param_diffs_add_up() -> None:
    net = make_input_net()
    net.forward()
    net.backward()
    single_diff = net.params["fc1"][0].diff.copy()
    net.backward()
    np.testing.assert_allclose(net.params["fc1"][0].diff, 2 * single_diff, rtol=1e-5)
    net.params["fc1"][0].diff[...] = 0
    net.backward()
    np.testing.assert_allclose(net.params["fc1"][0].diff, single_diff, rtol=1e-5)


def test_values_and_diffs_equal_the_functional_net() -> None:
    """Blobs, gradients and intermediate diffs of a pass use the same dropout mask."""
    net = make_input_net(caffe.TRAIN)
    out = net.forward()
    sum_ = net.blobs["sum"].data.copy()
    net.backward()
    numbers = net._executor._history.get_last_pass(-1).inputs.key
    reference = caffejax.Net(INPUT_NET, "TRAIN")
    inputs = {n: jnp.asarray(net.blobs[n].data) for n in net.inputs}
    perturbations = {n: jnp.zeros(reference.graph.blobs[n].shape) for n in ("sum", "pool", "conv")}
    key = jax.random.fold_in(*numbers)

    def loss(params: Any, perturbations: Any) -> Any:
        return reference.loss(params, {}, inputs, key, blobs=["loss", "sum", "conv"], perturbations=perturbations)

    params = reference.map_params(lambda p: jnp.asarray(net.params[p.slot.layer][p.index].data))
    (_, outputs), (grads, diffs) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, perturbations)
    np.testing.assert_allclose(out["loss"], outputs.blobs["loss"], **CLOSE)
    np.testing.assert_allclose(sum_, outputs.blobs["sum"], **CLOSE)
    np.testing.assert_allclose(net.blobs["conv"].data, outputs.blobs["conv"], **CLOSE)
    for param in reference.graph.unique_params:
        diff = net.params[param.slot.layer][param.index].diff
        np.testing.assert_allclose(diff, param.array(grads, {}), **CLOSE)
    for name, diff in diffs.items():
        np.testing.assert_allclose(net.blobs[name].diff, diff, err_msg=name, **CLOSE)


def test_backward_starts_from_given_diffs_and_runs_over_ranges() -> None:
    net = make_input_net(prototxt="force_backward: true\n" + INPUT_NET.rsplit("layer {", 1)[0])  # without the loss
    net.forward()
    top = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    diffs = net.backward(sum=top, label=np.zeros(4), diffs=["fc1"])
    assert set(diffs) == {"data", "label", "fc1"}
    np.testing.assert_array_equal(diffs["fc1"], top)
    np.testing.assert_allclose(net.params["fc2"][1].diff, top.sum(0), rtol=1e-5)
    full_diff = net.blobs["data"].diff.copy()
    assert full_diff.any()
    net.blobs["pool"].diff[...] *= 2
    diffs = net.backward(start="pool", end="conv")
    assert list(diffs) == ["data"]
    np.testing.assert_allclose(diffs["data"], 2 * full_diff, rtol=1e-5)


def test_the_diff_of_a_loss_is_its_weight_and_scales_gradients() -> None:
    net = make_input_net(prototxt=INPUT_NET.replace('top: "loss"', 'top: "loss" loss_weight: 3'))
    assert net.blobs["loss"].diff == 3
    net.forward()
    net.backward()
    single_diff = net.params["conv"][0].diff.copy()
    net.clear_param_diffs()
    net.blobs["loss"].diff[...] = 6
    net.backward()
    np.testing.assert_allclose(net.params["conv"][0].diff, 2 * single_diff, rtol=1e-5)


def test_backward_uses_values_written_after_forward() -> None:
    net = make_input_net()
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
    net = make_input_net()
    net.forward()
    net.backward()
    expected = {name: blobs[0].diff.copy() for name, blobs in net.params.items()}
    net.clear_param_diffs()
    net.forward(end="pool")
    net.forward(start="fc1")
    net.backward()
    for name, diff in expected.items():
        np.testing.assert_allclose(net.params[name][0].diff, diff, **CLOSE)


def test_wrong_arguments_are_refused() -> None:
    net = make_input_net()
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


def test_forward_all_takes_more_axes_of_length_1_for_a_batch_of_one() -> None:
    """NumPy's assignment drops them, so Caffe takes them."""
    net = make_input_net(prototxt=INPUT_NET.replace("dim: 4", "dim: 1"))
    data, label = np.random.default_rng(3).normal(size=(1, 2, 6, 6)), np.zeros(1)
    expected = net.forward_all(data=data, label=label)["loss"]
    np.testing.assert_array_equal(net.forward_all(data=data[None], label=label)["loss"], expected)
    with pytest.raises(Exception, match=r"must have shape \(N, 2, 6, 6\)"):
        net.forward_all(data=data[0], label=np.zeros(2))
    with pytest.raises(Exception, match=r"must have shape \(N, 2, 6, 6\)"):
        make_input_net().forward_all(data=np.zeros((1, 4, 2, 6, 6)), label=label)


def test_forward_all_splits_and_pads_batches() -> None:
    net = make_input_net()
    r = np.random.default_rng(3)
    data, label = r.normal(size=(10, 2, 6, 6)).astype(np.float32), r.integers(0, 5, 10)
    result = net.forward_all(blobs=["sum"], data=data, label=label)
    assert result["sum"].shape == (10, 5)
    net.forward(data=data[4:8], label=label[4:8])
    np.testing.assert_allclose(result["sum"][4:8], net.blobs["sum"].data, **CLOSE)
    assert [len(batch["data"]) for batch in net._batch({"data": data})] == [4, 4, 4]
    without_loss = make_input_net(prototxt="force_backward: true\n" + INPUT_NET.rsplit("layer {", 1)[0])
    blobs, diffs = without_loss.forward_backward_all(
        blobs=["pool"], diffs=["fc2"], data=data, label=label, sum=np.ones((10, 5), np.float32)
    )
    assert (blobs["pool"].shape, diffs["fc2"].shape, diffs["data"].shape) == ((10, 3, 1, 1), (10, 5), data.shape)
    np.testing.assert_array_equal(diffs["fc2"], 1)


def test_partial_passes_are_traced_once_for_several_nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[str] = []
    for name in ("_forward", "_backward"):
        original = getattr(LayerRange, name)

        def record_trace(*args: Any, name: str = name, original: Any = original) -> Any:
            traced.append(name)
            return original(*args)

        monkeypatch.setattr(LayerRange, name, record_trace)
    monkeypatch.setattr(ProgramCacheConfig, "folder", tmp_path / "programs")
    text = f"force_backward: true {INPUT_NET}"

    def run_passes() -> list[np.ndarray]:
        caffe.set_random_seed(0)
        net = caffe.Net(text, caffe.TRAIN)
        net.blobs["data"].data[...] = np.arange(4 * 2 * 36).reshape(4, 2, 6, 6) % 7
        arrays = []
        for _ in range(4):
            net.forward(end="fc1")
            arrays.append(net.blobs["pool"].data.copy())
            net.blobs["fc1"].diff[...] = 1
            net.backward(start="fc1", end="pool")
            net.blobs["conv"].diff[...] += 0.1
            arrays.append(net.backward(start="relu", end="conv")["data"].copy())
            arrays += [net.blobs["pool"].diff.copy(), net.params["fc1"][0].diff.copy()]
        return arrays

    first_arrays = run_passes()
    assert sorted(traced) == ["_backward", "_backward", "_forward"]
    second_arrays = run_passes()
    assert sorted(traced) == ["_backward", "_backward", "_forward"]
    np.testing.assert_allclose(first_arrays[7], 2 * first_arrays[3], rtol=1e-5)  # the diffs of params add up
    for first, second in zip(first_arrays, second_arrays, strict=True):
        np.testing.assert_array_equal(second, first)


INPUT_X = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 3 dim: 1 } } }\n'


@pytest.mark.parametrize("shapes", ["dim: 1 dim: 3", "dim: 3", "dim: 1 dim: 1 dim: -1"])
def test_gradient_of_reshape_and_flatten(shapes: str) -> None:
    """BVLC Caffe's is 0, because Flatten replaces the diff that Reshape shares."""
    net = caffe.Net(
        f"""force_backward: true {INPUT_X}
        layer {{ name: "r" type: "Reshape" bottom: "x" top: "r" reshape_param {{ shape {{ {shapes} }} }} }}
        layer {{ name: "f" type: "Flatten" bottom: "r" top: "f" flatten_param {{ axis: 0 }} }}
        layer {{ name: "l" type: "Reduction" bottom: "f" top: "l" loss_weight: 1
          reduction_param {{ operation: SUMSQ }} }}""",
        caffe.TRAIN,
    )
    net.forward(x=np.array([[1], [2], [3]]))
    np.testing.assert_allclose(net.backward()["x"], [[2], [4], [6]], rtol=1e-6)


def test_a_diff_that_no_param_needs_is_not_computed() -> None:
    """The log says that BatchNorm needs a backward pass; its bottom is computed from no param."""
    layers = """
    layer { name: "bn" type: "BatchNorm" bottom: "x" top: "y" }
    layer { name: "ip" type: "InnerProduct" bottom: "y" top: "ip"
      inner_product_param { num_output: 2 weight_filler { value: 1 } } }
    layer { name: "l" type: "Reduction" bottom: "ip" top: "l" loss_weight: 1 reduction_param { operation: SUMSQ } }
    """
    for prefix, has_diff in (("", False), ("force_backward: true ", True)):
        net = caffe.Net(prefix + INPUT_X + layers, caffe.TRAIN)
        net.params["ip"][1].data[...] = [3, 4]
        net.forward(x=np.array([[1], [2], [4]]))
        net.backward()
        assert net.params["ip"][0].diff.any()
        assert net.blobs["y"].diff.any()
        assert net.blobs["x"].diff.any() == has_diff

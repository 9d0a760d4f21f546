"""Python layers with Caffe's interface: setup, the arrays they receive, and their results."""

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import user_layers
from python_nets import LOSS_LAYER, draw_inputs, input_layer, python_layer

import caffejax.pycaffe as caffe
from caffejax import GraphError, Net


def test_consecutive_layers_with_any_shape() -> None:
    net = Net(
        input_layer((2, 3))
        + python_layer("one", "SimpleLayer", "x0", "a")
        + python_layer("two", "SimpleLayer", "a", "b")
    )
    assert net.has_host_layers
    assert net.graph.blobs["b"].shape == (2, 3)
    for shape in ((2, 3), (5, 3), (2, 3, 4, 1)):
        x = draw_inputs(shape)
        blobs, _ = net.forward({}, {}, x)
        np.testing.assert_allclose(blobs["b"], 100 * x["x0"], rtol=1e-6)


def test_import_caffe_works_only_in_user_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`import caffe` works in the module and in its methods, and nowhere else; modules beside it can be imported."""
    monkeypatch.delitem(sys.modules, "caffe", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "neighbour_of_it.py").write_text("ten = 10\n")
    (tmp_path / "says_import_caffe.py").write_text("""
import caffe
class Ten(caffe.Layer):
    def setup(self, bottom, top):
        import caffe.io
        assert caffe.io.Transformer
    def reshape(self, bottom, top):
        top[0].reshape(1)
    def forward(self, bottom, top):
        import caffe
        from neighbour_of_it import ten
        top[0].data[...] = ten + caffe.TRAIN
""")
    before = list(sys.meta_path), list(sys.path)
    modules = set(sys.modules)
    net = Net(python_layer("o", "Ten", tops="y").replace("user_layers", "says_import_caffe"))
    assert isinstance(net.graph.layers[0].type.instance, caffe.Layer)
    (source,) = net.sources().values()
    assert next(source)[0] == 10
    assert (sys.meta_path, sys.path) == before
    assert not [name for name in set(sys.modules) - modules if name.partition(".")[0] == "caffe"]


def test_imported_caffe_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_caffe = SimpleNamespace(Layer=caffe.Layer, here=True)
    monkeypatch.setitem(sys.modules, "caffe", real_caffe)  # type: ignore[misc]
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "wants_the_real_one.py").write_text("import caffe\nclass Ten(caffe.Layer):\n    here = caffe.here\n")
    with pytest.raises(GraphError):  # it has no forward
        Net(python_layer("o", "Ten", tops="y").replace("user_layers", "wants_the_real_one"))
    assert sys.modules["wants_the_real_one"].Ten.here
    assert sys.modules["caffe"] is real_caffe


def test_scalar_blob_is_available_before_a_host_layer() -> None:
    text = input_layer((2, 3)) + LOSS_LAYER.replace('"y"', '"x0"') + python_layer("s", "SimpleLayer", "x0", "y")
    net = Net(text + 'layer { name: "p" type: "Power" bottom: "loss" top: "p" power_param { scale: 2 } }')
    blobs, _ = net.forward({}, {}, {"x0": np.ones((2, 3), np.float32)})
    assert blobs["p"] == 2 * 6


@pytest.mark.parametrize(("phase", "value"), [("TRAIN", 0), ("TEST", 1)])
def test_phase_of_a_layer(phase: Any, value: int) -> None:
    net = Net(python_layer("p", "PhaseLayer", tops="phase"), phase)
    (source,) = net.sources().values()
    (top,) = next(source)
    assert (top.shape, top) == ((), value)
    (source,) = net.with_phase("TEST" if phase == "TRAIN" else "TRAIN").sources().values()
    assert next(source)[0] == 1 - value
    instance = net.graph.layers[0].type.instance
    assert (str(instance.phase), f"{instance.phase:d}", instance.phase + 1) == (phase, str(value), value + 1)


def test_param_str_of_a_layer() -> None:
    text = input_layer((2, 2)) + python_layer("s", "ParamStringLayer", "x0", "y", param_str="2.5")
    blobs, _ = Net(text).forward({}, {}, draw_inputs((2, 2)))
    np.testing.assert_array_equal(blobs["y"], np.full((2, 2), 2.5))


def test_share_in_parallel_has_no_effect() -> None:
    text = python_layer("s", "SimpleLayer", "x0", "y").replace("module:", "share_in_parallel: true module:")
    blobs, _ = Net(input_layer((2, 2)) + text).forward({}, {}, {"x0": np.ones((2, 2), np.float32)})
    np.testing.assert_array_equal(blobs["y"], np.full((2, 2), 10))


def test_each_net_has_different_instances() -> None:
    text = (
        input_layer((2, 2)) + python_layer("s", "SimpleLayer", "x0", "a") + python_layer("t", "SimpleLayer", "a", "y")
    )
    train_net, test_net = (Net(text, phase) for phase in ("TRAIN", "TEST"))
    instances = [layer.type.instance for net in (train_net, test_net) for layer in net.graph.layers[1:]]
    assert all(isinstance(i, user_layers.SimpleLayer) for i in instances)
    assert len({id(i) for i in instances}) == 4


def test_tops_are_copies() -> None:
    """A layer that writes to its top again does not change the result of an earlier pass."""
    net = Net(input_layer((2, 2)) + python_layer("s", "SimpleLayer", "x0", "y"))
    first_blobs, _ = net.forward({}, {}, {"x0": np.ones((2, 2), np.float32)})
    first_copy = np.array(first_blobs["y"])
    net.forward({}, {}, {"x0": np.full((2, 2), 2, np.float32)})
    np.testing.assert_array_equal(first_blobs["y"], first_copy)


def test_tops_are_float32_with_x64() -> None:
    net = Net(input_layer((2, 2)) + python_layer("s", "SimpleLayer", "x0", "y"))
    with jax.enable_x64(True):
        blobs, _ = net.forward({}, {}, {"x0": np.ones((2, 2))})
    assert blobs["y"].dtype == np.float32


def test_blob_changes_in_forward_are_discarded_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    net = Net(python_layer("c", "CountInBlob", tops="y"))
    params, state = net.init(jax.random.key(0))
    with caplog.at_level(logging.WARNING, logger="caffejax"):
        for _ in range(2):
            blobs, _ = net.forward(params, state, {})
            np.testing.assert_array_equal(blobs["y"], [1, 1])
    assert [r.getMessage() for r in caplog.records] == [
        "Layer 'c' (Python): user_layers.CountInBlob.forward changes the layer's blobs; the changes are discarded, "
        "because only the solver may change parameters"
    ]


def test_each_shape_is_compiled_once(caplog: pytest.LogCaptureFixture) -> None:
    text = input_layer((2, 3)) + python_layer("s", "SimpleLayer", "x0", "a")
    net = Net(text + 'layer { name: "t" type: "TanH" bottom: "a" top: "t" }')
    with caplog.at_level(logging.INFO, logger="caffejax"):
        for shape in ((2, 3), (4, 3), (2, 3), (4, 3)):
            net.forward({}, {}, draw_inputs(shape))
    assert [r.getMessage() for r in caplog.records] == ["Compiling layers t .. t for a (4, 3) (2 shapes so far)"]


def test_subclasses_of_layer_are_constructed_with_the_layer_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is pycaffe's behaviour; some classes define __init__ and pass all arguments on."""

    class Old(caffe.Layer):
        def __init__(self, p_object: Any, *args: Any) -> None:
            super().__init__(p_object, *args)
            self.layer_name = p_object.name

        def forward(self, bottom: Any, top: Any) -> None:
            pass

    monkeypatch.setitem(sys.modules, "old_layers", SimpleNamespace(__name__="old_layers", Old=Old))  # type: ignore[misc]
    net = Net(python_layer("o", "Old", tops="y").replace("user_layers", "old_layers"))
    assert net.graph.layers[0].type.instance.layer_name == "o"
    assert net.graph.layers[0].type.instance.type == "Python"


def test_setup_sets_the_initial_values_of_blobs(tmp_path: Path) -> None:
    """A weight file overrides the values of `setup`; the net's value is saved."""
    net = Net(python_layer("p", "ParameterLayer", tops="y"))
    initial_params, state = net.init(jax.random.key(0))
    np.testing.assert_array_equal(initial_params["p"]["0"], [5])
    net.save({"p": {"0": initial_params["p"]["0"] + 2}}, state, tmp_path / "seven.caffemodel")
    loaded = Net(python_layer("p", "ParameterLayer", tops="y")).load(tmp_path / "seven.caffemodel")
    np.testing.assert_array_equal(loaded.params["p"]["0"], [7])


def test_pycaffe_forward_writes_to_the_blobs_of_the_net(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As in Caffe, layer and net share the memory of blobs: values written by forward persist and are saved."""
    net = caffe.Net("force_backward: true " + python_layer("c", "CountInBlob", tops="y"), caffe.TRAIN)
    np.testing.assert_array_equal(net.params["c"][0].data, [0, 0])
    for num_passes in (1, 2):
        np.testing.assert_array_equal(net.forward()["y"], [num_passes, num_passes])
        net.backward()  # does not run forward again
        np.testing.assert_array_equal(net.params["c"][0].data, [num_passes, num_passes])
    net.params["c"][0].data[1] = 6
    np.testing.assert_array_equal(net.layers[0].blobs[0].data, [2, 6])
    np.testing.assert_array_equal(net.forward()["y"], [3, 7])
    net.save(tmp_path / "net.caffemodel")
    net.layers[0].blobs[0].data[...] = 0
    np.testing.assert_array_equal(net.params["c"][0].data, [0, 0])
    net.copy_from(tmp_path / "net.caffemodel")
    np.testing.assert_array_equal(net.layers[0].blobs[0].data, [3, 7])
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_pycaffe_layer_and_net_share_blobs(tmp_path: Path) -> None:
    """Blobs are written, saved, loaded and shared as in Caffe's own test of a layer with a param."""
    text = "force_backward: true " + python_layer("p", "ParameterLayer", tops="y")
    net = caffe.Net(text, caffe.TRAIN)
    (blob,) = net.layers[0].blobs
    assert net.forward()["y"] == 5
    net.backward()
    assert (blob.data[0], blob.diff[0]) == (5, 1)
    blob.data[0] += blob.diff[0]
    net.save(tmp_path / "six.caffemodel")
    blob.data[0] = -1
    assert net.params["p"][0].data[0] == -1
    assert net.forward()["y"] == -1
    net.copy_from(tmp_path / "six.caffemodel")
    assert blob.data[0] == 6
    assert net.forward()["y"] == 6
    other_net = caffe.Net(text, caffe.TRAIN)
    other_net.share_with(net)
    blob.data[0] = 3
    assert other_net.layers[0].blobs[0].data[0] == 3
    assert other_net.forward()["y"] == 3

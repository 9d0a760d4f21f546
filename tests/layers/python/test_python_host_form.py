"""Python layers with Caffe's interface: what they compute, their gradients, their blobs."""

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import user_layers
from python_nets import data, normal, python

import caffejax.pycaffe as caffe
from caffejax import GraphError, LayerError, Net

REDUCE = """layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1
  reduction_param { operation: SUMSQ } }"""


def loss_and_grads(text: str, inputs: dict[str, Any], backward: Any = "autodiff") -> tuple[Any, Any, Any]:
    net = Net(text, "TRAIN", backward=backward)
    params, state = net.init(jax.random.key(0))
    taps = {name: jnp.zeros_like(value) for name, value in inputs.items()}

    def loss(params: Any, taps: Any) -> Any:
        return net.loss(params, state, inputs, jax.random.key(1), taps=taps)[0]

    return params, *jax.value_and_grad(loss, argnums=(0, 1))(params, taps)


def assert_close(found: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), found, expected)


def test_simple_layers_in_a_row_at_any_shape() -> None:
    net = Net(data((2, 3)) + python("one", "SimpleLayer", "x0", "a") + python("two", "SimpleLayer", "a", "b"))
    assert net.has_host_layers
    assert net.graph.blobs["b"].shape == (2, 3)
    for shape in ((2, 3), (5, 3), (2, 3, 4, 1)):
        x = normal(shape)
        blobs, _ = net.forward({}, {}, x)
        np.testing.assert_allclose(blobs["b"], 100 * x["x0"], rtol=1e-6)


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_a_layer_with_blobs_between_compiled_ones(backward: str) -> None:
    linear = python("ip", "Linear", "t", "y", param_str="{'num_output': 2, 'bias': 0.5}")
    text = f'{data((4, 3))} layer {{ name: "t" type: "TanH" bottom: "x0" top: "t" }} {linear} {REDUCE} '
    inputs = normal((4, 3))
    params, loss, (grads, diffs) = loss_and_grads(text + "force_backward: true", inputs, backward)
    np.testing.assert_allclose(params["ip"][0], np.linspace(-1, 1, 6).reshape(2, 3), rtol=1e-6)
    np.testing.assert_array_equal(params["ip"][1], [0.5, 0.5])

    def by_hand(params: Any, inputs: Any) -> Any:
        weight, bias = params["ip"]
        return jnp.sum((jnp.tanh(inputs["x0"]) @ weight.T + bias) ** 2)

    expected, expected_grads = jax.value_and_grad(by_hand, argnums=(0, 1))(params, inputs)
    assert_close((loss, (grads, diffs)), (expected, expected_grads))


def test_a_blob_used_by_two_layers_has_the_sum_of_their_gradients() -> None:
    shared = 'param { name: "w" } param { name: "b" }'
    settings = "{'num_output': 3}"
    text = (
        data((4, 3))
        + python("one", "Linear", "x0", "a", shared, settings)
        + python("two", "Linear", "a", "y", shared, settings)
        + REDUCE
    )
    inputs = normal((4, 3))
    params, loss, (grads, _) = loss_and_grads(text, inputs)
    assert list(params) == ["one"]

    def by_hand(params: Any) -> Any:
        weight, bias = params["one"]
        return jnp.sum(((inputs["x0"] @ weight.T + bias) @ weight.T + bias) ** 2)

    expected, expected_grads = jax.value_and_grad(by_hand)(params)
    assert_close((loss, grads), (expected, expected_grads))


def test_a_diff_that_is_written_counts() -> None:
    """The parameter layer says 1 whatever its top's diff is."""
    _, loss, (grads, _) = loss_and_grads(python("p", "ParameterLayer", tops="y", more="loss_weight: 3"), {})
    assert loss == 15
    np.testing.assert_array_equal(grads["p"][0], [1])


@pytest.mark.parametrize("weight", [1, 0.25])
def test_a_loss_at_the_end(weight: float) -> None:
    """As the built-in one, with diffs for both bottoms."""
    built_in = f'layer {{ name: "l" type: "EuclideanLoss" bottom: "x0" bottom: "x1" top: "l" loss_weight: {weight} }}'
    inputs = normal((4, 3, 2), (4, 3, 2))
    ours = python("l", "Euclidean", "x0 x1", "l", f"loss_weight: {weight}")
    found, expected = (
        loss_and_grads(f"{data((4, 3, 2), (4, 3, 2))} {text} force_backward: true", inputs) for text in (ours, built_in)
    )
    assert_close(found, expected)


def test_without_loss_weight_it_is_no_loss() -> None:
    _, loss, (_, diffs) = loss_and_grads(
        data((4, 3), (4, 3)) + python("l", "Euclidean", "x0 x1", "l"), normal((4, 3), (4, 3))
    )
    assert loss == 0
    assert not any(np.any(d) for d in diffs.values())


def test_propagate_down_is_what_the_net_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    backward = user_layers.Euclidean.backward

    def listening(self: Any, top: Any, propagate_down: Any, bottom: Any) -> None:
        asked.append(propagate_down)
        assert all(not b.diff.any() for b in bottom)
        backward(self, top, propagate_down, bottom)

    monkeypatch.setattr(user_layers.Euclidean, "backward", listening)
    text = data((4, 3), (4, 2)) + python("ip", "Linear", "x0", "ip", param_str="{'num_output': 2}")
    text += python("l", "Euclidean", "ip x1", "l", "loss_weight: 1")
    loss_and_grads(text, normal((4, 3), (4, 2)))  # by the bottoms, too
    net = Net(text, "TRAIN")
    params, state = net.init(jax.random.key(0))
    jax.grad(lambda params: net.loss(params, state, normal((4, 3), (4, 2)))[0])(params)
    assert asked == [[True, True], [True, False]]


def test_a_bottom_diff_that_is_not_written_is_zero() -> None:
    text = data((2, 2)) + python("s", "ParamStringLayer", "x0", "y", param_str="3") + REDUCE + "force_backward: true"
    for seed in (0, 1):
        _, loss, (_, diffs) = loss_and_grads(text, normal((2, 2), seed=seed))
        assert loss == 36
        assert not diffs["x0"].any()


def test_a_layer_beside_the_way_to_the_loss_needs_no_backward() -> None:
    text = data((2, 3, 2, 2), (2, 1, 2, 2)) + python("ip", "SimpleLayer", "x0", "score")
    text += 'layer { name: "p" type: "Convolution" bottom: "score" top: "y" convolution_param { num_output: 2 '
    text += 'kernel_size: 1 weight_filler { type: "xavier" } } }' + python("acc", "Score", "y x1", "acc")
    inputs = normal((2, 3, 2, 2)) | {"x1": np.zeros((2, 1, 2, 2), np.float32)}
    loss = 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "x1" top: "l" }'
    net = Net(text + loss, "TRAIN")
    net.graph.check_backward()
    _, loss_with, (grads, _) = loss_and_grads(text + loss, inputs)
    _, loss_without, (expected, _) = loss_and_grads(
        text.replace(python("acc", "Score", "y x1", "acc"), "") + loss, inputs
    )
    assert_close((loss_with, grads), (loss_without, expected))


def test_import_caffe_works_while_users_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the module and in its methods, and nowhere else afterwards; neighbours are found likewise."""
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
    net = Net(python("o", "Ten", tops="y").replace("user_layers", "says_import_caffe"))
    assert isinstance(net.graph.layers[0].type.instance, caffe.Layer)
    (source,) = net.sources().values()
    assert next(source)[0] == 10
    assert (sys.meta_path, sys.path) == before
    assert not [name for name in sys.modules if name.partition(".")[0] == "caffe"]


def test_a_real_caffe_is_left_to_users_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SimpleNamespace(Layer=caffe.Layer, here=True)
    monkeypatch.setitem(sys.modules, "caffe", real)  # type: ignore[misc]
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "wants_the_real_one.py").write_text("import caffe\nclass Ten(caffe.Layer):\n    here = caffe.here\n")
    with pytest.raises(GraphError):  # it has no forward
        Net(python("o", "Ten", tops="y").replace("user_layers", "wants_the_real_one"))
    assert sys.modules["wants_the_real_one"].Ten.here
    assert sys.modules["caffe"] is real


def test_in_place() -> None:
    """Bottom and top are one blob: backward sees what forward left in it, and makes the top's diff the bottom's."""
    text = (
        data((3, 4))
        + 'layer { name: "e" type: "Exp" bottom: "x0" top: "y" }'
        + python("s", "SquareInPlace", "y", "y")
        + REDUCE
        + "force_backward: true"
    )
    inputs = normal((3, 4))
    _, loss, (_, diffs) = loss_and_grads(text, inputs)
    expected, by_hand = jax.value_and_grad(lambda x: jnp.sum(jnp.exp(x) ** 4))(inputs["x0"])
    assert_close((loss, diffs["x0"]), (expected, by_hand))


def test_a_number_without_axes_is_read_behind_a_layer_on_the_host() -> None:
    text = data((2, 3)) + REDUCE.replace('"y"', '"x0"') + python("s", "SimpleLayer", "x0", "y")
    net = Net(text + 'layer { name: "p" type: "Power" bottom: "loss" top: "p" power_param { scale: 2 } }')
    blobs, _ = net.forward({}, {}, {"x0": np.ones((2, 3), np.float32)})
    assert blobs["p"] == 2 * 6


def test_in_place_in_pycaffe() -> None:
    """The same when the net is run there, and forward does not run again for the gradient."""
    text = data((3, 4)) + python("s", "SquareInPlace", "x0", "x0") + REDUCE.replace('"y"', '"x0"')
    net = caffe.Net(text + "force_backward: true", caffe.TRAIN)
    x = np.abs(normal((3, 4))["x0"])
    net.blobs["x0"].data[...] = x
    net.forward()
    net.backward()
    assert_close(net.blobs["x0"].diff, 4 * x**3)


@pytest.mark.parametrize(("phase", "value"), [("TRAIN", 0), ("TEST", 1)])
def test_phase(phase: Any, value: int) -> None:
    net = Net(python("p", "PhaseLayer", tops="phase"), phase)
    (source,) = net.sources().values()
    (top,) = next(source)
    assert (top.shape, top) == ((), value)
    (source,) = net.in_phase("TEST" if phase == "TRAIN" else "TRAIN").sources().values()
    assert next(source)[0] == 1 - value


def test_param_str() -> None:
    text = data((2, 2)) + python("s", "ParamStringLayer", "x0", "y", param_str="2.5")
    blobs, _ = Net(text).forward({}, {}, normal((2, 2)))
    np.testing.assert_array_equal(blobs["y"], np.full((2, 2), 2.5))


def test_share_in_parallel_changes_nothing() -> None:
    text = python("s", "SimpleLayer", "x0", "y").replace("module:", "share_in_parallel: true module:")
    blobs, _ = Net(data((2, 2)) + text).forward({}, {}, {"x0": np.ones((2, 2), np.float32)})
    np.testing.assert_array_equal(blobs["y"], np.full((2, 2), 10))


def test_each_net_has_an_instance_of_its_own() -> None:
    text = data((2, 2)) + python("s", "SimpleLayer", "x0", "a") + python("t", "SimpleLayer", "a", "y")
    one, other = (Net(text, phase) for phase in ("TRAIN", "TEST"))
    instances = [layer.type.instance for net in (one, other) for layer in net.graph.layers[1:]]
    assert all(isinstance(i, user_layers.SimpleLayer) for i in instances)
    assert len({id(i) for i in instances}) == 4


def test_backward_belongs_to_its_forward_even_if_others_come_between() -> None:
    net = Net(data((3, 2), (3, 2)) + python("l", "Euclidean", "x0 x1", "l", "loss_weight: 1") + "force_backward: true")

    def loss(x: Any, y: Any) -> Any:
        return net.loss({}, {}, {"x0": x, "x1": y})[0]

    one, other = normal((3, 2), (3, 2)), normal((3, 2), (3, 2), seed=1)
    pull_one = jax.vjp(loss, *one.values())[1]
    pull_other = jax.vjp(loss, *other.values())[1]
    for inputs, pull in ((one, pull_one), (other, pull_other)):
        np.testing.assert_allclose(pull(jnp.float32(1))[0], (inputs["x0"] - inputs["x1"]) / 3, rtol=1e-5)


def test_results_are_copies() -> None:
    """A layer that writes into the same memory again does not change what it gave before."""
    net = Net(data((2, 2)) + python("s", "SimpleLayer", "x0", "y"))
    first, _ = net.forward({}, {}, {"x0": np.ones((2, 2), np.float32)})
    kept = np.array(first["y"])
    net.forward({}, {}, {"x0": np.full((2, 2), 2, np.float32)})
    np.testing.assert_array_equal(first["y"], kept)


def test_a_layer_reads_blobs_of_float32_in_any_net() -> None:
    net = Net(data((2, 2)) + python("s", "SimpleLayer", "x0", "y"))
    with jax.enable_x64(True):
        blobs, _ = net.forward({}, {}, {"x0": np.ones((2, 2))})
    assert blobs["y"].dtype == np.float32


def test_changes_of_a_blob_in_forward_are_not_kept_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    net = Net(python("c", "Centre", tops="y"))
    params, state = net.init(jax.random.key(0))
    with caplog.at_level(logging.WARNING, logger="caffejax"):
        for _ in range(2):
            blobs, _ = net.forward(params, state, {})
            np.testing.assert_array_equal(blobs["y"], [1, 1])
    assert [r.getMessage() for r in caplog.records] == [
        "Layer 'c' (Python): user_layers.Centre.forward changes the layer's blobs; only the solver does that here, "
        "so the changes are not kept"
    ]


@pytest.mark.parametrize(
    "text", [data((2, 2)) + python("s", "SimpleLayer", "x0", "y"), python("s", "ParameterLayer", tops="y")]
)
def test_such_a_net_says_why_it_cannot_be_jitted(text: str) -> None:
    net = Net(text)
    variables = net.init(jax.random.key(0))
    with pytest.raises(LayerError, match=r"layer 's' \(Python\): runs on the host .* outside of jax.jit"):
        jax.jit(lambda: net.apply(*variables, normal((2, 2)) if net.fed else {})[0])()


def test_shapes_that_change_are_compiled_once_each(caplog: pytest.LogCaptureFixture) -> None:
    text = data((2, 3)) + python("s", "SimpleLayer", "x0", "a")
    net = Net(text + 'layer { name: "t" type: "TanH" bottom: "a" top: "t" }')
    with caplog.at_level(logging.INFO, logger="caffejax"):
        for shape in ((2, 3), (4, 3), (2, 3), (4, 3)):
            net.forward({}, {}, normal(shape))
    assert [r.getMessage() for r in caplog.records] == ["Compiling layers t .. t for a (4, 3) (2 shapes so far)"]


def test_classes_are_made_with_the_layer_where_they_derive_from_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pycaffe does; some define __init__ and hand everything on."""

    class Old(caffe.Layer):
        def __init__(self, p_object: Any, *args: Any) -> None:
            super().__init__(p_object, *args)
            self.made_of = p_object.name

        def forward(self, bottom: Any, top: Any) -> None:
            pass

    monkeypatch.setitem(sys.modules, "old_layers", SimpleNamespace(__name__="old_layers", Old=Old))  # type: ignore[misc]
    net = Net(python("o", "Old", tops="y").replace("user_layers", "old_layers"))
    assert net.graph.layers[0].type.instance.made_of == "o"
    assert net.graph.layers[0].type.instance.type == "Python"

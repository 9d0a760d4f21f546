"""`caffejax.layer`: a layer of any type as a function of plain arrays."""

import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import caffejax
from caffejax import CaffejaxError, LayerType, Net, declare, register_temporarily
from caffejax.core.layers import CallerInput, Variants, layer_types
from caffejax.core.schema.caffe_pb2 import LayerParameter, LRNParameter
from doubling_layer import Double
from golden_cases import ACCEPTED_CASES
from layer_suite.recorded import RecordedLayer

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (2, 3, 5, 6))
CONV = caffejax.layer("Convolution", "num_output: 2 kernel_size: 3")


GRADIENT_CASES = {
    case["type"]: case
    for case in reversed(ACCEPTED_CASES)
    if case["type"] in {"BatchNorm", "Convolution", "LRN", "PReLU", "PSROIPooling", "Pooling", "Scale", "Slice"}
    and case["has_backward"]
    and "stochastic" not in case
}


@pytest.mark.parametrize("name", sorted(GRADIENT_CASES))
def test_gradients_by_params_and_bottoms_are_as_recorded(name: str) -> None:
    """In compiled code, of which a `vjp` is what `grad` takes."""
    case = GRADIENT_CASES[name]
    recorded = RecordedLayer(case)

    @jax.jit
    def compute_gradients(params: Any, *bottoms: Any) -> Any:
        tops, vjp = jax.vjp(recorded.compute_tops, params, *bottoms)
        return vjp(tuple(jnp.asarray(diff, top.dtype) for diff, top in zip(top_diffs, tops, strict=True)))

    top_diffs = [recorded.recorded[f"top_diff/{name}"] for name in recorded.layer.tops]
    param_diffs, *bottom_diffs = compute_gradients(recorded.params, *recorded.bottoms)
    results = {f"bottom_diff/{n}": diff for n, diff in zip(recorded.layer.bottoms, bottom_diffs, strict=True)}
    results |= {f"param_diff/{p.index}": param_diffs.get(p.slot.name) for p in recorded.layer.params}
    compared = [key for key in results if key in recorded.recorded and results[key] is not None]
    assert any(key.startswith("bottom_diff") for key in compared)
    for key in compared:
        previous = recorded.recorded.get(key.replace("diff/", "diff_before/"), 0)
        np.testing.assert_allclose(
            results[key] + previous, recorded.recorded[key], atol=max(case["atol"], 1e-7), rtol=case["rtol"]
        )


@pytest.mark.parametrize(
    ("layer_type", "param", "phase"),
    [
        ("LRN", "local_size: 3", "TEST"),
        ("Pooling", "pool: MAX kernel_size: 2 stride: 2", "TEST"),
        ("InnerProduct", "num_output: 4", "TRAIN"),
        ("Dropout", "", "TRAIN"),
        ("Slice", 'slice_param { slice_point: 1 } top: "a" top: "b"', "TEST"),
        ("Python", 'module: "jax.nn" layer: "softplus"', "TEST"),
    ],
)
def test_vmap_and_scan_equal_a_loop(layer_type: str, param: str, phase: Any) -> None:
    function = caffejax.layer(layer_type, param, phase)
    params = function.init(KEY, X.shape).params
    xs, keys = jnp.stack([X, 2 * X, X - 1]), jax.random.split(KEY, 3)

    def run(x: Any, key: Any) -> Any:
        return function(params, x, key=key)

    expected = jax.tree.map(lambda *tops: jnp.stack(tops), *map(run, xs, keys))
    for result in (jax.vmap(run)(xs, keys), jax.lax.scan(lambda c, xk: (c, run(*xk)), 0, (xs, keys))[1]):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), result, expected)


def double(x: Any) -> Any:
    return 2 * x


@pytest.mark.parametrize("python_layer", [double, Double])
def test_python_layers_are_functions(python_layer: Any) -> None:
    twice = caffejax.layer(python_layer)
    np.testing.assert_array_equal(twice(X), 2 * X)
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: (X * twice(x)).sum()))(X), 2 * X)
    np.testing.assert_array_equal(jax.vmap(twice)(X), 2 * X)


def test_a_users_type_is_a_function() -> None:
    with register_temporarily(declare("Thrice")(lambda x: 3 * x)):
        np.testing.assert_array_equal(caffejax.layer("Thrice")(X), 3 * X)


def test_settings_as_fields_of_the_type_or_of_the_layer_and_as_messages() -> None:
    layer = LayerParameter(lrn_param=LRNParameter(local_size=3))
    results = [
        caffejax.layer("LRN", param)(X)
        for param in ("local_size: 3", "lrn_param { local_size: 3 }", layer, layer.lrn_param)
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    assert caffejax.check_gradients("LRN", "local_size: 3", bottoms=[(2, 4, 2, 2)]).ok
    assert np.abs(results[0] - caffejax.layer("LRN")(X)).max() > 0
    assert layer == LayerParameter(lrn_param=LRNParameter(local_size=3))


def test_params_and_tops_equal_those_of_a_net_with_the_layers_name() -> None:
    net = Net(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 6 } } }'
        'layer { name: "drop" type: "Dropout" bottom: "x" top: "d" }'
        'layer { name: "conv" type: "Convolution" bottom: "d" top: "y" convolution_param { num_output: 2 kernel_size: 3'
        ' weight_filler { type: "xavier" } } }',
        "TRAIN",
    )
    drop = caffejax.layer("Dropout", 'name: "drop"', phase="TRAIN")
    conv = caffejax.layer("Convolution", net.graph.layers[-1].definition.layer, phase="TRAIN")
    params, state = net.init(KEY)
    own = conv.init(KEY, X.shape).params
    jax.tree.map(np.testing.assert_array_equal, own, params["conv"])
    expected = net.apply(params, state, {"x": X}, KEY)[0]["y"]
    np.testing.assert_allclose(conv(own, drop(X, key=KEY)), expected, rtol=1e-6, atol=1e-6)


def test_state_goes_in_and_comes_out() -> None:
    norm = caffejax.layer("BatchNorm", phase="TRAIN")
    params, state = norm.init(KEY, X)
    assert params == {}
    top, state = jax.jit(lambda x, state: norm(x, state=state))(X, state)
    np.testing.assert_allclose(state["mean"], X.mean((0, 2, 3)), atol=1e-6)
    np.testing.assert_allclose(np.mean(top, (0, 2, 3)), 0, atol=1e-6)
    tested, same_state = caffejax.layer("BatchNorm")(X, state=state)
    jax.tree.map(np.testing.assert_array_equal, same_state, state)
    assert tested.shape == X.shape
    top, empty = caffejax.layer("ReLU")(X, state={})
    assert empty == {}


def test_layers_without_bottoms_or_tops(tmp_path: Path) -> None:
    parameter = caffejax.layer("Parameter", "shape { dim: 3 }")
    params = parameter.init(KEY).params
    np.testing.assert_array_equal(parameter(params), params["weight"])
    noise = caffejax.layer("DummyData", 'shape { dim: 3 } data_filler { type: "gaussian" }')
    assert noise(key=KEY).shape == (3,)
    assert caffejax.layer("Silence")(X) == ()
    file = tmp_path / "written.h5"
    assert caffejax.layer("HDF5Output", f'file_name: "{file}"')(X, np.zeros(2)) == ()
    assert not file.exists()


def test_losses_are_not_weighted_and_take_integer_labels() -> None:
    scores, labels = jax.random.normal(KEY, (4, 3)), jnp.array([0, 2, 1, 1])
    loss = caffejax.layer("SoftmaxWithLoss", "loss_weight: 7", phase="TRAIN")
    expected = -jax.nn.log_softmax(scores)[jnp.arange(4), labels].mean()
    np.testing.assert_allclose(loss(scores, labels), expected, rtol=1e-6)
    gradient = jax.grad(loss)(scores, labels)
    np.testing.assert_allclose(gradient, (jax.nn.softmax(scores) - jax.nn.one_hot(labels, 3)) / 4, atol=1e-6)


def test_rows_that_depend_on_values_are_caffes_outside_of_traced_code() -> None:
    choose = caffejax.layer("Filter")
    selected = choose(jnp.arange(6.0).reshape(3, 2), jnp.array([1, 0, 1]))
    np.testing.assert_array_equal(selected, [[0, 1], [4, 5]])


def test_options_and_copies() -> None:
    conv = caffejax.layer("Convolution", "num_output: 2 kernel_size: 3", precision="bfloat16")
    exact = caffejax.layer("Convolution", "num_output: 2 kernel_size: 3", kernels="reference")
    params = {"weight": jax.random.normal(KEY, (2, 3, 3, 3)), "bias": jnp.zeros(2)}
    error = np.abs(conv(params, X) - exact(params, X)).max()
    assert 0 < error < 0.3
    copy = pickle.loads(pickle.dumps(conv))
    np.testing.assert_array_equal(copy(params, X), conv(params, X))


class FlaxHead(nn.Module):
    """A flax module with one of Caffe's layers as a part."""

    head: Any

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.Conv(4, (3, 3))(x.transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2)
        return self.head(self.param("head", lambda key: self.head.init(key, x).params), x)


@dataclass
class TreeHead:
    """A module as equinox has them: a pytree of arrays, whose functions are static."""

    function: Any
    params: Any

    def __call__(self, x: Any) -> Any:
        return self.function(self.params, x)


jax.tree_util.register_dataclass(TreeHead, ["params"], ["function"])


def test_layers_are_parts_of_modules_of_flax_and_equinox() -> None:
    head = caffejax.layer("InnerProduct", 'num_output: 3 weight_filler { type: "xavier" }', phase="TRAIN")
    module = FlaxHead(head)
    variables = jax.jit(module.init)(KEY, X)
    grads = jax.jit(jax.grad(lambda v: module.apply(v, X).sum()))(variables)
    np.testing.assert_allclose(grads["params"]["head"]["bias"], [2, 2, 2])
    tree = TreeHead(head, head.init(KEY, X).params)
    grads = jax.jit(jax.grad(lambda tree: tree(X).sum()))(tree)
    np.testing.assert_allclose(grads.params["bias"], [2, 2, 2])
    np.testing.assert_allclose(grads.params["weight"], np.tile(X.reshape(2, -1).sum(0), (3, 1)), rtol=1e-5)


def test_types_that_compute_nothing_are_refused() -> None:
    sources = [t for t in layer_types().values() if all(v.is_input for v in _list_types(t))]
    assert {"Data", "HDF5Data", "ImageData", "Input", "MemoryData", "WindowData"} <= {t.name for t in sources}
    for source in sources:
        with pytest.raises(CaffejaxError, match=rf"'{source.name}' computes nothing.*or use caffejax\.Net"):
            caffejax.layer(source.name)
    source = declare("Mine", CallerInput(lambda: [(3,)]), bottoms=0)
    with register_temporarily(source), pytest.raises(CaffejaxError, match="'Mine' computes nothing"):
        caffejax.layer("Mine")


def _list_types(layer_type: LayerType) -> list[LayerType]:
    implementation = layer_type.implementation
    return list(implementation.types.values()) if isinstance(implementation, Variants) else [layer_type]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: caffejax.layer("LRM"), "unknown layer type 'LRM'; did you mean 'LRN'?"),
        (lambda: caffejax.layer(3), "a layer's type must be a name, a LayerType or a class, not 3"),
        (lambda: caffejax.layer("LRN", "locl_size: 5"), "1:1: LRNParameter has no field 'locl_size'; did you mean"),
        (lambda: caffejax.layer("LRN", "lrn_param { a: 5 }"), "LRNParameter has no field 'a'"),
        (lambda: caffejax.layer("LRN", "lrn: 5"), "has no field 'lrn'"),
        (lambda: caffejax.layer("LRN", 5), "the settings of a layer of type 'LRN' cannot be a value of type int"),
        (
            lambda: caffejax.layer("LRN", {"local_size": 5}),
            "a value of type dict; settings are text, such as caffejax.layer('LRN', 'local_size: 5')",
        ),
        (
            lambda: caffejax.layer("Pooling", pool="MAX", kernel_size=3),
            "pool, kernel_size: settings are text, such as caffejax.layer('Pooling', 'pool: MAX kernel_size: 3')",
        ),
        (lambda: caffejax.layer("LRN", 'type: "Pooling"'), "param has the type 'Pooling', but the layer has the type"),
        (lambda: caffejax.layer("LRN", phase="train"), 'phase must be "TRAIN" or "TEST", not "train"'),
        (lambda: caffejax.layer("LRN", kernel="fast"), "there is no option 'kernel'; did you mean 'kernels'?"),
        (lambda: caffejax.layer("LRN", "local_size: 4")(X), "(LRN): local_size must be odd, not 4"),
        (lambda: caffejax.layer("LRN")(X, X), "(LRN): takes exactly 1 bottom, but has 2"),
        (lambda: caffejax.layer("LRN")({"weight": X}, X), "(LRN): 'weight' in params is unknown; the layer has none"),
        (lambda: caffejax.layer("LRN")("x"), "bottom 0 must be an array of numbers, not a value of type str"),
        (lambda: CONV(X), "(Convolution): has 'weight', 'bias' as params: pass them, a dict of arrays, before the"),
        (lambda: CONV(CONV.init(KEY, X), X), "bottom 0 must be an array of numbers, not a value of type Variables"),
        (lambda: CONV({}, X), "(Convolution): 'weight' in params is missing"),
        (
            lambda: CONV(CONV.init(KEY, X).params, X[:, :2]),
            "(2, 2, 3, 3), not (2, 3, 3, 3), with bottoms of shape (2, 2, 5, 6)",
        ),
        (lambda: CONV.init(KEY, 5), "the shape of a bottom must be a tuple of integers, or an array, not a value of"),
        (lambda: CONV.init(0, X), "a random key must be a JAX key"),
        (
            lambda: CONV.init(X.shape),
            "call it as init(key, *shapes), with a random key before the shapes: a ",
        ),
        (lambda: CONV.init(X), "such as jax.random.key(0), not a value of type ArrayImpl"),
        (lambda: caffejax.layer("BatchNorm")(X), "has 'mean', 'variance', 'scale_factor' as state: pass it"),
        (
            lambda: caffejax.layer("SoftmaxWithLoss")(np.ones((4, 3)), np.arange(4)),
            "'bottom1' holds 3 in row 3 of the batch, but the layer has 3 classes",
        ),
        (lambda: caffejax.layer("Dropout", phase="TRAIN")(X), "needs a random key: pass key="),
    ],
)
def test_mistakes_are_explained(run: Callable[[], Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=re.escape(message)):
        run()

"""NaN in nets that train: it comes out wherever Caffe's comparisons let it through, forward and as a gradient."""

from __future__ import annotations

import sys
import types
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax.base.variables import Variables
from caffejax.core.layers.pooling import max_windows
from caffejax.core.ops import pooling_op
from caffejax.core.ops.window import Window
from caffejax.core.program.net import Net

FAST_COMPILATION = {"xla_backend_optimization_level": 0}
CHANNEL, ROW, COLUMN = 1, 6, 6  # of the NaN in the input
# each is computed by another kernel on a processor with AVX-512: the plane has 2 x 24 x 24 pixels
CONVOLUTIONS = {
    "3x3": "num_output: 16 kernel_size: 3",
    "winograd": "num_output: 64 kernel_size: 3",
    "stride": "num_output: 16 kernel_size: 3 stride: 2",
    "pixels": "num_output: 64 kernel_size: 1",
    "product": "num_output: 16 kernel_size: 1 stride: 2",
    "groups": "num_output: 64 kernel_size: 3 group: 2",
    "channels": "num_output: 64 kernel_size: 3 group: 64",
}
EPILOGUES = {
    "relu": ["ReLU { }"],
    "leaky": ["ReLU { relu_param { negative_slope: 0.1 } }"],
    "prelu": ["PReLU { }"],
    "scale": ["Scale { scale_param { bias_term: true } }", "ReLU { }"],
    "norm": ["BatchNorm { }", "ReLU { }"],
    "norm, scale": ["BatchNorm { }", "Scale { scale_param { bias_term: true } }", "ReLU { }"],
}
BRANCHES = [*product(CONVOLUTIONS, ["relu"]), *product(["3x3"], [name for name in EPILOGUES if name != "relu"])]


def make_layer(name: str, kind: str, bottoms: list[str], top: str, settings: str = "") -> str:
    reads = " ".join(f'bottom: "{b}"' for b in bottoms)
    return f'layer {{ name: "{name}" type: "{kind}" {reads} top: "{top}" {settings} }}\n'


def make_branches() -> str:
    """Return a net with a top for each kernel and epilogue, and for sums, maxima and inner products before a ReLU."""
    size = "input_param { shape { dim: 2 dim: 64 dim: 24 dim: 24 } shape { dim: 2 dim: 3 dim: 24 dim: 24 } }"
    filler = 'weight_filler { type: "gaussian" std: 0.1 }'
    text = make_layer("in", "Input", [], "x", f'top: "z" {size}')
    for convolution, epilogue in BRANCHES:
        name = f"{convolution}/{epilogue}"
        settings = f"convolution_param {{ {CONVOLUTIONS[convolution]} {filler} }}"
        text += make_layer(name, "Convolution", ["x"], name, settings)
        for i, words in enumerate(EPILOGUES[epilogue]):
            kind, _, message = words.partition(" ")
            text += make_layer(f"{name}/{i}", kind, [name], name, message.strip()[1:-1])
    text += make_layer(
        "narrow", "Convolution", ["z"], "narrow", f"convolution_param {{ num_output: 20 kernel_size: 5 {filler} }}"
    )
    text += make_layer("narrow/relu", "ReLU", ["narrow"], "narrow")
    text += make_layer("rows", "InnerProduct", ["x"], "rows", f"inner_product_param {{ num_output: 9 {filler} }}")
    text += make_layer("rows/relu", "ReLU", ["rows"], "rows")
    text += make_layer("plain", "ReLU", ["x"], "plain")
    text += (
        make_layer("abs", "AbsVal", ["x"], "abs")
        + make_layer("sum", "Eltwise", ["x", "abs"], "sum")
        + make_layer("sum/relu", "ReLU", ["sum"], "sum")
    )
    return text


@pytest.fixture(scope="module")
def branches() -> tuple[Net, Variables, dict[str, Any], Any]:
    """The net of all branches, its variables and inputs, and its compiled tops and gradients."""
    net = Net(make_branches(), "TRAIN")
    random = np.random.default_rng(0)
    inputs = {name: random.normal(size=net.graph.blobs[name].shape).astype(np.float32) for name in net.input_names}

    def compute_loss(params: Any, inputs: Any, state: Any) -> Any:
        tops, _ = net.apply(params, state, inputs)
        return sum(jnp.sum(top**2) for top in tops.values()), tops

    run = jax.jit(jax.value_and_grad(compute_loss, (0, 1), has_aux=True), compiler_options=FAST_COMPILATION)
    return net, net.init(jax.random.key(0)), inputs, run


@pytest.mark.parametrize("place", ["input", "weight", "bias"])
def test_nan_comes_out_of_every_epilogue(branches: Any, place: str) -> None:
    net, variables, inputs, run = branches
    params, inputs = jax.tree.map(lambda x: x, variables.params), dict(inputs)
    if place == "input":
        for name in inputs:
            inputs[name] = inputs[name].copy()
            inputs[name][0, CHANNEL, ROW, COLUMN] = np.nan
    weighted = [layer for layer in net.graph.layers if layer.params and len(layer.params[0].spec.shape) > 1]
    for layer in weighted if place != "input" else ():
        array = params[layer.key][place]
        params[layer.key][place] = array.at[(CHANNEL, *(0,) * (array.ndim - 1))].set(jnp.nan)
    (loss, tops), (param_diffs, input_diffs) = run(params, inputs, variables.state)
    if place == "input":
        assert np.isnan(loss)
        assert np.isnan(tops["plain"][0, CHANNEL, ROW, COLUMN])
        assert np.isnan(tops["sum"][0, CHANNEL, ROW, COLUMN])
        assert np.isnan(tops["plain"]).sum() == np.isnan(tops["sum"]).sum() == 1
    for layer in weighted:
        top = np.asarray(tops[layer.tops[0]])
        is_nan = np.isnan(top)
        weight_diff, bias_diff = (
            np.asarray(param_diffs[layer.key]["weight"]),
            np.asarray(param_diffs[layer.key]["bias"]),
        )
        if place != "input":
            # every window has the weight, because there is no padding; a channel's numbers depend on its weights only
            assert is_nan[:, CHANNEL].all(), layer.key
            assert is_nan.sum() == is_nan[:, CHANNEL].sum(), layer.key
            assert np.isnan([*weight_diff[CHANNEL].ravel(), bias_diff[CHANNEL]]).all(), layer.key
            continue
        assert is_nan[0, CHANNEL].any(), layer.key
        assert np.isnan(weight_diff[CHANNEL]).any(), layer.key
        if top.ndim == 4 and not layer.key.startswith("3x3/norm"):
            kernel, stride = top_window(layer)
            rows, columns = (
                [o for o in range(top.shape[2]) if o * stride <= at < o * stride + kernel] for at in (ROW, COLUMN)
            )
            assert is_nan[0, CHANNEL][np.ix_(rows, columns)].all(), layer.key
            assert not is_nan[1].any(), layer.key
            assert not is_nan[0, :, :, -1].any(), layer.key  # far from the NaN
    assert all(np.isnan(diff).any() for diff in input_diffs.values())


def top_window(layer: Any) -> tuple[int, int]:
    p = layer.context.layer.convolution_param
    return p.kernel_size[0], (list(p.stride) or [1])[0]


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=["nan", "overflow"])
def test_nan_before_a_host_layer_comes_out_of_the_loss(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    class Copy(caffe.Layer):
        def setup(self, bottom: Any, top: Any) -> None: ...
        def reshape(self, bottom: Any, top: Any) -> None:
            top[0].reshape(*bottom[0].shape)

        def forward(self, bottom: Any, top: Any) -> None:
            top[0].data[...] = bottom[0].data

    module = types.ModuleType("layer_that_copies")
    module.Copy = Copy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    text = (
        make_layer("in", "Input", [], "x", "input_param { shape { dim: 1 dim: 2 dim: 4 dim: 4 } }")
        + make_layer("c", "Convolution", ["x"], "c", "convolution_param { num_output: 3 kernel_size: 3 }")
        + make_layer("r", "ReLU", ["c"], "c")
        + make_layer("p", "Python", ["c"], "p", 'python_param { module: "layer_that_copies" layer: "Copy" }')
        + make_layer("l", "Reduction", ["p"], "l", "loss_weight: 1")
    )
    net = Net(text, "TRAIN")
    weight = jnp.ones((3, 2, 3, 3), jnp.float32).at[:, 1].set(-1)  # inf - inf is NaN
    x = np.full((1, 2, 4, 4), value, np.float32)
    loss, _ = net.loss({"c": {"weight": weight, "bias": jnp.zeros(3)}}, {}, {"x": x})
    assert np.isnan(loss)


def pool_as_caffe(x: np.ndarray, window: Window) -> tuple[np.ndarray, np.ndarray]:
    """Return the maxima of windows, compared with `>`, and the diff of x if the diff of the maxima is 1, 2, ..."""
    out = window.output_size(x.shape[2:])
    y, dx = np.full((*x.shape[:2], *out), np.finfo(np.float32).min, np.float32), np.zeros_like(x)
    for number, (n, c, i, j) in enumerate(np.ndindex(y.shape), 1):
        place = None
        for row, column in product(*(range(at * 2, at * 2 + 3) for at in (i, j))):
            if x[n, c, row, column] > y[n, c, i, j]:
                place, y[n, c, i, j] = (n, c, row, column), x[n, c, row, column]
        if place is not None:
            dx[place] += number
    return y, dx


def test_nan_is_never_a_maximum() -> None:
    x = np.random.default_rng(0).normal(size=(2, 16, 9, 7)).astype(np.float32)
    x[np.random.default_rng(1).uniform(size=x.shape) < 0.2] = np.nan
    x[0, :, :3, :3], x[1, :, :3, 0] = np.nan, np.inf
    window = Window.symmetric((3, 3), (2, 2), (0, 0))
    expected, expected_diff = pool_as_caffe(x, window)
    dy = np.arange(1, expected.size + 1, dtype=np.float32).reshape(expected.shape)
    run = partial(jax.jit, compiler_options=FAST_COMPILATION)
    maxima = {
        "in inference": run(lambda x: pooling_op.max_pool(x, window)),
        "by XLA": run(lambda x: pooling_op._compute_maxima(x, window)[0]),
        "by slices": run(lambda x: pooling_op._compute_maxima_and_indices_by_slices(x, window)[0]),
        "as reference": run(lambda x: max_windows(x, window, expected.shape[2:])[0]),
    }
    for name, compute in maxima.items():
        np.testing.assert_array_equal(compute(x), expected, err_msg=name)
    diffs = {
        "in training": run(lambda x, dy: jax.vjp(lambda x: pooling_op.max_pool(x, window), x)[1](dy)[0]),
        "by XLA": run(lambda x, dy: pooling_op._compute_maxima_diff(x, jnp.zeros(()), dy, window)[0]),
    }
    for name, compute in diffs.items():
        diff = np.array(compute(x, dy))
        diff[0, :, :3, :3] = expected_diff[0, :, :3, :3]  # Caffe writes the diff of a window of NaN beyond its array
        np.testing.assert_array_equal(diff, expected_diff, err_msg=name)
    y, _ = jax.vjp(lambda x: pooling_op.max_pool(x, window), x)
    np.testing.assert_array_equal(y, expected)

"""Blobs whose number of rows depends on values, in code that JAX traces: padded, with the number of valid rows."""

import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import LayerError, Net, PaddedRows, Solver
from caffejax.core.layers import HostFunction
from caffejax.core.layers.registry import plain_type, register_temporarily
from caffejax.core.program.interpreter import CompiledParts

ROWS, CLASSES = 12, 4
INPUTS = f"""layer {{ name: "in" type: "Input" top: "data" top: "label" top: "values" top: "keep" input_param {{
  shape {{ dim: {ROWS} dim: 5 }} shape {{ dim: {ROWS} }} shape {{ dim: {ROWS} dim: {CLASSES} }}
  shape {{ dim: {ROWS} }} }} }}"""
FILTER = """layer { name: "filter" type: "Filter" bottom: "ip1" bottom: "label" bottom: "values" bottom: "keep"
  top: "kept" top: "kept_label" top: "kept_values" }"""
BODY = f"""
layer {{ name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
  inner_product_param {{ num_output: 6 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }}
{FILTER}
layer {{ name: "ip2" type: "InnerProduct" bottom: "kept" top: "ip2" inner_product_param {{ num_output: {CLASSES}
  weight_filler {{ type: "xavier" }} bias_filler {{ type: "constant" value: 0.5 }} }} }}
layer {{ name: "tanh" type: "TanH" bottom: "ip2" top: "ip2" }}
"""


def loss(layer_type: str, labels: str = "kept_label", settings: str = "", bottom: str = "ip2") -> str:
    labels = f'bottom: "{labels}"' if labels else ""
    bottoms = f'bottom: "{bottom}" {labels} top: "loss" loss_weight: 2'
    return f'layer {{ name: "loss" type: "{layer_type}" {bottoms} {settings} }}'


NO_LABEL_GRADIENT = "propagate_down: true propagate_down: false"
IGNORE = "loss_param { ignore_label: 1 normalization: %s }"
PROBABILITIES = 'layer { name: "prob" type: "Softmax" bottom: "ip2" top: "prob" }'
LOSSES = {
    "softmax": loss("SoftmaxWithLoss"),
    **{
        f"softmax {mode}": loss("SoftmaxWithLoss", settings=IGNORE % mode)
        for mode in ("FULL", "VALID", "BATCH_SIZE", "NONE")
    },
    "softmax FULL without ignored labels": loss("SoftmaxWithLoss", settings="loss_param { normalization: FULL }"),
    "sigmoid": loss("SigmoidCrossEntropyLoss", "kept_values"),
    "sigmoid VALID": loss("SigmoidCrossEntropyLoss", "kept_values", IGNORE % "VALID"),
    "Euclidean": loss("EuclideanLoss", "kept_values"),
    "hinge": loss("HingeLoss", settings="hinge_loss_param { norm: L2 }"),
    "multinomial": PROBABILITIES + loss("MultinomialLogisticLoss", bottom="prob"),
    "contrastive": loss("ContrastiveLoss", "kept_values", 'bottom: "kept_label" contrastive_loss_param { margin: 3 }'),
    **{
        f"infogain {mode}": """layer { name: "matrix" type: "DummyData" top: "matrix"
          dummy_data_param { shape { dim: 4 dim: 4 } data_filler { type: "constant" value: 0.5 } } }"""
        + loss("InfogainLoss", settings=f'bottom: "matrix" {IGNORE % mode}')
        for mode in ("FULL", "VALID", "BATCH_SIZE")
    },
    "sum": loss("Reduction", ""),
    "mean": loss("Reduction", "", "reduction_param { operation: MEAN }"),
    "sum of each row": loss("Reduction", "", "reduction_param { operation: ASUM axis: 1 }"),
    "two": loss("SoftmaxWithLoss") + loss("EuclideanLoss", "kept_values").replace('"loss"', '"second"'),
    "accuracy": loss("SoftmaxWithLoss", settings=NO_LABEL_GRADIENT)
    + """layer { name: "accuracy" type: "Accuracy" bottom: "ip2"
      bottom: "kept_label" top: "accuracy" top: "of_class" accuracy_param { ignore_label: 2 } }""",
}


def draw_inputs(num_rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(num_rows)
    keep = np.zeros(ROWS, np.float32)
    keep[rng.permutation(ROWS)[:num_rows]] = 1
    values = rng.normal(size=(ROWS, CLASSES)).astype(np.float32)
    label = rng.integers(0, CLASSES, ROWS).astype(np.float32)
    return {"data": rng.normal(size=(ROWS, 5)).astype(np.float32), "label": label, "values": values, "keep": keep}


def split_numbers(lines: list[str]) -> tuple[str, list[float]]:
    """Return the text of lines without their decimals, and these."""
    decimals = r"\d+\.\d+(?:e[-+]\d+)?"
    return re.sub(decimals, "", "\n".join(lines)), [float(x) for x in re.findall(decimals, "\n".join(lines))]


def compare(tree: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Compare pytrees of arrays, and of blobs without their rows of padding; `tolerance` is of the largest number.

    Gradients through BatchNorm are small differences of numbers near 1, whose last bits differ by machine.
    """

    def compare_arrays(a: Any, b: Any) -> None:
        largest = float(np.abs(np.asarray(b)).max(initial=0))
        np.testing.assert_allclose(np.asarray(a), b, rtol=0, atol=4e-6 + tolerance * largest)

    jax.tree.map(compare_arrays, tree, expected, is_leaf=lambda x: isinstance(x, PaddedRows))


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_equal_those_of_the_valid_rows(name: str, backward: Any) -> None:
    """In traced code and outside of it, where each layer runs on exactly the rows that Caffe has."""
    net = Net(INPUTS + BODY + LOSSES[name], "TRAIN", backward=backward)
    params, state = net.init(jax.random.key(0))
    function = jax.value_and_grad(net.loss, argnums=(0, 2), has_aux=True)
    jitted = jax.jit(function)
    for num_rows in (1, 5, ROWS):
        inputs = draw_inputs(num_rows)
        expected, result = function(params, state, inputs), jitted(params, state, inputs)
        compare(result, expected)
    (value, _), grads = jitted(params, state, draw_inputs(0))
    assert not value
    assert not any(np.any(g) for g in jax.tree.leaves(grads))


SECOND_FILTER = """layer { name: "again" type: "Filter" bottom: "kept" bottom: "kept_values" bottom: "kept_label"
  top: "kept2" top: "kept_values2" }
layer { name: "ip3" type: "InnerProduct" bottom: "kept2" top: "ip3" inner_product_param { num_output: 4
  weight_filler { type: "xavier" } } }""" + loss("EuclideanLoss", "kept_values2", bottom="ip3")


def test_a_filter_is_traced_and_equals_its_callback() -> None:
    """Also a Filter of rows that another one has selected; labels of 0 are not selected."""
    filter_type = plain_type("Filter")
    assert isinstance(filter_type.implementation, HostFunction)
    as_callback = replace(filter_type, implementation=replace(filter_type.implementation, traced=None))
    text = INPUTS + BODY + SECOND_FILTER

    def make(net: Net) -> Any:
        return jax.value_and_grad(net.loss, argnums=(0, 2), has_aux=True)

    net = Net(text, "TRAIN")
    with register_temporarily(as_callback):
        net_of_callbacks = Net(text, "TRAIN")
    assert (net.host_layers, net_of_callbacks.host_layers) == ((), ("filter", "again"))
    params, state = net.init(jax.random.key(0))
    traced, called_back = jax.jit(make(net)), jax.jit(make(net_of_callbacks))
    for num_rows in (2, 7, ROWS):
        inputs = draw_inputs(num_rows)
        compare(traced(params, state, inputs), make(net)(params, state, inputs))
        compare(called_back(params, state, inputs), make(net)(params, state, inputs))
    programs = [str(jax.make_jaxpr(f)(params, state, inputs)) for f in (traced, called_back)]
    assert ["host_call" in program for program in programs] == [False, True]
    for names in (("keep",), ("data",)):  # the others are constants of NumPy
        part = {name: inputs[name] for name in names}
        value = jax.jit(lambda part: net.loss(params, state, inputs | part)[0])(part)
        np.testing.assert_allclose(value, traced(params, state, inputs)[0][0], rtol=1e-6)
    exported = jax.export.export(jax.jit(lambda x: net.loss(params, state, x)[0]))(inputs)
    np.testing.assert_allclose(exported.call(inputs), traced(params, state, inputs)[0][0], rtol=1e-6)
    tangents = jax.tree.map(np.ones_like, params)
    _, slope = jax.jvp(jax.jit(lambda p: net.loss(p, state, inputs)[0]), (params,), (tangents,))
    expected = sum(np.sum(g) for g in jax.tree.leaves(traced(params, state, inputs)[1][0]))
    np.testing.assert_allclose(slope, expected, rtol=1e-4)


def test_a_blob_with_padding_is_returned_with_its_number_of_rows() -> None:
    net = Net(INPUTS + BODY)
    variables = net.init(jax.random.key(0))
    run = jax.jit(lambda inputs: net.apply(*variables, inputs, blobs=("ip2", "kept_label", "ip1"))[0])
    for num_rows in (0, 1, 7, ROWS):
        inputs = draw_inputs(num_rows)
        blobs, expected = run(inputs), net.apply(*variables, inputs, blobs=("ip2", "kept_label", "ip1"))[0]
        assert isinstance(blobs["ip2"], PaddedRows)
        assert (blobs["ip2"].shape, int(blobs["ip2"].num_rows)) == ((ROWS, CLASSES), num_rows)
        assert blobs["ip1"].shape == (ROWS, 6)
        for stripped in (blobs, net.strip_padding(blobs)):
            for blob, rows in expected.items():
                np.testing.assert_allclose(np.asarray(stripped[blob]), rows, rtol=1e-6)


def test_each_item_of_a_mapped_batch_has_its_own_number_of_rows() -> None:
    net = Net(INPUTS + BODY + LOSSES["softmax"], "TRAIN")
    params, state = net.init(jax.random.key(0))
    items = [draw_inputs(n) for n in (3, 0, ROWS, 8)]
    batch = {name: np.stack([item[name] for item in items]) for name in items[0]}
    grad = jax.value_and_grad(net.loss, has_aux=True)
    (losses, _), grads = jax.vmap(grad, in_axes=(None, None, 0))(params, state, batch)
    for i, item in enumerate(items):
        (expected, _), expected_grads = grad(params, state, item)
        np.testing.assert_allclose(losses[i], expected, rtol=1e-5)
        jax.tree.map(lambda g, e, i=i: np.testing.assert_allclose(g[i], e, rtol=1e-4, atol=1e-6), grads, expected_grads)


class Normalize:
    """Divides by the largest number of all rows, at least 1; its second top is the sum of the rows."""

    def setup(self, bottom: Any, top: Any) -> None:
        pass

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(*bottom[0].data.shape)
        top[1].reshape(bottom[0].data.shape[1])

    def forward(self, bottom: Any, top: Any) -> None:
        self.factor = np.abs(bottom[0].data).max(initial=1)
        top[0].data[...] = bottom[0].data / self.factor
        top[1].data[...] = bottom[0].data.sum(0)

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        bottom[0].diff[...] = top[0].diff / self.factor + top[1].diff


ON_ALL_ROWS = {
    "BatchNorm": 'layer { name: "all" type: "BatchNorm" bottom: "ip2" top: "y" }'
    + loss("EuclideanLoss", "kept_values", bottom="y"),
    "BatchNorm, in place": """layer { name: "all" type: "BatchNorm" bottom: "ip2" top: "ip2" }
      layer { name: "scale" type: "Scale" bottom: "ip2" top: "ip2" scale_param { bias_term: true } }"""
    + loss("EuclideanLoss", "kept_values"),
    "Concat": """layer { name: "all" type: "Concat" bottom: "ip2" bottom: "values" bottom: "kept_values" top: "y"
      concat_param { axis: 0 } }
      layer { name: "all_labels" type: "Concat" bottom: "kept_label" bottom: "label" bottom: "kept_label" top: "labels"
      concat_param { axis: 0 } }""",
    "Concat of one row more": """layer { name: "row" type: "Slice" bottom: "values" top: "first" top: "rest"
      slice_param { axis: 0 slice_point: 1 } } layer { name: "silence" type: "Silence" bottom: "rest" }
      layer { name: "all" type: "Concat" bottom: "first" bottom: "ip2" top: "y" concat_param { axis: 0 } }
      layer { name: "again" type: "InnerProduct" bottom: "y" top: "z" inner_product_param { num_output: 2
      weight_filler { type: "xavier" } } }"""
    + loss("Reduction", "", "reduction_param { operation: SUMSQ }", "z"),
    "Slice": """layer { name: "all" type: "Slice" bottom: "ip2" top: "first" top: "y"
      slice_param { axis: 0 slice_point: 1 } }
      layer { name: "p" type: "Power" bottom: "first" top: "q" power_param { power: 2 } }
      layer { name: "n" type: "Reduction" bottom: "q" top: "n" loss_weight: 1 }"""
    + loss("Reduction", "", "reduction_param { operation: MEAN axis: 1 }", "y"),
    "Reshape": """layer { name: "all" type: "Reshape" bottom: "ip2" top: "y"
      reshape_param { shape { dim: -1 dim: 2 } } }
      layer { name: "again" type: "InnerProduct" bottom: "y" top: "z" inner_product_param { num_output: 2
      weight_filler { type: "xavier" } } }"""
    + loss("Reduction", "", "reduction_param { operation: SUMSQ }", "z"),
    "Softmax": """layer { name: "all" type: "Softmax" bottom: "ip2" top: "y" softmax_param { axis: 0 } }"""
    + loss("EuclideanLoss", "kept_values", bottom="y"),
    "two layers": """layer { name: "all" type: "Softmax" bottom: "ip2" top: "y" softmax_param { axis: 0 } }
      layer { name: "drop" type: "Power" bottom: "y" top: "y" power_param { scale: 3 } }"""
    + loss("EuclideanLoss", "kept_values", bottom="y"),
    "Python": f"""layer {{ name: "all" type: "Python" bottom: "ip2" top: "y" top: "sums"
      python_param {{ module: "{__name__}" layer: "Normalize" }} }}
      layer {{ name: "sum" type: "Reduction" bottom: "sums" top: "sum" loss_weight: 1 }}"""
    + loss("EuclideanLoss", "kept_values", bottom="y"),
}
ON_ALL_ROWS["Concat"] += loss("SoftmaxWithLoss", "labels", bottom="y")


@pytest.mark.parametrize("name", ON_ALL_ROWS)
def test_a_layer_that_depends_on_all_rows_gets_the_valid_ones(name: str) -> None:
    net = Net(INPUTS + BODY + ON_ALL_ROWS[name], "TRAIN")
    params, state = net.init(jax.random.key(0))
    function = jax.value_and_grad(net.loss, argnums=(0, 2), has_aux=True)
    jitted = jax.jit(function)
    items = [draw_inputs(n) for n in (2, 7, ROWS)]
    expected = [function(params, state, item) for item in items]
    for item, result in zip(items, expected, strict=True):
        compare(jitted(params, state, item), result)
    batch = {name: np.stack([item[name] for item in items]) for name in items[0]}
    (losses, _), _ = jax.vmap(function, in_axes=(None, None, 0))(params, state, batch)
    np.testing.assert_allclose(losses, [loss for (loss, _), _ in expected], rtol=1e-5)


def test_a_layer_that_does_not_take_other_numbers_of_rows_is_named() -> None:
    net = Net(INPUTS + BODY + loss("EuclideanLoss", "values"), "TRAIN")
    variables = net.init(jax.random.key(0))
    culprit = r"layer 'loss' \(EuclideanLoss\)"
    with pytest.raises(LayerError, match=rf"{culprit}: depends on all rows of '\w+', whose number depends on values"):
        jax.jit(net.loss)(*variables, draw_inputs(4))


def test_a_single_cpu_is_told_where_a_layer_depends_on_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback that runs a program there would wait for ever."""
    monkeypatch.setenv("NPROC", "1")
    net = Net(INPUTS + BODY + ON_ALL_ROWS["BatchNorm"], "TRAIN")
    variables = net.init(jax.random.key(0))
    with pytest.raises(LayerError, match=r"layer 'all' \(BatchNorm\): .* on a single CPU: .*NPROC=2"):
        jax.jit(net.loss)(*variables, draw_inputs(4))


@pytest.mark.parametrize("name", ["accuracy", "BatchNorm", "BatchNorm, in place", "Softmax", "Python"])
def test_a_solver_trains_as_one_program_what_it_trains_in_parts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [draw_inputs(n) for n in (3, ROWS, 0 if name in LOSSES else 2, 7, 1)]
    net = INPUTS + BODY + (LOSSES | ON_ALL_ROWS)[name]
    params, outputs = [], []
    for in_parts in (True, False):
        with monkeypatch.context() as patch:
            if in_parts:
                patch.setattr("caffejax.core.solver.host_program.schedule_in_order", lambda graph: None)
            else:
                patch.setattr(CompiledParts, "__call__", lambda *_: pytest.fail("the net runs in parts"))
            solver = Solver(
                f'net_param {{ {net} }} base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 '
                f'random_seed: 1 iter_size: 2 max_iter: 9 snapshot_prefix: "{tmp_path}/x" display: 1',
                data=batches,
            )
            caplog.clear()
            with caplog.at_level(logging.INFO, logger="caffejax"):
                solver.step(7)
            outputs.append([r.getMessage() for r in caplog.records if "Train net output" in r.getMessage()])
            params.append(solver.variables.params)
            solver.close()
    compare(*params, tolerance=1e-3 if "BatchNorm" in name else 1e-5)  # it divides by small deviations of few rows
    assert outputs[0]
    texts, numbers = zip(*(split_numbers(lines) for lines in outputs), strict=True)
    assert texts[0] == texts[1]
    np.testing.assert_allclose(*numbers, rtol=1e-4)

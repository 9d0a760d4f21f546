"""Nets in float32, tf32 and bfloat16: accuracy, dtypes of intermediate values, and training."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.cli import main
from caffejax.core.checkpoints.caffemodel import read_caffemodel
from caffejax.core.program.net import Net
from caffejax.core.schema import read_solver
from caffejax.core.solver import Solver

CONFIGS = Path(__file__).parents[3] / "configs"
INPUT = (
    'layer {{ name: "data" type: "Input" top: "data" top: "label" input_param {{ shape {{ {} }} shape {{ {} }} }} }}'
)
CONVOLUTION = (
    'layer {{ name: "{0}" type: "Convolution" bottom: "{1}" top: "{0}" convolution_param {{ num_output: 8 '
    'kernel_size: 3 pad: 1 {2} weight_filler {{ type: "msra" }} }} }}'
)
NORM = (
    'layer {{ name: "{0}_bn" type: "BatchNorm" bottom: "{0}" top: "{0}" }} '
    'layer {{ name: "{0}_scale" type: "Scale" bottom: "{0}" top: "{0}" scale_param {{ bias_term: true }} }}'
)
RELU = 'layer {{ name: "{0}_relu" type: "ReLU" bottom: "{0}" top: "{0}" }}'
HEAD = (
    'layer {{ name: "pool" type: "Pooling" bottom: "{}" top: "pool" '
    "pooling_param {{ pool: AVE global_pooling: true }} }}"
    ' layer {{ name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param {{ num_output: 5 '
    'weight_filler {{ type: "xavier" }} }} }}'
    ' layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}'
    ' layer {{ name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }}'
)
RESIDUAL = "\n".join(
    [
        INPUT.format("dim: 4 dim: 3 dim: 12 dim: 12", "dim: 4"),
        CONVOLUTION.format("a", "data", "bias_term: false"),
        NORM.format("a"),
        RELU.format("a"),
        CONVOLUTION.format("b", "a", "bias_term: false"),
        NORM.format("b"),
        'layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }',
        RELU.format("sum"),
        CONVOLUTION.format("c", "sum", "group: 8"),
        HEAD.format("c"),
    ]
)
LRN = "\n".join(
    [
        INPUT.format("dim: 4 dim: 3 dim: 12 dim: 12", "dim: 4"),
        CONVOLUTION.format("a", "data", "group: 1"),
        RELU.format("a"),
        'layer { name: "norm" type: "LRN" bottom: "a" top: "norm" lrn_param { local_size: 5 alpha: 0.1 } }',
        'layer { name: "max" type: "Pooling" bottom: "norm" top: "max" pooling_param { kernel_size: 3 stride: 2 } }',
        CONVOLUTION.format("b", "max", "group: 2"),
        HEAD.format("b"),
    ]
)
NETS: dict[str, Any] = {
    "lenet": CONFIGS / "lenet" / "train_val.prototxt",
    "residual": RESIDUAL,
    "lrn": LRN,
}
each_net = pytest.mark.parametrize("name", NETS)
each_backward = pytest.mark.parametrize(
    ("kernels", "backward"), [("fast", "autodiff"), pytest.param("reference", "rules", marks=pytest.mark.long)]
)


def make_net(name: str, precision: Any, **options: Any) -> tuple[Net, Any, dict[str, jax.Array]]:
    """A train net with params, running statistics and one small batch."""
    net = Net(NETS[name], "TRAIN", precision=precision, **options)
    random = np.random.default_rng(0)
    shape = (4, *net.graph.blobs["data"].shape[1:])
    inputs = {"data": jnp.asarray(random.normal(size=shape), jnp.float32), "label": jnp.arange(4.0)}
    return net, net.init(jax.random.key(0)), {name: inputs[name] for name in net.input_names}


def compute_gradient(name: str, precision: Any, **options: Any) -> tuple[Any, Any]:
    net, variables, inputs = make_net(name, precision, **options)
    return net.jit(jax.value_and_grad(net.loss, has_aux=True))(*variables, inputs, jax.random.key(1))


@each_backward
@each_net
def test_bfloat16_is_close_to_float32(name: str, kernels: Any, backward: Any) -> None:
    """All stored values and outputs are float32."""
    float32_result, bfloat16_result = (
        compute_gradient(name, p, kernels=kernels, backward=backward) for p in ("float32", "bfloat16")
    )
    assert jax.tree.structure(bfloat16_result) == jax.tree.structure(float32_result)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(bfloat16_result))
    assert bfloat16_result[0][0] != float32_result[0][0]
    np.testing.assert_allclose(bfloat16_result[0][0], float32_result[0][0], rtol=5e-3)
    a, b = (
        np.concatenate([np.ravel(g) for g in jax.tree.leaves(grads)]) for _, grads in (float32_result, bfloat16_result)
    )
    assert a @ b > 0.99 * np.linalg.norm(a) * np.linalg.norm(b)
    np.testing.assert_allclose(np.linalg.norm(b), np.linalg.norm(a), rtol=0.05)


@each_net
def test_tf32_equals_float32_on_a_cpu(name: str) -> None:
    float32_result, tf32_result = (compute_gradient(name, p) for p in ("float32", "tf32"))
    for a, b in zip(jax.tree.leaves(float32_result), jax.tree.leaves(tf32_result), strict=True):
        np.testing.assert_array_equal(a, b)


def iterate_equations(jaxpr: Any) -> Iterator[Any]:
    """Yield all equations of a jaxpr, including those of nested jaxprs."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                yield from iterate_equations(getattr(inner, "jaxpr", inner))


def find_products(name: str, precision: Any, **options: Any) -> list[Any]:
    """Return the products and convolutions of a gradient that a user takes outside of `Net.jit`."""
    net, variables, inputs = make_net(name, precision, **options)
    traced = jax.make_jaxpr(jax.grad(net.loss, has_aux=True))(*variables, inputs, jax.random.key(1))
    result = [e for e in iterate_equations(traced.jaxpr) if e.primitive.name in ("dot_general", "conv_general_dilated")]
    assert result
    return result


def get_factor_dtypes(equation: Any) -> set[Any]:
    return {v.aval.dtype for v in equation.invars}


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@each_net
def test_matrix_products_round_their_factors(name: str, backward: Any) -> None:
    """Tested in the forward and the backward pass."""
    options = {"kernels": "reference", "backward": backward}
    high, highest = jax.lax.Precision.HIGH, jax.lax.Precision.HIGHEST
    float32_products, tf32_products, bfloat16_products = (
        find_products(name, p, **options) for p in ("float32", "tf32", "bfloat16")
    )
    for result, precision in ((float32_products, highest), (tf32_products, high)):
        assert {e.params["precision"] for e in result} == {(precision, precision)}
        assert set.union(*map(get_factor_dtypes, result)) == {jnp.dtype(jnp.float32)}
    assert set.union(*map(get_factor_dtypes, bfloat16_products)) == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.usefixtures("no_onednn")
@each_net
def test_fast_kernels_without_onednn(name: str) -> None:
    """As on GPUs, sums are in float32 for any precision, including those that are written as products with ones."""
    high, highest = ((p, p) for p in (jax.lax.Precision.HIGH, jax.lax.Precision.HIGHEST))
    float32_products, tf32_products, bfloat16_products = (
        find_products(name, p) for p in ("float32", "tf32", "bfloat16")
    )
    assert {e.params["precision"] for e in float32_products} == {highest}
    net, _, _ = make_net(name, "bfloat16")
    min_products = 2 * sum(
        layer.type.traits.dtype_policy == "products" for layer in net.graph.layers
    )  # forward, and the weight's gradient
    rounded_tf32 = [e for e in tf32_products if e.params["precision"] == high]
    rounded_bfloat16 = [e for e in bfloat16_products if get_factor_dtypes(e) == {jnp.dtype(jnp.bfloat16)}]
    num_grouped = 1 if name == "residual" else 0  # the depthwise one is sums of shifted planes
    assert len(rounded_tf32) >= min_products - 2 * num_grouped
    assert len(rounded_bfloat16) >= min_products - 2 * num_grouped
    for result, sums in (
        (tf32_products, [e for e in tf32_products if e not in rounded_tf32]),
        (bfloat16_products, [e for e in bfloat16_products if e not in rounded_bfloat16]),
    ):
        assert len(sums) < len(result)
        for e in sums:
            assert e.primitive.name == "dot_general"
            assert get_factor_dtypes(e) == {jnp.dtype(jnp.float32)}
            assert e.params["precision"] == highest


def test_labels_beyond_256_are_not_rounded() -> None:
    """Labels stay exact through Split, Slice, Reshape, Concat and Silence; results for exact scores equal float32's."""
    text = """
      layer { name: "in" type: "Input" top: "all" input_param { shape { dim: 64 dim: 1002 } } }
      layer { name: "cut" type: "Slice" bottom: "all" top: "scores" top: "label" top: "rest"
        slice_param { axis: 1 slice_point: 1000 slice_point: 1001 } }
      layer { name: "two" type: "Concat" bottom: "label" bottom: "rest" top: "two" }
      layer { name: "quiet" type: "Silence" bottom: "two" }
      layer { name: "flat" type: "Reshape" bottom: "label" top: "flat" reshape_param { shape { dim: -1 } } }
      layer { name: "relu" type: "ReLU" bottom: "scores" top: "scores" }
      layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "flat" top: "loss" }
      layer { name: "accuracy" type: "Accuracy" bottom: "scores" bottom: "flat" top: "accuracy" }
    """
    random = np.random.default_rng(0)
    scores, labels = random.integers(0, 5, (64, 1000)).astype(np.float32), random.integers(257, 1000, 64)
    scores[np.arange(32), labels[:32]] = 9
    batch = {"all": np.concatenate([scores, labels[:, None], labels[:, None]], 1).astype(np.float32)}
    exact, half = (Net(text, "TEST", precision=p).apply({}, {}, batch)[0] for p in ("float32", "bfloat16"))
    assert exact["accuracy"] == 0.5
    jax.tree.map(np.testing.assert_array_equal, half, exact)


def test_perturbations_and_blobs_of_a_bfloat16_net_are_float32() -> None:
    net, variables, inputs = make_net("lenet", "bfloat16")
    perturbation = {"conv1": jnp.zeros((4, *net.graph.blobs["conv1"].shape[1:]))}

    def loss(perturbation: Any) -> Any:
        return net.loss(*variables, inputs, perturbations=perturbation, blobs=["conv1", "ip2"])

    diff, outputs = jax.grad(loss, has_aux=True)(perturbation)
    assert jnp.any(diff["conv1"] != 0)
    assert {diff["conv1"].dtype, *(b.dtype for b in outputs.blobs.values())} == {jnp.dtype(jnp.float32)}


def test_host_layers_get_float32() -> None:
    text = """
      layer { name: "in" type: "Input" top: "data" top: "keep"
        input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
      layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2
        weight_filler { type: "xavier" } } }
      layer { name: "filter" type: "Filter" bottom: "ip" bottom: "keep" top: "kept" }
      layer { name: "out" type: "InnerProduct" bottom: "kept" top: "out" inner_product_param { num_output: 2
        weight_filler { type: "xavier" } } }
    """
    batch = {"data": jnp.ones((4, 3)), "keep": jnp.asarray([1.0, 0.0, 1.0, 1.0])}
    exact, half = (Net(text, precision=p) for p in ("float32", "bfloat16"))
    a, b = (net.apply(*net.init(jax.random.key(0)), batch, blobs=["kept", "out"])[0] for net in (exact, half))
    assert b["out"].dtype == b["kept"].dtype == jnp.float32
    assert b["out"].shape == (3, 2)
    np.testing.assert_allclose(b["out"], a["out"], rtol=0.02, atol=0.01)


@pytest.mark.parametrize("precision", ["float16", "half", ""])
def test_unknown_precisions_are_rejected(precision: Any) -> None:
    with pytest.raises(CaffejaxError, match=f'precision must be "float32" or "tf32" or "bfloat16", not "{precision}"'):
        Net(LRN, precision=precision)


def make_digits_solver(folder: Path, precision: Any, iterations: int) -> Solver:
    param = read_solver(CONFIGS / "digits" / "lenet_solver.prototxt")
    param.snapshot_prefix, param.max_iter, param.snapshot = str(folder / precision), iterations, 0
    param.test_interval = iterations
    return Solver(param, file=CONFIGS / "digits" / "lenet_solver.prototxt", precision=precision)


@pytest.mark.long
def test_digits_are_learned_in_bfloat16(tmp_path: Path) -> None:
    accuracies = []
    for precision in ("float32", "bfloat16"):
        solver = make_digits_solver(tmp_path, precision, 300)
        solver.step(300)
        (scores,) = solver.test()
        accuracies.append(float(scores.outputs["accuracy"]))
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(solver.train_state.params))
        solver.close()
    assert accuracies[0] > 0.95
    assert abs(accuracies[1] - accuracies[0]) < 0.012  # 4 of the 360 images


def test_bfloat16_training_resumes_from_float32_snapshots(tmp_path: Path) -> None:
    uninterrupted = make_digits_solver(tmp_path, "bfloat16", 8)
    uninterrupted.step(4)
    uninterrupted.snapshot()
    uninterrupted.step(4)
    resumed = make_digits_solver(tmp_path, "bfloat16", 8)
    resumed.restore(tmp_path / "bfloat16.orbax")
    resumed.step(4)
    final_states = [jax.tree.leaves((s.train_state.params, s.train_state.opt_state)) for s in (uninterrupted, resumed)]
    for a, b in zip(*final_states, strict=True):
        np.testing.assert_array_equal(a, b)
    saved = read_caffemodel(tmp_path / "bfloat16_iter_4.caffemodel")
    weight = np.asarray(saved["conv1"][0])
    assert weight.dtype == np.float32
    assert np.any(weight != np.asarray(jnp.asarray(weight, jnp.bfloat16), np.float32)), "not rounded"
    uninterrupted.close()
    resumed.close()


def test_commands_accept_the_precision_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(CONFIGS / "digits" / "lenet_train_test.prototxt")
    settings = (CONFIGS / "digits" / "lenet_solver.prototxt").read_text()
    (tmp_path / "solver.prototxt").write_text(
        settings.replace("lenet_train_test", model.removesuffix(".prototxt"))
        .replace("snapshots/lenet", str(tmp_path / "lenet"))
        .replace("max_iter: 1000", "max_iter: 2")
    )
    assert main(["train", f"--solver={tmp_path / 'solver.prototxt'}", "--precision=bfloat16"]) == 0
    weights = f"--weights={tmp_path / 'lenet_iter_2.caffemodel'}"
    assert main(["test", f"--model={model}", weights, "--iterations=1", "--precision=bfloat16"]) == 0
    assert main(["time", f"--model={model}", "--iterations=1", "--precision=bfloat16"]) == 0
    with pytest.raises(SystemExit):
        main(["train", "--solver=x", "--precision=float16"])
    assert "float32" in capsys.readouterr().err


@pytest.mark.usefixtures("no_onednn")
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_lowers_for_other_platforms(precision: Any) -> None:
    """Only lowering is tested: the StableHLO of the gradient has the requested precision."""
    net, variables, inputs = make_net("residual", precision)
    step = jax.jit(jax.value_and_grad(net.loss, has_aux=True))
    traced = step.trace(*variables, inputs, jax.random.key(1))
    expected = {"float32": r"precision HIGHEST\b", "tf32": r"precision HIGH\b", "bfloat16": "xbf16>"}[precision]
    for platform in ("cuda", "tpu"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        convolutions = [line for line in text.splitlines() if "stablehlo.convolution(" in line]
        assert convolutions, platform
        assert [line for line in convolutions if not re.search(expected, line)] == [], platform

"""Frozen nets in bfloat16 and int8 compared with the same nets in float32."""

from __future__ import annotations

import copy
import logging
import math
import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from frozen_nets import draw_inputs, draw_variables, make_net_text

from caffejax import CaffejaxError, Solver
from caffejax.base.databases.lmdb import Lmdb
from caffejax.base.variables import Variables
from caffejax.core.program.net import Net
from caffejax.core.schema import read_solver
from caffejax.core.schema.caffe_pb2 import Datum
from caffejax.cpu.frozen import low_precision
from caffejax.cpu.frozen.frozen_net import Frozen
from caffejax.cpu.kernels import onednn

MARKS = {
    kind: pytest.mark.skipif(not onednn.has_instructions(kind), reason=f"the processor has no {kind}")
    for kind in ("bfloat16", "int8")
}
PRECISIONS = [pytest.param(kind, marks=mark) for kind, mark in MARKS.items()]
HALF_ULP = 2.0**-9  # the largest relative error of rounding to bfloat16

NETS = {
    "classifier": [
        "c Convolution x | num_output: 16 kernel_size: 3 pad: 1",
        "c ReLU c",
        "p Pooling c | pool: MAX kernel_size: 2 stride: 2",
        "n LRN p | local_size: 3 alpha: 0.1",
        "d Convolution n | num_output: 24 kernel_size: 3 group: 2",
        "d ReLU d",
        "f InnerProduct d | num_output: 7",
    ],
    "residual": [
        "c Convolution x | num_output: 16 kernel_size: 1",
        "c ReLU c",
        "d Convolution c | num_output: 16 kernel_size: 3 pad: 1",
        "e Convolution d | num_output: 16 kernel_size: 1",
        "s Eltwise c e",
        "s ReLU s",
        "m Pooling s | pool: AVE global_pooling: true",
        "f InnerProduct m | num_output: 5",
    ],
    "shortcut": [  # its sum is read with a stride only
        "a Convolution x | num_output: 16 kernel_size: 1",
        "b Convolution a | num_output: 16 kernel_size: 1",
        "s Eltwise a b",
        "u Convolution s | num_output: 8 kernel_size: 1 stride: 2",
        "v Convolution s | num_output: 8 kernel_size: 1 stride: 2",
        "t Eltwise u v",
    ],
    "inception": [
        "c Convolution x | num_output: 16 kernel_size: 1",
        "c ReLU c",
        "d Convolution x | num_output: 20 kernel_size: 3 pad: 1",
        "p Pooling x | pool: MAX kernel_size: 3 stride: 1 pad: 1",
        "j Concat c d p",
        "e Convolution j | num_output: 9 kernel_size: 1",
        "e PReLU e",
    ],
    "depthwise": [
        "c Convolution x | num_output: 32 kernel_size: 3 stride: 2 bias_term: false",
        "c ReLU6 c",
        "d DepthwiseConvolution c | num_output: 32 kernel_size: 3 pad: 1 group: 32",
        "d ELU d",
        "e Convolution d | num_output: 6 kernel_size: 1",
        "u Deconvolution e | num_output: 4 kernel_size: 2 stride: 2",
    ],
    "gate": [  # a value that is read as integers and as floats
        "c Convolution x | num_output: 16 kernel_size: 1",
        "g Convolution c | num_output: 16 kernel_size: 1",
        "g Sigmoid g",
        "s Eltwise c g | operation: PROD",
        "e Convolution s | num_output: 8 kernel_size: 1",
        "r Reshape e | shape { dim: 0 dim: -1 }",
        "f InnerProduct r | num_output: 3",
        "q Softmax f",
    ],
}


def build_net(name: str, batch: int = 2) -> tuple[Net, Variables, dict[str, jax.Array]]:
    net = Net(make_net_text((batch, 8, 9, 9), *NETS[name]), "TEST")
    return net, draw_variables(net), draw_inputs(net)


def freeze(net: Net, variables: Variables, precision: str, batch: Any) -> Frozen:
    return net.freeze(variables, precision=precision, calibration=[batch] if precision == "int8" else None)


def join_steps(frozen: Frozen) -> str:
    return " ".join(s for p in frozen.compile().programs.values() for s in p.executable.steps)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NETS)
def test_outputs_are_close_to_float32(name: str, precision: str) -> None:
    net, variables, x = build_net(name)
    frozen = freeze(net, variables, precision, x)
    expected_blobs, actual = net.freeze(variables)(x), frozen(x)
    assert any(name in join_steps(frozen) for name in ("vnni" if precision == "int8" else "bf16", "amx"))
    assert f"in {precision}" in repr(frozen)
    for blob, expected in expected_blobs.items():
        error = np.abs(np.asarray(actual[blob]) - expected).max() / np.abs(expected).max()
        assert 0 < error < {"bfloat16": 0.015, "int8": 0.05}[precision], blob


@MARKS["bfloat16"]
@pytest.mark.parametrize("layer", ["Convolution x | num_output: 16 kernel_size: 3", "InnerProduct x | num_output: 5"])
def test_errors_of_bfloat16_are_within_the_rounding_of_factors(layer: str) -> None:
    net = Net(make_net_text((2, 8, 5, 5), f"y {layer}"), "TEST")
    variables, x = draw_variables(net), draw_inputs(net)
    error = np.abs(np.asarray(net.freeze(variables, precision="bfloat16")(x)["y"]) - net.freeze(variables)(x)["y"])
    sums = net.freeze(jax.tree.map(abs, variables))(jax.tree.map(abs, x))["y"]
    assert np.all(error <= (2 * HALF_ULP + HALF_ULP**2) * sums * 1.001)
    assert error.max() > 1e-4 * sums.max()


@MARKS["int8"]
@pytest.mark.parametrize("sign", [-1, 1], ids=["int8", "uint8"])
@pytest.mark.parametrize("layer", ["Convolution x | num_output: 16 kernel_size: 3", "InnerProduct x | num_output: 5"])
def test_errors_of_int8_are_within_half_steps(layer: str, sign: int) -> None:
    net = Net(make_net_text((2, 8, 5, 5), f"y {layer}"), "TEST")
    variables, x = draw_variables(net), draw_inputs(net)
    x = x if sign < 0 else jax.tree.map(abs, x)
    error = np.abs(np.asarray(freeze(net, variables, "int8", x)(x)["y"]) - net.freeze(variables)(x)["y"])
    weight, array = next(iter(variables.params.values()))["weight"], np.asarray(x["x"])
    step = np.abs(array).max() / (127 if sign < 0 else 255)
    steps_of_weight = np.abs(weight).reshape(len(weight), -1).max(axis=1) / 127
    count = math.prod(weight.shape[1:])
    largest = (  # of each output: count times the errors of the product of two rounded numbers
        np.abs(weight).reshape(len(weight), -1).sum(axis=1) * step / 2
        + count * (np.abs(array).max() * steps_of_weight / 2 + step * steps_of_weight / 4)
    )
    assert np.all(error <= largest.reshape(1, -1, *(1,) * (error.ndim - 2)))
    assert error.max() > 1e-4


@MARKS["int8"]
def test_int8_is_exact_for_multiples_of_the_steps() -> None:
    """If all factors are multiples of the quantization steps, int8 differs from float32 only by float32 rounding."""
    net = Net(
        make_net_text(
            (2, 8, 9, 9), "y Convolution x | num_output: 16 kernel_size: 3 pad: 1", "p Pooling y | kernel_size: 2"
        ),
        "TEST",
    )
    random = np.random.default_rng(3)

    def integers(shape: tuple[int, ...]) -> np.ndarray:
        array = random.integers(-127, 128, shape).astype(np.float32)
        array.reshape(shape[0], -1)[:, 0] = 127
        return array

    variables = Variables(jax.tree.map(lambda a: integers(a.shape), draw_variables(net).params), {})
    x = {"x": integers((2, 8, 9, 9))}
    frozen = freeze(net, variables, "int8", x)
    np.testing.assert_allclose(frozen(x)["p"], net.freeze(variables)(x)["p"], rtol=1e-5, atol=0.5)


@MARKS["int8"]
def test_a_float32_convolution_adds_int8_values_in_a_concatenation() -> None:
    """Wide padding has no calibrated range, so the convolution after it computes in float32."""
    layers = (
        "z Convolution x | num_output: 64 kernel_size: 5",
        "a Convolution x | num_output: 64 kernel_size: 3 pad: 1",
        "b Convolution a | num_output: 64 kernel_size: 3 pad: 1",
        "f Convolution z | num_output: 64 kernel_size: 3 pad: 3",
        "s Eltwise f a",
        "c Concat s b",
    )
    net = Net(make_net_text((1, 16, 16, 16), *layers), "TEST")
    variables, x = draw_variables(net), draw_inputs(net)
    expected, actual = net.freeze(variables)(x)["c"], freeze(net, variables, "int8", x)(x)["c"]
    assert np.abs(actual - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_copies_batches_and_transformations_give_equal_outputs(precision: str) -> None:
    net, variables, x = build_net("residual")
    frozen = freeze(net, variables, precision, x)
    expected = frozen(x)["f"]
    for variant in (copy.copy(frozen), pickle.loads(pickle.dumps(frozen)), frozen.with_batch(4), jax.jit(frozen)):
        np.testing.assert_allclose(variant(x)["f"], expected, rtol=1e-6, atol=1e-6)
    parts = [np.asarray(frozen({"x": x["x"][i : i + 1]})["f"]) for i in range(2)]
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=1e-5, atol=1e-5)
    assert np.all(np.isfinite(jax.grad(lambda a: frozen({"x": a})["f"].sum())(x["x"])))


@MARKS["int8"]
def test_ranges_cover_all_calibration_batches() -> None:
    net, variables, x = build_net("classifier")
    small_batch = {"x": x["x"] / 8}
    expected = net.freeze(variables)(x)["f"]
    narrow_output = net.freeze(variables, precision="int8", calibration=[small_batch])(x)["f"]
    wide_output = net.freeze(variables, precision="int8", calibration=iter([small_batch, x]))(x)["f"]
    assert np.abs(narrow_output - expected).max() > 4 * np.abs(wide_output - expected).max()


@MARKS["int8"]
def test_blobs_of_zeros_give_zeros() -> None:
    net, variables, x = build_net("classifier")
    zeros = jax.tree.map(np.zeros_like, variables)
    assert np.all(np.asarray(freeze(net, zeros, "int8", jax.tree.map(np.zeros_like, x))(x)["f"]) == 0)


@MARKS["int8"]
@MARKS["bfloat16"]
def test_classes_of_digits_equal_float32() -> None:
    folder = Path(__file__).parents[3] / "configs" / "digits"
    param = read_solver(folder / "lenet_solver.prototxt")
    param.snapshot, param.display, param.test_initialization = 0, 0, False
    solver = Solver(param, file=folder / "lenet_solver.prototxt")
    solver.step(100)
    variables, net = solver.variables, Net(folder / "lenet_train_test.prototxt", "TEST")
    solver.close()
    images = {phase: read_images(folder, phase) for phase in ("train", "test")}
    classes = {}
    for precision in ("float32", "bfloat16", "int8"):
        calibration = [{"data": images["train"][:256]}] if precision == "int8" else None
        frozen = net.freeze(variables, precision=precision, calibration=calibration)
        classes[precision] = np.asarray(frozen({"data": images["test"]})[frozen.outputs[0]]).argmax(axis=1)
    assert len(np.unique(classes["float32"])) == 10
    for precision in ("bfloat16", "int8"):
        assert np.mean(classes[precision] == classes["float32"]) >= 0.99


def read_images(folder: Path, phase: str) -> np.ndarray:
    """Read the digits as the net's Data layer returns them."""
    database = Lmdb(folder / f"digits_{phase}_lmdb")
    data = [Datum.FromString(value) for _, value in database.read_range(0, len(database))]
    database.close()
    pixels = [np.frombuffer(d.data, np.uint8).reshape(d.channels, d.height, d.width) for d in data]
    return np.stack(pixels).astype(np.float32) * 0.00390625


X = np.ones((2, 8, 9, 9), np.float32)


@pytest.mark.parametrize(
    ("precision", "calibration", "words"),
    [
        ("int8", None, "calibration"),
        ("int8", 3, "calibration"),
        ("int8", X, "a list of batches .* calibration is"),
        ("int8", {"x": X}, "a list of batches .* calibration is a value of type dict"),
        ("bfloat16", X, "other precisions must have none"),
        ("int8", [], "calibration"),
        pytest.param("int8", [{"x": X}, {"y": X}], "batch 1 .* 'x'", marks=MARKS["int8"]),
        pytest.param("int8", [X], "batch 0", marks=MARKS["int8"]),
        pytest.param("int8", [{"x": X[:, :3]}], "batch 0", marks=MARKS["int8"]),
        pytest.param("int8", [{"x": X * np.nan}], "batch 0 .* 'x'", marks=MARKS["int8"]),
        ("bfloat16", [{"x": X}], "calibration"),
        (None, [{"x": X}], "calibration"),
        ("int4", None, "int4"),
        ("float16", None, "bfloat16"),
    ],
)
def test_invalid_precision_and_calibration_are_refused(precision: Any, calibration: Any, words: str) -> None:
    net, variables, _ = build_net("classifier")
    if isinstance(calibration, list) and not calibration and not onednn.has_instructions("int8"):
        pytest.skip("the processor has no int8")
    with pytest.raises(CaffejaxError, match=words):
        net.freeze(variables, precision=precision, calibration=calibration)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_without_the_instructions_a_net_computes_in_float32(
    precision: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(onednn, "has_instructions", lambda precision: False)
    low_precision._warn.cache_clear()
    net, variables, x = build_net("classifier")
    with caplog.at_level(logging.WARNING, logger="caffejax"):
        for _ in range(2):
            frozen = freeze(net, variables, precision, x)
    assert len(caplog.messages) == 1
    assert f"float32 instead of {precision}" in caplog.text
    np.testing.assert_array_equal(frozen(x)["f"], net.freeze(variables)(x)["f"])

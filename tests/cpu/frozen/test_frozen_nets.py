"""Frozen nets give the numbers of the net, however they are called."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from frozen_nets import FAST_COMPILATION, assert_close, draw_inputs, draw_variables, make_net_text

from caffejax import CaffejaxError, Net
from caffejax.base.variables import Variables
from caffejax.cpu.frozen.constant_folding import host_function
from caffejax.cpu.frozen.frozen_net import Frozen
from caffejax.cpu.kernels import onednn_program as kernels
from caffejax.cpu.kernels.packed_weights import aligned_empty

LAYERS = (
    "a Convolution x | num_output: 16 kernel_size: 3 pad: 1 stride: 2",
    "a BatchNorm a",
    "a ReLU a",
    "b Convolution a | num_output: 16 kernel_size: 3 pad: 1",
    "e Eltwise a b",
    "n BNLL e",  # of XLA's
    "c Concat n a",
    "g Pooling c | pool: AVE global_pooling: true",
    "i InnerProduct g | num_output: 5",
    "s Softmax i",
)
SHAPE = (2, 3, 12, 10)
TEXT = make_net_text(SHAPE, *LAYERS)
TWO_INPUTS = (
    TEXT
    + """
    layer { name: "y" type: "Input" top: "y" input_param { shape { dim: 2 dim: 5 } } }
    layer { name: "sum" type: "Eltwise" bottom: "s" bottom: "y" top: "sum" }"""
)


@pytest.fixture(scope="module", params=["BNLL", "TanH"])
def net_and_frozen(request: pytest.FixtureRequest) -> tuple[Net, Variables, Frozen]:
    """Return a net with a layer that XLA runs, or one that is entirely a oneDNN program, and its frozen form."""
    net = Net(TEXT.replace("BNLL", request.param), "TEST")
    variables = draw_variables(net)
    return net, variables, net.freeze(variables)


@functools.cache
def compile_net(net: Net) -> Any:
    """Return the net as a jitted function that compiles fast."""
    return jax.jit(lambda v, x: net.apply(*v, x)[0], compiler_options=FAST_COMPILATION)


def apply_net(net: Net, variables: Variables, inputs: Any) -> Any:
    """Return the net's outputs."""
    return compile_net(net)(variables, inputs)


@functools.cache
def make_net_with_two_inputs() -> Net:
    return Net(TWO_INPUTS, "TEST")


def test_other_batch_and_image_sizes_give_equal_outputs(net_and_frozen: tuple[Net, Variables, Frozen]) -> None:
    net, variables, frozen = net_and_frozen
    for shape in [(5, 3, 12, 10), (1, 3, 9, 17)]:
        x = {"x": jax.random.normal(jax.random.key(shape[0]), shape)}
        assert_close(frozen(x), apply_net(net, variables, x))
        if shape[2:] == SHAPE[2:]:
            assert_close(frozen.with_batch(shape[0])(x), apply_net(net, variables, x))


def test_a_dense_layer_gives_equal_rows_in_batches_of_any_size() -> None:
    """The layout of its weights depends on the number of rows, and on the order of the channels before it."""
    layers = ("c Convolution x | num_output: 50 kernel_size: 5", "p Pooling c | pool: MAX kernel_size: 2 stride: 2")
    net = Net(make_net_text((5, 20, 12, 10), *layers, "y InnerProduct p | num_output: 70"))
    variables, inputs = draw_variables(net), draw_inputs(net)
    frozen, expected = net.freeze(variables), apply_net(net, variables, inputs)
    for rows in range(1, 6):
        assert_close(frozen({"x": inputs["x"][:rows]}), {"y": expected["y"][:rows]})


def test_an_empty_batch_gives_empty_outputs() -> None:
    layers = (
        *LAYERS[:4],
        "c Convolution b | num_output: 7 kernel_size: 1",
        "p Pooling c | pool: AVE global_pooling: true",
    )
    net = Net(make_net_text(SHAPE, *layers), "TEST")
    variables, x = draw_variables(net), {"x": np.zeros((0, 3, 12, 10), np.float32)}
    assert net.freeze(variables)(x)["p"].shape == net.apply(*variables, x)[0]["p"].shape == (0, 7, 1, 1)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float64", "float16", "bool", "bfloat16"])
def test_inputs_of_other_dtypes_are_converted(net_and_frozen: tuple[Net, Variables, Frozen], dtype: str) -> None:
    net, variables, frozen = net_and_frozen
    x = np.random.default_rng(0).uniform(0, 9, SHAPE).astype(jnp.dtype(dtype))
    expected = apply_net(net, variables, {"x": jnp.asarray(x, jnp.float32)})
    actual = frozen({"x": x})
    assert actual["s"].dtype == np.float32
    assert_close(actual, expected)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "'x'"),
        ({"x": np.zeros(SHAPE)}, "'y'"),
        ({"z": np.zeros(SHAPE), "y": np.zeros((2, 5))}, "'z'"),
        ({"x": np.zeros((2, 4, 12, 10)), "y": np.zeros((2, 5))}, r"input 'x' has shape .*2, 4, 12, .*\n.*Convolution0"),
        ({"x": np.zeros(SHAPE[1:]), "y": np.zeros((2, 5))}, r"the input 'x' has shape .*; pass an array with 4 axes"),
        (
            {"x": np.zeros((2, *SHAPE[2:], 3)), "y": np.zeros((2, 5))},
            r"the input 'x' .* transpose it by \(0, 3, 1, 2\)",
        ),
        ({"x": np.zeros(SHAPE), "y": np.array(["a"])}, "'y' must be an array of numbers, not of dtype <U1"),
        ({"x": np.zeros((2, 3)), "y": np.zeros((2, 5))}, "Convolution0"),
        ({"x": np.zeros(SHAPE), "y": np.zeros((3, 5))}, "sum"),
        ({"x": np.zeros(SHAPE), "y": np.zeros((2, 6))}, "sum"),
        ({"x": np.zeros(SHAPE), "y": "abc"}, "'y'"),
        ({"x": np.zeros(SHAPE), "y": None}, "'y'"),
        ({"x": np.zeros(SHAPE), "y": [[1, 2], [3]]}, "'y'"),
        (None, "inputs"),
        (np.zeros(SHAPE), "inputs"),
    ],
)
def test_invalid_inputs_are_named(inputs: Any, message: str) -> None:
    net = make_net_with_two_inputs()
    frozen = net.freeze(draw_variables(net))
    for _ in range(2):  # the second time, as it may have kept what it made the first time
        with pytest.raises(CaffejaxError, match=message):
            frozen(inputs)
    valid_inputs = draw_inputs(net)
    assert_close(frozen(valid_inputs), apply_net(net, draw_variables(net), valid_inputs))
    with pytest.raises(CaffejaxError, match=message):
        frozen(inputs)


def test_inputs_without_numbers_are_refused_for_compiled_shapes(net_and_frozen: tuple[Net, Variables, Frozen]) -> None:
    _, _, frozen = net_and_frozen
    frozen({"x": np.zeros(SHAPE, np.float32)})
    with pytest.raises(CaffejaxError, match="'x'"):
        frozen({"x": np.full(SHAPE, "a")})


@pytest.mark.parametrize("outputs", [["nothing"], "s", [3]])
def test_unknown_outputs_are_refused(net_and_frozen: tuple[Net, Variables, Frozen], outputs: Any) -> None:
    with pytest.raises(CaffejaxError):
        net_and_frozen[0].freeze(net_and_frozen[1], outputs)


def test_missing_weights_are_refused(net_and_frozen: tuple[Net, Variables, Frozen]) -> None:
    net, (params, state), _ = net_and_frozen
    with pytest.raises(CaffejaxError, match="Convolution0"):
        net.freeze(Variables({k: v for k, v in params.items() if k != "Convolution0"}, state))
    with pytest.raises(CaffejaxError, match="BatchNorm1"):
        net.freeze(Variables(params, {}))


INPUT_BATCHES = jax.random.normal(jax.random.key(3), (3, *SHAPE))
TRANSFORMATIONS: dict[str, Any] = {
    "jit": lambda f: f(INPUT_BATCHES[0]),
    "vmap": lambda f: jax.vmap(f)(INPUT_BATCHES),
    "grad": lambda f: jax.grad(lambda x: (f(x) ** 2).sum())(INPUT_BATCHES[0]),
    "vmap along the last axis": lambda f: jax.vmap(f, in_axes=4)(jnp.moveaxis(INPUT_BATCHES, 0, 4)),
    "vmap of vmap": lambda f: jax.vmap(jax.vmap(f))(INPUT_BATCHES[None]),
    "jvp": lambda f: jax.jvp(f, (INPUT_BATCHES[0],), (INPUT_BATCHES[1],))[1],
    "grad in vmap": lambda f: jax.vmap(jax.grad(lambda x: (f(x) ** 2).sum()))(INPUT_BATCHES),
    "scan": lambda f: jax.lax.scan(lambda c, x: (c, f(x)), 0, INPUT_BATCHES)[1],
}


@pytest.mark.parametrize(
    "transformation",
    [name if i < 3 else pytest.param(name, marks=pytest.mark.long) for i, name in enumerate(TRANSFORMATIONS)],
)
def test_jax_transformations_of_a_frozen_net_equal_the_nets(
    net_and_frozen: tuple[Net, Variables, Frozen], transformation: str
) -> None:
    net, variables, frozen = net_and_frozen
    jit = functools.partial(jax.jit, compiler_options=FAST_COMPILATION)
    expected = jit(lambda: TRANSFORMATIONS[transformation](lambda x: net.apply(*variables, {"x": x})[0]["s"]))()
    actual = jit(lambda: TRANSFORMATIONS[transformation](lambda x: frozen({"x": x})["s"]))()
    assert float(np.abs(expected).max()) > 0
    assert_close({transformation: actual}, {transformation: expected})


NET_WITH_HOST_LAYER = (
    TEXT
    + """
    layer { name: "keep" type: "Input" top: "keep" input_param { shape { dim: 2 } } }
    layer { name: "kept" type: "Filter" bottom: "s" bottom: "keep" top: "kept" }
    layer { name: "after" type: "InnerProduct" bottom: "kept" top: "after" inner_product_param { num_output: 3 } }"""
)


def test_nets_with_host_layers_can_be_frozen() -> None:
    net = Net(NET_WITH_HOST_LAYER, "TEST")
    assert net.has_host_layers
    variables, inputs = draw_variables(net), draw_inputs(net) | {"keep": np.array([0, 1], np.float32)}
    expected = net.apply(*variables, inputs)[0]
    actual = net.freeze(variables)(inputs)
    assert actual["after"].shape == (1, 3)
    assert_close(actual, expected)


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda frozen: pickle.loads(pickle.dumps(frozen)),
}


@pytest.mark.parametrize("method", COPIES)
def test_copies_give_equal_outputs(method: str) -> None:
    for text, extra_inputs in ((TWO_INPUTS, {}), (NET_WITH_HOST_LAYER, {"keep": np.array([0, 1], np.float32)})):
        net = Net(text, "TEST")
        frozen, inputs = net.freeze(draw_variables(net)), draw_inputs(net) | extra_inputs
        if method != "copy":  # also one that was never called
            frozen(inputs)
        for name, blob in COPIES[method](frozen)(inputs).items():
            np.testing.assert_array_equal(blob, frozen(inputs)[name])


def test_concurrent_threads_get_separate_results(net_and_frozen: tuple[Net, Variables, Frozen]) -> None:
    net, variables, reference = net_and_frozen
    frozen = net.freeze(variables)  # not ready yet: they meet while it is made
    shapes = [SHAPE, (1, 3, 12, 10), (2, 3, 8, 8)]
    inputs = [{"x": jax.random.normal(jax.random.key(i), shapes[i % 3])} for i in range(8)]
    expected = [reference(x)["s"] for x in inputs]
    errors: list[Any] = []
    start = threading.Barrier(len(inputs))

    def call(i: int) -> None:
        start.wait()
        try:
            for _ in range(12):
                assert_close({"s": frozen(inputs[i])["s"]}, {"s": expected[i]})
        except BaseException as error:  # the thread would only print it
            errors.append((i, error))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


@pytest.mark.parametrize(
    ("options", "rtol"),
    [({"kernels": "reference"}, 1e-5), ({"precision": "bfloat16"}, 1e-2), ({"remat": "auto"}, 1e-5)],
)
def test_frozen_nets_equal_the_net_with_any_options(options: dict[str, Any], rtol: float) -> None:
    net = Net(TEXT, "TEST", **options)
    variables, inputs = draw_variables(net), draw_inputs(net)
    assert_close(net.freeze(variables)(inputs), apply_net(net, variables, inputs), rtol)


def test_a_net_in_phase_train_can_be_frozen(net_and_frozen: tuple[Net, Variables, Frozen]) -> None:
    net, variables, _ = net_and_frozen
    inputs = draw_inputs(net)
    train_net = Net(TEXT.replace('type: "ReLU"', 'type: "Dropout"'), "TRAIN")
    assert_close(train_net.freeze(variables)(inputs), apply_net(train_net.with_phase("TEST"), variables, inputs))


@pytest.mark.skipif(not kernels.is_available(), reason="needs oneDNN")
def test_repeated_shapes_skip_the_lookup_of_the_compiled_net(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(TEXT.replace("BNLL", "TanH"), "TEST")
    variables, inputs = draw_variables(net), draw_inputs(net)
    frozen = net.freeze(variables)
    expected = frozen(inputs)
    monkeypatch.setattr(Frozen, "_get_compiled", lambda *_: pytest.fail("it was looked for"))
    np.testing.assert_array_equal(frozen(inputs)["s"], expected["s"])


def test_results_do_not_change_in_later_calls(net_and_frozen: tuple[Net, Variables, Frozen]) -> None:
    _, _, frozen = net_and_frozen
    first_output = frozen({"x": np.ones(SHAPE, np.float32)})["s"]
    output_before = np.array(first_output)
    for i in range(3):
        frozen({"x": np.full(SHAPE, i, np.float32)})
    np.testing.assert_array_equal(first_output, output_before)


def test_later_writes_to_an_input_do_not_change_the_result() -> None:
    net = Net(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 64 dim: 16 } } }\n'
        'layer { name: "y" type: "ReLU" bottom: "x" top: "y" }'
    )
    frozen_net = net.freeze(net.init(jax.random.key(0)), ["x", "y"])
    x = aligned_empty((64, 16), np.float32)
    x[...] = 2
    result = frozen_net({"x": x})
    x[...] = 3
    assert (np.asarray(result["x"]) == 2).all()
    assert (np.asarray(result["y"]) == 2).all()


@pytest.mark.parametrize(
    ("option", "shift", "value_name"), [(jax.debug_nans, "nan", "nan"), (jax.debug_infs, "inf", "inf")]
)
def test_invalid_values_raise_with_the_options_of_jax(option: Any, shift: str, value_name: str) -> None:
    net = Net(make_net_text((1, 2), f"low Power x | shift: {shift}", "s Softmax x"), "TEST")
    frozen = net.freeze(draw_variables(net))
    inputs = {"x": np.ones((1, 2), np.float32)}
    assert not np.isfinite(frozen(inputs)["low"]).any()
    with option(True), pytest.raises(FloatingPointError, match=rf"\({value_name}\).*blob 'low'"):
        frozen(inputs)


def test_valid_values_pass_with_debug_nans() -> None:
    net = Net(make_net_text((1, 2), "s Softmax x"), "TEST")
    with jax.debug_nans(True):
        net.freeze(draw_variables(net))({"x": np.ones((1, 2), np.float32)})


def test_overflow_gives_no_warning() -> None:
    """XLA overflows silently; NumPy would warn, and warnings fail tests."""
    net = Net(
        """layer { name: "in" type: "Input" top: "loc" top: "conf" top: "prior"
          input_param { shape { dim: 1 dim: 4 } shape { dim: 1 dim: 2 } shape { dim: 1 dim: 2 dim: 4 } } }
        layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "out"
          detection_output_param { num_classes: 2 code_type: CENTER_SIZE nms_param { nms_threshold: 0.5 } } }""",
        "TEST",
    )
    prior = np.array([[[0.1, 0.1, 0.5, 0.5], [0.1] * 4]], np.float32).reshape(1, 2, 4)
    inputs = {"loc": np.full((1, 4), 1e4, np.float32), "conf": np.array([[0.1, 0.9]], np.float32), "prior": prior}
    compute_tops = host_function(net.graph.layers[-1])
    assert compute_tops is not None
    expected = net.apply(*net.init(jax.random.key(0)), inputs)[0]["out"]
    np.testing.assert_array_equal(compute_tops(list(inputs.values()))["out"], expected)

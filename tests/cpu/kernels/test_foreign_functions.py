"""The functions in onednn.cc check their arguments before they access memory, and compute correct results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from foreign_calls import (
    FUNCTIONS,
    Call,
    alter,
    check_results,
    draw_array,
    draw_valid_call,
    is_valid,
    make_wide_calls,
)

from caffejax.cpu.kernels import onednn

pytestmark = pytest.mark.skipif(not onednn.is_available(), reason=f"no oneDNN: {onednn.unavailable_reason()}")
ATTRIBUTES = {"stride": [2, 1], "dilation": [1, 2], "low": [1, 0], "high": [0, 3], "groups": 2}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_valid_calls_give_the_expected_results(function: str) -> None:
    random = np.random.default_rng(0)
    for _ in range(10):
        call = draw_valid_call(random, function)
        assert is_valid(call), call
        arrays = [draw_array(random, operand) for operand in call.operands]
        check_results(call, arrays, call.run(arrays))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_invalid_calls_raise_errors(function: str) -> None:
    random = np.random.default_rng(1)
    num_rejected = 0
    while num_rejected < 40:
        call = alter(random, draw_valid_call(random, function))
        if call.has_results() and not is_valid(call):
            with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT"):
                call.run([draw_array(random, operand) for operand in call.operands])
            num_rejected += 1


def convolution(x: tuple[int, ...], weight: tuple[int, ...], y: tuple[int, ...], *bias: int, **changes: object) -> Call:
    attributes = {
        name: np.int64(value) if name == "groups" else np.array(value, np.int64)
        for name, value in (ATTRIBUTES | changes).items()
    }
    operands = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (x, weight, *((n,) for n in bias)))
    return Call("convolution", operands, (jax.ShapeDtypeStruct(y, jnp.float32),), attributes | {"relu": False})


X, WEIGHT, Y = (2, 5, 6, 4), (6, 2, 3, 3), (2, 2, 5, 6)


def test_the_call_without_changes_runs() -> None:
    call = convolution(X, WEIGHT, Y, 6)
    call.run([draw_array(np.random.default_rng(0), operand) for operand in call.operands])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (convolution((2, 4), WEIGHT, Y), r"x \(2, 4\) must have 1 to 3 spatial axes"),
        (convolution(X, (6, 2, 3), Y), r"weight \(6, 2, 3\) must have 4 axes"),
        (convolution(X, WEIGHT, (2, 2, 5)), r"y \(2, 2, 5\) must have 4 axes"),
        (convolution((2, 0, 6, 4), WEIGHT, Y), r"x \(2, 0, 6, 4\) has an axis that is empty or too long"),
        (convolution(X, WEIGHT, Y, stride=[2]), r"stride \(2\) is not for 2 axes"),
        (convolution(X, WEIGHT, Y, stride=[2, 0]), r"stride \(2, 0\) is not from 1 to 2147483647"),
        (convolution(X, WEIGHT, Y, dilation=[1, 2**62]), r"dilation \(1, 4611686018427387904\) is not from 1 to"),
        (convolution(X, WEIGHT, Y, high=[-1, 3]), r"high \(-1, 3\) is not from 0 to"),
        (convolution(X, WEIGHT, Y, groups=0), "0 groups do not divide"),
        (convolution(X, WEIGHT, Y, groups=3), r"3 groups do not divide the inputs of x \(2, 5, 6, 4\)"),
        (convolution(X, WEIGHT, Y, groups=1), r"weight \(6, 2, 3, 3\) in 1 groups is not for the inputs of x"),
        (convolution(X, WEIGHT, (3, 2, 5, 6)), r"y \(3, 2, 5, 6\) must have the batch of x"),
        (convolution(X, WEIGHT, (2, 3, 5, 6)), r"stride \(2, 1\), .* is not y \(2, 3, 5, 6\)"),
        (convolution(X, WEIGHT, Y, low=[2**31 - 1, 0]), r"padding \(2147483647, 0\) and .* is not y"),
        (convolution(X, WEIGHT, Y, 5), r"bias \(5\) is not of 6 outputs"),
        (convolution(X, WEIGHT, Y, 6, 6), "2 arrays in place of one bias"),
    ],
)
def test_an_error_names_the_shapes_that_do_not_match(call: Call, message: str) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"caffejax: convolution: .*{message}"):
        call.run([draw_array(np.random.default_rng(0), operand) for operand in call.operands])


@pytest.mark.parametrize("function", ["weight_diff", "convolution_diffs"])
@pytest.mark.parametrize(("depth", "stride", "padding"), [(2, 2, 3), (3, 2, 3), (4, 2, 3), (3, 3, 2)])
def test_weight_diff_is_correct_if_every_window_contains_padding(
    function: str, depth: int, stride: int, padding: int
) -> None:
    """For these shapes, oneDNN's default implementation of the weight gradient writes out of bounds."""
    out_depth = (depth + 2 * padding - 4) // stride + 1
    x, weight, y = (
        jax.ShapeDtypeStruct(shape, jnp.float32)
        for shape in ((2, depth, 5, 5, 3), (16, 3, 4, 1, 1), (2, out_depth, 5, 5, 16))
    )
    attributes = {
        name: np.array([along_depth, along_plane, along_plane])
        for name, along_depth, along_plane in (
            ("stride", stride, 1),
            ("dilation", 1, 1),
            ("low", padding, 0),
            ("high", padding, 0),
        )
    } | {"groups": np.int64(1)}
    operands, results = ((x, y), (weight,)) if function == "weight_diff" else ((x, y, weight), (x, weight))
    call = Call(function, operands, results, attributes)
    assert is_valid(call)
    arrays = [draw_array(np.random.default_rng(0), operand) for operand in call.operands]
    check_results(call, arrays, call.run(arrays))


@pytest.mark.parametrize("call", make_wide_calls(), ids=str)
def test_convolutions_of_wide_planes_give_the_expected_results(call: Call) -> None:
    """convolution_training.h chooses other implementations than oneDNN's for these calls."""
    assert is_valid(call)
    arrays = [draw_array(np.random.default_rng(0), operand) for operand in call.operands]
    check_results(call, arrays, call.run(arrays))

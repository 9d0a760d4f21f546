"""Invalid programs raise errors instead of crashing. They are built in a separate process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from mutated_programs import PROGRAMS, make_program

from caffejax.cpu.kernels import onednn_program
from caffejax.cpu.kernels.packed_weights import PackedWeights

pytestmark = pytest.mark.skipif(not onednn_program.is_available(), reason="needs oneDNN")

CONVOLUTION = PROGRAMS[0]
INVALID_PROGRAMS = {
    "no operation of this name": "argument dims 1 3\nfrobnicate in 0 out 1 3\nresult value 1",
    "an operation without a word": "argument dims 1 3\n in 0\nresult value 0",
    "no such value": CONVOLUTION.replace("in 0", "in 7"),
    "its own value": CONVOLUTION.replace("in 0", "in 1"),
    "a value below 0": CONVOLUTION.replace("in 0", "in -1"),
    "no such weight": CONVOLUTION.replace("weight 0", "weight 9"),
    "no such result": CONVOLUTION.replace("result value 1", "result value 5"),
    "no stride": CONVOLUTION.replace(" stride 1 1", ""),
    "a stride of 0": CONVOLUTION.replace("stride 1 1", "stride 0 1"),
    "three strides": CONVOLUTION.replace("stride 1 1", "stride 1 1 1"),
    "an axis of 0": CONVOLUTION.replace("argument dims 1", "argument dims 0"),
    "an axis below 0": CONVOLUTION.replace("argument dims 1", "argument dims -1"),
    "a huge axis": CONVOLUTION.replace("argument dims 1", "argument dims 99999999999999999999"),
    "no number": CONVOLUTION.replace("argument dims 1", "argument dims nan"),
    "infinite": CONVOLUTION.replace("argument dims 1", "argument dims inf"),
    "too many cells": CONVOLUTION.replace("argument dims 1 16 6 6", "argument dims 65536 65536 65536 65536"),
    "no axes": CONVOLUTION.replace("argument dims 1 16 6 6", "argument dims"),
    "one axis": CONVOLUTION.replace("argument dims 1 16 6 6", "argument dims 16"),
    "twenty axes": CONVOLUTION.replace("argument dims 1 16 6 6", "argument dims" + " 1" * 20),
    "another shape than declared": CONVOLUTION.replace("out 1 16 6 6", "out 1 16 6 7"),
    "a result of one axis": CONVOLUTION.replace("out 1 16 6 6", "out 576"),
    "groups that do not divide": CONVOLUTION.replace("groups 1", "groups 3"),
    "a bias of another length": CONVOLUTION.replace("weight dims 16\n", "weight dims 15\n"),
    "a statement on nothing": "argument dims 1 3\n+relu a 0 b 0\nresult value 0",
    "a function without its number": CONVOLUTION + "\napply in 1 out 1 16 6 6\n+relu a 0\nresult value 2",
    "numbers before a field": "argument 1 2 3",
    "no field of this name": CONVOLUTION.replace("groups 1", "group 1"),
    "a comma in a number": CONVOLUTION.replace("stride 1 1", "stride 1,0 1"),
    "an empty line": CONVOLUTION.replace("result", "\nresult"),
}


@pytest.mark.parametrize("case", INVALID_PROGRAMS)
def test_an_invalid_program_raises_an_error(case: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        onednn_program.Executable(make_program(INVALID_PROGRAMS[case]))


@pytest.mark.parametrize("count", [400, pytest.param(8000, marks=pytest.mark.long)])
def test_random_program_texts_do_not_crash(count: int) -> None:
    script = Path(__file__).with_name("mutated_programs.py")
    process = subprocess.run([sys.executable, str(script), str(count)], capture_output=True, text=True)
    assert process.returncode == 0, f"{process.stdout[-3000:]}\n{process.stderr[-2000:]}"
    num_valid, num_invalid = map(int, process.stdout.split()[-2:])
    assert num_valid > count / 50
    assert num_invalid > count / 4


def test_arguments_and_weights_of_wrong_shapes_raise_errors() -> None:
    program = make_program(CONVOLUTION)
    executable = onednn_program.Executable(program)
    weights = [np.ones((16, 16, 3, 3), np.float32), np.ones(16, np.float32)]
    packed = executable.pack(weights)
    x, out_shape = np.ones((1, 16, 6, 6), np.float32), (1, 16, 6, 6)
    np.testing.assert_array_equal(executable(packed, (x,))[0], onednn_program.run(program, packed, [x])[0])
    assert executable(packed, (np.concatenate([x, x]),))[0].shape == (2, 16, 6, 6)
    in_other_order, doubles = np.asfortranarray(x), x.astype(np.float64)
    for arguments in ((x[:, :8],), (x[..., :5],), (x[0],), (x[:0],), (x, x), (), (doubles,), (in_other_order,)):
        with pytest.raises(ValueError, match="argument"):
            executable(packed, arguments)
    for other_weights in (
        PackedWeights(packed.arrays[:-1], packed.layouts_hash),
        PackedWeights(packed.arrays, packed.layouts_hash + 1),
    ):
        with pytest.raises(ValueError, match="packed"):
            executable(other_weights, (x,))
        with pytest.raises(jax.errors.JaxRuntimeError, match="packed"):
            jax.block_until_ready(onednn_program.run(program, other_weights, [x]))
    assert onednn_program.run(program, packed, [x])[0].shape == out_shape
    for packed_arrays, arguments, results in (
        (packed.arrays[::-1], [x], [out_shape]),
        ([], [x], [out_shape]),
        (packed.arrays, [x[:, :8]], [out_shape]),
        (packed.arrays, [x[..., :5]], [out_shape]),
        (packed.arrays, [x[0]], [out_shape]),
        (packed.arrays, [x, x], [out_shape]),
        (packed.arrays, [x], [(1, 16, 6, 7)]),
        (packed.arrays, [x], [(1, 16, 36)]),
        (packed.arrays, [x], [out_shape, out_shape]),
    ):
        packed_weights = PackedWeights(packed_arrays, packed.layouts_hash)
        with pytest.raises((jax.errors.JaxRuntimeError, ValueError)):
            jax.block_until_ready(
                onednn_program.run(replace(program, result_shapes=results), packed_weights, arguments)
            )
    for invalid_weights in ([weights[0]], [*weights, weights[1]], weights[::-1], [weights[0][:8], weights[1]]):
        with pytest.raises(ValueError, match="weight"):
            executable.pack(invalid_weights)

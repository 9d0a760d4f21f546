"""A layer for each implementation that oneDNN chooses in frozen nets, compared with plain XLA.

`scripts/sweep_frozen_layers.py` compares the layers of public nets in the same way. The cases here are of the kinds
that it meets there, so that each implementation is compared in every run of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from frozen_nets import FAST_COMPILATION, draw_inputs, draw_variables, make_net_text

from caffejax.core.program.net import Net
from caffejax.cpu.kernels import onednn, onednn_program

pytestmark = pytest.mark.skipif(not onednn_program.is_available(), reason="needs oneDNN")

TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2, "int8": 5e-2}
UP = "Deconvolution x | kernel_size: 4 stride: 2 pad: 1 num_output:"
CASES: dict[str, tuple[tuple[int, ...], list[str]]] = {
    # oneDNN computes these in blocks of input channels; a bias or an epilogue in the same pass counts once for each
    "strided, bias": ((1, 512, 8, 8), [f"y {UP} 64"]),
    "strided, relu": ((1, 512, 8, 8), [f"y {UP} 64 bias_term: false", "y ReLU y |"]),
    "strided, sum": ((2, 770, 2, 2), [f"y {UP} 24", f"z {UP} 24", "s Eltwise y z |", "s PReLU s |"]),
    "strided, scale": ((1, 128, 3, 4), [f"y {UP} 48 group: 2", "y Scale y | bias_term: true", "y Sigmoid y |"]),
    "strided, wide": (
        (1, 64, 2, 3),
        ["y Deconvolution x | num_output: 32 kernel_size: 16 stride: 8 pad: 4", "y ELU y |"],
    ),
    "strided, holes": ((1, 512, 3, 3), ["y Deconvolution x | num_output: 32 kernel_size: 2 stride: 4", "y ReLU y |"]),
    "strided, line": ((1, 770, 5), [f"y {UP} 24", "y ReLU y |"]),
    "strided by channel": (
        (1, 16, 4, 4),
        ["y Deconvolution x | num_output: 16 group: 16 kernel_size: 4 stride: 2", "y ReLU y |"],
    ),
    "dense deconvolution": ((1, 24, 5, 5), ["y Deconvolution x | num_output: 20 kernel_size: 3", "y ReLU y |"]),
    "few channels": ((1, 3, 9, 9), ["y Convolution x | num_output: 16 kernel_size: 7 stride: 2 pad: 3", "y ReLU y |"]),
    "many channels": ((1, 512, 7, 7), ["y Convolution x | num_output: 64 kernel_size: 3 stride: 2", "y ReLU y |"]),
    "1x1": ((1, 512, 5, 5), ["y Convolution x | num_output: 64 kernel_size: 1", "y ReLU y |"]),
    "1x1, sum": (
        (2, 64, 5, 5),
        [
            "a Convolution x | num_output: 64 kernel_size: 1",
            "b Convolution a | num_output: 64 kernel_size: 1",
            "s Eltwise a b |",
        ],
    ),
    "by channel": ((2, 24, 9, 9), ["y Convolution x | num_output: 24 group: 24 kernel_size: 3", "y ReLU6 y |"]),
    "by channel, blocks": (
        (2, 32, 9, 9),
        [
            "y Convolution x | num_output: 32 group: 32 kernel_size: 3",
            "y ReLU y |",
            "z Convolution y | num_output: 64 kernel_size: 1",
        ],
    ),
    "groups": ((1, 30, 7, 7), ["y Convolution x | num_output: 20 group: 2 kernel_size: 3", "y PReLU y |"]),
    "rows": ((8, 300), ["y InnerProduct x | num_output: 40", "y ReLU y |", "z Softmax y |"]),
    "few rows": ((2, 300), ["y InnerProduct x | num_output: 40", "y TanH y |"]),
    "planes": ((2, 32, 8, 8), ["y Pooling x | kernel_size: 3 stride: 2", "z LRN y | local_size: 5 alpha: 0.1"]),
}
# what computes some case on every processor with AVX2, and with AVX-512, too
REACHED = {"brgconv_strided", "brgconv", "brgconv_1x1", "brdgmm_dw", "jit_dw", "x64:gemm:jit", "brgemm"}


def compare_all(precision: str) -> tuple[dict[str, float], list[str]]:
    """Return the difference of each case, as a part of the largest number, and all implementations that ran."""
    plain = {
        name: Net(make_net_text(shape, *layers), "TEST", kernels="reference") for name, (shape, layers) in CASES.items()
    }
    variables, inputs = ({name: draw(net) for name, net in plain.items()} for draw in (draw_variables, draw_inputs))

    def compute(variables: Any, inputs: Any) -> Any:
        return {name: net.apply(*variables[name], inputs[name])[0] for name, net in plain.items()}

    expected = jax.jit(compute, compiler_options=FAST_COMPILATION)(variables, inputs)
    differences: dict[str, float] = {}
    steps: set[str] = set()
    for name, (shape, layers) in CASES.items():
        calibration = [inputs[name]] if precision == "int8" else None
        frozen = Net(make_net_text(shape, *layers), "TEST").freeze(
            variables[name], tuple(expected[name]), precision=precision, calibration=calibration
        )
        actual = frozen(inputs[name])
        steps.update(step for part in frozen.compile().programs.values() for step in part.executable.steps)
        differences[name] = max(
            float(np.abs(np.asarray(actual[top]) - blob).max() / np.abs(blob).max())
            for top, blob in expected[name].items()
        )
    return differences, sorted(steps)


def assert_right(differences: dict[str, float], precision: str) -> None:
    assert differences.keys() == CASES.keys()
    assert {name: d for name, d in differences.items() if not d < TOLERANCES[precision]} == {}


def assert_reached(steps: list[str]) -> None:
    """Check that each implementation computed a case, whatever its instruction set is, as in `brgconv:avx2`."""
    names = {part.rpartition(":avx")[0] for step in steps for part in step.split("+")} | set(steps)
    if any(":avx" in step for step in steps):  # the processor may have less
        assert names >= REACHED


@pytest.mark.parametrize("precision", TOLERANCES)
def test_each_implementation_equals_xla(precision: str) -> None:
    if precision != "float32" and not onednn.has_instructions(precision):
        pytest.skip(f"the processor has no {precision}")
    differences, steps = compare_all(precision)
    assert_right(differences, precision)
    if precision == "float32":
        assert_reached(steps)


def test_each_implementation_for_avx2_equals_xla() -> None:
    code = "import json, test_onednn_implementations as t; print(json.dumps(t.compare_all('float32')))"
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": str(Path(__file__).parent)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    differences, steps = json.loads(result.stdout.splitlines()[-1])
    assert_right(differences, "float32")
    assert not any("avx512" in step for step in steps)
    assert_reached(steps)

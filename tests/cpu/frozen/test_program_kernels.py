"""Operations that caffejax's own kernels compute in frozen nets, compared with the plain lowering."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from frozen_nets import assert_frozen_net_equals_net, draw_inputs, draw_variables, make_net_text

from caffejax.core.program.net import Net
from caffejax.cpu.frozen.frozen_net import Frozen
from caffejax.cpu.kernels import onednn_program

pytestmark = pytest.mark.skipif(not onednn_program.is_available(), reason="needs oneDNN")

CPU_INFO = Path("/proc/cpuinfo")
HAS_AVX512 = CPU_INFO.exists() and "avx512f" in CPU_INFO.read_text()
NARROW, ROW = "narrow", "row product"  # only with AVX-512
SMALL, LARGE, KERNEL_5 = "winograd F(2x2, 3x3)", "winograd F(4x4, 3x3)", "winograd F(2x2, 5x5)"
CASES = {  # by name: the input's shape, and what is computed on x
    "odd": ((1, 64, 15, 17), ["y Convolution x | num_output: 64 kernel_size: 3 pad: 1"]),
    "wide channels": ((1, 128, 14, 14), ["y Convolution x | num_output: 128 kernel_size: 3 pad: 1"]),
    "5x5": ((2, 32, 15, 17), ["y Convolution x | num_output: 64 kernel_size: 5 pad: 2"]),
    "5x5 in groups": (
        (2, 96, 17, 15),
        ["y Convolution x | num_output: 64 kernel_size: 5 pad_h: 1 pad_w: 4 group: 2", "y ReLU y |"],
    ),
    "batch": ((3, 64, 14, 14), ["y Convolution x | num_output: 48 kernel_size: 3 pad: 1 bias_term: false"]),
    "no padding": ((1, 64, 17, 16), ["y Convolution x | num_output: 64 kernel_size: 3"]),
    "more padding": ((1, 64, 13, 14), ["y Convolution x | num_output: 64 kernel_size: 3 pad_h: 2 pad_w: 0"]),
    "groups": ((1, 128, 15, 16), ["y Convolution x | num_output: 192 kernel_size: 3 pad: 1 group: 2"]),
    "dilation": ((2, 64, 25, 22), ["y Convolution x | num_output: 64 kernel_size: 3 pad: 2 dilation: 2"]),
    "more dilation": (
        (1, 64, 31, 28),
        ["y Convolution x | num_output: 64 kernel_size: 3 pad_h: 1 pad_w: 3 dilation: 3", "y ReLU y |"],
    ),
    "5x5 with dilation": ((1, 32, 29, 31), ["y Convolution x | num_output: 64 kernel_size: 5 pad: 4 dilation: 2"]),
    "relu": ((1, 64, 14, 15), ["y Convolution x | num_output: 64 kernel_size: 3 pad: 1", "y ReLU y |"]),
    "leaky": (
        (1, 64, 14, 15),
        ["y Convolution x | num_output: 64 kernel_size: 3 pad: 1", "y ReLU y | negative_slope: 0.1"],
    ),
    "folded": (
        (2, 64, 15, 15),
        ["y Convolution x | num_output: 64 kernel_size: 3 pad: 1", "y BatchNorm y |", "y Scale y | bias_term: true"],
    ),
    "sum": (  # of a value that is also read later: it is not written over
        (1, 64, 15, 15),
        [
            "a Convolution x | num_output: 64 kernel_size: 1",
            "b Convolution a | num_output: 64 kernel_size: 3 pad: 1",
            "s Eltwise a b | operation: SUM",
            "s ReLU s |",
            "y Concat a s |",
        ],
    ),
    "sum in place": (
        (2, 64, 15, 15),
        [
            "a Convolution x | num_output: 64 kernel_size: 1",
            "b Convolution a | num_output: 64 kernel_size: 1",
            "c Convolution b | num_output: 64 kernel_size: 3 pad: 1",
            "y Eltwise a c | operation: SUM",
        ],
    ),
    "joined": (  # each in its place, by blocks of channels
        (1, 64, 15, 15),
        [
            "a Convolution x | num_output: 64 kernel_size: 3 pad: 1",
            "b Convolution x | num_output: 128 kernel_size: 3 pad: 1",
            "c Convolution x | num_output: 32 kernel_size: 1",
            "j Concat c a b |",
            "y Convolution j | num_output: 64 kernel_size: 3 pad: 1",
        ],
    ),
    "large weight, few tiles": ((1, 384, 14, 14), ["y Convolution x | num_output: 384 kernel_size: 3 pad: 1"]),
    "large weight, many tiles": ((1, 384, 64, 64), ["y Convolution x | num_output: 384 kernel_size: 3 pad: 1"]),
    "another function": (
        (1, 64, 15, 15),
        ["y Convolution x | num_output: 64 kernel_size: 3 pad: 1", "z Sigmoid y |"],
    ),
    "leaky and narrow": (
        (1, 1, 28, 28),
        ["y Convolution x | num_output: 20 kernel_size: 5", "y ReLU y | negative_slope: 0.1"],
    ),
}
NARROW_CASES = {
    "one input": ((1, 1, 28, 28), ["y Convolution x | num_output: 20 kernel_size: 5"]),
    "one input, batch": ((3, 1, 15, 16), ["y Convolution x | num_output: 20 kernel_size: 5 pad: 2", "y ReLU y |"]),
    "three inputs": ((2, 3, 17, 15), ["y Convolution x | num_output: 48 kernel_h: 5 kernel_w: 3 pad_h: 1 stride: 2"]),
    "two outputs more": ((1, 20, 12, 12), ["y Convolution x | num_output: 50 kernel_size: 5"]),
    "one output more": ((3, 16, 9, 7), ["y Convolution x | num_output: 17 kernel_size: 3 pad: 1", "y ReLU y |"]),
    "four outputs more": (
        (2, 24, 9, 14),
        ["y Convolution x | num_output: 68 kernel_size: 3 stride: 2 bias_term: false"],
    ),
    "all of LeNet's": (
        (5, 1, 28, 28),
        [
            "a Convolution x | num_output: 20 kernel_size: 5",
            "b Pooling a | kernel_size: 2 stride: 2",
            "c Convolution b | num_output: 50 kernel_size: 5",
            "d Pooling c | kernel_size: 2 stride: 2",
            "y InnerProduct d | num_output: 9",
        ],
    ),
}
ROW_CASES = {
    "one row, then a sigmoid": ((1, 37), ["y InnerProduct x | num_output: 9", "z Sigmoid y |"]),
    "one row": ((1, 37), ["y InnerProduct x | num_output: 9"]),
    "one row of pixels": (
        (1, 20, 3, 5),
        ["a Pooling x | kernel_size: 2", "y InnerProduct a | num_output: 33", "y ReLU y |"],
    ),
    "one row without bias": ((1, 16, 4, 4), ["y InnerProduct x | num_output: 40 bias_term: false", "y ReLU y |"]),
}
FAST_CASES = {  # of each, oneDNN would compute a part by its reference code, or by a matrix of all windows
    "one number for each channel in blocks": (
        (1, 32, 9, 8),
        ["a Pooling x | kernel_size: 2", "b BatchNorm a |", "c Scale b | bias_term: true", "y Sigmoid c |"],
    ),
    "the same for part of a block": (
        (2, 20, 9, 8),
        [
            "p Convolution x | num_output: 20 kernel_size: 3 group: 20",
            "a Pooling p | kernel_size: 2",
            "y Scale a |",
            "q Convolution x | num_output: 48 kernel_size: 1",
            "r Concat q q |",
            "z Scale r | bias_term: true",
        ],
    ),
    "PReLU": ((1, 16, 9, 8), ["y Convolution x | num_output: 32 kernel_size: 3 pad: 1", "z PReLU y |"]),
    "wide padding": ((1, 3, 9, 20), ["y Convolution x | num_output: 16 kernel_size: 3 pad: 5", "z ReLU y |"]),
    "wide padding, more": (
        (2, 4, 9, 20),
        ["y Convolution x | num_output: 8 kernel_h: 2 kernel_w: 3 pad_h: 2 pad_w: 1 stride: 2 dilation: 1"],
    ),
    "wide padding of 3 axes": ((1, 2, 3, 4, 18), ["y Convolution x | num_output: 4 kernel_size: 2 pad: 3"]),
    "joined with a deconvolution": (
        (1, 32, 6, 8),
        [
            "a Convolution x | num_output: 16 kernel_size: 3 pad: 1",
            "b Pooling a | kernel_size: 2 stride: 2",
            "c Deconvolution b | num_output: 32 kernel_size: 2 stride: 2",
            "r Crop a c |",
            "j Concat r c |",
            "y Convolution j | num_output: 16 kernel_size: 3 pad: 1",
        ],
    ),
    "added to a deconvolution": (
        (2, 16, 6, 8),
        [
            "a Convolution x | num_output: 32 kernel_size: 1",
            "b Pooling a | kernel_size: 2 stride: 2",
            "c Deconvolution b | num_output: 32 kernel_size: 2 stride: 2",
            "y Eltwise a c | operation: SUM",
        ],
    ),
    "many rows": ((5, 16, 3, 3), ["y InnerProduct x | num_output: 32", "z ReLU y |"]),
    "many rows of pixels": (
        (5, 16, 5, 5),
        [
            "a Convolution x | num_output: 32 kernel_size: 3",
            "b Pooling a | kernel_size: 2",
            "y InnerProduct b | num_output: 9",
        ],
    ),
}
# by case: the step instead of LARGE; none where oneDNN's own convolution computes what comes after in its pass
OTHER_STEPS = {
    "another function": None,
    "leaky and narrow": None,
    "wide channels": SMALL,
    "large weight, few tiles": SMALL,
    "5x5": KERNEL_5,
    "5x5 in groups": KERNEL_5,
    "5x5 with dilation": KERNEL_5,
    **dict.fromkeys(NARROW_CASES, NARROW if HAS_AVX512 else None),
    **dict.fromkeys(ROW_CASES, ROW if HAS_AVX512 else None),
}
REFERENCE_WITHOUT_AVX512 = ("one number for each channel in blocks", "the same for part of a block")


def list_steps(net: Frozen) -> list[str]:
    """Return the names of the steps of a net's programs."""
    return [step for onednn_part in net.compile().programs.values() for step in onednn_part.executable.steps]


def list_own_steps(net: Frozen) -> list[str]:
    """Return the names of the steps that compute convolutions by caffejax's own kernels."""
    steps = list_steps(net)
    return [step for step in steps if step.startswith(("winograd", NARROW, ROW))]


@pytest.mark.parametrize("case", [*CASES, *NARROW_CASES, *ROW_CASES])
def test_kernels_give_equal_outputs(case: str) -> None:
    shape, layers = (CASES | NARROW_CASES | ROW_CASES)[case]
    frozen_net = assert_frozen_net_equals_net(make_net_text(shape, *layers))
    step = OTHER_STEPS.get(case, LARGE)
    assert set(list_own_steps(frozen_net)) == ({step} if step else set())


@pytest.mark.parametrize("case", FAST_CASES)
def test_no_step_is_reference_code(case: str) -> None:
    if case in REFERENCE_WITHOUT_AVX512 and not HAS_AVX512:
        pytest.skip("needs AVX-512, without which oneDNN has only reference code for it")
    shape, layers = FAST_CASES[case]
    frozen_net = assert_frozen_net_equals_net(make_net_text(shape, *layers))
    steps = list_steps(frozen_net)
    assert steps
    assert not [step for step in steps if "ref" in step or "gemm:jit" in step]


def test_small_convolutions_are_not_transformed() -> None:
    for channels, size in ((64, 5), (3, 30), (16, 6)):
        text = make_net_text((1, channels, size, size), "y Convolution x | num_output: 64 kernel_size: 3 pad: 1")
        assert not list_own_steps(assert_frozen_net_equals_net(text))


@pytest.mark.parametrize(("channels", "outputs"), [(64, 64), (1, 20), (16, 18)])
def test_nan_stays_within_its_image(channels: int, outputs: int) -> None:
    if channels < 64 and not HAS_AVX512:
        pytest.skip("needs AVX-512, without which oneDNN computes it, whose ReLU takes NaN for 0")
    net = Net(
        make_net_text(
            (2, channels, 14, 14), f"y Convolution x | num_output: {outputs} kernel_size: 3 pad: 1", "y ReLU y |"
        ),
        "TEST",
    )
    frozen_net = net.freeze(draw_variables(net))
    x = draw_inputs(net)["x"]
    y = np.asarray(frozen_net({"x": x.at[0, 0, 5, 5].set(np.nan)})["y"])
    assert list_own_steps(frozen_net)
    assert np.isnan(y[0, :, 4:7, 4:7]).all()
    assert np.isfinite(y[1]).all()
    np.testing.assert_array_equal(y[1], np.asarray(frozen_net({"x": x})["y"])[1])

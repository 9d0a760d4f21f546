"""Each layer type that oneDNN programs support, in all its settings, compared with the plain lowering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from frozen_nets import assert_frozen_net_equals_net, find_compiled_types, make_net_text

from caffejax.cpu.frozen.layer_lowerings import ONEDNN
from caffejax.cpu.kernels import onednn_program

pytestmark = pytest.mark.skipif(not onednn_program.is_available(), reason="needs oneDNN")

# By type: its settings. "a b a" before | are its bottoms where there are several; a and b are alike.
SETTINGS: dict[str, list[str]] = {
    "AbsVal": [""],
    "Axpy": ["p a b |", "p a a |", "p a x |", "q a b |"],
    "BN": ["bn_mode: INFERENCE"],
    "BatchNorm": ["", "eps: 0.1", "use_global_stats: false"],
    "Bias": ["", "axis: 2 num_axes: 1", "num_axes: 0", "num_axes: -1"],
    "Clip": ["min: -0.5 max: 0.25", "min: 0.5 max: -0.25"],
    "Concat": [
        "a b | axis: 1",
        "a b a | axis: 1",
        "a a | axis: 1",
        "a b | axis: 0",
        "b a | axis: 2",
        "a b | axis: -1",
        "a | axis: 1",
        "x a | concat_dim: 1",
        "x x | axis: 1",
    ],
    "Convolution": [
        "num_output: 16 kernel_size: 3 pad: 1",
        "num_output: 33 kernel_size: 1 bias_term: false",
        "num_output: 1 kernel_size: 3 stride: 2",
        "num_output: 20 kernel_size: 3 pad: 2 dilation: 2",
        "num_output: 4 kernel_h: 1 kernel_w: 5 pad_h: 0 pad_w: 2 stride_h: 2 stride_w: 1",
        "num_output: 16 kernel_size: 2 pad: 3 stride: 3",
        "num_output: 4 kernel_size: 3 pad: 100",
        "num_output: 4 kernel_size: 3 axis: 2",
    ],
    "ConvolutionDepthwise": ["kernel_size: 3 pad: 1", "kernel_size: 2 stride: 2 bias_term: false"],
    "Deconvolution": [
        "num_output: 16 kernel_size: 2 stride: 2",
        "num_output: 3 kernel_size: 4 stride: 2 pad: 1 bias_term: false",
        "num_output: 5 kernel_size: 3 dilation: 2",
        "num_output: 5 kernel_size: 3 stride: 3 pad: 2",
    ],
    "Crop": [
        "a x | axis: 2",
        "c x | axis: 1 offset: 1 offset: 0 offset: 2",
        "c x | axis: 2 offset: 3",
        "x x | axis: 0",
    ],
    "DepthwiseConvolution": ["num_output: CHANNELS kernel_size: 3 pad: 1 group: CHANNELS"],
    "ELU": ["", "alpha: 0.3", "alpha: 0"],
    "Eltwise": [
        "a b | operation: SUM",
        "b a | operation: SUM",
        "a b | operation: PROD",
        "a b | operation: MAX",
        "a b a | operation: SUM",
        "a b b | operation: PROD",
        "a a | operation: SUM",
        "a a | operation: PROD",
        "a x | operation: MAX",
        "x a | operation: SUM",
        "x x | operation: SUM",
        "a b | operation: SUM coeff: 1 coeff: -1",
        "a b | operation: SUM coeff: 0.5 coeff: 2",
    ],
    "Exp": ["", "base: 2 scale: 0.5", "base: 0.3 shift: -1", "scale: 0"],
    "Flatten": ["", "axis: 2", "axis: 0 end_axis: 1", "axis: 1 end_axis: -2"],
    "InnerProduct": [
        "num_output: 16",
        "num_output: 5 bias_term: false",
        "num_output: 5 transpose: true",
        "num_output: 5 axis: 2",
        "num_output: 5 axis: -1",
        "num_output: 5 axis: 0",
        "num_output: 5 normalize: true",
    ],
    "LRN": [
        "local_size: 3 alpha: 0.5",
        "local_size: 5 alpha: 2 beta: 0.5",
        "local_size: 7 alpha: 0.5 k: 2",
        "local_size: 1 alpha: 0.5",
        "local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL",
        "local_size: 5 alpha: 0.5 beta: 1.5 norm_region: WITHIN_CHANNEL",
    ],
    "Log": ["shift: 40", "base: 2 scale: 0.5 shift: 30", "base: 0.3 shift: 60"],
    "Normalize": [
        "norm_param { across_spatial: false channel_shared: false }",
        "norm_param { across_spatial: false }",
        "norm_param { across_spatial: false eps: 0.5 }",
        "x | norm_param { across_spatial: false channel_shared: false }",
        "norm_param { }",
    ],
    "PReLU": ["", "channel_shared: true"],
    "Permute": [
        "order: 0 order: 2 order: 3 order: 1",
        "order: 0 order: 1 order: 3 order: 2",
        "order: 0 order: 2 order: 1 order: 3",
        "order: 1 order: 0 order: 2 order: 3",
        "order: 0 order: 1 order: 2 order: 3",
        "order: 3",
    ],
    "Pooling": [
        f"pool: {pool} {window}"
        for pool in ("MAX", "AVE")
        for window in (
            "kernel_size: 2 stride: 2",
            "kernel_size: 3 stride: 2",
            "kernel_size: 3 stride: 2 pad: 1",
            "kernel_size: 3 stride: 1 pad: 1",
            "kernel_size: 2 stride: 3",
            "kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 2",
            "kernel_size: 3 stride: 2 pad: 2",
            "global_pooling: true",
        )
    ],
    "Power": ["", "scale: 2 shift: -1", "power: 2", "scale: 0 shift: 3", "power: 0", "power: 3 shift: 0.5"],
    "ReLU": ["", "negative_slope: 0.1", "negative_slope: -1", "negative_slope: 1"],
    "ReLU6": ["", "negative_slope: 0.1"],
    "Reshape": [
        "shape { dim: 0 dim: -1 }",
        "shape { dim: 0 dim: 0 dim: -1 dim: 1 }",
        "shape { dim: -1 dim: 6 }",
        "shape { dim: 1 dim: 1 dim: -1 }",
        "shape { dim: -1 dim: 1 dim: 1 dim: 1 dim: 1 dim: 1 dim: 1 }",
    ],
    "Scale": ["", "bias_term: true", "axis: 2 num_axes: 1", "num_axes: 0", "num_axes: -1 bias_term: true"],
    "ShuffleChannel": ["group: 1", "group: CHANNELS"],
    "Sigmoid": [""],
    "Slice": ["axis: 1 slice_point: 1", "axis: 2 slice_point: 2", "axis: -1 slice_point: 4", "axis: 2"],
    "Softmax": ["", "axis: 2", "axis: -1", "axis: 0"],
    "Swish": ["", "beta: 2"],
    "TanH": [""],
}
SHAPE = (1, 16, 6, 6)
NUM_TEST_GROUPS = 6
OTHER_SHAPES = [(2, 3, 8, 6), (5, 20, 12, 6), (1, 33, 4, 9)]


def make_branches(cases: Mapping[str, Sequence[str]], shape: tuple[int, ...]) -> tuple[str, tuple[str, ...]]:
    """Return a net with one branch for each setting, a layer between a convolution and an activation, and its tops."""
    c, layers, tops = shape[1], [], []
    for i, (layer_type, setting_text) in enumerate((k, setting_text) for k in cases for setting_text in cases[k]):
        bottoms, _, setting = setting_text.rpartition("|")
        for name in "ab":
            layers.append(f"{name}{i} Convolution x | num_output: {c} kernel_size: 1")
        if layer_type in ("BatchNorm", "BN", "Bias", "Scale") and i % 2 == 0:  # not to be folded
            layers.append(f"a{i} Sigmoid a{i}")
        if layer_type == "Axpy":
            layers += [f"p{i} Pooling a{i} | pool: AVE global_pooling: true", f"q{i} Flatten p{i}"]
        if layer_type == "Crop":
            layers.append(f"c{i} Convolution x | num_output: {c + 1} kernel_size: 1 pad: 2")
        reads = " ".join(b if b == "x" else f"{b}{i}" for b in bottoms.split() or ["a"])
        top = f"t{i} {layer_type} {reads}" if layer_type != "Slice" else f"t{i} {layer_type} {reads} > s{i}"
        layers += [f"{top} | {setting.replace('CHANNELS', str(c))}", f"r{i} TanH t{i}"]
        tops += [f"r{i}", f"t{i}"] if i % 2 else [f"r{i}"]
        tops += [f"s{i}"] if layer_type == "Slice" else []
    return make_net_text(shape, *layers), tuple(tops)


def test_every_lowering_has_cases() -> None:
    assert set(SETTINGS) == set(ONEDNN.rules)


@pytest.mark.long
@pytest.mark.parametrize("shape", [SHAPE, *OTHER_SHAPES], ids=str)
@pytest.mark.parametrize("layer_type", SETTINGS)
def test_a_lowering_gives_equal_outputs_in_all_settings(layer_type: str, shape: tuple[int, ...]) -> None:
    assert_lowerings_are_equal({layer_type: SETTINGS[layer_type]}, shape)


@pytest.mark.parametrize("group", range(NUM_TEST_GROUPS))
def test_lowerings_of_a_group_of_types_give_equal_outputs(group: int) -> None:
    assert_lowerings_are_equal(
        {
            layer_type: SETTINGS[layer_type][:: 1 + (len(SETTINGS[layer_type]) > 6)]
            for layer_type in list(SETTINGS)[group::NUM_TEST_GROUPS]
        },
        SHAPE,
    )


def assert_lowerings_are_equal(cases: Mapping[str, Sequence[str]], shape: tuple[int, ...]) -> None:
    text, tops = make_branches(cases, shape)
    frozen_net = assert_frozen_net_equals_net(text, tops)
    assert set(cases) <= find_compiled_types(frozen_net), "no case is in a program"

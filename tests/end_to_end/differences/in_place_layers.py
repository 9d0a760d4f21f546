"""Layers that BVLC Caffe allows in place although their backward pass reads the overwritten bottom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from difference import Comparison, Difference, compute_top_and_diffs

X, DY = np.array([-2.0, -0.5, 0.5, 2.0]), np.array([1.0, 2.0, 3.0, 4.0])


def _make_layer(layer_type: str, param: str = "") -> str:
    return f'layer {{ name: "layer" type: "{layer_type}" bottom: "x" top: "x"{param and " "}{param} }}'


def _make_gradient_difference(
    title: str, net: str, text: str, source: str, caffe: Callable[[Any], Any], x: Any = X
) -> Difference:
    """Return the gradient of such a layer: `caffe(y)` is the result of Caffe's Backward, from the top, not x."""

    def run(net: str) -> list[Comparison]:
        y, diffs = compute_top_and_diffs(net, {"x": x}, DY, top="x")
        return [
            Comparison(f"diff of x = {_format_list(x)} for a diff {_format_list(DY)} of the top", caffe(y), diffs["x"])
        ]

    return Difference(f"{title}, in place: gradient", text, source, net, run)


def _make_eltwise_difference(operation: str, text: str, source: str) -> Difference:
    def run(net: str) -> list[Comparison]:
        a, b = np.array([1.0, 5.0]), np.array([2.0, 3.0])
        y, _ = compute_top_and_diffs(net, {"x": a, "b": b}, np.ones(2), top="x")
        return [Comparison(f"top of x = {_format_list(a)} and b = {_format_list(b)}", b, y)]

    return Difference(f"Eltwise {operation}, in place", text, source, _make_eltwise_net(operation), run)


def _make_eltwise_net(operation: str) -> str:
    param = f"eltwise_param {{ operation: {operation} }}"
    return f'layer {{ name: "layer" type: "Eltwise" bottom: "x" bottom: "b" top: "x" {param} }}'


def _compare_product_gradients(net: str) -> list[Comparison]:
    a, b, dy = np.array([1.0, 5.0]), np.array([2.0, 3.0]), np.array([10.0, 10.0])
    y, diffs = compute_top_and_diffs(net, {"x": a, "b": b}, dy, top="x")
    inputs = f"for a diff {_format_list(dy)} of the top, x = {_format_list(a)} and b = {_format_list(b)}"
    return [
        Comparison(f"diff of x {inputs}", b * b, diffs["x"]),
        Comparison(f"diff of b {inputs}", y * b * b, diffs["b"]),
    ]


def _compare_lrn_top(net: str) -> list[Comparison]:
    x = np.array([1.0, 2.0]).reshape(1, 2, 1, 1)
    y, _ = compute_top_and_diffs(net, {"x": x}, np.ones((1, 2, 1, 1)), top="x")
    scale = 1 + (x**2).sum() / 3
    return [Comparison(f"top of x = {_format_list(x.ravel())}, two channels", np.full(2, scale**-1.5), y.ravel())]


def _format_list(x: Any) -> str:
    return "[" + ", ".join(f"{v:g}" for v in np.ravel(x)) + "]"


DIFFERENCES = [
    _make_gradient_difference(
        "Power with power 1",
        _make_layer("Power", "power_param { scale: 3 }"),
        "Caffe writes the scale over the top's diff and then multiplies the two: the gradient is the scale squared, "
        "whatever comes from above. Here it is the scale times the top's diff.",
        "power_layer.cpp, Backward_cpu: caffe_set(bottom_diff), then caffe_mul(top_diff, bottom_diff)",
        lambda y: np.full(4, 9.0),
    ),
    _make_gradient_difference(
        "Power with power 2",
        _make_layer("Power", "power_param { power: 2 }"),
        "Caffe takes the top for the bottom, writes twice that over the top's diff, and multiplies the two. Other "
        "powers but 0 and 1 go wrong in the same way. Here it is twice the bottom times the top's diff.",
        "power_layer.cpp, Backward_cpu: caffe_cpu_axpby(bottom_data, bottom_diff), then caffe_mul(top_diff, "
        "bottom_diff)",
        lambda y: (2 * y) ** 2,
    ),
    _make_gradient_difference(
        "ELU with alpha below 0",
        _make_layer("ELU", "elu_param { alpha: -0.5 }"),
        "Caffe looks at the sign of the top, which such an alpha has turned round. Here the bottom's counts.",
        "elu_layer.cpp, Backward_cpu: bottom_data[i] > 0",
        lambda y: DY * np.where(y > 0, 1, y - 0.5),
    ),
    _make_gradient_difference(
        "ReLU with a negative slope below 0",
        _make_layer("ReLU", "relu_param { negative_slope: -0.5 }"),
        "Caffe looks at the sign of the top, which such a slope has turned round. Here the bottom's counts.",
        "relu_layer.cpp, Backward_cpu: the sign of bottom_data",
        lambda y: DY * np.where(y > 0, 1, -0.5),
    ),
    _make_gradient_difference(
        "Clip",
        _make_layer("Clip", "clip_param { min: -1 max: 1 }"),
        "Caffe finds everything within the bounds, where forward has put it, and passes all gradients. Here they stop "
        "outside of the bounds.",
        "clip_layer.cpp, Backward_cpu: bottom_data between min and max",
        lambda y: DY * ((y >= -1) & (y <= 1)),
    ),
    _make_gradient_difference(
        "BNLL",
        _make_layer("BNLL"),
        "Caffe takes the sigmoid of the top; here it is that of the bottom.",
        "bnll_layer.cpp, Backward_cpu: exp(bottom_data)",
        lambda y: DY / (1 + np.exp(-y)),
    ),
    _make_gradient_difference(
        "Log",
        _make_layer("Log"),
        "Caffe divides by the top, twice, and forgets the diff that comes from above. Here it is that diff over the "
        "bottom.",
        "log_layer.cpp, Backward_cpu: caffe_powx(bottom_diff, -1), then caffe_mul(top_diff, bottom_diff)",
        lambda y: 1 / y**2,
        np.array([0.5, 2.0, 3.0, 4.0]),
    ),
    _make_eltwise_difference(
        "SUM",
        "Caffe clears the top, and with it the first bottom, before it adds. Here it is the sum.",
        "eltwise_layer.cpp, Forward_cpu: caffe_set(count, 0, top_data)",
    ),
    _make_eltwise_difference(
        "MAX",
        "Caffe fills the top, and with it the first bottom, with the least number before it compares. Here it is the "
        "maximum.",
        "eltwise_layer.cpp, Forward_cpu: caffe_set(count, Dtype(-FLT_MAX), top_data)",
    ),
    Difference(
        "Eltwise PROD, in place: gradient",
        "Caffe writes the other bottom over the top's diff and multiplies it by itself; what comes from above is lost, "
        "and for the other bottom the top is taken for the first one. Here each is the top's diff times the other.",
        "eltwise_layer.cpp, Backward_cpu: caffe_copy(bottom[j]->cpu_data(), bottom_diff), then caffe_mul(bottom_diff, "
        "top_diff, bottom_diff)",
        _make_eltwise_net("PROD"),
        _compare_product_gradients,
    ),
    Difference(
        "LRN across channels, in place",
        "Caffe writes the factors over the bottom, and multiplies them by themselves. Here they multiply the bottom.",
        "lrn_layer.cpp, CrossChannelForward_cpu: caffe_powx(scale_data, -beta, top_data), then caffe_mul(top_data, "
        "bottom_data, top_data)",
        _make_layer("LRN", "lrn_param { local_size: 3 alpha: 1 beta: 0.75 }"),
        _compare_lrn_top,
    ),
]

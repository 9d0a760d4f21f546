"""Frozen nets with layers in Python between oneDNN's programs, for inputs of other sizes than the prototxt's."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest
from frozen_nets import assert_close, draw_variables

import caffejax.pycaffe as caffe
from caffejax.core.program.net import Net

CONVOLUTION = 'type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 }'


class Shift(caffe.Layer):
    """Adds 1."""

    def setup(self, bottom: Any, top: Any) -> None: ...

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = bottom[0].data + 1


class Select(Shift):
    """Repeats its bottom as often as its first number says, which `reshape` cannot know."""

    def forward(self, bottom: Any, top: Any) -> None:
        count = int(bottom[0].data.flat[0] > 0) + 1
        top[0].reshape(count * bottom[0].shape[0], *bottom[0].shape[1:])
        top[0].data[...] = np.concatenate([bottom[0].data] * count)


class CropLike(Shift):
    """Crops the first bottom to the plane of the second, with offsets that `reshape` computes, as OpenCV's HED does."""

    def reshape(self, bottom: Any, top: Any) -> None:
        (*_, height, width), (*_, new_height, new_width) = bottom[0].shape, bottom[1].shape
        self.row, self.column, self.size = (height - new_height) // 2, (width - new_width) // 2, (new_height, new_width)
        top[0].reshape(*bottom[0].shape[:2], new_height, new_width)

    def forward(self, bottom: Any, top: Any) -> None:
        height, width = self.size
        top[0].data[...] = bottom[0].data[..., self.row : self.row + height, self.column : self.column + width]


def make_net(layer: str, monkeypatch: pytest.MonkeyPatch) -> Net:
    module = types.ModuleType("layers_between_programs")
    vars(module).update(Shift=Shift, Select=Select, CropLike=CropLike)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    further = 'bottom: "x"' if layer == "CropLike" else ""
    param = f'python_param {{ module: "{module.__name__}" layer: "{layer}" }}'
    return Net(
        f"""
        layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: 1 dim: 3 dim: 12 dim: 12 }} }} }}
        layer {{ name: "up" type: "Deconvolution" bottom: "x" top: "up" convolution_param {{
          num_output: 4 kernel_size: 4 stride: 2 }} }}
        layer {{ name: "p" type: "Python" bottom: "up" {further} top: "p" {param} }}
        layer {{ name: "c" bottom: "p" top: "c" {CONVOLUTION} }}
        layer {{ name: "r" type: "ReLU" bottom: "c" top: "c" }}
        """,
        "TEST",
    )


@pytest.mark.parametrize("layer", ["Shift", "Select", "CropLike"])
def test_every_size_and_batch_runs(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = make_net(layer, monkeypatch)
    variables = draw_variables(net)
    frozen = net.freeze(variables)
    assert len(frozen.compile().programs) == 2
    for seed, shape in enumerate([(1, 3, 9, 21), (2, 3, 12, 12), (9, 3, 8, 7), (1, 3, 9, 21), (1, 3, 12, 12)]):
        for x in (array := np.random.default_rng(seed).normal(size=shape).astype(np.float32), -array):
            expected, _ = net.apply(*variables, {"x": x})
            actual = frozen({"x": x})
            assert_close(actual, {"c": expected["c"]})

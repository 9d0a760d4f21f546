"""Layers of `registerLayer` in nets whose inputs have other sizes than the prototxt, as in OpenCV's edge detection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from caffejax import dnn

TEXT = b"""
input: "data" input_dim: 1 input_dim: 3 input_dim: 20 input_dim: 20
layer { name: "abs" type: "AbsVal" bottom: "data" top: "abs" }
layer { name: "small" type: "Pooling" bottom: "data" top: "small" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "crop" type: "Crop" bottom: "abs" bottom: "small" top: "crop" }
layer { name: "pool" type: "Pooling" bottom: "crop" top: "pool" pooling_param { kernel_size: 2 stride: 1 } }
layer { name: "exp" type: "Exp" bottom: "pool" top: "exp" }
"""


class PageLayer:
    """The class of the documentation, which has the offsets of the last shapes."""

    def __init__(self, params: Any, blobs: Any) -> None: ...

    def getMemoryShapes(self, inputs: Any) -> Any:
        (images, channels, height, width), target = inputs
        self.top, self.left = (height - target[2]) // 2, (width - target[3]) // 2
        return [[images, channels, target[2], target[3]]]

    def forward(self, inputs: Any) -> Any:
        height, width = inputs[1].shape[2:]
        return [inputs[0][:, :, self.top : self.top + height, self.left : self.left + width]]


class ExampleLayer(PageLayer):
    """The class of OpenCV's example, which also has the ends."""

    def getMemoryShapes(self, inputs: Any) -> Any:
        shapes = super().getMemoryShapes(inputs)
        self.bottom, self.right = self.top + inputs[1][2], self.left + inputs[1][3]
        return shapes

    def forward(self, inputs: Any) -> Any:
        return [inputs[0][:, :, self.top : self.bottom, self.left : self.right]]


@pytest.fixture(params=[PageLayer, ExampleLayer])
def crop_class(request: pytest.FixtureRequest) -> Iterator[Any]:
    dnn.registerLayer("Crop", request.param)
    yield request.param
    dnn.unregisterLayer("Crop")


def test_every_size_gives_the_numbers_of_a_crop(crop_class: Any) -> None:
    net = dnn.readNetFromCaffe(TEXT)
    for images, height, width in ((1, 20, 20), (1, 33, 21), (2, 18, 40), (9, 20, 20)):
        x = np.random.default_rng(height).normal(size=(images, 3, height, width)).astype(np.float32)
        net.setInput(x)
        actual = net.forward()
        height, width = height // 2, width // 2  # Caffe rounds up: (20 - 3) / 2 + 1
        row, column = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
        crop = np.abs(x[:, :, row : row + height, column : column + width])
        windows = np.lib.stride_tricks.sliding_window_view(crop, (2, 2), (2, 3))
        np.testing.assert_allclose(actual, np.exp(windows.max((4, 5))), rtol=1e-5)

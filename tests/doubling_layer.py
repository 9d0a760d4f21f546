"""A Python layer, which nets of tests name as `module: "doubling_layer" layer: "Double"`."""

from typing import Any


class Double:
    """Returns twice its bottom."""

    def setup(self, bottom: Any, top: Any) -> None: ...

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = 2 * bottom[0].data

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        bottom[0].diff[...] = 2 * top[0].diff

"""Python, traced and on the host, and the questions of every type."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from layer_suite import MATRIX, layer_case, properties


def cube(x: Any) -> Any:
    """A traceable Python layer."""
    return jnp.power(x, 3)


class Cube:
    """A Python layer that runs on the host."""

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = bottom[0].data ** 3

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        bottom[0].diff[...] = 3 * np.square(bottom[0].data) * top[0].diff


test_properties = properties(
    layer_case("Python", 'python_param { module: "test_python" layer: "cube" }', MATRIX, name="traced"),
    layer_case("Python", 'python_param { module: "test_python" layer: "Cube" }', MATRIX, name="host"),
)

"""Fillers of forks: gaussian_unitball (caffe-windows), diagonal (FlowNet 2), and cbfinn's expectation and imagexy."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers.bucketed_random import bucketed_draw
from ...core.layers.context import Shape
from ...core.layers.fillers import Filler


def _gaussian_unitball(filler: Any, key: Any, shape: Shape) -> jax.Array:
    rows = bucketed_draw(jax.random.normal, key, (shape[0], math.prod(shape[1:])))
    return (rows / jnp.linalg.norm(rows, axis=1, keepdims=True)).reshape(shape)


def _diagonal(filler: Any, key: Any, shape: Shape) -> jax.Array:
    """Return the kernels of a convolution that averages channel n over the kernel, times diag_val[n], and no others.

    Channels without a diag_val have 1.
    """
    require(0 < len(shape) <= 4, f"diagonal filler: the blob must have 1 to 4 axes, not shape {shape}")
    outputs, inputs, *kernel = (*shape, *(1,) * (4 - len(shape)))
    area = math.prod(kernel)
    values = np.zeros((outputs, inputs, area), np.float32)
    for n in range(min(outputs, inputs)):
        values[n, n] = np.float32(filler.diag_val[n] if n < len(filler.diag_val) else 1) / np.float32(area)
    return jnp.asarray(values.reshape(shape))


_EXPECTATION_COORDINATES: dict[str, tuple[str, ...]] = {
    "x": ("x",),
    "y": ("y",),
    "xy": ("x", "y"),
    "-x^2y^2": ("-x^2", "-y^2"),
}
_IMAGEXY_COORDINATES = {"x": ("x",), "y": ("y",), "ones": ("1",), "both": ("x", "y"), "nboth2": ("-x^2", "-y^2")}


def _expectation(filler: Any, key: Any, shape: Shape) -> jax.Array:
    """Return the coordinates of all positions of a map, from -1 to 1, (coordinates, height * width).

    In cbfinn/caffe, the product of this blob and the probabilities of the positions is the expected position.
    """
    option, (height, width) = filler.expectation_option, (filler.height, filler.width)
    require(
        option in _EXPECTATION_COORDINATES,
        f"expectation filler: expectation_option must be one of {', '.join(_EXPECTATION_COORDINATES)}, not '{option}'",
    )
    names = _EXPECTATION_COORDINATES[option]
    _require_shape("expectation", shape, (len(names), height * width))
    grid = np.meshgrid(*(_side_coordinates(n, includes_start=True) for n in (height, width)), indexing="ij")
    return jnp.stack([_coordinate(name, *grid).ravel() for name in names])


def _imagexy(filler: Any, key: Any, shape: Shape) -> jax.Array:
    """Return a block-diagonal matrix with the coordinates of a map in the block of each channel.

    The coordinates start one step after -1, and end at 1. This is an older form of `_expectation`.
    """
    num_channels, height, width = filler.channels, filler.height, filler.width
    require(
        filler.xy in _IMAGEXY_COORDINATES,
        f"imagexy filler: xy must be one of {', '.join(_IMAGEXY_COORDINATES)}, not '{filler.xy}'",
    )
    names = _IMAGEXY_COORDINATES[filler.xy]
    _require_shape("imagexy", shape, (num_channels * len(names), num_channels * height * width))
    grid = np.meshgrid(*(_side_coordinates(n, includes_start=False) for n in (height, width)), indexing="ij")
    rows = np.stack([_coordinate(name, *grid).ravel() for name in names])
    return jnp.asarray(np.kron(np.eye(num_channels, dtype=np.float32), rows))


def _side_coordinates(n: int, *, includes_start: bool) -> np.ndarray:
    """Return n equidistant coordinates, (n,), that end at 1.

    They start at -1 if `includes_start` is true, otherwise one step after -1.
    """
    start = 0 if includes_start else 1
    num_steps = n - 1 + start
    require(num_steps > 0, f"width and height of the map must be at least {2 - start}, not {n}")
    return (2 * (np.arange(n) + start) / num_steps - 1).astype(np.float32)


def _coordinate(name: str, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    return {"x": x, "y": y, "-x^2": -x * x, "-y^2": -y * y, "1": np.ones_like(x)}[name]


def _require_shape(name: str, shape: Shape, expected_shape: Shape) -> None:
    require(
        shape == expected_shape, f"{name} filler: the settings require a blob of shape {expected_shape}, not {shape}"
    )


FILLERS = {  # found through `LayerPackage.fillers`
    "gaussian_unitball": Filler(_gaussian_unitball),
    "diagonal": Filler(_diagonal, is_random=False),
    "expectation": Filler(_expectation, is_random=False),
    "imagexy": Filler(_imagexy, is_random=False),
}

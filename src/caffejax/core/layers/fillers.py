"""Fillers, which compute the initial values of blobs. Each type of filler is a function of (filler, key, shape).

Caffe's rules: filler.hpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import LayerError, did_you_mean, require
from ..ops.compilation import full
from ..schema.caffe_pb2 import FillerParameter
from .bucketed_random import bucketed_draw
from .context import Shape

_Filler = Callable[[Any, Any, Shape], jax.Array]


def fill(filler: Any, key: jax.Array | None, shape: Shape, dtype: Any = jnp.float32) -> jax.Array:
    """Return the initial values of a blob.

    Args:
        filler: a FillerParameter, or None for zeros.
        key: the random key of the blob. It may be None if the filler is not random.
        shape: the shape of the blob.
        dtype: the dtype of the result; values are computed in float32 and then cast.

    Raises:
        LayerError: for an unknown filler type or contradictory parameters.
    """
    if filler is None:
        return full(shape, 0, dtype)
    check_filler(filler)
    require(
        filler.sparse == -1 or filler.type == "gaussian",
        f"filler '{filler.type}' does not support sparse; only gaussian does",
    )
    return _FILLERS[filler.type](filler, key, shape).astype(dtype)


def check_filler(filler: Any) -> None:
    """Raise `LayerError` if a filler has an unknown type. None, which fills with zeros, is valid."""
    is_known = filler is None or filler.type in _FILLERS
    require(
        is_known or filler.type != "gabor",
        "filler 'gabor' (Intel Caffe), which has fixed kernels for the first layers of four nets, is not supported; "
        "use msra or xavier",
    )
    require(is_known, "" if is_known else f"unknown filler type '{filler.type}'{did_you_mean(filler.type, _FILLERS)}")


def scale_filler(filler: Any, factor: float, shape: Shape) -> Any:
    """Return a filler whose values, in blobs of this shape, are the values of `filler` times `factor`.

    Raises:
        LayerError: if the type of the filler is not constant, uniform, gaussian, xavier or msra.
    """
    check_filler(filler)
    scaled_fields = {name: getattr(filler, name) * factor for name in ("value", "min", "max", "mean", "std")}
    match filler.type:
        case "constant" | "uniform" | "gaussian":
            return FillerParameter(type=filler.type, sparse=filler.sparse, **scaled_fields)
        case "xavier":
            bound = _xavier_bound(filler, shape) * factor
            return FillerParameter(type="uniform", min=-bound, max=bound)
        case "msra":
            return FillerParameter(type="gaussian", std=_msra_std(filler, shape) * factor)
    raise LayerError(f"filler '{filler.type}' cannot be scaled; use constant, uniform, gaussian, xavier or msra")


def is_random(filler: Any) -> bool:
    """Return whether the values of a filler are random."""
    return filler is not None and filler.type not in ("constant", "bilinear", "expectation", "imagexy")


def _fan(filler: Any, shape: Shape) -> float:
    """Return the number of inputs, the number of outputs, or their mean, as `variance_norm` selects."""
    count = math.prod(shape)
    fan_in = count / shape[0]
    fan_out = count / shape[1] if len(shape) > 1 else count
    norm = filler.VarianceNorm.Name(filler.variance_norm)
    return {"FAN_IN": fan_in, "FAN_OUT": fan_out, "AVERAGE": (fan_in + fan_out) / 2}[norm]


def _constant(filler: Any, key: Any, shape: Shape) -> jax.Array:
    return full(shape, filler.value)


def _uniform(filler: Any, key: Any, shape: Shape) -> jax.Array:
    require(
        filler.min <= filler.max,
        f"uniform filler: min must be at most max, but min is {filler.min} and max is {filler.max}",
    )
    return bucketed_draw(partial(jax.random.uniform, minval=filler.min, maxval=filler.max), key, shape)


def _gaussian(filler: Any, key: Any, shape: Shape) -> jax.Array:
    require(filler.sparse >= -1, f"gaussian filler: sparse must be a count, or -1 if unused, not {filler.sparse}")
    require(filler.std >= 0, f"gaussian filler: std must not be negative, but is {filler.std}")
    normal_key, sparse_key = jax.random.split(key)
    values = bucketed_draw(lambda k, s: filler.mean + filler.std * jax.random.normal(k, s), normal_key, shape)
    if filler.sparse < 0:
        return values
    # `sparse` is the expected number of nonzero inputs of an output
    mask = jax.random.bernoulli(sparse_key, min(1.0, filler.sparse / shape[0]), shape)
    return jnp.where(mask, values, 0)


def _positive_unitball(filler: Any, key: Any, shape: Shape) -> jax.Array:
    rows = bucketed_draw(jax.random.uniform, key, (shape[0], math.prod(shape[1:])))
    return (rows / rows.sum(axis=1, keepdims=True)).reshape(shape)


def _gaussian_unitball(filler: Any, key: Any, shape: Shape) -> jax.Array:
    rows = bucketed_draw(jax.random.normal, key, (shape[0], math.prod(shape[1:])))
    return (rows / jnp.linalg.norm(rows, axis=1, keepdims=True)).reshape(shape)


def _xavier(filler: Any, key: Any, shape: Shape) -> jax.Array:
    bound = _xavier_bound(filler, shape)
    return bucketed_draw(partial(jax.random.uniform, minval=-bound, maxval=bound), key, shape)


def _xavier_bound(filler: Any, shape: Shape) -> float:
    return math.sqrt(3 / _fan(filler, shape))


def _msra(filler: Any, key: Any, shape: Shape) -> jax.Array:
    std = _msra_std(filler, shape)
    return bucketed_draw(lambda k, s: std * jax.random.normal(k, s), key, shape)


def _msra_std(filler: Any, shape: Shape) -> float:
    return float(filler.scale) * math.sqrt(2 / _fan(filler, shape) / (1 + filler.alpha**2))


def _bilinear(filler: Any, key: Any, shape: Shape) -> jax.Array:
    require(len(shape) == 4, f"bilinear filler: the blob must have 4 axes, not shape {shape}")
    require(shape[2] == shape[3], f"bilinear filler: the kernel must be square, not {shape[2]}x{shape[3]}")
    half = math.ceil(shape[3] / 2)
    center = (shape[3] - 1) / (2 * half)
    tent = 1 - jnp.abs(jnp.arange(shape[3]) / half - center)
    return jnp.broadcast_to(tent[:, None] * tent, shape)


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


_FILLERS: dict[str, _Filler] = {
    "constant": _constant,
    "uniform": _uniform,
    "gaussian": _gaussian,
    "positive_unitball": _positive_unitball,
    "gaussian_unitball": _gaussian_unitball,
    "xavier": _xavier,
    "msra": _msra,
    "bilinear": _bilinear,
    "expectation": _expectation,
    "imagexy": _imagexy,
}

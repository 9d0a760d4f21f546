"""Fillers, which compute the initial values of blobs.

Caffe's rules: filler.hpp.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ...base.errors import LayerError, did_you_mean, require
from ..ops.compilation import full
from ..schema.caffe_pb2 import FillerParameter
from .bucketed_random import bucketed_draw
from .context import Shape
from .packages import list_own_packages


class Filler(NamedTuple):
    """A type of filler.

    Attributes:
        fill: `fill(filler, key, shape)` returns the initial values, float32, for a FillerParameter. The key is a random
            key, or None if the values are not random.
        is_random: whether the values are random.
    """

    fill: Callable[[Any, Any, Shape], Array]
    is_random: bool = True


def fill(filler: Any, key: Array | None, shape: Shape, dtype: Any = jnp.float32) -> Array:
    """Return the initial values of a blob.

    Args:
        filler: a FillerParameter, a function of a key and a shape, or None for zeros.
        key: the random key of the blob. It may be None if the filler is not random.
        shape: the shape of the blob.
        dtype: the dtype of the result; values are computed in float32 and then cast.

    Raises:
        LayerError: for an unknown filler type or contradictory parameters, or values of another shape.
    """
    if filler is None:
        return full(shape, 0, dtype)
    if callable(filler):
        values = jnp.asarray(filler(key, shape), dtype)
        require(values.shape == shape, f"its filler returned values of shape {values.shape}, not {shape}")
        return values
    filler_type = _find_filler(filler.type)
    require(
        filler.sparse == -1 or filler.type == "gaussian",
        f"filler '{filler.type}' does not support sparse; only gaussian does",
    )
    return filler_type.fill(filler, key, shape).astype(dtype)


def check_filler(filler: Any) -> None:
    """Raise `LayerError` if a FillerParameter has an unknown type. None, which fills with zeros, is valid."""
    if isinstance(filler, FillerParameter):
        _find_filler(filler.type)


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
    return filler is not None and (callable(filler) or _find_filler(filler.type).is_random)


def _fan(filler: Any, shape: Shape) -> float:
    """Return the number of inputs, the number of outputs, or their mean, as `variance_norm` selects."""
    count = math.prod(shape)
    fan_in = count / shape[0]
    fan_out = count / shape[1] if len(shape) > 1 else count
    norm = filler.VarianceNorm.Name(filler.variance_norm)
    return {"FAN_IN": fan_in, "FAN_OUT": fan_out, "AVERAGE": (fan_in + fan_out) / 2}[norm]


def _uniform(filler: Any, key: Any, shape: Shape) -> Array:
    require(
        filler.min <= filler.max,
        f"uniform filler: min must be at most max, but min is {filler.min} and max is {filler.max}",
    )
    return bucketed_draw(partial(jax.random.uniform, minval=filler.min, maxval=filler.max), key, shape)


def _gaussian(filler: Any, key: Any, shape: Shape) -> Array:
    require(filler.sparse >= -1, f"gaussian filler: sparse must be a count, or -1 if unused, not {filler.sparse}")
    require(filler.std >= 0, f"gaussian filler: std must not be negative, but is {filler.std}")
    normal_key, sparse_key = jax.random.split(key)
    values = bucketed_draw(lambda k, s: filler.mean + filler.std * jax.random.normal(k, s), normal_key, shape)
    if filler.sparse < 0:
        return values
    # `sparse` is the expected number of nonzero inputs of an output
    mask = jax.random.bernoulli(sparse_key, min(1.0, filler.sparse / shape[0]), shape)
    return jnp.where(mask, values, 0)


def _positive_unitball(filler: Any, key: Any, shape: Shape) -> Array:
    rows = bucketed_draw(jax.random.uniform, key, (shape[0], math.prod(shape[1:])))
    return (rows / rows.sum(axis=1, keepdims=True)).reshape(shape)


def _xavier(filler: Any, key: Any, shape: Shape) -> Array:
    bound = _xavier_bound(filler, shape)
    return bucketed_draw(partial(jax.random.uniform, minval=-bound, maxval=bound), key, shape)


def _xavier_bound(filler: Any, shape: Shape) -> float:
    return math.sqrt(3 / _fan(filler, shape))


def _msra(filler: Any, key: Any, shape: Shape) -> Array:
    std = _msra_std(filler, shape)
    return bucketed_draw(lambda k, s: std * jax.random.normal(k, s), key, shape)


def _msra_std(filler: Any, shape: Shape) -> float:
    return float(filler.scale) * math.sqrt(2 / _fan(filler, shape) / (1 + filler.alpha**2))


def _bilinear(filler: Any, key: Any, shape: Shape) -> Array:
    require(len(shape) == 4, f"bilinear filler: the blob must have 4 axes, not shape {shape}")
    require(shape[2] == shape[3], f"bilinear filler: the kernel must be square, not {shape[2]}x{shape[3]}")
    half = math.ceil(shape[3] / 2)
    center = (shape[3] - 1) / (2 * half)
    tent = 1 - jnp.abs(jnp.arange(shape[3]) / half - center)
    return jnp.broadcast_to(tent[:, None] * tent, shape)


_FILLERS = {
    "constant": Filler(lambda filler, key, shape: full(shape, filler.value), is_random=False),
    "uniform": Filler(_uniform),
    "gaussian": Filler(_gaussian),
    "positive_unitball": Filler(_positive_unitball),
    "xavier": Filler(_xavier),
    "msra": Filler(_msra),
    "bilinear": Filler(_bilinear, is_random=False),
}


@functools.cache
def _list_fillers() -> Mapping[str, Filler]:
    modules = [package.fillers for package in list_own_packages() if package.fillers is not None]
    return _FILLERS | {name: f for module in modules for name, f in importlib.import_module(module).FILLERS.items()}


def _find_filler(name: str) -> Filler:
    filler = _FILLERS.get(name) or _list_fillers().get(name)
    require(
        name != "gabor",
        "filler 'gabor' (Intel Caffe), which has fixed kernels for the first layers of four nets, is not supported; "
        "use msra or xavier",
    )
    if filler is None:
        raise LayerError(f"unknown filler type '{name}'{did_you_mean(name, _list_fillers())}")
    return filler

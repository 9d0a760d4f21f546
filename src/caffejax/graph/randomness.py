"""Randomness of layers, found by tracing their forward functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..layers.dispatch import forward
from .graph import Layer


def is_random(layer: Layer, bottoms: Sequence[Any]) -> bool:
    """Return whether a layer uses random numbers in its phase.

    Args:
        layer: the layer. A user's host layer is assumed to be deterministic.
        bottoms: shapes and dtypes of its bottoms; for a host layer, arrays.
    """
    if layer.type.is_input or (layer.type.on_host and layer.type.instance is not None):
        return False
    recorder = _RecordingKey((jax.random.key(0), 0))
    context = layer.context.with_fold_in_args(recorder)
    if layer.type.on_host:
        forward(context, [np.zeros(p.spec.shape, np.float32) for p in layer.all_params], bottoms)
    else:
        params = [jax.ShapeDtypeStruct(p.spec.shape, np.float32) for p in layer.all_params]
        jax.eval_shape(lambda *arrays: forward(context, *arrays), params, bottoms)
    return recorder.used


class _RecordingKey(tuple[Any, ...]):
    """A placeholder for a layer's base key that records whether the layer uses it."""

    used = False

    def __iter__(self) -> Any:
        self.used = True
        return super().__iter__()

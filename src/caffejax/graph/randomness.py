"""Whether a layer draws random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..layers.calling import forward
from .model import Layer


def is_random(layer: Layer, bottoms: Sequence[Any]) -> bool:
    """Return whether a layer draws random numbers in its phase.

    Args:
        layer: the layer; one that a user wrote for the host is not asked, and taken for one that does not.
        bottoms: their shapes; of a layer on the host, arrays.
    """
    if layer.type.is_fed or (layer.type.on_host and layer.type.instance is not None):
        return False
    noticing = _Noticing((jax.random.key(0), 0))
    context = layer.context.with_key(noticing)
    if layer.type.on_host:
        forward(context, [np.zeros(p.spec.shape, np.float32) for p in layer.owned], bottoms)
    else:
        params = [jax.ShapeDtypeStruct(p.spec.shape, np.float32) for p in layer.owned]
        jax.eval_shape(lambda *arrays: forward(context, *arrays), params, bottoms)
    return noticing.used


class _Noticing(tuple[Any, ...]):
    """A layer's key and number that notice it when the layer makes its own key of them."""

    used = False

    def __iter__(self) -> Any:
        self.used = True
        return super().__iter__()

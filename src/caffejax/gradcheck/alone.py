"""A layer by itself: a net of inputs and that layer, with random blobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import LayerError
from ..graph import Param
from ..layers import LayerType, layer_type
from ..layers.registry import Phase
from ..net import Net, Variables
from ..schema import parse_text
from ..schema.caffe_pb2 import LayerParameter, NetParameter


def lone_layer(
    kind: LayerType | str,
    param: str | LayerParameter,
    bottoms: Sequence[Any],
    blobs: Sequence[Any] | None,
    phase: Phase,
    random: np.random.Generator,
) -> tuple[Net, dict[str, np.ndarray], Variables]:
    """The net, the arrays given for its inputs, and its variables.

    Raises:
        CaffejaxError: for a type that does not exist, a text that cannot be read, shapes that do not fit.
    """
    kind = kind if isinstance(kind, LayerType) else layer_type(kind)
    layer = LayerParameter()
    layer.CopyFrom(parse_text(param, LayerParameter, file="<param>") if isinstance(param, str) else param)
    if layer.type not in ("", kind.name):
        raise LayerError(f"the LayerParameter is of type '{layer.type}', not '{kind.name}'")
    layer.type = kind.name
    layer.name = layer.name or "layer"
    layer.bottom[:] = [f"bottom{i}" for i in range(len(bottoms))]
    layer.top[:] = layer.top or [f"top{i}" for i in range(_fewest_tops(kind, len(bottoms)))]
    message = NetParameter()
    given = {}
    for name, bottom in zip(layer.bottom, bottoms, strict=True):
        shape = _as_shape(bottom)
        if shape is None:
            given[name] = np.asarray(bottom)
            shape = given[name].shape
        source = message.layer.add(name=f"{name}_input", type="Input", top=[name])
        source.input_param.shape.add(dim=shape)
    message.layer.append(layer)
    net = Net(message, phase)
    return net, given, _variables(net, blobs, random)


def _fewest_tops(kind: LayerType, n_bottoms: int) -> int:
    if isinstance(kind.tops, str):
        return n_bottoms
    return kind.tops if isinstance(kind.tops, int) else max(kind.tops[0], 1)


def _as_shape(bottom: Any) -> tuple[int, ...] | None:
    if isinstance(bottom, tuple | list) and all(isinstance(n, int) for n in bottom):
        return tuple(bottom)
    return None


def _variables(net: Net, blobs: Sequence[Any] | None, random: np.random.Generator) -> Variables:
    """Random variables, or the blobs given: learnable ones normal, statistics from [0.5, 1.5)."""
    params = net.graph.params
    if blobs is not None:
        found, expected = [np.shape(b) for b in blobs], [p.blob.shape for p in params]
        if found != expected:
            raise LayerError(f"blobs of shapes {found} given, but the layer has {expected}")

    def value(param: Param) -> Any:
        if blobs is not None:
            return jnp.asarray(blobs[param.slot.index], jnp.float64)
        if param.blob.learnable:
            return jnp.asarray(random.normal(size=param.blob.shape))
        return jnp.asarray(random.uniform(0.5, 1.5, param.blob.shape))

    return Variables(
        net.tree(lambda p: value(p) if p.blob.learnable else None),
        net.tree(lambda p: None if p.blob.learnable else value(p)),
    )

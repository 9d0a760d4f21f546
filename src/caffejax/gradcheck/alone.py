"""A layer by itself: a net of inputs and that layer, with random blobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import LayerError
from ..layers import LayerType, layer_type
from ..layers.context import Phase
from ..layers.python import name_python_layer
from ..net import Net, Variables
from ..schema import parse_text
from ..schema.caffe_pb2 import LayerParameter, NetParameter


def lone_layer(
    kind: LayerType | str | Callable[..., Any],
    param: str | LayerParameter,
    bottoms: Sequence[Any],
    blobs: Sequence[Any] | None,
    phase: Phase,
    random: np.random.Generator,
) -> tuple[Net, dict[str, np.ndarray], Variables]:
    """Make the net, the arrays given for its inputs, and its variables.

    Raises:
        CaffejaxError: for a type that does not exist, a text that cannot be read, shapes that do not fit.
    """
    layer = LayerParameter()
    layer.CopyFrom(parse_text(param, LayerParameter, file="<param>") if isinstance(param, str) else param)
    if not isinstance(kind, LayerType | str):
        kind = name_python_layer(layer, kind)
    kind = kind if isinstance(kind, LayerType) else layer_type(kind)
    if layer.type not in ("", kind.name):
        raise LayerError(f"the LayerParameter is of type '{layer.type}', not '{kind.name}'")
    layer.type = kind.name
    layer.name = layer.name or "layer"
    layer.bottom[:] = [f"bottom{i}" for i in range(len(bottoms))]
    layer.top[:] = layer.top or [f"top{i}" for i in range(_fewest_tops(kind, len(bottoms)))]
    layer.propagate_down[:] = layer.propagate_down or [True] * len(bottoms)
    layer.loss_weight[:] = layer.loss_weight or [1.0] * len(layer.top)  # for the net to want gradients
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
    if isinstance(kind.signature.tops, str):
        return n_bottoms
    return kind.signature.tops if isinstance(kind.signature.tops, int) else max(kind.signature.tops[0], 1)


def _as_shape(bottom: Any) -> tuple[int, ...] | None:
    if isinstance(bottom, tuple | list) and all(isinstance(n, int) for n in bottom):
        return tuple(bottom)
    return None


def _variables(net: Net, blobs: Sequence[Any] | None, random: np.random.Generator) -> Variables:
    """Draw variables, params normal, statistics from [0.5, 1.5); or take the blobs given."""
    started = net.init(jax.random.key(0), jnp.float64)
    params = jax.tree.map(lambda a: jnp.asarray(random.normal(size=a.shape)), started.params)
    state = jax.tree.map(lambda a: jnp.asarray(random.uniform(0.5, 1.5, a.shape)), started.state)
    if blobs is not None:
        found, expected = [np.shape(b) for b in blobs], [p.spec.shape for p in net.graph.params]
        if found != expected:
            raise LayerError(f"blobs of shapes {found} given, but the layer has {expected}")
        for param, blob in zip(net.graph.params, blobs, strict=True):
            tree = params if param.spec.learnable else state
            tree[param.slot.layer] = _replaced(tree[param.slot.layer], param.slot.index, blob)
    return Variables(params, state)


def _replaced(arrays: tuple[Any, ...], i: int, array: Any) -> tuple[Any, ...]:
    return (*arrays[:i], jnp.asarray(array, jnp.float64), *arrays[i + 1 :])

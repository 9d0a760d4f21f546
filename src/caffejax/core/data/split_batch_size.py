"""Division of the batch sizes in a net's definition by the number of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ...base.errors import GraphError, Problem, raise_if_any
from ..graph.resolve import is_included
from ..layers import LayerType, type_of
from ..schema.caffe_pb2 import LayerParameter, NetParameter, NetState

_BatchSize = tuple[str, int, Callable[[int], None]]  # the path of its field, for messages; its value; how to set it


def split_batch_sizes(net_param: NetParameter, n_devices: int, state: NetState | None = None) -> NetParameter:
    """Return a net whose data layers have `1 / n_devices` of their batch size.

    Data layers are the layers without bottoms and params. If a layer reads a source or takes arrays, its `batch_size`
    is divided. For other layers, the first axis of each of their shapes is divided. Python layers divide their batches
    themselves, by `NetConfig.num_parts`.

    Args:
        net_param: the net, as `schema.read_net` returns it. It is not changed.
        n_devices: the number of devices.
        state: the state whose layers are divided, or None for all layers.

    Raises:
        GraphError: if batch sizes cannot be divided. The message names each such layer. Building the net finds other
            problems.
    """
    split_net = NetParameter()
    split_net.CopyFrom(net_param)
    problems: list[Problem] = []
    for layer in split_net.layer:
        if layer.bottom or not layer.top or (state is not None and not is_included(layer, state)):
            continue
        messages = _divide_layer(layer, n_devices)
        problems += [Problem(message, layer=layer.name, layer_type=layer.type) for message in messages]
    raise_if_any(GraphError, problems)
    return split_net


def _divide_layer(layer: LayerParameter, n_devices: int) -> Iterator[str]:
    try:
        layer_type = type_of(layer)
    except GraphError:  # the layer's type is unknown
        return
    for path, size, set_size in _batch_sizes(layer, layer_type):
        if size % n_devices:
            yield (
                f"{path} is {size}, which cannot be divided among {n_devices} devices; make it a multiple of "
                f"{n_devices}, or let each device process a full batch"
            )
        elif size:  # the layer itself reports a size of 0
            set_size(size // n_devices)


def _batch_sizes(layer: LayerParameter, layer_type: LayerType) -> Iterator[_BatchSize]:
    if layer_type.params is not None:  # its top is a parameter of the net, as in a Parameter layer
        return
    name = layer_type.signature.param or ""
    param: Any = getattr(layer, name, None)
    fields = () if param is None else param.DESCRIPTOR.fields_by_name
    if "batch_size" in fields and layer.HasField(name):
        yield f"{name}.batch_size", param.batch_size, partial(setattr, param, "batch_size")
    elif "shape" in fields:
        for shape in param.shape:
            if shape.dim:
                yield f"{name}.shape.dim", shape.dim[0], partial(shape.dim.__setitem__, 0)
        for i, num in enumerate(getattr(param, "num", ())):  # the first axis in old files
            yield f"{name}.num", num, partial(param.num.__setitem__, i)
    else:  # such as AnnotatedData, whose batch size is in data_param
        for field, value in layer.ListFields():
            child_type = None if field.is_repeated else field.message_type
            if child_type is not None and "batch_size" in child_type.fields_by_name:
                yield f"{field.name}.batch_size", value.batch_size, partial(setattr, value, "batch_size")

"""Division of the batch sizes in a net's definition by the number of devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import Message

from ...base.errors import GraphError, Problem
from ..graph.resolve import is_included
from ..layers import LayerType, type_of
from ..schema.caffe_pb2 import LayerParameter, NetParameter, NetState


class _BatchSize(NamedTuple):
    """A batch size in a net's definition.

    Attributes:
        message: the message that contains it.
        field: the name of its field.
        item_index: the index in a repeated field; None for a single field.
        field_path: the field's path, for messages.
    """

    message: Any
    field: str
    item_index: int | None
    field_path: str

    @property
    def value(self) -> int:
        value = getattr(self.message, self.field)
        return int(value if self.item_index is None else value[self.item_index])

    def set(self, value: int) -> None:
        if self.item_index is None:
            setattr(self.message, self.field, value)
        else:
            getattr(self.message, self.field)[self.item_index] = value


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
        texts = _divide_layer(layer, n_devices)
        problems += [Problem(text, layer=layer.name, layer_type=layer.type) for text in texts]
    if problems:
        raise GraphError(problems)
    return split_net


def _divide_layer(layer: LayerParameter, n_devices: int) -> list[str]:
    """Divide a layer's batch sizes; return a message for each size that `n_devices` does not divide."""
    try:
        layer_type = type_of(layer)
    except GraphError:  # the layer's type is unknown
        return []
    sizes = list(_batch_sizes(layer, layer_type))
    indivisible = [size for size in sizes if size.value % n_devices]
    for size in sizes:
        if size.value and not indivisible:  # the layer itself reports a size of 0
            size.set(size.value // n_devices)
    return [
        f"{size.field_path} is {size.value}, which cannot be divided among {n_devices} devices; make it a multiple of "
        f"{n_devices}, or let each device process a full batch"
        for size in indivisible
    ]


def _batch_sizes(layer: LayerParameter, layer_type: LayerType) -> Iterator[_BatchSize]:
    if layer_type.params is not None:  # its top is a parameter of the net, as in a Parameter layer
        return
    name = layer_type.signature.param or ""
    param: Any = getattr(layer, name, None)
    fields = () if param is None else param.DESCRIPTOR.fields_by_name
    if "batch_size" in fields and layer.HasField(name):
        yield _BatchSize(param, "batch_size", None, f"{name}.batch_size")
    elif "shape" in fields:
        for shape in param.shape:
            if shape.dim:
                yield _BatchSize(shape, "dim", 0, f"{name}.shape.dim")
        for i in range(len(getattr(param, "num", ()))):  # the first axis in old files
            yield _BatchSize(param, "num", i, f"{name}.num")
    else:  # such as AnnotatedData, whose batch size is in data_param
        for field, value in layer.ListFields():
            if isinstance(value, Message) and "batch_size" in value.DESCRIPTOR.fields_by_name:
                yield _BatchSize(value, "batch_size", None, f"{field.name}.batch_size")

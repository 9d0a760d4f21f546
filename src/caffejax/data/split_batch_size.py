"""Division of the batch sizes in a net's definition by the number of devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import Message

from ..errors import GraphError, Problem
from ..graph.resolve import is_included
from ..layers import LayerType, PerLayer, type_of
from ..schema.caffe_pb2 import LayerParameter, NetParameter, NetState


class _Size(NamedTuple):
    """A batch size in a net's definition.

    Attributes:
        holder: the message that contains it.
        field: the name of its field.
        item: the index in a repeated field; None for a single field.
        text: the field's path, for messages.
    """

    holder: Any
    field: str
    item: int | None
    text: str

    @property
    def value(self) -> int:
        value = getattr(self.holder, self.field)
        return int(value if self.item is None else value[self.item])

    def set(self, value: int) -> None:
        if self.item is None:
            setattr(self.holder, self.field, value)
        else:
            getattr(self.holder, self.field)[self.item] = value


def split_batch_sizes(message: NetParameter, by: int, state: NetState | None = None) -> NetParameter:
    """Return a net whose data layers have `1 / by` of their batch size.

    Data layers are the layers without bottoms and params. If a layer reads a source or takes arrays, its `batch_size`
    is divided. For other layers, the first axis of each of their shapes is divided.

    Args:
        message: the net, as `schema.read_net` returns it. It is not changed.
        by: the number of devices.
        state: the state whose layers are divided, or None for all layers.

    Raises:
        GraphError: if batch sizes cannot be divided. The message names each such layer. Building the net finds other
            problems.
    """
    net = NetParameter()
    net.CopyFrom(message)
    problems: list[Problem] = []
    for layer in net.layer:
        if layer.bottom or not layer.top or (state is not None and not is_included(layer, state)):
            continue
        wrong = _divide(layer, by)
        problems += [Problem(text, layer=layer.name, layer_type=layer.type) for text in wrong]
    if problems:
        raise GraphError(problems)
    return net


def _divide(layer: LayerParameter, by: int) -> list[str]:
    """Divide a layer's batch sizes; return a message for each size that `by` does not divide."""
    try:
        kind = type_of(layer)
    except GraphError:  # the layer's type is unknown
        return []
    if by > 1 and isinstance(kind.implementation, PerLayer):
        return [
            f"the code of this layer determines its batch size, which cannot be divided among {by} devices; let each "
            "device process a full batch, and let the layer return the examples of one device"
        ]
    sizes = list(_sizes(layer, kind))
    wrong = [size for size in sizes if size.value % by]
    for size in sizes:
        if size.value and not wrong:  # the layer itself reports a size of 0
            size.set(size.value // by)
    return [
        f"{size.text} is {size.value}, which cannot be divided among {by} devices; make it a multiple of {by}, or let "
        "each device process a full batch"
        for size in wrong
    ]


def _sizes(layer: LayerParameter, kind: LayerType) -> Iterator[_Size]:
    """Yield the batch sizes in the definition of a layer without bottoms."""
    if kind.params is not None:  # its top is a parameter of the net, as in a Parameter layer
        return
    name = kind.signature.param or ""
    param: Any = getattr(layer, name, None)
    fields = () if param is None else param.DESCRIPTOR.fields_by_name
    if "batch_size" in fields and layer.HasField(name):
        yield _Size(param, "batch_size", None, f"{name}.batch_size")
    elif "shape" in fields:
        for shape in param.shape:
            if shape.dim:
                yield _Size(shape, "dim", 0, f"{name}.shape.dim")
        for i in range(len(getattr(param, "num", ()))):  # the first axis in old files
            yield _Size(param, "num", i, f"{name}.num")
    else:  # such as AnnotatedData, whose batch size is in data_param
        for field, value in layer.ListFields():
            if isinstance(value, Message) and "batch_size" in value.DESCRIPTOR.fields_by_name:
                yield _Size(value, "batch_size", None, f"{field.name}.batch_size")

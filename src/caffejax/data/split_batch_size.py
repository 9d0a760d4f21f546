"""Batch sizes, divided: a net whose batches are split over several devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import Message

from ..errors import GraphError, Problem
from ..graph.resolve import included
from ..layers import LayerType, PerLayer, type_of
from ..schema.caffe_pb2 import LayerParameter, NetParameter, NetState


class _Size(NamedTuple):
    """A number of examples in a definition: a field, or an item of a repeated one, and how to write of it."""

    holder: Any
    field: str
    place: int | None
    text: str

    @property
    def value(self) -> int:
        found = getattr(self.holder, self.field)
        return int(found if self.place is None else found[self.place])

    def set(self, value: int) -> None:
        if self.place is None:
            setattr(self.holder, self.field, value)
        else:
            getattr(self.holder, self.field)[self.place] = value


def divided(message: NetParameter, by: int, state: NetState | None = None) -> NetParameter:
    """Return a net whose data layers each give `1 / by` of the examples in a batch.

    These are the layers without bottoms and params: of those that read or take arrays `batch_size` is divided, of
    those that are fed or make their tops the first axis of each shape.

    Args:
        message: the net, as `schema.read_net` gives it. It is not changed.
        by: how many devices share a batch.
        state: what layers to divide: those included in it; all unless given.

    Raises:
        GraphError: naming every layer whose batch cannot be divided. What else is wrong is said when the net is built.
    """
    net = NetParameter()
    net.CopyFrom(message)
    problems: list[Problem] = []
    for layer in net.layer:
        if layer.bottom or not layer.top or (state is not None and not included(layer, state)):
            continue
        wrong = _divide(layer, by)
        problems += [Problem(text, layer=layer.name, layer_type=layer.type) for text in wrong]
    if problems:
        raise GraphError(problems)
    return net


def _divide(layer: LayerParameter, by: int) -> list[str]:
    """Divide a layer's sizes; return what is wrong with them."""
    try:
        kind = type_of(layer)
    except GraphError:  # there is no such type
        return []
    if by > 1 and isinstance(kind.implementation, PerLayer):
        return [
            f"what such a layer gives is settled by its own code, so its batch cannot be divided among {by} devices; "
            "have each device take a whole batch, and the layer give as many examples as one device is to take"
        ]
    sizes = list(_sizes(layer, kind))
    wrong = [size for size in sizes if size.value % by]
    for size in sizes:
        if size.value and not wrong:  # without a size, the layer itself will complain
            size.set(size.value // by)
    return [
        f"{size.text} is {size.value}, which cannot be divided among {by} devices; make it a multiple of {by}, or have "
        "each device take a whole batch"
        for size in wrong
    ]


def _sizes(layer: LayerParameter, kind: LayerType) -> Iterator[_Size]:
    """Yield every place in a layer without bottoms that says how many examples a batch has."""
    if kind.params is not None:  # its top is a param of the net's, such as that of a Parameter layer
        return
    name = kind.signature.param or ""
    own: Any = getattr(layer, name, None)
    fields = () if own is None else own.DESCRIPTOR.fields_by_name
    if "batch_size" in fields and layer.HasField(name):
        yield _Size(own, "batch_size", None, f"{name}.batch_size")
    elif "shape" in fields:
        for shape in own.shape:
            if shape.dim:
                yield _Size(shape, "dim", 0, f"{name}.shape.dim")
        for i in range(len(getattr(own, "num", ()))):  # how old files write the first axis
            yield _Size(own, "num", i, f"{name}.num")
    else:  # such as AnnotatedData, whose batch size stands in data_param, and forks that have it elsewhere
        for field, value in layer.ListFields():
            if isinstance(value, Message) and "batch_size" in value.DESCRIPTOR.fields_by_name:
                yield _Size(value, "batch_size", None, f"{field.name}.batch_size")

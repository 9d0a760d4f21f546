"""Nets with host layers as one program, in which these layers are callbacks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from ...base.errors import LayerError
from ..graph import Graph, Layer
from ..layers import HostFunction
from ..layers.host_call import HostCalls
from ..layers.row_padding import RowsOrigin, rows_axis
from .schedule import LayerSchedule, find_top_rows, fuse, make_part

log = logging.getLogger("caffejax.net")


def schedule_for_tracing(graph: Graph) -> LayerSchedule:
    """Return the schedule of a net with host layers in code that JAX traces: one part, without the layers that write.

    Log which layers are left out, and which may not run exactly once a pass.


    Raises:
        LayerError: if a host layer would get rows of padding, because a layer before it depends on all rows.
    """
    layers = [layer for layer in graph.layers if layer not in find_writers(graph)]
    for layer in find_layers_without_padding(graph, {}, marked=True):
        if _is_read_on_host(graph, layer):
            with layer.locate_errors():
                raise LayerError(
                    "depends on all rows of a blob whose number of rows depends on values, and a layer on the host "
                    "follows, so JAX cannot trace it: call the net outside of JAX's transformations"
                )
    _warn_of_callbacks(graph)
    return fuse(LayerSchedule(graph, (replace(make_part(layers), tracks_rows=True),) if layers else ()))


def schedule_in_order(graph: Graph) -> LayerSchedule | None:
    """Return a schedule of one part with all layers, where those on the host are callbacks that run once, in order.

    The result is None if no layer runs on the host, or if some cannot run in a program.
    """
    if not graph.has_host_layers or find_layers_outside_programs(graph):
        return None
    return fuse(LayerSchedule(graph, (replace(make_part(graph.layers), tracks_rows=True, calls=HostCalls()),)))


def find_layers_outside_programs(graph: Graph) -> list[Layer]:
    """Return the layers that keep the net from running as one program, as they need the exact shapes of their bottoms.

    These are host layers that may give their tops other shapes in each pass, and layers that cannot run on padded rows.
    """
    may_reshape = [
        layer
        for layer in graph.layers
        if isinstance(function := layer.type.implementation, HostFunction) and function.may_reshape
    ]
    return may_reshape + find_layers_without_padding(graph, {}, marked=True)


def find_layers_without_padding(graph: Graph, input_origins: Mapping[str, RowsOrigin], *, marked: bool) -> list[Layer]:
    """Return the layers that read blobs with rows of padding, but depend on all rows. Layers after them are left out.

    Args:
        graph: the graph.
        input_origins: where the rows of those inputs come from that have rows of padding.
        marked: whether rows that layers pad, see `LayerTraits.pads_rows`, are rows of padding, too.
    """
    origins: dict[str, RowsOrigin] = {}
    layers = []
    unknown: set[str] = set()  # blobs whose rows such layers compute
    for layer in graph.layers:
        tops = find_top_rows(layer, {name: origins[name] for name in layer.bottoms if name in origins})
        is_after = not unknown.isdisjoint(layer.bottoms)
        if tops is None and not is_after:
            layers.append(layer)
        unknown = unknown.union(layer.tops) if tops is None or is_after else unknown.difference(layer.tops)
        for i, name in enumerate(layer.tops):
            origin = None if tops is None else tops[i]
            if layer.type.is_input:
                origin = input_origins.get(name)
            elif marked and layer.type.traits.pads_rows and not layer.type.on_host:
                origin = RowsOrigin(layer.key, rows_axis(graph.blobs[name]), is_marked=True)
            origins.pop(name, None)
            if origin is not None:
                origins[name] = origin
    return layers


def _is_read_on_host(graph: Graph, layer: Layer) -> bool:
    """Return whether a layer, or one that reads what it computes, runs on the host."""
    blobs = set(layer.tops)
    for reader in graph.layers[graph.layers.index(layer) + 1 :]:
        if not blobs.isdisjoint(reader.bottoms):
            if reader.type.on_host and reader.tops:
                return True
            blobs.update(reader.tops)
    return layer.type.on_host


def find_writers(graph: Graph) -> tuple[Layer, ...]:
    """Return the host layers without tops. They have an effect, such as a file that they write, but no result."""
    return tuple(layer for layer in graph.layers if layer.type.on_host and not layer.tops)


def _warn_of_callbacks(graph: Graph) -> None:
    writers = find_writers(graph)
    if writers:
        names = ", ".join(f"'{layer.name}'" for layer in writers)
        log.warning("these layers only write, and are left out where JAX traces the net: %s", names)
    user_layers = [x for x in graph.layers if x.type.on_host and x.type.instance is not None and x.tops]
    if unmarked := [x.name for x in user_layers if not getattr(x.type.instance, "stateless", False)]:
        names = ", ".join(f"'{name}'" for name in unmarked)
        log.warning(
            "where JAX traces the net, these Python layers may not run exactly once a pass: %s. If what they "
            "compute depends on their arguments alone, set stateless = True in their classes",
            names,
        )

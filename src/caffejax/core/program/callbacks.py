"""Nets with host layers as one program, in which these layers are callbacks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from ..graph import Graph, Layer
from ..layers.host_call import HostCalls
from ..layers.row_padding import RowsOrigin, rows_axis
from .schedule import LayerSchedule, find_top_rows, fuse, make_part

log = logging.getLogger("caffejax.net")


def schedule_for_tracing(graph: Graph) -> LayerSchedule:
    """Return the schedule of a net with host layers in code that JAX traces: one part, without the layers that write.

    Log which layers are left out, and which may not run exactly once a pass.
    """
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
    return _make_schedule(graph, (layer for layer in graph.layers if layer not in writers), None)


def schedule_in_order(graph: Graph) -> LayerSchedule | None:
    """Return a schedule of one part with all layers, where those on the host are callbacks that run once, in order.

    The result is None if no layer runs on the host, or if some cannot run in a program.
    """
    if not graph.has_host_layers or find_layers_outside_programs(graph):
        return None
    return _make_schedule(graph, graph.layers, HostCalls())


def _make_schedule(graph: Graph, layers: Iterable[Layer], calls: HostCalls | None) -> LayerSchedule:
    part = replace(make_part(layers), tracks_rows=True, calls=calls)
    return fuse(LayerSchedule(graph, (part,) if part.steps else ()))


def find_layers_outside_programs(graph: Graph) -> list[Layer]:
    """Return the host layers that keep the net from running as one program.

    They may give their tops other shapes in each pass, whose largest are unknown.
    """
    return [layer for layer in graph.layers if getattr(layer.type.implementation, "may_reshape", False)]


def find_layers_without_padding(
    graph: Graph, input_origins: Mapping[str, RowsOrigin] = MappingProxyType({})
) -> list[Layer]:
    """Return the layers that read blobs with rows of padding, but depend on all rows. Layers after them are left out.

    Args:
        graph: the graph.
        input_origins: where the rows of those inputs come from that have rows of padding.
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
            elif graph.has_host_layers and layer.type.traits.pads_rows and not layer.type.on_host:
                origin = RowsOrigin(layer.key, rows_axis(graph.blobs[name]), is_marked=True)
            origins.pop(name, None)
            if origin is not None:
                origins[name] = origin
    return layers


def find_writers(graph: Graph) -> tuple[Layer, ...]:
    """Return the host layers without tops. They have an effect, such as a file that they write, but no result."""
    return tuple(layer for layer in graph.layers if layer.type.on_host and not layer.tops)

"""Nets with host layers as one program, in which these layers are callbacks."""

from __future__ import annotations

import logging
from dataclasses import replace

from ...base.errors import LayerError
from ..graph import Graph, Layer
from ..layers import HostFunction
from ..layers.host_call import HostCalls
from .schedule import LayerSchedule, find_padded_blobs, fuse, make_part

log = logging.getLogger("caffejax.net")


def schedule_for_tracing(graph: Graph) -> LayerSchedule:
    """Return the schedule of a net with host layers in code that JAX traces: one part, without the layers that write.

    Log which layers are left out, and which may not run exactly once a pass.

    Raises:
        LayerError: if a host layer reads a blob with padded rows, whose number is not known in traced code.
    """
    padded_blobs = find_padded_blobs(graph.layers)
    layers = [layer for layer in graph.layers if layer not in find_writers(graph)]
    for layer in layers:
        padded_bottoms = [name for name in layer.bottoms if name in padded_blobs]
        if layer.type.on_host and padded_bottoms:
            with layer.locate_errors():
                raise LayerError(
                    f"runs on the host and reads '{padded_bottoms[0]}', whose number of rows depends on values, so JAX "
                    "cannot trace it: call the net outside of JAX's transformations; only jax.grad is possible"
                )
    _warn_of_callbacks(graph)
    return fuse(LayerSchedule(graph, (make_part(layers),) if layers else ()))


def schedule_in_order(graph: Graph) -> LayerSchedule | None:
    """Return a schedule of one part with all layers, where those on the host are callbacks that run once, in order.

    The result is None if no layer runs on the host, or if the shapes of some blobs depend on values.
    """
    if not graph.has_host_layers or find_layers_outside_programs(graph):
        return None
    return fuse(LayerSchedule(graph, (replace(make_part(graph.layers), calls=HostCalls()),)))


def find_layers_outside_programs(graph: Graph) -> list[Layer]:
    """Return the host layers that cannot be callbacks of a program, because shapes of blobs depend on values."""
    padded_blobs = find_padded_blobs(graph.layers)
    return [
        layer
        for layer in graph.layers
        if isinstance(function := layer.type.implementation, HostFunction)
        and (function.ragged or function.may_reshape or not padded_blobs.keys().isdisjoint(layer.bottoms))
    ]


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

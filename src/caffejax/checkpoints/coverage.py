"""Which layers of a net weights were found for, and what is said of the others."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence

from ..errors import WeightsError
from ..graph import Graph, Layer, Param
from ..graph.graph import Slot
from ..sizes import counted

log = logging.getLogger("caffejax")

_SHOWN = 20


def has_own_values(layer: Layer, param: Param) -> bool:
    """Return whether the net's own definition says what a blob holds: it needs none from a file."""
    return bool(layer.site.layer.blobs) or param.spec.value is not None


def layers_without(graph: Graph, found: Collection[Slot]) -> list[Layer]:
    """Return the layers with a blob of their own that was not found, nor stands in the net's definition."""
    return [
        layer
        for layer in graph.layers
        if any(p.is_owner and p.owner not in found and not has_own_values(layer, p) for p in layer.params)
    ]


def tell_coverage(graph: Graph, found: Collection[Slot], files: Sequence[str | os.PathLike[str]], strict: bool) -> None:
    """Name the layers that files have no weights for: in the log, in TEST as a warning; if strict, in an error.

    Args:
        graph: the net's graph.
        found: the blobs that were found.
        files: where, for messages.
        strict: whether there must be weights for every layer that has some.

    Raises:
        WeightsError: if strict, naming every layer without weights.
    """
    without = layers_without(graph, found)
    if not without:
        return
    names = ", ".join(os.fspath(file) for file in files)
    if strict:
        reason = f"has no weights in {names}, and strict_weights (--strict_weights) wants some; layers match by name"
        raise WeightsError(layer.problem(reason) for layer in without)
    layers_found = [layer.name for layer in graph.layers if layer.params and layer not in without]
    log.info("Weights from %s for %s", names, _listed(layers_found))
    level = logging.WARNING if graph.phase == "TEST" else logging.INFO
    log.log(level, "No weights in %s for %s: as the fillers made them", names, _listed([x.name for x in without]))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{counted(len(names), 'layer')}: {', '.join(names[:_SHOWN])}{more}" if names else "no layer"

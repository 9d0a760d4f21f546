"""How data layers read: a look at the source when the graph is built, then batches by number, read ahead."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from ..errors import DataError, located
from ..layers.context import Site
from ..layers.source import Look, Source, Tops
from ..layers.types import Reads
from .pipeline import Batches, Pipeline


class OpenBatches(Protocol):
    """A function that opens a layer's batches. Given the `tops` that an earlier look has shown, it takes none."""

    def __call__(self, site: Site, tops: Tops | None = None) -> Batches:
        """Open them."""
        ...


def reads_batches(
    open_batches: OpenBatches,
    depth: Callable[[Site], int],
    make_finish: Callable[[Site], Callable[..., Any]] | None = None,
) -> Reads:
    """Return how a type reads whose tops are batches by number.

    Args:
        open_batches: opens a layer's batches.
        depth: gives how many to keep ready.
        make_finish: makes `Look.finish` for a layer, if something is left to do on the device.
    """

    def look_at_batches(site: Site) -> Look:
        with located(layer=site.layer.name, layer_type=site.layer.type):
            if depth(site) < 1:
                raise DataError(f"prefetch is {depth(site)}; at least 1 batch must be kept ready")
        batches = open_batches(site)
        batches.close()
        return Look(batches.tops, None if make_finish is None else make_finish(site))

    def open_source(site: Site, tops: Tops) -> Source:
        return Pipeline(open_batches(site, tops), depth(site), site.reading.workers)

    return Reads(functools.update_wrapper(look_at_batches, open_batches), open_source)


def prefetch_depth(site: Site) -> int:
    """Return how many batches data_param wants to be kept ready. Other layers than Data take it from there as well."""
    return int(site.layer.data_param.prefetch)

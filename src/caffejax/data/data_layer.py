"""The common part of all data layers: the source is probed when the graph is built, then read batch by batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from ..errors import DataError, located
from ..layers.context import Site
from ..layers.source import Look, Source, Tops
from ..layers.types import Reads
from ..machine import memory
from ..sizes import in_words
from .prefetch import Batches, Pipeline

_MOST_AHEAD = 1024  # batches


def reads_batches(
    look: Callable[[Site], Look],
    open_batches: Callable[[Site, Tops], Batches],
    depth: Callable[[Site], int],
) -> Reads:
    """Return how a type reads whose tops are batches by number. Errors of both functions name the layer.

    Args:
        look: checks a layer's settings and reads of its source what the tops' shapes follow from; keeps nothing open.
        open_batches: opens a layer's batches, given the tops that the look has shown.
        depth: gives how many batches to keep ready, for each that is taken at a time.
    """

    @functools.wraps(look)
    def checked_look(site: Site) -> Look:
        with located(layer=site.layer.name, layer_type=site.layer.type):
            if not 1 <= depth(site) <= _MOST_AHEAD:
                what = "at least 1 batch must" if depth(site) < 1 else f"at most {_MOST_AHEAD} batches can"
                raise DataError(f"prefetch is {depth(site)}; {what} be kept ready")
            return look(site)

    @functools.wraps(open_batches)
    def open_source(site: Site, tops: Tops) -> Source:
        with located(layer=site.layer.name, layer_type=site.layer.type):
            _check_room(tops)
            share = site.reading.share
            return Pipeline(open_batches(site, tops), depth(site) * share.count, site.reading.workers, share)

    return Reads(checked_look, open_source)


def _check_room(tops: Tops) -> None:
    """Raise `DataError` for a batch that no memory of this machine could hold."""
    size, there = sum(math.prod(top.shape) * top.dtype.itemsize for top in tops), memory()
    if size > there:
        raise DataError(
            f"a batch takes {in_words(size)}, and there are {in_words(there)} of memory in all; "
            "make batch_size, or what is cut out of each image, smaller"
        )


def prefetch_depth(site: Site) -> int:
    """Return how many batches data_param wants to be kept ready. Other layers than Data take it from there as well."""
    return int(site.layer.data_param.prefetch)

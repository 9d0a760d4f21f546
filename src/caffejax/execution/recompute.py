"""The pass that trades computing for memory: parts of a schedule that are run again in the backward pass.

Training keeps what the backward pass will read. Of a part that runs again only what crosses its ends is kept; the
backward pass runs its layers once more and then has the rest.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import jax

from ..sizes import counted, in_words
from .groups import Groups, choose_groups
from .limit import available_memory
from .model import Schedule
from .running import Given
from .units import size, units_of

log = logging.getLogger("caffejax.net")

_TIMES_PARAMS = 3  # the parameters, their gradients and the solver's history


class Recomputing:
    """Chooses the parts that run again, for each shape of the inputs once.

    Args:
        schedule: of one part, without host layers.
        limit: bytes that training may take, parameters, gradients and history included; what the device has free
            unless given.
    """

    def __init__(self, schedule: Schedule, limit: int | None = None) -> None:
        self._schedule, self._limit = schedule, limit
        self._chosen: dict[Any, Groups] = {}

    def groups(self, given: Given) -> Groups:
        """Return what is run twice for arrays, or `jax.ShapeDtypeStruct`, of these shapes."""
        shapes = tuple((name, x.shape, x.dtype) for name, x in sorted(given.inputs.items()))
        if shapes not in self._chosen:
            limit = available_memory(jax.devices()[0]) if self._limit is None else self._limit
            self._chosen[shapes] = groups = groups_for(self._schedule, given, limit)
            _log(groups, limit, len(self._schedule.graph.layers))
        return self._chosen[shapes]

    def schedule(self, given: Given) -> Schedule:
        """Return the schedule for such arrays."""
        return recompute(self._schedule, self.groups(given._replace(taps={})))


def groups_for(schedule: Schedule, given: Given, limit: int) -> Groups:
    """Return what a schedule of one part, without host layers, runs twice for a limit in bytes, and what it takes."""
    fixed = _TIMES_PARAMS * size(given.params) + size(given.state) + size(given.inputs)
    return choose_groups(*units_of(schedule, given), limit, fixed)


def recompute(schedule: Schedule, groups: Groups) -> Schedule:
    """Make each group a part; all but the last run again in the backward pass."""
    (part,) = schedule.parts
    *first, last = groups.groups
    again = (replace(part, steps=steps, how="again") for steps in first)
    return replace(schedule, parts=(*again, replace(part, steps=last)))


def _log(groups: Groups, limit: int, layers: int) -> None:
    need, without = in_words(groups.peak), in_words(groups.without)
    if groups.recomputed:
        log.info(
            f"Recomputing {groups.recomputed} of {layers} layers in {counted(len(groups.groups) - 1, 'group')}: "
            f"training takes about {need} instead of {without}; the limit is {in_words(limit)}."
        )
    if not groups.fits:
        log.warning(
            f"training takes about {need}, more than the limit of {in_words(limit)}, even with recomputation; "
            "a smaller batch (and iter_size for more passes per update) takes less"
        )

"""Which layers are run twice: groups of them such that memory suffices and as few as possible are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .model import Step
from .units import Unit, Value

_HALVINGS = 40


@dataclass(frozen=True)
class Groups:
    """Groups of layers, of which all but the last are run again in the backward pass.

    Attributes:
        groups: the net's steps, in order.
        fixed: bytes that training holds throughout: parameters, gradients, history, statistics, a batch.
        peak: an estimate of the bytes that training takes at most: these, activations and their diffs.
        without: the same if nothing were run twice.
        fits: whether `peak` is within the limit; if not, it is the least there is.
    """

    groups: tuple[tuple[Step, ...], ...]
    fixed: int
    peak: int
    without: int
    fits: bool

    @property
    def recomputed(self) -> int:
        """How many layers are run twice."""
        return sum(len(step.layers) for group in self.groups[:-1] for step in group)


def choose_groups(units: Sequence[Unit], values: Sequence[Value], limit: int, fixed: int = 0) -> Groups:
    """Choose groups for a limit in bytes, `fixed` of them taken: one where all fits, else as few recomputed as will do.

    The backward pass of a group holds what crosses the ends of the groups up to it, what the group keeps inside, and
    diffs. The last group's backward pass comes right after its forward pass, so that one need not be run again; it
    begins as early as memory allows. Before it, ends lie where the least crosses them.
    """
    costs = _Costs(units, values)
    everything = costs.inside[0, -1]
    cuts = costs.cuts(limit - fixed)
    fits = cuts is not None
    if cuts is None:
        too_low, enough = float(limit - fixed), float(everything)
        for _ in range(_HALVINGS):
            middle = (too_low + enough) / 2
            too_low, enough = (middle, enough) if costs.cuts(middle) is None else (too_low, middle)
        cuts = costs.cuts(enough) or ([0], everything)
    starts, peak = cuts
    groups = [
        tuple(step for unit in units[a:b] for step in unit.steps)
        for a, b in zip(starts, [*starts[1:], len(units)], strict=True)
    ]
    return Groups(tuple(groups), fixed, fixed + int(peak), fixed + int(everything), fits)


class _Costs:
    """Bytes by where a group starts and where it ends, both counted in units.

    Attributes:
        inside: what the group's backward pass holds besides what crosses the ends of groups.
        crossing: what is made in the group and read after it.
    """

    def __init__(self, units: Sequence[Unit], values: Sequence[Value]) -> None:
        n = len(units)
        self.crossing = np.zeros((n + 1, n + 1))
        for v in values:
            self.crossing[: v.made + 1, v.made + 1 : v.last + 1] += v.bytes
        residuals = np.concatenate([[0], np.cumsum([float(u.residuals) for u in units])])
        passing = np.array([float(u.passing) for u in units])
        self.inside = np.full((n + 1, n + 1), np.inf)
        for start in range(n):
            most = np.maximum.accumulate(passing[start:])
            self.inside[start, start + 1 :] = residuals[start + 1 :] - residuals[start] + most

    def cuts(self, limit: float) -> tuple[list[int], float] | None:
        """Return where the groups start, and the peak, such that it stays within the limit; None if it cannot."""
        n = len(self.inside) - 1
        held = np.full(n, np.inf)  # the least that crosses the ends of the groups before this place
        held[0] = 0
        previous = np.zeros(n, int)
        for end in range(1, n):
            possible = held[:end] + self.inside[:end, end] <= limit
            total = np.where(possible, held[:end] + self.crossing[:end, end], np.inf)
            previous[end] = np.argmin(total)
            held[end] = total[previous[end]]
        last = np.flatnonzero(held + self.inside[:n, n] <= limit)
        if not last.size:
            return None
        starts = [int(last[0])]
        while starts[0]:
            starts.insert(0, int(previous[starts[0]]))
        ends = [*starts[1:], n]
        return starts, float(max(held[a] + self.inside[a, b] for a, b in zip(starts, ends, strict=True)))

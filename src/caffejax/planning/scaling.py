"""What collectives take at the speed of links and network, and how a step scales by that: computed, not measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .program import Collective
from .targets import Chip

FORWARD = 1 / 3  # of a step, before there are gradients to add up: a backward pass is two forward passes


@dataclass(frozen=True)
class Scaled:
    """A training step on so many devices, each with as much to do as on the devices that it was compiled for.

    Attributes:
        devices: how many.
        alone: the least seconds that a device's own part takes.
        collectives: the least seconds that collectives take, over links and network.
    """

    devices: int
    alone: float
    collectives: float

    @property
    def best(self) -> float:
        """Seconds of a step if collectives go on beside the backward pass."""
        return max(self.alone, FORWARD * self.alone + self.collectives)

    @property
    def worst(self) -> float:
        """Seconds of a step if everything waits for them."""
        return self.alone + self.collectives

    @property
    def efficiency(self) -> tuple[float, float]:
        """The share of time that is a device's own part: at worst, at best."""
        return self.alone / self.worst, self.alone / self.best


def scaled(alone: float, collectives: Iterable[Collective], chip: Chip, rows: int, model: int = 1) -> Scaled:
    """Return how a step of which each device's own part takes `alone` seconds scales to rows of `model` devices."""
    return Scaled(rows * model, alone, sum(link_seconds(collectives, chip, rows, model)))


def link_seconds(collectives: Iterable[Collective], chip: Chip, rows: int, model: int = 1) -> tuple[float, float]:
    """Return the least seconds that collectives take on links, and on the network, with rows of `model` devices each.

    They are those of a compiled program, which may have been for another number of rows. What is done by rings takes
    `(n - 1) / n` of its bytes over a device's links, an all-reduce twice that. Of more devices than links join, those
    that are joined first add up, or at last hand on, what each of them then sends over the network.
    """
    links = network = 0.0
    for c in collectives:
        n = c.over if c.is_within(model) else c.over // c.rows_of(model) * rows
        if n < 2:
            continue
        near = min(n, max(1, chip.joined // c.step))
        groups = -(-n // near)
        links += c.count * c.moved(near, c.whole) / chip.link
        network += c.count * c.moved(groups, c.whole / near) / chip.network
    return links, network

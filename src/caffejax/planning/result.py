"""What was found out about a net on a target, measured against what the target can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .program import Program
from .scaling import Scaled, link_seconds, scaled
from .targets import Target

USABLE = 0.95  # of a device's memory; the rest is the runtime's own


@dataclass(frozen=True)
class Plan:
    """A net on a target.

    Attributes:
        target: the devices.
        precision: of the net.
        phase: "TRAIN" for a training step, "TEST" for a forward pass.
        batch: examples a device; of devices that cut weights among them, those of a row.
        program: what each device does; None if the compiler says that it does not fit.
        needed: bytes of each device's memory that it takes.
        operations: of each device, in products and convolutions; a multiply-add is two.
        compile_seconds: what compiling took here.
        model: over how many devices each large weight is cut.
        largest_batch: about the most examples a device for which it fits, 0 for none; None if that was not looked for.
    """

    target: Target
    precision: str
    phase: str
    batch: int
    program: Program | None
    needed: int
    operations: int
    compile_seconds: float
    model: int = 1
    largest_batch: int | None = None

    @property
    def usable(self) -> int:
        """Bytes of a device's memory that a program may take."""
        return int(self.target.chip.memory * USABLE)

    @property
    def fits(self) -> bool:
        """Whether it fits into memory."""
        return self.program is not None and self.needed <= self.usable

    @property
    def rows(self) -> int:
        """How many batches there are in a step."""
        return self.target.devices // self.model

    @property
    def seconds(self) -> dict[str, float]:
        """The least time that each takes: "arithmetic", "memory", and between devices "links" and the "network"."""
        found = {"arithmetic": self.operations / self.target.chip.peak(self.precision)}
        if self.program is not None:
            found["memory"] = self.program.traffic / self.target.chip.bandwidth
            links, network = link_seconds(self.program.collectives, self.target.chip, self.rows, self.model)
            found |= {"links": links} | ({"network": network} if network else {})
        return found

    def scaling(self, devices: Sequence[int]) -> list[Scaled]:
        """Return how a training step would scale to so many devices, each with as much to do as here.

        None come back unless it was compiled for several devices that take a batch each, and fits.
        """
        if self.program is None or not self.fits or self.phase != "TRAIN" or self.rows < 2:
            return []
        own = max(self.seconds["arithmetic"], self.seconds["memory"])
        chip, within = self.target.chip, [n for n in devices if n % self.model == 0]
        return [scaled(own, self.program.collectives, chip, n // self.model, self.model) for n in within]

    @property
    def best(self) -> float:
        """The best possible time of a step in seconds, if all three go on at once."""
        return max(self.seconds.values())

    @property
    def bound_by(self) -> str:
        """What that time is spent on."""
        return max(self.seconds, key=self.seconds.__getitem__)

    @property
    def examples_per_second(self) -> float:
        """Of all devices, at the best possible time."""
        return self.batch * self.rows / self.best

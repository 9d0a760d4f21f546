"""What the training loop asks of what makes its updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import jax
import numpy as np

from ..net import Params, Variables
from .state import StepResult, TrainState


class Updater(Protocol):
    """What makes updates, wherever it keeps what it trains.

    Attributes:
        train_state: params, running statistics, optimizer state, iteration and key, as they are now.
        last_update: what the last update subtracted, where that is kept.
    """

    train_state: TrainState
    last_update: Params | None

    @property
    def waited(self) -> float:
        """Seconds for which the devices have waited for data; 0 where that is not measured."""

    @property
    def variables(self) -> Variables:
        """The params and running statistics of `train_state`."""

    @property
    def wanted(self) -> TrainState:
        """The shapes of `train_state`, and how a checkpoint is to be read."""

    @property
    def cut(self) -> tuple[TrainState, Params | None]:
        """As `train_state`, but as it lies; and the running statistics of each of several devices."""

    def restore(self, state: TrainState, each: Params | None) -> None:
        """Go on from a state that was read as wanted, with the statistics of each device that it was saved from."""

    @property
    def steps_per_dispatch(self) -> int:
        """How many updates one call of `update` makes where nothing is due between them; else one."""

    def update(
        self, iteration: int, rates: Sequence[np.float32], *, debug_info: bool, asked: jax.Array | None
    ) -> StepResult:
        """Make an update for each rate, the first of them that of `iteration`; log debug info if told to.

        `asked` is what processes ask each other for, where they are several: the result has what all do.
        """

    def final_loss(self) -> jax.Array:
        """Run forward once more, on the next batch; return the loss."""

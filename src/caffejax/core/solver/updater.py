"""`Updater`, which owns the train state of a solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import numpy as np

from ...base.variables import Params
from .placement import Placement
from .reporting import DataWait
from .train_state_io import check_state
from .train_step import StepResult, TrainState

T = TypeVar("T")


class Updater:
    """Owns a train state, and applies updates to it.

    Args:
        placement: the placement of the state on devices.
        initial_state: the initial state, placed on the devices.

    Attributes:
        data_wait: measures the time for which the devices have waited for data.
        last_update: the arrays that the last update subtracted from the parameters, or None if they are not stored.
        steps_per_dispatch: the number of updates in one call of `update` if no display, test or snapshot is due between
            them.
        takes_fewer_steps: whether a call may make fewer updates, with the same bits.
        ends_with_single_step: whether the last of several iterations that a user asks for is an update alone.
    """

    steps_per_dispatch = 1
    takes_fewer_steps = False
    ends_with_single_step = False

    def __init__(self, placement: Placement, initial_state: TrainState) -> None:
        self._placement, self._state, self.data_wait = placement, initial_state, DataWait()
        self.last_update: Params | None = None
        self._read_error: BaseException | None = None

    @property
    def train_state(self) -> TrainState:
        """The state, with the first row's running statistics. Sharded arrays keep their shardings."""
        return self.sharded_state[0]

    @train_state.setter
    def train_state(self, new_state: TrainState) -> None:
        check_state(new_state, self.abstract_state)
        self._state = self._placement.place_state(new_state.replace(rule=self._state.rule))

    @property
    def abstract_state(self) -> TrainState:
        """The shapes and dtypes of `train_state`, with the shardings that arrays get when a checkpoint is restored."""
        return self._placement.abstract_state(self._state)

    @property
    def sharded_state(self) -> tuple[TrainState, Params | None]:
        """`(state, statistics)`: the state with sharded arrays, and the running statistics of each row of devices.

        With one row, `statistics` is None.
        """
        return self._placement.split_statistics(self._state)

    def restore(self, state: TrainState, row_statistics: Params | None) -> None:
        """Replace the state with a state that was read from a snapshot.

        Args:
            state: a state with the shapes of `abstract_state`.
            row_statistics: the running statistics of each row of devices, stacked on axis 0, or None to use the
                statistics in `state`.
        """
        self._state, self.last_update = self._placement.place_restored(state, row_statistics), None
        self._read_error = None

    def update(
        self,
        iteration: int,
        rates: Sequence[np.float32],
        *,
        debug_info: bool = False,
        requests: jax.Array | None = None,
    ) -> StepResult:
        """Make one update for each rate, or, if the data of a later one cannot be read, those before it.

        The next call then raises the error. The loss in the result tells how many updates were made.

        Args:
            iteration: the number of the first update.
            rates: the learning rates, float32.
            debug_info: whether to log Caffe's debug info (mean absolute values of blobs) before the update.
            requests: the encoded requests of all processes, or None for one process. The result contains their sum.
        """
        raise NotImplementedError

    def _raise_read_error(self) -> None:
        if (error := self._read_error) is not None:
            self._read_error = None
            raise error

    def _read_iterations(self, n: int, read: Callable[[], T]) -> list[T]:
        """Read the batches of n iterations, or of those before one that cannot be read, and keep the error."""
        batches: list[T] = []
        try:
            for _ in range(n):
                batches.append(read())
        except BaseException as error:
            if not batches or jax.process_count() > 1:  # the others have as many updates in their program
                raise
            self._read_error = error
        return batches

    def final_loss(self) -> jax.Array:
        """Return the loss of a forward pass on the next batch, a float32 scalar."""
        raise NotImplementedError

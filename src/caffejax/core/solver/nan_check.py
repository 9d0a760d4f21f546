"""Check for NaN and infinity, which stops training before non-finite numbers are saved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import Problem, SolverError
from ...base.variables import Variables
from ..program.net import Net
from .find_nonfinite import NonFinite, find_nonfinite, find_nonfinite_variable
from .train_step import TrainState, pass_key

MAX_UNREAD = 100  # the number of newest losses that stay unread; older ones are complete, so reading them does not wait

ADVICE = (
    "Training has diverged: lower base_lr, set clip_gradients, "
    "and check that all labels are below the number of classes"
)
START_ADVICE = (
    "No update has been made yet, so the learning rate is not the reason: look for NaN and infinity in the data and in "
    "the weights, for labels that are not below the number of classes, and for numbers that a layer cannot take, such "
    "as the logarithm of 0"
)


class FiniteCheck:
    """Checks losses and parameters for NaN and infinity during training.

    A loss is checked when it is displayed, before a snapshot, or after at least 100 newer losses, so that a training
    step never waits for the device. With `every_step`, each step waits, and the error names the layer in which a
    non-finite number arose.

    Args:
        net: the train net.
        iter_size: the number of passes per iteration.
        every_step: whether `check_step` is called after every step. The step must then not donate its arguments,
            because `check_step` reads the state before the step.

    Attributes:
        every_step: the argument `every_step`.
        last_good_checkpoint: the name of the newest snapshot whose numbers are finite, or None.
    """

    def __init__(self, net: Net, iter_size: int, every_step: bool = False) -> None:
        self.last_good_checkpoint: str | None = None
        self.every_step = every_step
        self._net, self._iter_size = net, iter_size
        self._unread: list[tuple[int, jax.Array]] = []
        self._last_finite_iteration: int | None = None  # the last iteration whose loss is known to be finite
        self._first_iteration: int | None = None  # the first one since the start, or since a snapshot was restored
        self._all_finite = jax.jit(_all_finite)

    def record_losses(self, iteration: int, losses: jax.Array) -> None:
        """Store the loss of an iteration, or the losses of consecutive iterations that begin at `iteration`.

        Args:
            iteration: the number of the iteration.
            losses: a float32 scalar, or an array of shape (iterations,).

        Raises:
            SolverError: if this call reads stored losses from the device, and one of them is not finite.
        """
        if self._first_iteration is None:
            self._first_iteration = iteration
        self._unread.append((iteration, losses))
        if self.every_step:
            self._read(len(self._unread))
        elif len(self._unread) >= 2 * MAX_UNREAD:
            self._read(MAX_UNREAD)

    def check_step(
        self,
        iteration: int,
        previous_state: TrainState,
        batches: Mapping[str, jax.Array],
        new_state: TrainState,
        loss: jax.Array,
    ) -> None:
        """Check the loss and the new state of an iteration immediately.

        Args:
            iteration: the number of the iteration.
            previous_state: the state before the iteration.
            batches: the batches of the iteration, stacked on axis 0.
            new_state: the state after the iteration.
            loss: the loss of the iteration.

        Raises:
            SolverError: if a number is not finite. The message names the layer where it arose.
        """
        if not self._all_finite((loss, new_state.params, new_state.state)):
            self._unread.append((iteration, loss))  # so that `check` also raises an error
            keys = [pass_key(previous_state, pass_index) for pass_index in range(self._iter_size)]
            nonfinite = find_nonfinite(self._net, previous_state.variables, batches, keys, new_state.variables)
            advice = START_ADVICE if self._first_iteration is None else ADVICE
            raise SolverError(self._problem(iteration, nonfinite, advice))

    def check(self, variables: Variables | None = None) -> None:
        """Check all stored losses. If `variables` is not None, check its parameters and running statistics too.

        Raises:
            SolverError: if a number is not finite. After a non-finite loss, each call raises an error until `restart`
                is called.
        """
        self._read(len(self._unread))
        if variables is not None and not self._all_finite(variables):
            nonfinite = find_nonfinite_variable(variables)
            assert nonfinite is not None
            last_finite = self._last_finite_iteration
            since = "at the start" if last_finite is None else f"after iteration {last_finite}, whose loss was finite"
            advice = START_ADVICE if self._first_iteration is None else ADVICE
            nonfinite = nonfinite._replace(message=f"{nonfinite.message} {since}")
            raise SolverError(self._problem(None, nonfinite, advice))

    def restart(self, checkpoint: str) -> None:
        """Discard all stored losses, because training continues from the snapshot `checkpoint`."""
        self.last_good_checkpoint, self._last_finite_iteration, self._first_iteration = checkpoint, None, None
        self._unread.clear()

    def _read(self, n: int) -> None:
        for _ in range(n):
            first_iteration, losses = self._unread[0]  # a non-finite loss stays in the list
            for iteration, value in enumerate(np.ravel(losses).tolist(), first_iteration):
                if not math.isfinite(value):
                    last_finite = self._last_finite_iteration
                    since = "" if last_finite is None else f"; it was finite up to iteration {last_finite}"
                    advice = START_ADVICE if iteration == self._first_iteration else ADVICE
                    raise SolverError(self._problem(iteration, NonFinite(f"the loss is {value}{since}"), advice))
                self._last_finite_iteration = iteration
            del self._unread[0]

    def _problem(self, iteration: int | None, nonfinite: NonFinite, general_advice: str) -> Problem:
        location = "" if iteration is None else f"iteration {iteration}: "
        advice = nonfinite.advice or general_advice
        start = f" from the snapshot {self.last_good_checkpoint}" if self.last_good_checkpoint else ""
        device = "" if self._net.config.axis_name is None else " on one device"
        rerun = f"run again{start}{device} with debug_nans=True (--debug_nans)"
        hint = "" if self.every_step else f"; to find the layer where it begins, {rerun}"
        return Problem(
            f"{location}{nonfinite.message}. {advice}{hint}",
            file=self._net.graph.file,
            layer=nonfinite.layer.name if nonfinite.layer else None,
            layer_type=nonfinite.layer.type.name if nonfinite.layer else None,
        )


def _all_finite(tree: Any) -> jax.Array:
    return jnp.all(jnp.array([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)], bool))

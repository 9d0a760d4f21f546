"""The finite check: stops training that has left the finite numbers before anything is saved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..debugging import NonFinite, find_nonfinite, not_finite
from ..errors import Problem, SolverError
from ..net import Net, Variables
from .train_step import TrainState, pass_key

UNREAD = 100  # losses to let pass before reading as many older ones, which the device has long finished

ADVICE = (
    "Training has diverged: lower base_lr, set clip_gradients, "
    "and check that all labels lie within the number of classes"
)


class FiniteCheck:
    """Looks for NaN and infinity in losses and parameters as training goes on.

    Losses are looked at when somebody reads them anyway, before a snapshot, and when they are old: a training step
    never waits. With `every_step` it does, and what was not finite is traced to its layer.

    Args:
        net: the train net.
        iter_size: passes per iteration.
        every_step: whether `trace` is given every step, whose arguments must then outlive it.

    Attributes:
        every_step: as given.
        good: the newest snapshot of finite numbers, if there is one.
    """

    def __init__(self, net: Net, iter_size: int, every_step: bool = False) -> None:
        self.good: str | None = None
        self.every_step = every_step
        self._net, self._iter_size = net, iter_size
        self._unread: list[tuple[int, jax.Array]] = []
        self._finite: int | None = None  # the last iteration known to be finite
        self._all_finite = jax.jit(_all_finite)

    def note(self, iteration: int, losses: jax.Array) -> None:
        """Take in the loss of an iteration, or those of several from `iteration` on.

        Raises:
            SolverError: if an old loss is found not to be finite.
        """
        self._unread.append((iteration, losses))
        if self.every_step:
            self._read(len(self._unread))
        elif len(self._unread) >= 2 * UNREAD:
            self._read(UNREAD)

    def trace(
        self, iteration: int, before: TrainState, batches: Mapping[str, jax.Array], after: TrainState, loss: jax.Array
    ) -> None:
        """Look at an iteration's numbers at once: the loss, and the state that it made of `before` with `batches`.

        Raises:
            SolverError: if one is not finite, with the layer where that began.
        """
        if not self._all_finite((loss, after.params, after.state)):
            self._unread.append((iteration, loss))  # so that `check` says it too
            keys = [pass_key(before, number) for number in range(self._iter_size)]
            culprit = find_nonfinite(self._net, before.variables, batches, keys, after.variables)
            raise SolverError(self._problem(iteration, culprit))

    def check(self, variables: Variables | None = None) -> None:
        """Look at all losses so far, and at `variables`: the parameters and statistics, as they lie.

        Raises:
            SolverError: if one is not finite; again each time, until `restart`.
        """
        self._read(len(self._unread))
        if variables is not None and not self._all_finite(variables):
            found = not_finite(variables)
            assert found is not None
            since = "at the start" if self._finite is None else f"after iteration {self._finite}, whose loss was finite"
            raise SolverError(self._problem(None, found._replace(message=f"{found.message} {since}")))

    def restart(self, good: str) -> None:
        """Forget what was: training goes on from a snapshot."""
        self.good, self._finite = good, None
        self._unread.clear()

    def _read(self, n: int) -> None:
        for _ in range(n):
            first, losses = self._unread[0]  # one that is not finite stays
            for iteration, value in enumerate(np.ravel(losses).tolist(), first):
                if not math.isfinite(value):
                    since = "" if self._finite is None else f"; it was finite up to iteration {self._finite}"
                    raise SolverError(self._problem(iteration, NonFinite(f"the loss is {value}{since}")))
                self._finite = iteration
            del self._unread[0]

    def _problem(self, iteration: int | None, culprit: NonFinite) -> Problem:
        at = "" if iteration is None else f"iteration {iteration}: "
        advice = culprit.advice or ADVICE
        start = f" from the snapshot {self.good}" if self.good else ""
        where = "" if self._net.run.axis_name is None else " on one device"
        how = f"run again{start}{where} with debug_nans=True (--debug_nans)"
        again = "" if self.every_step else f"; to see in which layer it begins, {how}"
        return Problem(
            f"{at}{culprit.message}. {advice}{again}",
            file=self._net.graph.file,
            layer=culprit.layer.name if culprit.layer else None,
            layer_type=culprit.layer.type.name if culprit.layer else None,
        )


def _all_finite(tree: Any) -> jax.Array:
    return jnp.all(jnp.array([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)], bool))

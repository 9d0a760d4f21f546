"""Updates of a net as one compiled function, or several at once as another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..inspect import IndexCheck
from ..inspect.debug_info import DebugInfo
from ..net import Params
from .build import Setup
from .finite_check import FiniteCheck
from .report import log
from .state import StepResult, TrainState, make_step, make_steps, pass_key, ragged, stack

Batches = Mapping[str, Any]


class JittedUpdater:
    """Updates a train state with a compiled step, on batches of the loader.

    Args:
        setup: the parts of training.
        train_state: where to start.
        finite_check: what traces NaN and infinity, if it is to look at every step.
        steps_per_dispatch: how many updates to start at once, where the net allows that.

    Attributes:
        train_state, last_update, steps_per_dispatch: as `Updater` has them.

    Raises:
        GraphError: if a layer without a backward pass would need one.
    """

    def __init__(
        self, setup: Setup, train_state: TrainState, finite_check: FiniteCheck, steps_per_dispatch: int = 1
    ) -> None:
        param, net = setup.param, setup.net
        self.train_state = train_state
        self.last_update: Params | None = None
        self._net, self._loader, self._device, self._iter_size = net, setup.loader, setup.device, param.iter_size
        self._finite_check = finite_check
        self._check_indices = IndexCheck(net)
        self._debug_info = DebugInfo(net) if param.debug_info else None
        debug_nans = finite_check.every_step
        step = make_step(net, setup.optimizer, param.iter_size, keep_update=param.snapshot_diff)
        self._step = net.jit(step, donate_argnums=() if debug_nans else 0)
        self._steps = net.jit(make_steps(step), donate_argnums=0)
        one_by_one = debug_nans or param.debug_info or net.has_host_layers or self._check_indices.needed
        self.steps_per_dispatch = 1 if one_by_one else steps_per_dispatch

    def update(self, iteration: int, rates: Sequence[np.float32], *, debug_info: bool = False) -> StepResult:
        """Make an update for each rate, the first of them that of `iteration`.

        Raises:
            DataError: if a batch cannot be read.
            LayerError: for an index out of range.
            SolverError: if `finite_check` looks at every step and finds a number that is not finite.
        """
        read = [self._read() for _ in rates]
        if len(read) == 1:
            return self._update(iteration, read[0], rates[0], debug_info)
        together = stack(read)
        if ragged(together) or any(map(ragged, read)):
            results = [self._update(iteration + i, *given) for i, given in enumerate(zip(read, rates, strict=True))]
            return results[-1]._replace(loss=jnp.stack([result.loss for result in results]))
        placed = jax.device_put(together, self._device)
        self.train_state, result = self._steps(self.train_state, placed, np.array(rates, np.float32))
        self.last_update = result.update
        return result

    def final_loss(self) -> jax.Array:
        """Run forward once more, on the next batch; return the loss."""
        batch, before = jax.device_put(next(self._loader), self._device), self.train_state
        loss, outputs = self._net.jit(self._net.loss)(before.params, before.state, batch, before.key)
        self.train_state = before.replace(state=outputs.state)  # type: ignore[attr-defined]
        return loss

    def _read(self) -> dict[str, Any]:
        return stack([next(self._loader) for _ in range(self._iter_size)])

    def _update(self, iteration: int, batches: Batches, rate: np.float32, debug_info: bool = False) -> StepResult:
        placed = jax.device_put(batches, self._device)
        before = self.train_state
        if self._check_indices.needed:
            for given in self._passes(placed):
                self._check_indices(*given)
        if debug_info:
            self._log_debug_info(placed)
        self.train_state, result = self._step(before, placed, rate)
        self.last_update = result.update
        if self._finite_check.every_step:
            self._finite_check.trace(iteration, before, placed, self.train_state, result.loss)
        return result

    def _log_debug_info(self, placed: Batches) -> None:
        assert self._debug_info is not None
        for given in self._passes(placed):
            for line in self._debug_info.lines(*given):
                log.info(line)

    def _passes(self, placed: Batches) -> Iterator[tuple[Params, Params, Batches, jax.Array]]:
        """Yield what each pass of the next update is given: params, state, batch and key."""
        ts = self.train_state
        for i in range(self._iter_size):
            batch = {name: array[i] for name, array in placed.items()}
            yield ts.params, ts.state, batch, pass_key(ts, i)

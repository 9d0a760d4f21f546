"""Updates of a net whose blobs others see and change between passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ..debugging.debug_info import DebugInfo
from ..graph import AUTOMATIC
from ..net import Params, Variables
from ..training.build import Setup
from ..training.state import StepResult, TrainState, as_shapes, make_update, pass_key
from . import _modes
from ._workspace import Workspace

Callback = Callable[[], object]


class BlobUpdater:
    """Updates params where the train net has them, by passes that leave blobs and diffs to be seen.

    Args:
        setup: the parts of training.
        train_state: where to start; the train net has its params and running statistics already.
        workspace: the train net's.

    Attributes:
        on_start, on_gradients: called before an iteration's first pass, and before its update.
        last_update, steps_per_dispatch, waited: as `Updater` has them.
    """

    steps_per_dispatch = 1
    waited = 0.0

    def __init__(self, setup: Setup, train_state: TrainState, workspace: Workspace) -> None:
        self.on_start: list[Callback] = []
        self.on_gradients: list[Callback] = []
        self.last_update: Params | None = None
        self._workspace, self._device, self._iter_size = workspace, setup.device, setup.param.iter_size
        self._rest = _without_variables(train_state)
        self._fed = setup.net.fed
        self._outputs = [name for name in setup.net.outputs if name != AUTOMATIC]
        self._last_layer = len(setup.net.graph.layers) - 1
        self._apply = make_update(setup.optimizer, keep_update=True)
        self._rewritten = setup.net.rewritten
        self._debug_info = DebugInfo(setup.net) if setup.param.debug_info else None

    @property
    def train_state(self) -> TrainState:
        """Params and running statistics as they are in the net now, and the rest, on the device of the moment."""
        self._follow()
        params, state = self._workspace.memories.variables
        return self._rest.replace(params=params, state=state)  # type: ignore[attr-defined]

    @train_state.setter
    def train_state(self, new: TrainState) -> None:
        self._rest = _without_variables(new)
        self._workspace.memories.variables = Variables(new.params, new.state)

    @property
    def variables(self) -> Variables:
        """Params and running statistics as they are in the net now."""
        return self.train_state.variables

    @property
    def wanted(self) -> TrainState:
        """The shapes of the state, and where it lies."""
        return as_shapes(self.train_state)

    @property
    def cut(self) -> tuple[TrainState, None]:
        """A copy of the state, as others may write to blobs; there is but one device."""
        return jax.tree.map(jnp.copy, self.train_state), None

    def restore(self, state: TrainState, each: Params | None) -> None:
        """Go on from a saved state."""
        self.train_state, self.last_update = jax.device_put(state, self._device), None

    def update(
        self, iteration: int, rates: Sequence[np.float32], *, debug_info: bool = False, asked: jax.Array | None = None
    ) -> StepResult:
        """Make one update, from as many passes as an iteration has; nobody asks one process for anything."""
        (rate,) = rates
        for call in self.on_start:
            call()
        self._follow()
        self._workspace.memories.clear_param_diffs()
        losses = [self._pass(i, debug_info) for i in range(self._iter_size)]
        loss = jnp.mean(jnp.stack(losses)) if len(losses) > 1 else losses[0]
        for call in self.on_gradients:
            call()
        self.apply_update(rate)
        return StepResult(loss, self._workspace.memories.values(self._outputs), self.last_update)

    def apply_update(self, rate: np.float32) -> None:
        """Turn the diffs of the train net's params into updates, which the diffs then are, and subtract them."""
        self._follow()
        params = self._rewritten(self._workspace.memories.params)
        before = self._rest.replace(params=params)  # type: ignore[attr-defined]
        after, update = self._apply(self._workspace.memories.param_diffs, before, rate)
        assert update is not None
        self._workspace.memories.params = after.params
        self._workspace.memories.param_diffs = self.last_update = update
        self._rest = _without_variables(after)

    def final_loss(self) -> jax.Array:
        """Run forward once more, on the next batch; return the loss."""
        return sum(self._workspace.forward(0, self._last_layer), start=jnp.zeros(()))

    def _pass(self, number: int, debug_info: bool) -> jax.Array:
        first, *others = self._workspace.forward_backward((self._rest.key, self._rest.iteration, number))
        if debug_info:
            self._log_debug_info(number)
        return sum(others, start=first)

    def _log_debug_info(self, number: int) -> None:
        assert self._debug_info is not None
        batch = self._workspace.memories.values(self._fed)
        for line in self._debug_info.lines(*self._workspace.memories.variables, batch, pass_key(self._rest, number)):
            _modes.log(line)

    def _follow(self) -> None:
        """Go to the device of the moment."""
        if (device := _modes.device()) is not self._device:
            self._device = device
            self._rest = jax.device_put(self._rest, device)
            self._workspace.follow()


def _without_variables(state: TrainState) -> TrainState:
    return state.replace(params={}, state={})  # type: ignore[attr-defined]

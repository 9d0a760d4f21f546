"""Training steps of nets with host layers as one program, in which these layers are callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..layers.host_call import ChangedShapeError
from ..program.callbacks import schedule_in_order
from ..program.net import Net
from .reporting import log
from .train_step import Step, StepResult, TrainState, has_varying_shapes, join_results


def as_one_program(net: Net) -> Net | None:
    """Return the net for functions that `Net.jit` compiles, in which host layers run once a pass, in Caffe's order.

    The result is None if the net has no host layers, or if the shapes of some blobs depend on values.
    """
    schedule = schedule_in_order(net.graph)
    return None if schedule is None else net.with_schedule(schedule)


class HostProgram:
    """The training step of a net with host layers as one program, where these are callbacks.

    Once a blob changes its shape within a program, the steps run in parts, between which host layers run.

    Args:
        net: a net from `as_one_program`.
        step, steps: the compiled functions from `make_step` and `make_steps` for this net. They donate no state, which
            outlives an exception of a layer.
        step_in_parts: the step of the net that runs in parts, or None if it cannot, as on several devices.
    """

    def __init__(
        self,
        net: Net,
        step: Callable[..., Any],
        steps: Callable[..., Any],
        step_in_parts: Step | None,
    ) -> None:
        self._calls, self._step, self._steps = net.layer_schedule.parts[0].calls, step, steps
        self._step_in_parts, self._is_in_parts = step_in_parts, False
        self._may_refuse_values = any(layer.type.has_traced_form for layer in net.graph.layers)

    def step(
        self, state: TrainState, batches: Any, rate: Any, requests: jax.Array | None
    ) -> tuple[TrainState, StepResult]:
        """Run a training step, as `make_step` returns it.

        Raises:
            Exception: the exception that a layer's code raised.
        """
        may_run = self._step_in_parts is None or not has_varying_shapes(batches)
        if may_run and (result := self._run(self._step, state, batches, rate, requests)):
            return result
        assert self._step_in_parts is not None
        return self._step_in_parts(state, batches, rate, requests)

    def steps(
        self, state: TrainState, batches: Any, rates: Any, requests: jax.Array | None
    ) -> tuple[TrainState, StepResult]:
        """Run several training steps; see `make_steps`."""
        if result := self._run(self._steps, state, batches, rates, requests):
            return result
        results = []
        for i, rate in enumerate(rates):
            batch = {name: array[i] for name, array in batches.items()}
            state, step_result = self.step(state, batch, rate, requests)
            results.append(step_result)
        return state, join_results(results)

    def _run(self, program: Callable[..., Any], *arguments: Any) -> tuple[TrainState, StepResult] | None:
        """Return the results of a program, or None if the net runs in parts."""
        if self._is_in_parts:
            return None
        try:
            state, result, *_ = jax.block_until_ready(program(*arguments))
            if self._step_in_parts is not None and self._may_refuse_values and jnp.isnan(result.loss).any():
                return None  # code on the host raises the error of values that a traced form refused
            return state, result
        except (jax.errors.JaxRuntimeError, ValueError):  # JAX's errors for exceptions in callbacks
            try:
                assert self._calls is not None
                self._calls.reraise()
            except ChangedShapeError as error:
                if self._step_in_parts is None:
                    raise
                log.info("Training runs in parts from here on, and repeats this iteration: %s", error)
                self._is_in_parts = True
                return None
            raise

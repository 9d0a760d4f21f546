"""Several training steps of small nets in one call, whose bits do not depend on which iterations are together."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ..layers import CallerInput
from ..program.net import Net
from .build_trainer import TrainerParts
from .placement import Placement
from .train_step import StepResult, TrainState, join_results

MAX_STEPS = 50  # together, at most
# in the blobs and params of a small net, on accelerators also in the inputs of 50 steps; CIFAR-10 full has 7 million
MAX_NUMBERS, MAX_NUMBERS_ON_ACCELERATORS = 100_000, 20_000_000


def runs_alone(net: Net) -> bool:
    """Return whether a net reads its data without code of users, and computes all layers in compiled programs."""
    if net.has_host_layers or net.graph.has_varying_rows:
        return False
    return not any(isinstance(x.type.implementation, CallerInput) or x.type.instance for x in net.graph.layers)


def can_join_steps(parts: TrainerParts) -> bool:
    """Return whether a net's steps are computed together, if nothing else needs single ones.

    That depends on the net, the solver and the platform alone. The net is small, trains on one device with one of
    Caffe's solvers, reads its data from files without code of users, and computes all layers in compiled programs.
    """
    net, placement = parts.net, parts.placement
    if not (runs_alone(net) and placement.is_one_device) or parts.param.type == "optax":
        return False
    return is_small(net, parts.param.iter_size, placement.mesh.devices.item().platform)


def is_small(net: Net, iter_size: int, platform: str) -> bool:
    """Return whether starting a step takes much of its time: on a CPU or, with more numbers, on an accelerator."""
    sizes = {name: math.prod(blob.shape) for name, blob in net.graph.blobs.items()}
    numbers = sum(sizes.values()) + sum(math.prod(p.spec.shape) for p in net.graph.unique_params)
    if platform == "cpu":
        return numbers <= MAX_NUMBERS
    inputs = MAX_STEPS * iter_size * sum(sizes[name] for name in net.input_names)
    return max(numbers, inputs) <= MAX_NUMBERS_ON_ACCELERATORS


class JointSteps:
    """Runs any number of training steps of a small net on one device, up to `MAX_STEPS` in one call.

    A step whose batches have other shapes than the net runs alone, so that other iterations have no influence on that.

    Args:
        net: the train net.
        iter_size: the number of passes in an iteration.
        program: the compiled function from `make_steps`.
        step: the compiled function from `make_step`.
        placement: the placement of batches.
    """

    def __init__(
        self, net: Net, iter_size: int, program: Callable[..., Any], step: Callable[..., Any], placement: Placement
    ) -> None:
        self._shapes = {name: (iter_size, *net.graph.blobs[name].shape) for name in net.input_names}
        self._program, self._step, self._placement = program, step, placement
        self._keeps_batches = placement.mesh.devices.item().platform != "cpu"
        self._kept: dict[str, Any] = {}

    def __call__(
        self, state: TrainState, batches: Sequence[Mapping[str, Any]], rates: Sequence[np.float32]
    ) -> tuple[TrainState, StepResult]:
        """Run a step with the batches of each iteration, which `stack_batches` has stacked, and its rate.

        The loss and the norm in the result are scalars for a single step, and have an axis of steps otherwise.
        """
        results: list[StepResult] = []
        pairs = zip(batches, rates, strict=False)  # there may be fewer batches
        for fits, group in itertools.groupby(pairs, lambda pair: self._fits(pair[0])):
            if fits:
                state, result = self._run(state, *zip(*group, strict=True))
                results.append(result)
                continue
            for batch, rate in group:
                state, result = self._step(state, self._placement.put_batches([batch]), rate, None)
                results.append(result)
        return state, results[0] if len(results) == 1 else join_results(results)

    def _fits(self, batch: Mapping[str, Any]) -> bool:
        return all(getattr(batch[name], "shape", None) == shape for name, shape in self._shapes.items())

    def _run(
        self, state: TrainState, batches: Sequence[Mapping[str, Any]], rates: Sequence[np.float32]
    ) -> tuple[TrainState, StepResult]:
        n = len(batches)
        # one program takes all numbers of steps, so its arguments have one shape; what fills them up is not computed
        all_rates = np.array([*rates, *[0.0] * (MAX_STEPS - n)], np.float32)
        state, result, last = self._program(state, self._fill_up(batches), all_rates, None, np.int32(n))
        if n == 1:
            return state, last
        norms = None if result.gradient_norm is None else result.gradient_norm[:n]
        return state, result._replace(loss=result.loss[:n], gradient_norm=norms)

    def _fill_up(self, batches: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return `MAX_STEPS` batches, of which these are the first. An accelerator keeps them: moving takes long."""
        if len(batches) > 1 or not self._keeps_batches:
            filled = [*batches, *[batches[-1]] * (MAX_STEPS - len(batches))]
            return {name: np.stack([batch[name] for batch in filled]) for name in batches[0]}
        with jax.default_device(self._placement.mesh.devices.item()):
            kept = self._kept or {name: np.zeros((MAX_STEPS, *x.shape), x.dtype) for name, x in batches[0].items()}
            self._kept = _replace_first(kept, dict(batches[0]))
        return self._kept


@functools.partial(jax.jit, donate_argnums=0)
def _replace_first(kept: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda a, x: a.at[0].set(x), kept, batch)

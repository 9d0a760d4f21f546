"""Several training steps of small nets in one call, whose bits do not depend on which iterations are together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..layers import CallerInput
from ..program.net import Net
from .build_trainer import TrainerParts
from .placement import Placement
from .train_step import StepResult, TrainState, join_results

MAX_STEPS = 50  # together, at most
MAX_NUMBERS = 100_000  # in the blobs and params of a net for which starting a step takes much of its time


def runs_alone(net: Net) -> bool:
    """Return whether a net reads its data without code of users, and computes all layers in compiled programs."""
    if net.has_host_layers or net.graph.has_varying_rows:
        return False
    return not any(isinstance(x.type.implementation, CallerInput) or x.type.instance for x in net.graph.layers)


def can_join_steps(parts: TrainerParts) -> bool:
    """Return whether a net's steps are computed together, if nothing else needs single ones.

    That depends on the net, the solver and the platform alone: the net trains on one CPU with one of Caffe's solvers,
    reads its data from files without code of users, computes all layers in compiled programs, and has at most 100,000
    numbers in its blobs and params.
    """
    net, graph = parts.net, parts.net.graph
    placement, platform = parts.placement, next(iter(parts.placement.mesh.devices.flat)).platform
    if not (runs_alone(net) and placement.is_one_device and platform == "cpu") or parts.param.type == "optax":
        return False
    shapes = [blob.shape for blob in graph.blobs.values()] + [p.spec.shape for p in graph.unique_params]
    return sum(map(math.prod, shapes)) <= MAX_NUMBERS


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
        filled = [*batches, *[batches[-1]] * (MAX_STEPS - n)]
        stacked = {name: np.stack([batch[name] for batch in filled]) for name in batches[0]}
        all_rates = np.array([*rates, *[0.0] * (MAX_STEPS - n)], np.float32)
        inputs = self._placement.put_batches([stacked], 2), all_rates, None, np.int32(n)
        state, result, last = self._program(state, *inputs)
        if n == 1:
            return state, last
        norms = None if result.gradient_norm is None else result.gradient_norm[:n]
        return state, result._replace(loss=result.loss[:n], gradient_norm=norms)

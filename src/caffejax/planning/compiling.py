"""A net's training step, or its forward pass, compiled for a target, and the largest batch for which it fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from ..net import Net
from ..options import Parallel
from ..schema.caffe_pb2 import SolverParameter
from .result import Plan
from .subject import Subject
from .targets import Target

Search = Literal["none", "estimate", "check"]

_TRIES = 4
# what training is planned with where no solver says more
SGD = SolverParameter(type="SGD", base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.0005)


def plan(
    net: Net,
    target: Target,
    *,
    solver: SolverParameter = SGD,
    parallel: Parallel = Parallel(),
    batch: int | None = None,
    batch_axis: int = 0,
    largest: Search = "none",
    progress: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Compile a net for a target: in TRAIN a step as it is trained on these devices, in TEST `apply` of a cut batch.

    Args:
        net: the net; its precision is what it is compiled in.
        target: the devices.
        solver: the settings of the update rule.
        parallel: how training is spread over the devices.
        batch: examples that each device takes, or each row of those that cut weights among them; as many as the net
            has unless given, and its share of them with `parallel.batch="global"`.
        batch_axis: the axis of what the net is fed that the examples lie along: 1 for recurrent nets, (steps, streams).
        largest: how to look for the largest batch that fits: "estimate" compiles for one other batch, and takes memory
            to grow in proportion; "check" compiles until a batch fits and one a twentieth larger does not.
        progress: is told what is being done.

    Raises:
        GraphError: if the net cannot be compiled as a whole, has no such axis, or does not take such a batch. A net
            that is fed batches of several sizes, such as pictures and all their boxes, takes its own alone.
        CaffejaxError: if the compiler is not installed or fails, with what it says; or if the devices cannot be
            arranged as `parallel` says.
    """
    subject = Subject(net, target, solver, parallel, batch_axis, progress)
    if batch is not None or parallel.batch != "device" or largest != "none":
        subject.check_batches()
    found = subject.plan(batch or subject.own_batch)
    if largest == "none":
        return found
    other = found.batch * 2 if found.fits else max(1, found.batch // 2)
    tried = {found.batch: found}
    if other not in tried:
        tried[other] = subject.plan(other)
    batch = max(0, _extrapolated(tried)) if largest == "estimate" else _largest(subject, tried)
    return replace(found, largest_batch=batch)


def _largest(subject: Subject, tried: dict[int, Plan]) -> int:
    """Look for the largest batch that fits, from those tried: memory grows in proportion to it, all but exactly."""
    for _ in range(_TRIES):
        good = [b for b, p in tried.items() if p.fits]
        bad = [b for b, p in tried.items() if not p.fits]
        low, high = max(good, default=0), min(bad, default=None)
        if high is not None and high - low <= max(1, low // 20):
            break
        guess = _extrapolated(tried)
        if guess <= low:
            guess = low + 1 if high is None else (low + high) // 2
        elif high is not None and guess >= high:
            guess = (low + high) // 2
        if guess in tried:
            break
        tried[guess] = subject.plan(guess)
    return max((b for b, p in tried.items() if p.fits), default=0)


def _extrapolated(tried: Mapping[int, Plan]) -> int:
    """Return the batch that just fits if memory goes on growing as between the two largest that were tried."""
    if len(tried) == 1:
        ((batch, only),) = tried.items()
        return batch if only.fits else 0
    (b0, p0), (b1, p1) = sorted(tried.items())[-2:]
    slope = (p1.needed - p0.needed) / (b1 - b0)
    return int(b1 + (p1.usable - p1.needed) / slope) if slope > 0 else 2 * b1

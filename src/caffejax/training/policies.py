"""Learning rate policies: the rate of an update as a function of the iteration, in Caffe's arithmetic.

Rates are float32 and computed on the host, once per iteration: `step`, `multistep` and `exp` take powers in
double precision before they round, which a compiled float32 step could not.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import did_you_mean
from .plateau import Plateau
from .warmup import beginning

RateSchedule = Callable[[int], np.float32]
_f32 = np.float32


def rate_schedule(param: Any) -> RateSchedule:
    """Return the rate by iteration (0-based, before the increment), of settings that `problems` found good.

    The rate of `plateau` depends on the loss as well: it is a `Plateau`.
    """
    if param.lr_policy == "plateau":
        return Plateau(param)
    rate = POLICIES[param.lr_policy](param)

    def quiet(iteration: int) -> np.float32:
        with np.errstate(all="ignore"):  # poly beyond max_iter is NaN, an exp may overflow: as in Caffe
            begun = beginning(param, iteration)
            found = rate(iteration) if begun is None else begun
            return found if found >= param.min_lr or found != found else _f32(param.min_lr)

    return quiet


def problems(param: Any) -> list[str]:
    """Return what is wrong with the policy's settings."""
    if param.lr_policy not in POLICIES:
        if not param.lr_policy:
            return [f"lr_policy is missing; it is one of {', '.join(POLICIES)}"]
        return [f"unknown lr_policy '{param.lr_policy}'{did_you_mean(param.lr_policy, POLICIES)}"]
    found = [
        f"{name} must not be negative"
        for name in ("min_lr", "warmup_iter", "rampup_interval")
        if getattr(param, name) < 0
    ]
    if param.lr_policy == "multifixed" and (not param.stagelr or len(param.stagelr) != len(param.stageiter)):
        counts = f"{len(param.stagelr)} and {len(param.stageiter)}"
        found.append(f"lr_policy 'multifixed' needs as many stagelr as stageiter, at least one, not {counts}")
    if param.lr_policy == "plateau" and any(n <= 0 for n in param.plateau_winsize):
        found.append(f"lr_policy 'plateau': plateau_winsize must be positive: {list(param.plateau_winsize)}")
    if param.gamma < 0 and param.lr_policy not in ("fixed", "poly", "multifixed"):
        found.append(f"lr_policy '{param.lr_policy}': gamma must not be negative, but is {param.gamma:g}")
    if param.lr_policy in ("step", "sigmoid") and param.stepsize <= 0:
        found.append(f"lr_policy '{param.lr_policy}': stepsize must be positive, but is {param.stepsize}")
    if param.lr_policy == "poly" and param.max_iter <= 0:
        found.append("lr_policy 'poly' needs max_iter, at which the rate reaches 0")
    return found


def current_step(param: Any, iteration: int) -> int:
    """Return how many steps the rate of this iteration has behind it (0 for policies without steps)."""
    if param.lr_policy == "step":
        return int(iteration) // int(param.stepsize)
    if param.lr_policy == "multistep":
        return bisect.bisect_right(_step_iterations(param.stepvalue), iteration)
    return 0


def _step_iterations(stepvalues: Sequence[int]) -> list[int]:
    """Return when each step of `multistep` happens: at its value, but at most one per iteration."""
    iterations: list[int] = []
    for value in stepvalues:
        iterations.append(max(value, iterations[-1] + 1 if iterations else value))
    return iterations


def _fixed(p: Any) -> RateSchedule:
    return lambda i: _f32(p.base_lr)


def _power(base: float, n: int) -> np.float32:
    try:
        return _f32(float(base) ** n)
    except OverflowError:
        return _f32(np.inf)  # as in C++


def _stepped(p: Any) -> RateSchedule:
    return lambda i: _f32(_f32(p.base_lr) * _power(p.gamma, current_step(p, i)))


def _exp(p: Any) -> RateSchedule:
    return lambda i: _f32(_f32(p.base_lr) * _power(p.gamma, i))


def _inv(p: Any) -> RateSchedule:
    return lambda i: _f32(_f32(p.base_lr) * (_f32(1) + _f32(p.gamma) * _f32(i)) ** -_f32(p.power))


def _poly(p: Any) -> RateSchedule:
    least = _f32(p.min_lr)  # NVIDIA's, reached at the end
    return lambda i: _f32((_f32(p.base_lr) - least) * (_f32(1) - _f32(i) / _f32(p.max_iter)) ** _f32(p.power) + least)


def _sigmoid(p: Any) -> RateSchedule:
    def rate(i: int) -> np.float32:
        exponent = np.exp(-_f32(p.gamma) * (_f32(i) - _f32(p.stepsize)))
        return _f32(_f32(p.base_lr) * (_f32(1) / (_f32(1) + exponent)))

    return rate


def _multifixed(p: Any) -> RateSchedule:
    """Return the first rate whose iteration is not passed yet, in the end the last."""
    last = len(p.stagelr) - 1
    return lambda i: _f32(p.stagelr[min(bisect.bisect_left(p.stageiter, i), last)])


POLICIES: dict[str, Callable[[Any], RateSchedule]] = {
    "fixed": _fixed,
    "step": _stepped,
    "exp": _exp,
    "inv": _inv,
    "multistep": _stepped,
    "poly": _poly,
    "sigmoid": _sigmoid,
    "multifixed": _multifixed,
    "plateau": Plateau,
}

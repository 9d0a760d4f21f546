"""Learning-rate schedules: Caffe's `lr_policy` as a function of the iteration, in Caffe's arithmetic.

Rates are float32. The host computes them, once per iteration, because `step`, `multistep` and `exp` compute powers in
double precision and then round them to float32, which a compiled float32 step cannot do. `traced_schedules.py` has the
same policies for other training loops.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ...base.errors import did_you_mean

RateSchedule = Callable[[int], np.float32]
_f32 = np.float32


class AdaptiveSchedule:
    """A learning-rate schedule that multiplies the rate by `gamma` at iterations that depend on losses or tests.

    Attributes:
        state: a dict with the key "step", the number of reductions so far, and further keys of the policy. Snapshots
            contain this dict.
    """

    def __init__(self, param: Any, **state: Any) -> None:
        self._param = param
        self.state: dict[str, Any] = {"step": 0, **state}

    def __call__(self, iteration: int) -> np.float32:
        """Return the rate of an iteration.

        After the warm-up, the rate is `base_lr * gamma**step`. It is always at least `min_lr`.
        """
        p, warmup = self._param, warmup_rate(self._param, iteration)
        rate = _f32(_f32(p.base_lr) * _f32(float(p.gamma) ** self.state["step"])) if warmup is None else warmup
        return max(rate, _f32(p.min_lr))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the state in a snapshot. A state with other keys, of a different policy, is ignored."""
        if state.keys() == self.state.keys():
            self.state = dict(state)


class StepEarly(AdaptiveSchedule):
    """The policy `stepearly` of Caffe in 2014: reduces the rate when the test accuracy has stopped rising.

    The rate is multiplied by `gamma` when `stepearly` tests have passed without a new highest accuracy.
    """

    def __init__(self, param: Any) -> None:
        super().__init__(param, maximum=-float(np.finfo(np.float32).max), tests=0)

    def record_test(self, accuracy: float) -> None:
        """Update the state after a test with the accuracy, which `PeriodicEvaluation.accuracy` returns."""
        state = self.state
        if accuracy > state["maximum"]:
            state.update(maximum=accuracy, tests=0)
            return
        state["tests"] += 1
        if state["tests"] >= self._param.stepearly:
            state.update(step=state["step"] + 1, tests=0)


class Plateau(AdaptiveSchedule):
    """The policy `plateau` of the SSD fork: reduces the rate when the loss has stopped falling.

    The rate is multiplied by `gamma` when the smoothed loss has had no new minimum for `plateau_winsize` iterations.
    The fork's smoothed loss includes the current iteration. Here it ends with the previous iteration, because the rate
    is needed before the loss is computed.

    Attributes:
        state: a dict with "step", the number of reductions so far, "minimum", the lowest smoothed loss, and
            "last_event", the iteration of the last reduction or new minimum.
    """

    def __init__(self, param: Any) -> None:
        super().__init__(param, minimum=float(np.finfo(np.float32).max), last_event=0)

    def record_loss(self, iteration: int, smoothed_loss: float) -> None:
        """Update the state before an iteration, with the smoothed loss of the previous iterations."""
        state, windows = self.state, self._param.plateau_winsize
        if smoothed_loss < state["minimum"]:
            state.update(minimum=smoothed_loss, last_event=iteration)
        if state["step"] < len(windows) and iteration >= state["last_event"] + windows[state["step"]]:
            state.update(step=state["step"] + 1, last_event=iteration)


def rate_schedule(param: Any) -> RateSchedule:
    """Return the learning-rate schedule of a solver.

    Args:
        param: the solver's settings, a SolverParameter that `check_policy` accepts.

    Returns:
        A function of the iteration, counted from 0, that returns the float32 rate of the iteration. For the policies
        `plateau` and `stepearly` it is an `AdaptiveSchedule`, whose rate also depends on losses or tests.
    """
    policy_rate = POLICIES[param.lr_policy](param)
    if isinstance(policy_rate, AdaptiveSchedule):
        return policy_rate

    def schedule(iteration: int) -> np.float32:
        with np.errstate(all="ignore"):  # as in Caffe, poly is NaN after max_iter, and exp may overflow
            warmup = warmup_rate(param, iteration)
            rate = policy_rate(iteration) if warmup is None else warmup
            return rate if rate >= param.min_lr or np.isnan(rate) else _f32(param.min_lr)

    return schedule


def warmup_rate(param: Any, iteration: int) -> np.float32 | None:
    """Return the rate of an iteration of the warm-up, or None after the warm-up.

    The rate rises quadratically with the NVIDIA fork's `rampup_interval`, and linearly with the Intel fork's
    `warmup_iter`.
    """
    p = param
    if iteration < p.rampup_interval:
        fraction = _f32(iteration) / _f32(p.rampup_interval)
        return _f32(_f32(p.rampup_lr) + (_f32(p.base_lr) - _f32(p.rampup_lr)) * fraction * fraction)
    if iteration < p.warmup_iter:
        remaining_iterations = p.warmup_iter - iteration
        return _f32(
            (_f32(iteration) * _f32(p.base_lr) + _f32(remaining_iterations) * _f32(p.warmup_start_lr))
            / _f32(p.warmup_iter)
        )
    return None


def check_policy(param: Any) -> list[str]:
    """Return a message for each invalid learning-rate setting of a SolverParameter."""
    if param.lr_policy not in POLICIES:
        if not param.lr_policy:
            return [f"lr_policy is missing; set it to one of {', '.join(POLICIES)}"]
        return [f"unknown lr_policy '{param.lr_policy}'{did_you_mean(param.lr_policy, POLICIES)}"]
    problems = [
        f"{name} must not be negative, but is {getattr(param, name):g}"
        for name in ("min_lr", "warmup_iter", "rampup_interval")
        if getattr(param, name) < 0
    ]
    if param.lr_policy == "multifixed" and (not param.stagelr or len(param.stagelr) != len(param.stageiter)):
        counts = f"there are {len(param.stagelr)} and {len(param.stageiter)}; set both"
        problems.append(
            f"lr_policy 'multifixed' needs the same number of stagelr and stageiter, at least one: {counts}"
        )
    if param.lr_policy == "plateau" and any(n <= 0 for n in param.plateau_winsize):
        problems.append(f"lr_policy 'plateau': plateau_winsize must be positive, but is {list(param.plateau_winsize)}")
    if param.gamma < 0 and param.lr_policy not in ("fixed", "poly", "multifixed"):
        problems.append(f"lr_policy '{param.lr_policy}': gamma must not be negative, but is {param.gamma:g}")
    if param.lr_policy == "stepearly" and (param.stepearly <= 0 or param.test_interval <= 0):
        values = f"they are {param.stepearly} and {param.test_interval}"
        problems.append(f"lr_policy 'stepearly' needs a positive stepearly, in tests, and test_interval: {values}")
    if param.lr_policy in ("step", "sigmoid", "sigmoid_inv") and param.stepsize <= 0:
        value = f"but is {param.stepsize}" if param.HasField("stepsize") else "but is not set; set stepsize"
        problems.append(f"lr_policy '{param.lr_policy}': stepsize must be positive, {value}")
    if param.lr_policy == "poly" and param.max_iter <= 0:
        value = f"not {param.max_iter}" if param.HasField("max_iter") else "but it is not set; set max_iter"
        problems.append(f"lr_policy 'poly' needs a positive max_iter, at which the rate reaches 0, {value}")
    return problems


# the fields of each policy whose absence is no error, as in Caffe, and the rate without them
_OPTIONAL_FIELDS = {
    "step": {"gamma": "is 0 from iteration stepsize on"},
    "multistep": {"gamma": "is 0 from the first stepvalue on", "stepvalue": "is never reduced"},
    "exp": {"gamma": "is 0 from iteration 1 on"},
    "inv": {"gamma": "is constant", "power": "is constant"},
    "poly": {"power": "is constant"},
    "sigmoid": {"gamma": "is half of base_lr"},
    "sigmoid_inv": {"gamma": "is half of base_lr"},
    "plateau": {"gamma": "is 0 from the first reduction on", "plateau_winsize": "is never reduced"},
    "stepearly": {"gamma": "is 0 from the first reduction on"},
}
_REPEATED_FIELDS = ("stepvalue", "plateau_winsize")


def find_missing_fields(param: Any) -> Iterator[str]:
    """Yield a message for each field that the policy of a SolverParameter uses and that is not set."""
    if not param.HasField("base_lr") and param.lr_policy != "multifixed":
        yield "base_lr is not set, so the learning rate is 0; set base_lr"
    for name, consequence in _OPTIONAL_FIELDS.get(param.lr_policy, {}).items():
        is_set = bool(getattr(param, name)) if name in _REPEATED_FIELDS else param.HasField(name)
        if not is_set:
            yield f"lr_policy '{param.lr_policy}': {name} is not set, so the learning rate {consequence}; set {name}"


def current_step(param: Any, iteration: int) -> int:
    """Return how often the policy `step` or `multistep` has reduced the rate, or 0 for the other policies."""
    if param.lr_policy == "step":
        return int(iteration) // int(param.stepsize)
    if param.lr_policy == "multistep":
        return bisect.bisect_right(multistep_iterations(param.stepvalue), iteration)
    return 0


def multistep_iterations(stepvalues: Sequence[int]) -> list[int]:
    """Return the iterations at which the policy `multistep` reduces the rate.

    They are the values of `stepvalue`. A value that is not larger than the previous iteration is replaced by the next
    iteration.
    """
    return list(accumulate(stepvalues, lambda previous, value: max(value, previous + 1)))


def _fixed(p: Any) -> RateSchedule:
    return lambda i: _f32(p.base_lr)


def _power(base: float, n: int) -> np.float32:
    try:
        return _f32(float(base) ** n)
    except OverflowError:
        return _f32(np.inf)  # like pow in C++, which does not raise an error


def _step(p: Any) -> RateSchedule:
    return lambda i: _f32(_f32(p.base_lr) * _power(p.gamma, current_step(p, i)))


def _exp(p: Any) -> RateSchedule:
    return lambda i: _f32(_f32(p.base_lr) * _power(p.gamma, i))


def _inv(p: Any) -> RateSchedule:
    return lambda i: _f32(_f32(p.base_lr) * (_f32(1) + _f32(p.gamma) * _f32(i)) ** -_f32(p.power))


def _poly(p: Any) -> RateSchedule:
    end = _f32(p.min_lr)  # NVIDIA's setting, the rate at max_iter
    return lambda i: _f32((_f32(p.base_lr) - end) * (_f32(1) - _f32(i) / _f32(p.max_iter)) ** _f32(p.power) + end)


def _sigmoid(p: Any) -> RateSchedule:
    """Return the schedule of the policy `sigmoid`, which rises, or of MyCaffe's policy `sigmoid_inv`, which falls."""
    gamma = _f32(-p.gamma if p.lr_policy == "sigmoid_inv" else p.gamma)

    def rate(i: int) -> np.float32:
        with np.errstate(over="ignore"):  # far from stepsize, exp returns infinity, and the rate is 0
            exponent = np.exp(-gamma * (_f32(i) - _f32(p.stepsize)))
        return _f32(_f32(p.base_lr) * (_f32(1) / (_f32(1) + exponent)))

    return rate


def _multifixed(p: Any) -> RateSchedule:
    last_stage = len(p.stagelr) - 1
    return lambda i: _f32(p.stagelr[min(bisect.bisect_left(p.stageiter, i), last_stage)])


POLICIES: dict[str, Callable[[Any], RateSchedule]] = {
    "fixed": _fixed,
    "step": _step,
    "exp": _exp,
    "inv": _inv,
    "multistep": _step,
    "poly": _poly,
    "sigmoid": _sigmoid,
    "sigmoid_inv": _sigmoid,
    "multifixed": _multifixed,
    "plateau": Plateau,
    "stepearly": StepEarly,
}

"""Caffe's learning-rate policies as functions of the iteration that JAX can trace.

The arithmetic is float32. Where its rounding errors would add up, for example in powers with large exponents, NumPy
computes tables in double precision. Rates differ from the exact numbers by at most 3e-7 of the rate, or, for powers
above 1 in `inv` and `poly`, by this times the power.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import SolverError
from .lr_schedules import POLICIES, AdaptiveSchedule, multistep_iterations, rate_schedule

Schedule = Callable[[Any], jax.Array]
_f32 = np.float32
_BLOCK = 4096  # the length of a table
_MAX_EXPONENT = 80  # exp of it is far from infinity in float32


def traced_schedule(param: Any) -> Schedule:
    """Return the learning-rate schedule of a solver.

    Args:
        param: the solver's settings, a SolverParameter that `check_policy` accepts.

    Returns:
        A function of the iteration, counted from 0, an integer or an int32 array of any shape. It returns float32 rates
        of this shape.

    Raises:
        SolverError: if the rate also depends on losses or tests.
    """
    p = param
    if isinstance(rate_schedule(p), AdaptiveSchedule):
        raise SolverError(
            f"lr_policy '{p.lr_policy}' depends on losses or tests, so the rate is no function of the iteration; train "
            "with caffejax.Solver, or choose another policy"
        )
    policy_rate = _POLICIES.get(p.lr_policy, _piecewise)(p)

    def schedule(iteration: Any) -> jax.Array:
        i = jnp.asarray(iteration, jnp.int32)
        rate, base, x = policy_rate(i), _f32(p.base_lr), jnp.float32(i)
        if p.warmup_iter:  # linear
            warmup = (x * base + jnp.float32(p.warmup_iter - i) * _f32(p.warmup_start_lr)) / _f32(p.warmup_iter)
            rate = jnp.where(i < p.warmup_iter, warmup, rate)
        if p.rampup_interval:  # quadratic
            ramp = _f32(p.rampup_lr) + _f32((p.base_lr - p.rampup_lr) / p.rampup_interval**2) * (x * x)
            rate = jnp.where(i < p.rampup_interval, ramp, rate)
        return jnp.where(rate < _f32(p.min_lr), _f32(p.min_lr), rate)

    return schedule


def _piecewise(p: Any) -> Schedule:
    """Return the schedule of a policy whose rate only changes at iterations that the settings name."""
    changes = {*multistep_iterations(p.stepvalue), *(i + 1 for i in p.stageiter)}
    starts = np.array([0, *sorted(i for i in changes if 0 < i < 2**31)], np.int32)
    host_rate = POLICIES[p.lr_policy](p)
    rates = np.array([host_rate(int(i)) for i in starts], np.float32)
    return lambda i: jnp.asarray(rates)[jnp.searchsorted(starts, i, side="right") - 1]


def _step(p: Any) -> Schedule:
    power = _geometric(p.base_lr, p.gamma, 2**31 // p.stepsize)
    return lambda i: power(i // p.stepsize)


def _exp(p: Any) -> Schedule:
    return _geometric(p.base_lr, p.gamma, 2**31 - 1)


def _inv(p: Any) -> Schedule:
    return lambda i: _f32(p.base_lr) * (1 + _f32(p.gamma) * jnp.float32(i)) ** -_f32(p.power)


def _poly(p: Any) -> Schedule:
    # the difference of integers is exact; in Caffe, 1 - i / max_iter loses digits near max_iter
    end, decrease = _f32(p.min_lr), _f32(p.base_lr - p.min_lr)
    return lambda i: decrease * (jnp.float32(p.max_iter - i) / _f32(p.max_iter)) ** _f32(p.power) + end


def _sigmoid(p: Any) -> Schedule:
    gamma = -p.gamma if p.lr_policy == "sigmoid_inv" else p.gamma
    # beyond this distance from stepsize the rate is constant
    width = int(min(_MAX_EXPONENT / max(abs(gamma), 1e-30), 2**30 - 1)) + 1
    power = _geometric(np.exp(gamma * width), np.exp(-gamma), 2 * width, int(16 / max(abs(gamma), 1e-30)))
    return lambda i: _f32(p.base_lr) / (1 + power(jnp.clip(i - p.stepsize, -width, width) + width))


def _geometric(first: float, ratio: float, last: int, max_block: int = _BLOCK) -> Schedule:
    """Return a function of n, from 0 to `last`, that gives first * ratio**n, a product of numbers from two tables.

    The second table contains powers below `max_block`, which must not overflow.
    """
    block = max(1, min(_BLOCK, max_block))
    with np.errstate(all="ignore"):  # as in Caffe, an exponential may overflow
        high = _shorten(np.float64(first) * np.float64(ratio) ** np.arange(0, last + 1, block))
        low = _shorten(np.float64(ratio) ** np.arange(block))

    def read(table: np.ndarray, index: Any) -> jax.Array:
        return jnp.asarray(table)[jnp.minimum(index, len(table) - 1)]

    return lambda n: read(high, n // block) * read(low, n % block)


def _shorten(table: np.ndarray) -> np.ndarray:
    """Return a table as float32, up to the first of the equal numbers at its end."""
    rounded = table.astype(np.float32)
    changes = np.flatnonzero(rounded != rounded[-1])
    return rounded[: changes[-1] + 2] if changes.size else rounded[:1]


_POLICIES: dict[str, Callable[[Any], Schedule]] = {  # other policies are `_piecewise`
    "step": _step,
    "exp": _exp,
    "inv": _inv,
    "poly": _poly,
    "sigmoid": _sigmoid,
    "sigmoid_inv": _sigmoid,
}

"""Finite differences, with a reliability test for each difference.

Each element is changed by +h and -h for four steps h, each a quarter of the previous step. The central differences of
two neighbouring steps are extrapolated to an error of order h**4. The result is from the two extrapolations that agree
best. Near a kink, no extrapolations agree. Exactly on a kink, the two one-sided slopes differ by the same amount at
small and large steps. Elements near or on a kink are unresolved.

A few elements say nothing about the others, and in float32 the rounding errors of a top that sums many elements can
hide the change by one element. So layers without a second gradient to compare with are also checked along directions
in which all elements of an argument change together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from .layer_gradients import Case

_MAX_DIRECTION = 3.0  # the largest element of a direction, in standard deviations
MAX_SLOPE_DIFFERENCE = 1e-3  # a larger relative difference between two one-sided slopes indicates a kink


@dataclass(frozen=True)
class Tolerances:
    """Step sizes and tolerances of finite differences for layers that compute in a given dtype.

    Attributes:
        steps: step sizes, relative to the larger of the magnitude of the element and the magnitude of its array.
        agreement: the allowed difference of two extrapolations, relative to the difference or, if that is larger, a
            hundredth of the largest difference.
        tolerance: the allowed relative error between a derivative and a finite difference. It is at least ten times the
            error for smooth functions.
        eps: the machine epsilon of the dtype.
        direction_steps: the step sizes along directions, which are short where the dtype allows it, because more kinks
            are within a longer step.
    """

    steps: np.ndarray
    agreement: float
    tolerance: float
    eps: float
    direction_steps: np.ndarray


_DIVISORS = 4.0 ** np.arange(4)
FLOAT64 = Tolerances(0.01 / _DIVISORS, 1e-7, 1e-6, float(np.finfo(np.float64).eps), 1e-5 / _DIVISORS)
FLOAT32 = Tolerances(0.16 / _DIVISORS, 1e-4, 1e-3, float(np.finfo(np.float32).eps), 0.16 / _DIVISORS)


def select_tolerances(case: Case) -> Tolerances:
    """Return the tolerances for the dtype in which the layer of a case computes, which is float64 or float32."""
    return FLOAT32 if getattr(case.context.type.implementation, "computes_in_float32", False) else FLOAT64


@dataclass(frozen=True)
class Differences:
    """Central differences with respect to some elements of an argument.

    Attributes:
        flat_indices: the flat indices of the elements.
        values: the differences.
        is_resolved: a mask of the differences that are reliable.
        noise: a bound on the rounding error of each difference.
        tolerance: the allowed relative error between a derivative and a difference.
    """

    flat_indices: np.ndarray
    values: np.ndarray
    is_resolved: np.ndarray
    noise: np.ndarray
    tolerance: float


@dataclass(frozen=True)
class DirectionalDifference:
    """The derivative along a direction in which all elements of an argument change, by finite differences.

    Attributes:
        direction: the direction, of the argument's shape.
        value: the derivative of sum(tops * top diffs).
        uncertainty: a bound on the error of `value` from rounding, kinks and the length of the steps.
    """

    direction: np.ndarray
    value: float
    uncertainty: float


def finite_difference_gradients(
    case: Case, samples: int | None, random: np.random.Generator, suspects: Sequence[Sequence[int]] | None = None
) -> list[Differences]:
    """Compute the gradients with respect to each argument by finite differences at random elements.

    Args:
        case: the layer and its arrays.
        samples: the number of elements of each argument, or None for 64. The number is reduced to as few as 4 if one
            evaluation of the layer handles more than 100,000 numbers. Smaller arguments are checked at all elements.
        random: the generator that selects the elements; the largest and the smallest one are among them.
        suspects: flat indices of further elements of each argument.
    """
    values, tolerances = [np.asarray(v, np.float64) for v in case.values], select_tolerances(case)
    compute_change, norm = _make_change(case, values)
    cost = sum(v.size for v in values) + sum(d.size for d in case.top_diffs)
    samples = samples or int(np.clip(64 * 100_000 // max(cost, 1), 4, 64))
    results = []
    for i, value in enumerate(values):
        indices = _select_elements(value, samples, random, suspects[i] if suspects else ())
        steps = np.maximum(np.abs(value.flat[indices]), _magnitude(value))[:, None] * tolerances.steps
        changes = np.zeros((2, *steps.shape))
        for position in np.ndindex(changes.shape):
            sign, row, step = position
            move = np.zeros(value.shape)
            move.flat[indices[row]] = steps[row, step] * (-1) ** sign
            changes[position] = compute_change(i, move)
        results.append(_extrapolate(indices, changes[0], changes[1], steps, norm, tolerances))
    return results


def _select_elements(
    value: np.ndarray, samples: int, random: np.random.Generator, suspects: Sequence[int]
) -> np.ndarray:
    """Return the sorted flat indices of elements, the suspects, the largest and the smallest one among them."""
    indices = random.permutation(value.size)
    if samples < value.size:
        extremes = [int(value.argmax()), int(value.argmin())] if samples >= 4 else []
        first = list(dict.fromkeys([*suspects, *extremes]))
        indices = np.array([*first, *np.setdiff1d(indices[: samples + len(first)], first, assume_unique=True)])
    return np.sort(indices[:samples])


def directional_differences(
    case: Case, gradients: Sequence[np.ndarray], random: np.random.Generator
) -> list[list[DirectionalDifference]]:
    """Compute derivatives of a layer along directions in which all elements of an argument change.

    Args:
        case: the layer and its arrays.
        gradients: the gradients to check, one for each argument.
        random: the generator of random directions.

    Returns:
        For each argument the derivatives along its gradient, if that is not zero, along ones, and along two random
        directions of 1 and -1.
    """
    values, tolerances = [np.asarray(v, np.float64) for v in case.values], select_tolerances(case)
    compute_change, norm = _make_change(case, values)
    results = []
    for i, (value, gradient) in enumerate(zip(values, gradients, strict=True)):
        directions = [np.ones(value.shape), *(random.choice([-1.0, 1.0], value.shape) for _ in range(2))]
        if gradient.any() and np.isfinite(gradient).all():
            scaled = gradient / np.sqrt(np.mean(np.square(gradient, dtype=np.float64)))
            directions.append(np.clip(scaled, -_MAX_DIRECTION, _MAX_DIRECTION))
        moves = [_magnitude(value) * direction for direction in directions if value.size]
        results.append([_measure_direction(move, partial(compute_change, i), norm, tolerances) for move in moves])
    return results


def _measure_direction(
    direction: np.ndarray, compute_change: Callable[[np.ndarray], float], norm: float, tolerances: Tolerances
) -> DirectionalDifference:
    steps = tolerances.direction_steps
    up, down = (np.array([compute_change(sign * step * direction) for step in steps]) for sign in (1, -1))
    with np.errstate(invalid="ignore"):
        central, slope_difference = (up - down) / (2 * steps), (up + down) / steps
        extrapolations = (16 * central[1:] - central[:-1]) / 15
        kink_size = np.abs(4 * slope_difference[1:] - slope_difference[:-1]).max()
    noise = 16 * tolerances.eps * (norm + (np.abs(up) + np.abs(down)).max()) / steps[1]
    value, uncertainty = float(extrapolations[1]), float(np.ptp(extrapolations) + kink_size + noise)
    if not np.isfinite([value, uncertainty]).all():
        return DirectionalDifference(direction, 0.0, float("inf"))
    return DirectionalDifference(direction, value, uncertainty)


def _magnitude(value: np.ndarray) -> float:
    return max(float(np.sqrt(np.mean(value**2))), 0.01) if value.size else 0.01


def _make_change(case: Case, values: Sequence[np.ndarray]) -> tuple[Callable[[int, np.ndarray], float], float]:
    """Return a function that computes the scalar's change if an argument moves, and the norm of the scalar's terms."""

    def compute_tops(values: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(top, np.float64) for top in case.move(values).tops]

    top_diffs = [np.asarray(diff, np.float64) for diff in case.top_diffs]
    base_tops = compute_tops(values)

    def compute_change(argument: int, move: np.ndarray) -> float:
        tops = compute_tops([v + move if i == argument else v for i, v in enumerate(values)])
        # subtracted before the sum, so that elements without a change contribute no rounding error
        return float(sum(np.sum(c * (m - b)) for c, m, b in zip(top_diffs, tops, base_tops, strict=True)))

    norm = float(np.sqrt(sum(np.sum((b * c) ** 2) for b, c in zip(base_tops, top_diffs, strict=True))))
    return compute_change, norm


def _extrapolate(
    indices: np.ndarray, up: np.ndarray, down: np.ndarray, steps: np.ndarray, norm: float, tolerances: Tolerances
) -> Differences:
    """Extrapolate to step 0 the changes of the scalar for +h and -h, (elements, steps) each as the steps h are."""
    with np.errstate(invalid="ignore"):
        central = (up - down) / (2 * steps)
        extrapolations = (16 * central[:, 1:] - central[:, :-1]) / 15
        spread = np.abs(np.diff(extrapolations))
        # difference of the one-sided slopes, which is proportional to the step for smooth functions
        slope_difference = (up + down) / steps
        kink_size = np.abs(4 * slope_difference[:, 1:] - slope_difference[:, :-1])[:, 1:]
    best = np.argmin(np.nan_to_num(spread, nan=np.inf), axis=1)
    rows = np.arange(len(best))
    # the rounding errors of the tops and of the changed elements are proportional to this
    rounded_sum = norm + (np.abs(up) + np.abs(down))[rows, best + 2] / tolerances.steps[best + 2]
    noise = 16 * tolerances.eps * rounded_sum / steps[rows, best + 2]
    # two steps beyond a small kink may agree by chance, but not with the finest step, unless its noise hides the kink
    finest_noise = 16 * tolerances.eps * rounded_sum / steps[:, -1]
    distance = np.nan_to_num(np.abs(extrapolations[:, -1] - extrapolations[rows, best + 1]), nan=np.inf)
    is_hidden = distance <= finest_noise
    disagreement = np.maximum(spread[rows, best], np.where(is_hidden, 0.0, distance))
    noise = np.where(is_hidden, np.maximum(noise, 2 * distance), noise)
    values, kink_size = extrapolations[rows, best + 1], kink_size[rows, best]
    is_consistent = np.isfinite(values) & (disagreement <= tolerances.agreement * np.abs(values) + noise)
    largest = np.abs(values[is_consistent]).max(initial=0.0)
    magnitude = np.maximum(np.abs(values), 0.01 * largest)
    is_reliable = (disagreement <= np.maximum(tolerances.agreement * magnitude, noise)) & (
        kink_size <= np.maximum(MAX_SLOPE_DIFFERENCE * magnitude, 4 * noise)
    )
    return Differences(indices, values, is_reliable & np.isfinite(values), noise, tolerances.tolerance)

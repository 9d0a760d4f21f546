"""Compares the derivations of a case and says who is wrong.

The relative error of a and b is |a - b| / max(|a|, |b|, floor). The floor is a hundredth of the array's
largest gradient (an element that small next to its neighbours is a rounded difference of larger terms), and
at least what rounding can do to a finite difference, divided by the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .case import Argument, Case, by_autodiff, by_net, by_rule
from .differences import Differences, by_differences
from .report import DECLARED, OK, Row, Worst

RULE_TOLERANCE = 1e-6  # rule against autodiff: both exact but for rounding
DIFFERENCES_TOLERANCE = 1e-6  # what is left of smooth functions' differences is below a tenth of it
MOST_SKIPPED = 0.9  # of the elements tried: beyond that, too little was compared

Gradients = Sequence[np.ndarray]


def check_case(layer: str, case: Case, samples: int | None, random: np.random.Generator) -> list[Row]:
    """Derives the gradients of one layer in every way there is, and compares them."""
    differences = by_differences(case, samples, random)
    autodiff = by_autodiff(case)
    kind = case.context.type
    rule = by_rule(case) if kind.rule else None
    net = by_net(case) if kind.prefer_rule else None
    return compare(layer, case, differences, autodiff, rule, net)


def compare(
    layer: str,
    case: Case,
    differences: Sequence[Differences],
    autodiff: Gradients,
    rule: Gradients | None = None,
    net: Gradients | None = None,
) -> list[Row]:
    """A row per argument; `net` is given where Caffe's gradient is not the derivative."""
    nothing = [None] * len(case.arguments)
    return [
        _row(layer, case.context.type.name, *one)
        for one in zip(case.arguments, differences, autodiff, rule or nothing, net or nothing, strict=True)
    ]


def _row(
    layer: str,
    kind: str,
    argument: Argument,
    difference: Differences,
    autodiff: np.ndarray,
    rule: np.ndarray | None,
    net: np.ndarray | None,
) -> Row:
    sampled = autodiff_differences = _against(difference, autodiff)
    rule_autodiff = rule_differences = None
    if rule is not None:
        rule_autodiff = _worst(rule, autodiff)
        rule_differences = sampled = _against(difference, rule)
    checked = int(difference.resolved.sum())
    return Row(
        layer=layer,
        type=kind,
        argument=argument.name,
        rule_autodiff=rule_autodiff,
        rule_differences=rule_differences,
        autodiff_differences=autodiff_differences,
        size=autodiff.size,
        checked=checked,
        skipped=len(difference.at) - checked,
        zero=not autodiff.any() and (rule is None or not rule.any()) and sampled.error <= DIFFERENCES_TOLERANCE,
        verdict=_too_little(checked, len(difference.at))
        or (
            _of_two(autodiff_differences)
            if rule is None or rule_autodiff is None or rule_differences is None
            else _of_three(rule_autodiff, rule_differences, autodiff_differences)
            if net is None
            else _of_declared(rule, autodiff, net, rule_autodiff, autodiff_differences)
        ),
    )


def _too_little(checked: int, tried: int) -> str | None:
    if checked >= max((1 - MOST_SKIPPED) * tried, 1):
        return None
    return f"nothing to compare: {tried - checked} of {tried} elements lie on kinks"


def _of_two(autodiff_differences: Worst) -> str:
    if autodiff_differences.error <= DIFFERENCES_TOLERANCE:
        return OK
    return "autodiff differs from finite differences"


def _of_three(rule_autodiff: Worst, rule_differences: Worst, autodiff_differences: Worst) -> str:
    same = rule_autodiff.error <= RULE_TOLERANCE
    rule = rule_differences.error <= DIFFERENCES_TOLERANCE
    autodiff = autodiff_differences.error <= DIFFERENCES_TOLERANCE
    match same, rule, autodiff:
        case True, True, True:
            return OK
        case True, _, _:
            return "rule and autodiff agree, but not with finite differences"
        case _, True, True:
            return "rule and autodiff differ where no finite difference was taken"
        case _, False, True:
            return "rule is wrong: autodiff and finite differences agree"
        case _, True, False:
            return "autodiff is wrong: rule and finite differences agree"
        case _:
            return "rule, autodiff and finite differences all differ"


def _of_declared(
    rule: np.ndarray, autodiff: np.ndarray, net: np.ndarray, rule_autodiff: Worst, autodiff_differences: Worst
) -> str:
    """For types whose gradient Caffe defines otherwise: the rule need only point the derivative's way."""
    if autodiff_differences.error > DIFFERENCES_TOLERANCE:
        return "autodiff differs from finite differences"
    if _worst(rule, net).error > RULE_TOLERANCE:
        return "the net does not use the rule that it should prefer"
    if rule_autodiff.error <= RULE_TOLERANCE:
        return OK
    if autodiff.any() and not np.vdot(rule, autodiff) > 0:
        return "rule is wrong: it does not point the way of the derivative"
    return DECLARED


def _against(difference: Differences, gradient: np.ndarray) -> Worst:
    """The worst of the resolved differences against a whole gradient."""
    kept = difference.resolved
    at, values, noise = difference.at[kept], difference.values[kept], difference.noise[kept]
    worst = _worst(gradient.ravel()[at], values, noise / DIFFERENCES_TOLERANCE)
    return worst if worst.at is None else Worst(worst.error, _unravel(at[worst.at[0]], gradient.shape))


def _worst(a: np.ndarray, b: np.ndarray, floor: np.ndarray | float = 0.0) -> Worst:
    if a.size == 0:
        return Worst(0.0, None)
    size = np.maximum(np.abs(a), np.abs(b))
    large = size[np.isfinite(size)].max(initial=0.0)
    with np.errstate(invalid="ignore"):
        error = np.abs(a - b) / np.maximum.reduce([size, np.full(a.shape, 0.01 * large + 1e-10), floor + 0 * size])
    error = np.where(np.isfinite(a) & np.isfinite(b), error, np.inf)
    at = int(error.argmax())
    return Worst(float(error.flat[at]), _unravel(at, a.shape))


def _unravel(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(at, shape))

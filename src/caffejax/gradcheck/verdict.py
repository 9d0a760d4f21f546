"""Compares the derivations of a case and says who is wrong.

The relative error of a and b is |a - b| / max(|a|, |b|, floor). The floor is a hundredth of the array's
largest gradient (an element that small next to its neighbours is a rounded difference of larger terms), and
at least what rounding can do to a finite difference, divided by the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..layers import LayerType
from .case import Argument, Case, by_autodiff, by_net, by_rule
from .differences import Differences, by_differences
from .report import DECLARED, OK, Row, Worst

RULE_TOLERANCE = 1e-6  # rule against autodiff: both exact but for rounding
MOST_SKIPPED = 0.9  # of the elements tried: beyond that, too little was compared


@dataclass(frozen=True)
class Derivations:
    """The gradients of a case, one per argument in each way.

    Attributes:
        differences: by finite differences.
        autodiff: by autodiff of forward; None on the host, where there is none.
        rule: by the hand-written rule, if there is one; on the host zeros without one.
        net: as nets make them, where the type prefers its rule.
    """

    differences: Sequence[Differences]
    autodiff: Sequence[np.ndarray] | None
    rule: Sequence[np.ndarray] | None
    net: Sequence[np.ndarray] | None


def derive(case: Case, samples: int | None, random: np.random.Generator) -> Derivations:
    """Derive the gradients of one layer in every way there is."""
    gradient = case.context.type.gradient
    return Derivations(
        differences=by_differences(case, samples, random),
        autodiff=by_autodiff(case),
        rule=by_rule(case) if gradient.backward else list(map(np.zeros_like, case.values)) if case.on_host else None,
        net=by_net(case) if gradient.backward and gradient.overrides_autodiff else None,
    )


def compare(layer: str, case: Case, found: Derivations) -> list[Row]:
    """Compare the derivations for each argument of the case, which belongs to the layer of that key."""
    nothing = [None] * len(case.arguments)
    ways = (found.differences, found.autodiff or nothing, found.rule or nothing, found.net or nothing)
    return [_row(layer, case.context.type, *one) for one in zip(case.arguments, *ways, strict=True)]


def _row(
    layer: str,
    kind: LayerType,
    argument: Argument,
    difference: Differences,
    autodiff: np.ndarray | None,
    rule: np.ndarray | None,
    net: np.ndarray | None,
) -> Row:
    found = [gradient for gradient in (autodiff, rule) if gradient is not None]
    both = _worst(rule, autodiff) if rule is not None and autodiff is not None else None
    rule_differences, autodiff_differences = (None if g is None else _against(difference, g) for g in (rule, autodiff))
    fits = [None if w is None else w.error <= difference.tolerance for w in (rule_differences, autodiff_differences)]
    zero = not any(gradient.any() for gradient in found)
    if autodiff is None:
        verdict = _of_host(bool(fits[0]), kind.gradient.backward is not None)
    elif rule is None or both is None:
        verdict = _of_two(bool(fits[1]), bool(kind.gradient.not_derivative))
    elif net is None:
        same = both.error <= RULE_TOLERANCE
        verdict = _of_three(same, bool(fits[0]), bool(fits[1]), bool(kind.gradient.not_derivative))
    else:
        derivative = bool(fits[1]) or bool(kind.gradient.not_derivative)
        verdict = _of_preferred(rule, autodiff, net, both, derivative)
    checked, tried = int(difference.resolved.sum()), len(difference.at)
    # a lone gradient of zero is right where the tops are constant but for jumps
    enough = zero and len(found) == 1
    if not enough and checked < max((1 - MOST_SKIPPED) * tried, 1):
        verdict = f"nothing to compare: {tried - checked} of {tried} elements lie on kinks"
    return Row(
        layer=layer,
        type=kind.name,
        argument=argument.name,
        rule_autodiff=both,
        rule_differences=rule_differences,
        autodiff_differences=autodiff_differences,
        size=found[0].size,
        checked=checked,
        skipped=tried - checked,
        zero=zero,
        verdict=verdict,
    )


def _of_host(rule: bool, has_rule: bool) -> str:
    if rule:
        return OK
    return "backward is wrong" if has_rule else "has no backward, but a gradient"


def _of_two(autodiff: bool, not_derivative: bool) -> str:
    if autodiff:
        return OK
    return DECLARED if not_derivative else "autodiff differs from finite differences"


def _of_three(same: bool, rule: bool, autodiff: bool, not_derivative: bool) -> str:
    match same, rule, autodiff:
        case True, True, True:
            return OK
        case True, _, _:
            return DECLARED if not_derivative else "rule and autodiff agree, but not with finite differences"
        case _, True, True:
            return "rule and autodiff differ where no finite difference was taken"
        case _, False, True:
            return "rule is wrong: autodiff and finite differences agree"
        case _, True, False:
            return "autodiff is wrong: rule and finite differences agree"
        case _:
            return "rule, autodiff and finite differences all differ"


def _of_preferred(
    rule: np.ndarray, autodiff: np.ndarray, net: np.ndarray, rule_autodiff: Worst, autodiff_fits: bool
) -> str:
    """Judge a type that prefers its rule to the derivative: the rule need only point the derivative's way."""
    if not autodiff_fits:
        return "autodiff differs from finite differences"
    if _worst(rule, net).error > RULE_TOLERANCE:
        return "the net does not use the rule that it should prefer"
    if rule_autodiff.error <= RULE_TOLERANCE:
        return OK
    if autodiff.any() and not np.vdot(rule, autodiff) > 0:
        return "rule is wrong: it does not point the way of the derivative"
    return DECLARED


def _against(difference: Differences, gradient: np.ndarray) -> Worst:
    """Return the worst of the resolved differences against a whole gradient."""
    resolved = difference.resolved
    at, values, noise = difference.at[resolved], difference.values[resolved], difference.noise[resolved]
    worst = _worst(gradient.ravel()[at], values, noise / difference.tolerance)
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

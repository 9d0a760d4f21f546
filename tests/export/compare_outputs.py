"""How far a net's outputs in another form are from its own, and a word for that."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
FORMS = ("onnx", "flax", "stablehlo")
TOLERANCE = 1e-4  # of an output's largest number


def relative_errors(actual: Arrays, expected: Arrays) -> dict[str, float]:
    """By output, the largest error as a share of the largest number; no number where shapes or NaNs differ."""
    return {name: _error(actual[name], array) for name, array in expected.items()}


def count_large_errors(actual: Arrays, expected: Arrays) -> dict[str, int]:
    """Return by output the number of values that differ by more than the tolerance, where any do."""
    with np.errstate(invalid="ignore"):  # equal infinities differ by NaN, which counts as no difference
        counts = {
            name: int((np.abs(actual[name] - array) > TOLERANCE * largest(array)).sum())
            for name, array in expected.items()
            if actual[name].shape == array.shape
        }
    return {name: n for name, n in counts.items() if n}


def unordered_distances(actual: Arrays, expected: Arrays) -> dict[str, float]:
    """Return, for outputs with rows, the distance of each differing row to the nearest differing row of the other.

    Boxes are sorted by their scores, so two boxes with nearly equal scores may exchange positions.
    """
    distance_of_output = dict[str, float]()
    for name, array in expected.items():
        ours, others = np.squeeze(actual[name]), np.squeeze(array)
        if ours.shape != others.shape or ours.ndim != 2:
            continue
        scale = max(largest(array), 1e-3)
        differ = np.abs(ours - others).max(axis=1) > TOLERANCE * scale
        if 0 < differ.sum() <= 1000:
            distances = np.abs(ours[differ][:, None] - others[differ]).max(axis=2)
            distance_of_output[name] = float(max(distances.min(axis=0).max(), distances.min(axis=1).max()) / scale)
    return distance_of_output


def _error(actual: np.ndarray, expected: np.ndarray) -> float:
    if actual.shape != expected.shape or not np.array_equal(np.isfinite(actual), np.isfinite(expected)):
        return float("nan")
    is_finite = np.isfinite(expected)
    largest_difference = np.abs(actual[is_finite].astype(np.float64) - expected[is_finite]).max(initial=0)
    return float(largest_difference / max(largest(expected), 1e-3))


def largest(array: np.ndarray) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0))


def verdict(report: dict[str, Any], form: str) -> str:
    """Return a word for the outcome of a net in a form."""
    if "failed" in report or "refused" in report:
        return "failed" if "failed" in report else "does not load"
    if "refused" in report[form]:
        return "refused"
    if all(moved <= TOLERANCE for moved in report["moves"].values()):
        return "constant"  # whatever the inputs are: numbers that were drawn are none to compare
    if all(error <= TOLERANCE for error in report[form].values()):
        return "equal"
    reordered = report[f"{form}_in_any_order"]
    if all(min(error, reordered.get(name, error)) <= TOLERANCE for name, error in report[form].items()):
        return "reordered"
    sways = report["sways"]
    return "unstable" if all(e <= max(TOLERANCE, 2 * sways[n]) for n, e in report[form].items()) else "differs"

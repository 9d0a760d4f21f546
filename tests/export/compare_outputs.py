"""The difference between the outputs of a net and of its export, and a verdict."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
FORMS = ("onnx", "flax", "stablehlo")
TOLERANCE = 1e-4  # of an output's largest number


def relative_errors(actual: Arrays, expected: Arrays) -> dict[str, float]:
    """By output, the largest error as a share of the largest number; no number where shapes or NaNs differ."""
    return {name: _relative_error(actual[name], array) for name, array in expected.items()}


def count_large_errors(actual: Arrays, expected: Arrays) -> dict[str, int]:
    """Return by output the number of values that differ by more than the tolerance, where any do."""
    with np.errstate(invalid="ignore"):  # equal infinities differ by NaN, which counts as no difference
        counts = {
            name: int((np.abs(actual[name] - array) > TOLERANCE * find_largest(array)).sum())
            for name, array in expected.items()
            if actual[name].shape == array.shape
        }
    return {name: n for name, n in counts.items() if n}


def unordered_distances(actual: Arrays, expected: Arrays) -> dict[str, float]:
    """Return, for outputs with rows, the distance of each differing row to the nearest differing row of the other.

    Boxes are sorted by their scores, so two boxes with nearly equal scores may exchange positions.
    """
    distances_by_output = dict[str, float]()
    for name, array in expected.items():
        actual_rows, expected_rows = np.squeeze(actual[name]), np.squeeze(array)
        if actual_rows.shape != expected_rows.shape or actual_rows.ndim != 2:
            continue
        scale = max(find_largest(array), 1e-3)
        is_different = np.abs(actual_rows - expected_rows).max(axis=1) > TOLERANCE * scale
        if 0 < is_different.sum() <= 1000:
            distances = np.abs(actual_rows[is_different][:, None] - expected_rows[is_different]).max(axis=2)
            distances_by_output[name] = float(max(distances.min(axis=0).max(), distances.min(axis=1).max()) / scale)
    return distances_by_output


def _relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    if actual.shape != expected.shape or not np.array_equal(np.isfinite(actual), np.isfinite(expected)):
        return float("nan")
    is_finite = np.isfinite(expected)
    largest_difference = np.abs(actual[is_finite].astype(np.float64) - expected[is_finite]).max(initial=0)
    return float(largest_difference / max(find_largest(expected), 1e-3))


def find_largest(array: np.ndarray) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0))


def judge_form(report: dict[str, Any], form: str) -> str:
    """Return a word for the outcome of a net in a form."""
    if "failed" in report or "refused" in report:
        return "failed" if "failed" in report else "does not load"
    if "refused" in report[form]:
        return "refused"
    if all(change <= TOLERANCE for change in report["moves"].values()):
        return "constant"  # whatever the inputs are: numbers that were drawn are none to compare
    if all(error <= TOLERANCE for error in report[form].values()):
        return "equal"
    reordered = report[f"{form}_in_any_order"]
    if all(min(error, reordered.get(name, error)) <= TOLERANCE for name, error in report[form].items()):
        return "reordered"
    sways = report["sways"]
    return "unstable" if all(e <= max(TOLERANCE, 2 * sways[n]) for n, e in report[form].items()) else "differs"

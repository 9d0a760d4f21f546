"""Average precision of the detections of one class, as the forks' solvers compute it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import SolverError

VERSIONS = ("11point", "101point", "MaxIntegral", "Integral")
_POINTS = {"11point": 11, "101point": 101}


def average_precision(detections: Sequence[tuple[float, float, float]], positives: int, version: str) -> float:
    """Return the area under the precision-recall curve.

    Args:
        detections: score, true positive (1 or 0) and false positive (1 or 0) of each detection, as in the rows of a
            DetectionEvaluate layer. Detections that are neither (they match an ignored box) are skipped.
        positives: number of ground-truth boxes.
        version: "11point", the mean of the maximum precisions at recalls of at least 0, 0.1 .. 1; "101point", at 0,
            0.01 .. 1 (Cascade R-CNN's, after COCO; the others are SSD's); "MaxIntegral", the integral with the maximum
            precision at this or a higher recall; or "Integral", the integral of the curve.

    Raises:
        SolverError: for other versions.
    """
    if version not in VERSIONS:
        raise SolverError(f"ap_version must be one of {', '.join(VERSIONS)}, not '{version}'")
    rows = np.asarray(detections, np.float64).reshape(-1, 3)
    rows = rows[(rows[:, 1] != 0) | (rows[:, 2] != 0)]
    if len(rows) == 0 or positives <= 0:
        return 0.0
    true, false = np.cumsum(rows[np.argsort(-rows[:, 0], kind="stable"), 1:], axis=0).T
    precision, recall = true / (true + false), true / positives
    if version in _POINTS:
        last = _POINTS[version] - 1
        # the fork has recalls in float32 and tenths in float64: 7 of 10 is less than 0.7, 3 of 10 not than 0.3
        reached = recall.astype(np.float32).astype(np.float64) >= np.arange(last + 1)[:, None] / last
        return float(np.mean(np.max(np.where(reached, precision, 0), axis=1)))
    if version == "MaxIntegral":
        precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(precision * np.diff(recall, prepend=0)))

"""Average precision of the detections of one class, computed as in the solvers of Caffe's forks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import SolverError

VERSIONS = ("11point", "101point", "MaxIntegral", "Integral")
_POINTS = {"11point": 11, "101point": 101}


def average_precision(detections: Sequence[tuple[float, float, float]], positives: int, version: str) -> float:
    """Return the area under the precision-recall curve.

    The versions are:

    - "11point": the mean over the recalls 0, 0.1, ..., 1 of the maximum precision at this or a higher recall.
    - "101point": the same over the recalls 0, 0.01, ..., 1. It is the version of Cascade R-CNN and COCO; the others are
      SSD's.
    - "MaxIntegral": the integral over the recall of the maximum precision at this or a higher recall.
    - "Integral": the integral of the curve.

    Args:
        detections: score, true positive (1 or 0) and false positive (1 or 0) of each detection, as in the rows of a
            DetectionEvaluate layer. Detections with two zeros (they match an ignored box) are skipped.
        positives: number of ground-truth boxes.
        version: "11point", "101point", "MaxIntegral" or "Integral".

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
        # as in SSD's fork, recalls are float32, tenths float64: 7 / 10 is less than 0.7, but 3 / 10 not less than 0.3
        reached = recall.astype(np.float32).astype(np.float64) >= np.arange(last + 1)[:, None] / last
        return float(np.mean(np.max(np.where(reached, precision, 0), axis=1)))
    if version == "MaxIntegral":
        precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(precision * np.diff(recall, prepend=0)))

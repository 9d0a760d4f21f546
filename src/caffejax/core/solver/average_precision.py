"""Average precision of the detections of one class, computed as in the solvers of Caffe's forks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...base.config import AP_VERSIONS
from ...base.errors import SolverError

_NUM_RECALLS = {"11point": 11, "101point": 101}


def average_precision(detections: Sequence[tuple[float, float, float]], num_positives: int, version: str) -> float:
    """Return the average precision, which is the area under the precision-recall curve.

    The versions are:

    - "11point": the mean, over the recalls 0, 0.1, ..., 1, of the maximum precision at this or a higher recall.
    - "101point": the same mean over the recalls 0, 0.01, ..., 1. Cascade R-CNN and COCO use this version, and SSD uses
      the others.
    - "MaxIntegral": the integral, over the recall, of the maximum precision at this or a higher recall.
    - "Integral": the integral of the curve.

    Args:
        detections: for each detection its score, whether it is a true positive (1 or 0), and whether it is a false
            positive (1 or 0), as in the rows of a DetectionEvaluate layer. Detections that are neither, because they
            match an ignored box, are skipped.
        num_positives: the number of ground-truth boxes.
        version: "11point", "101point", "MaxIntegral" or "Integral".

    Raises:
        SolverError: if the version is unknown.
    """
    if version not in AP_VERSIONS:
        raise SolverError(f"ap_version must be one of {', '.join(AP_VERSIONS)}, not '{version}'")
    rows = np.asarray(detections, np.float64).reshape(-1, 3)
    rows = rows[(rows[:, 1] != 0) | (rows[:, 2] != 0)]
    if len(rows) == 0 or num_positives <= 0:
        return 0.0
    true_positives, false_positives = np.cumsum(rows[np.argsort(-rows[:, 0], kind="stable"), 1:], axis=0).T
    precision, recall = true_positives / (true_positives + false_positives), true_positives / num_positives
    if version in _NUM_RECALLS:
        num_intervals = _NUM_RECALLS[version] - 1
        # recalls are float32 and tenths float64, as in SSD: 7 / 10 is less than 0.7, but 3 / 10 is not less than 0.3
        is_reached = (
            recall.astype(np.float32).astype(np.float64) >= np.arange(num_intervals + 1)[:, None] / num_intervals
        )
        return float(np.mean(np.max(np.where(is_reached, precision, 0), axis=1)))
    if version == "MaxIntegral":
        precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(precision * np.diff(recall, prepend=0)))

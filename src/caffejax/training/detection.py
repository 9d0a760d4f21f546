"""Scores of detection: a test net's rows of hits and misses become average precisions, as in the SSD fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..debugging.average_precision import average_precision
from ..graph import Graph
from .reporting import log

_WIDTH = 5  # of the rows of DetectionEvaluate

Precisions = dict[int, float]
"""The average precision of each class."""


def output_problems(graph: Graph, outputs: Sequence[str]) -> list[str]:
    """Return what is wrong with the outputs of a test net that is to be scored by detection."""
    shapes = {name: graph.blobs[name].shape for name in outputs}
    return [
        f"output '{name}' has shape {shape}, but eval_type \"detection\" takes rows of {_WIDTH} numbers, as "
        "DetectionEvaluate gives them; a Silence layer can hide it"
        for name, shape in shapes.items()
        if len(shape) < 2 or shape[-1] != _WIDTH
    ]


def average_precisions(batches: Sequence[Mapping[str, Any]], version: str) -> dict[str, Precisions]:
    """Return the average precision of each class that occurs, by output and by the class's number.

    Args:
        batches: the outputs of each batch. Rows are [-1, class, number of objects, -1, -1] or, for a detection,
            [image, class, score, true positive, false positive]; those of a negative class are padding.
        version: how it is computed, see `average_precision`.
    """
    rows = {
        name: np.concatenate([np.asarray(batch[name]).reshape(-1, _WIDTH) for batch in batches]) for name in batches[0]
    }
    return {name: _by_class(of_output, version) for name, of_output in rows.items()}


def mean_precision(precisions: Precisions) -> np.ndarray:
    """Return the mean over the classes: mAP. A class that is never found counts as 0."""
    return np.array(np.mean(list(precisions.values())) if precisions else 0, np.float32)


def _by_class(rows: np.ndarray, version: str) -> Precisions:
    counts, detections = rows[rows[:, 0] < 0], rows[rows[:, 0] >= 0]
    found: Precisions = {}
    for label in np.unique(counts[counts[:, 1] >= 0, 1]).astype(int).tolist():
        of_class = detections[detections[:, 1] == label, 2:]
        if not of_class[:, 1:].any():
            log.warning("Missing true_pos for label: %d", label)
        positives = int(counts[counts[:, 1] == label, 2].sum())
        found[label] = average_precision(of_class, positives, version)  # type: ignore[arg-type]
    return found

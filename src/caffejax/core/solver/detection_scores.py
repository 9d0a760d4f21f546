"""Scores of nets that detect objects: the average precision of each class, as in the solvers of Caffe's forks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.config import AP_VERSIONS, EVAL_TYPES
from ...base.errors import GraphError, SolverError, raise_if_any
from ..graph import Graph
from ..program.net import Net
from .reporting import Precisions, Scores, log

_NUM_RECALLS = {"11point": 11, "101point": 101}
_NUM_DETECTIONS = {"detection": None, "detection_segmentation": 1}  # outputs with detections; the next has IoUs
_ROW_LENGTH = 5  # the length of the rows that DetectionEvaluate outputs


def check_eval_type(net: Net, eval_type: str) -> None:
    """Check that a net's outputs can be scored in the way of `eval_type`, one of `EVAL_TYPES`.

    Raises:
        GraphError: if they cannot. The message names each output.
    """
    raise_if_any(GraphError, _find_output_problems(net.graph, net.outputs, eval_type), net.graph.file)


def score_detections(results: Sequence[Any], names: Sequence[str], eval_type: str, version: str) -> Scores:
    """Return the scores of the loss and the outputs `names` of each batch; see `compute_average_precisions`.

    The IoU of a class is the mean over the batches that have the class, where it is not negative, or 0 without any.
    """
    losses, outputs = zip(*results, strict=True)
    end = _NUM_DETECTIONS[eval_type]
    precisions = compute_average_precisions([{n: blobs[n] for n in names[:end]} for blobs in outputs], version)
    ious: dict[str, Precisions] = {}
    for name in names[end:] if end else ():
        values = np.stack([np.ravel(blobs[name]) for blobs in outputs]).astype(np.float64)
        sums = np.sum(np.maximum(values, 0), axis=0)
        ious[name] = dict(enumerate((sums / np.maximum(np.sum(values >= 0, axis=0), 1)).tolist()))
    means = {name: compute_mean_precision(values) for name, values in (precisions | ious).items()}
    return Scores(float(np.mean(losses)), means, precisions, ious)


def _find_output_problems(graph: Graph, outputs: Sequence[str], eval_type: str) -> Iterator[str]:
    if eval_type == EVAL_TYPES[0]:
        marked = [(x, top) for x in graph.layers if x.type.traits.marks_detections for top in x.tops if top in outputs]
        for layer, name in marked:
            yield (
                f"output '{name}' of layer '{layer.name}' ({layer.type.name}) has a row for each detection, which has "
                'no mean: for the mean average precision set eval_type: "detection" in the solver, or in '
                "`caffejax test` the flag --eval_type=detection"
            )
        return
    for name in outputs[: _NUM_DETECTIONS[eval_type]]:
        shape = graph.blobs[name].shape
        if len(shape) < 2 or shape[-1] != _ROW_LENGTH:
            yield (
                f"output '{name}' has shape {shape}, but eval_type \"{eval_type}\" takes rows of {_ROW_LENGTH} "
                "numbers, such as the output of DetectionEvaluate; a Silence layer can hide it"
            )
    if eval_type == "detection_segmentation" and len(outputs) != 2:
        yield (
            f'the net has the outputs {", ".join(outputs)}, but eval_type "{eval_type}" takes two: that of '
            "DetectionEvaluate, then that of SegmentationEvaluate; a Silence layer can hide others"
        )


def compute_average_precisions(batches: Sequence[Mapping[str, Any]], version: str) -> dict[str, Precisions]:
    """Return the average precision of each class that occurs, `{output: {class: precision}}`.

    Args:
        batches: the outputs of each batch, of shape (..., 5), as the layer DetectionEvaluate returns them. A row is
            either [-1, class, number of objects, -1, -1] for a class, or [image, class, score, true positive, false
            positive] for a detection. Rows of a negative class are padding.
        version: the version of average precision; see `average_precision`.
    """
    rows = {
        name: np.concatenate([np.asarray(batch[name]).reshape(-1, _ROW_LENGTH) for batch in batches])
        for name in batches[0]
    }
    return {name: _compute_precisions(output_rows, version) for name, output_rows in rows.items()}


def compute_mean_precision(precisions: Precisions) -> np.ndarray:
    """Return the mean average precision (mAP) over the classes as float32; undetected classes count as 0."""
    return np.array(np.mean(list(precisions.values())) if precisions else 0, np.float32)


def _compute_precisions(rows: np.ndarray, version: str) -> Precisions:
    counts, detections = rows[rows[:, 0] < 0], rows[rows[:, 0] >= 0]
    precisions: Precisions = {}
    for label in np.unique(counts[counts[:, 1] >= 0, 1]).astype(int).tolist():
        class_rows = detections[detections[:, 1] == label, 2:]
        if not class_rows[:, 1:].any():
            log.warning("Missing true_pos for label: %d", label)
        num_positives = int(counts[counts[:, 1] == label, 2].sum())
        precisions[label] = average_precision(class_rows, num_positives, version)
    return precisions


def average_precision(
    detections: Sequence[tuple[float, float, float]] | np.ndarray, num_positives: int, version: str
) -> float:
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

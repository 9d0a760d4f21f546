"""Whether the blobs of a weights file fit a net."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..checkpoints.caffemodel import read_caffemodel
from ..checkpoints.hdf5 import is_hdf5
from ..checkpoints.matching import match_blobs
from ..errors import Problem, WeightsError
from ..graph import Graph
from .report import WeightsReport, findings_of


def weights_report(graph: Graph, path: Path) -> WeightsReport:
    """Compare a file's blobs with a net's, by the layers' names, as loading them would."""
    try:
        stored = read_caffemodel(path)
        _, report = match_blobs(graph, stored, path, copies=not is_hdf5(path))
    except WeightsError as error:
        return WeightsReport(str(path), misfits=findings_of(error.problems, "weights"))
    found = findings_of([replace(p, file=None) for p in report.misfits], "weights")
    if not report.taken and not found and report.left:
        nothing = "the file has no blobs for any layer of the net: layers match by name"
        found = findings_of([Problem(nothing)], "weights")
    return WeightsReport(str(path), len(report.taken), found, report.left, len(report.skipped))

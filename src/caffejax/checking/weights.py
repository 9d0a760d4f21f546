"""Whether the blobs of a weights file fit a net."""

from __future__ import annotations

from pathlib import Path

from ..checkpoints.blobs import fit
from ..checkpoints.caffemodel import read_caffemodel
from ..checkpoints.hdf5 import is_hdf5
from ..errors import Problem, WeightsError
from ..graph import Graph
from .report import WeightsReport, findings_of


def weights_report(graph: Graph, path: Path) -> WeightsReport:
    """Compare a file's blobs with a net's, by the layers' names, as loading them would."""
    try:
        stored = read_caffemodel(path)
        may_lack_shared = is_hdf5(path)
    except WeightsError as error:
        return WeightsReport(str(path), misfits=findings_of(error.problems, "weights"))
    problems: list[Problem] = []
    missing, matched = [], 0
    first = {layer.name: layer for layer in reversed(graph.layers) if not layer.inserted_split}
    for name, layer in sorted(first.items(), key=lambda item: graph.layers.index(item[1])):
        if not layer.params:
            continue
        if not stored.get(name):
            if any(p.owned for p in layer.params):
                missing.append(name)
            continue
        optional = [i for i, p in enumerate(layer.params) if may_lack_shared and not p.owned]
        try:
            fit(name, stored[name], [p.spec.shape for p in layer.params], optional)
            matched += 1
        except WeightsError as error:
            problems += error.problems
    unused = sum(bool(blobs) and name not in first for name, blobs in stored.items())
    found = findings_of(problems, "weights")
    if not matched and not found and missing:
        nothing = "the file has no blobs for any layer of the net: layers match by name"
        found = findings_of([Problem(nothing)], "weights")
    return WeightsReport(str(path), matched, found, tuple(missing), unused)

"""Checks, before training begins, that the files of snapshots and of layers that write can be written."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...base.errors import Problem, SolverError, raise_if_any
from ..checkpoints.caffemodel import check_size
from ..graph import Graph, Layer
from ..layers import HostFunction
from ..layers.types import OutputFiles
from ..schema.blob_proto import measure_blobs
from ..schema.caffe_pb2 import SolverParameter
from .update_rules import RULES


def check_snapshot_files(param: SolverParameter, graph: Graph) -> None:
    """Check that Caffe's files of a snapshot can hold a net's weights and state: names of layers, and sizes.

    Args:
        param: the solver's settings.
        graph: the train net.

    Raises:
        SolverError: if they cannot. The message names the layers or the size, and the remedy.
    """
    problems: list[Problem] = []
    if param.snapshot_format == SolverParameter.HDF5:
        from ..checkpoints.caffe_hdf5 import find_name_problems  # importing h5py takes long

        blobs = {layer.name: [p.index for p in layer.params if p.is_owner] for layer in graph.layers}
        remedy = "rename it, or set snapshot_format: BINARYPROTO"
        problems += find_name_problems([layer.name for layer in graph.layers], blobs, graph.file, remedy)
    else:
        remedy = "set snapshot_format: HDF5 in the solver"
        weights = [p.spec.shape for layer in graph.layers for p in layer.params]
        num_slots = RULES[param.type].num_slots if param.type in RULES else 0  # a user's optimizer has no .solverstate
        history = [p.spec.shape for p in graph.unique_params] * num_slots
        definitions = sum(layer.definition.layer.ByteSize() for layer in graph.layers)
        for kind, size in (
            (".caffemodel", definitions + measure_blobs(weights, has_diffs=param.snapshot_diff)),
            (".solverstate", measure_blobs(history)),
        ):
            problems += check_size(size, f"the snapshots' {kind}", graph.file, remedy)
    raise_if_any(SolverError, problems)


def check_layer_outputs(nets: Sequence[tuple[str, Graph]]) -> None:
    """Check the files that layers write: that no other layer writes the same, and that their folder is writable.

    Args:
        nets: the name of each net, for messages, and its graph.

    Raises:
        SolverError: if files cannot be written. The message names each such layer and file.
    """
    problems: list[Problem] = []
    writers: dict[str, tuple[str, Layer]] = {}
    for net_name, graph in nets:
        for layer in graph.layers:
            if not isinstance(layer.type.implementation, HostFunction) or not layer.type.implementation.output:
                continue
            output = layer.type.implementation.output
            if output.pattern in writers:
                other_net, other = writers[output.pattern]
                message = (
                    f"{net_name} would overwrite {output.pattern}, which layer '{other.name}' of {other_net} writes; "
                    "name another file, or restrict the layer to one net with include { phase: TEST }, or a stage"
                )
                problems.append(layer.make_problem(message))
            writers.setdefault(output.pattern, (net_name, layer))
            if reason := _find_folder_problem(output):
                problems.append(layer.make_problem(f"cannot write {output.pattern}: {reason}"))
    raise_if_any(SolverError, problems)


def _find_folder_problem(output: OutputFiles) -> str | None:
    folder = output.folder
    if output.creates_folder:
        folder = next((f for f in (folder, *folder.parents) if os.path.exists(f)), folder)
    if not os.path.exists(folder):
        return f"there is no folder {folder}; create it first"
    if not folder.is_dir():
        return f"{folder} is not a folder"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"the folder {folder} is not writable"

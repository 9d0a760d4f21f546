"""Training events and the net's graph for TensorBoard, written with tensorboardX."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...base.atomic_write import make_write_problem
from ...base.errors import CaffejaxError, SolverError
from ...base.variables import Variables
from ...core.graph import Graph, Layer
from ...core.parallel.global_arrays import gather_to_host
from ...core.parallel.mesh import is_first
from ...core.solver import Callback, Display, Scores, Solver
from ...core.solver.reporting import log
from ..debugging.visualize import encode_image, enlarge, find_first_filters, make_filter_maps, make_grid


def make_graph_def(graph: Graph) -> Any:
    """Return a tensorboardX GraphDef with a node for each layer, which has the shapes of its tops and params.

    Inserted splits are omitted. The layers that read a split blob are connected to the layer that computes the blob.
    """
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.versions_pb2 import VersionDef

    producer_nodes: dict[str, str] = {}  # by blob: the node that computes its current value, and the number of the top
    nodes = []
    for layer in graph.layers:
        inputs = [producer_nodes.get(bottom, bottom) for bottom in layer.bottoms]
        if layer.is_inserted_split:
            producer_nodes |= dict.fromkeys(layer.tops, inputs[0])
            continue
        nodes.append(_make_node(layer, inputs, [graph.blobs[top].shape for top in layer.tops]))
        producer_nodes |= {top: f"{layer.key}:{i}" if i else layer.key for i, top in enumerate(layer.tops)}
    return GraphDef(node=nodes, versions=VersionDef(producer=22))


def _make_node(layer: Layer, inputs: Sequence[str], tops: Sequence[tuple[int, ...]]) -> Any:
    from tensorboardX.proto.attr_value_pb2 import AttrValue
    from tensorboardX.proto.node_def_pb2 import NodeDef
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

    def make_shape_attribute(shapes: Sequence[tuple[int, ...]]) -> Any:
        dims = [[TensorShapeProto.Dim(size=n) for n in shape] for shape in shapes]
        return AttrValue(list=AttrValue.ListValue(shape=[TensorShapeProto(dim=dim) for dim in dims]))

    attributes = {"_output_shapes": make_shape_attribute(tops)}  # TensorBoard shows the shapes of this name on edges
    if layer.params:
        attributes["params"] = make_shape_attribute([param.spec.shape for param in layer.params])
    return NodeDef(name=layer.key, op=layer.type.name, input=inputs, attr=attributes)


_MAX_SCALARS = 16  # an output with more values becomes a histogram instead of scalars
_MAX_HISTOGRAM_VALUES = 2**20  # larger arrays are sampled at equal distances


class TensorBoard(Callback):
    """Callback that writes events for TensorBoard.

    Displays and tests write scalars: loss, lr, outputs, images per second, and the fraction of time spent waiting for
    data. Tests write histograms of all params and an image of the first filters. If the solver has no test nets,
    snapshots write them instead. The start of training writes the train net's graph. If a run resumes at an iteration,
    TensorBoard discards the events of the earlier run after this iteration. If an event cannot be written, one warning
    is logged, and training continues. If several processes train together, only the first process writes.

    Args:
        folder: the folder of the event files. It is created when training starts.

    Raises:
        CaffejaxError: if tensorboardX is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            import tensorboardX  # noqa: F401
        except ImportError as error:
            raise CaffejaxError("events for TensorBoard need tensorboardX: pip install tensorboardX") from error
        self.folder = Path(folder)
        self._writer: Any = None
        self._has_warned = False

    def on_start(self, solver: Solver) -> None:
        """Open an event file, and write the train net's graph.

        Raises:
            SolverError: if the file cannot be written.
        """
        if not is_first():
            return
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        self.close()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(self.folder / "events"), f".{time.time_ns()}")
        except OSError as error:
            raise SolverError(make_write_problem(self.folder, error)) from error
        self._write_event(solver.iteration, session_log=SessionLog(status=SessionLog.START))
        self._write_event(solver.iteration, graph_def=make_graph_def(solver.net.graph).SerializeToString())
        self._flush()

    def on_display(self, solver: Solver, display: Display) -> None:
        """Write the displayed loss, lr, outputs and speed as scalars."""
        if not self._ensure_open(solver):
            return
        values = {"train/loss": display.loss}
        if not np.isnan(display.rate):  # as in a solver with an optimizer of optax
            values["train/lr"] = display.rate
        if display.pace is not None:
            values |= {"speed/images_per_second": display.pace.images_per_second}
            values |= {"speed/waiting_for_data": display.pace.waiting}
        self._write_scalars(display.iteration, values)
        self._write_outputs(display.iteration, "train/output", display.outputs)
        self._flush()

    def on_test(self, solver: Solver, results: list[Scores]) -> None:
        """Write the scores of the test nets, histograms of the params, and the image of the first filters."""
        variables = gather_to_host(solver.variables)  # all processes must call it
        if not self._ensure_open(solver):
            return
        for net_index, scores in enumerate(results):
            net = f"test_{net_index}" if len(results) > 1 else "test"
            self._write_scalars(solver.iteration, {f"{net}/total_loss": scores.loss})
            self._write_outputs(solver.iteration, net, scores.outputs)
        self._write_params(solver, variables)

    def on_snapshot(self, solver: Solver, checkpoint: str) -> None:
        """Write histograms of the params and the image of the first filters, if the solver has no test nets."""
        if solver.tests.evaluators:
            return
        variables = gather_to_host(solver.variables)  # all processes must call it
        if self._ensure_open(solver):
            self._write_params(solver, variables)

    def on_end(self, solver: Solver, error: BaseException | None) -> None:
        """Close the event file."""
        self.close()

    def close(self) -> None:
        """Close the event file. The next event of a solver opens a new file."""
        if self._writer is None:
            return
        try:
            self._writer.close()
        except OSError as error:
            self._warn(error)
        self._writer = None

    def _ensure_open(self, solver: Solver) -> bool:
        """Open the file if `solve` did not open it, and return whether this process writes events."""
        if self._writer is None:
            self.on_start(solver)
        return self._writer is not None

    def _write_params(self, solver: Solver, variables: Variables) -> None:
        for layer, arrays in variables.params.items():
            for name, array in arrays.items():
                self._write_histogram(solver.iteration, f"params/{layer}/{name}", np.asarray(array))
        filters = find_first_filters(solver.net.graph)
        if filters is not None:
            weights = np.asarray(filters.array(*variables))
            self._write_image(
                solver.iteration, f"filters/{filters.slot.layer}", enlarge(make_grid(make_filter_maps(weights)))
            )
        self._flush()

    def _write_outputs(self, step: int, prefix: str, outputs: Mapping[str, np.ndarray]) -> None:
        for name, values in outputs.items():
            flat_values = np.ravel(values)
            if flat_values.size > _MAX_SCALARS:
                self._write_histogram(step, f"{prefix}/{name}", flat_values)
            else:
                scalars = {
                    f"{prefix}/{name}_{i}" if i else f"{prefix}/{name}": v for i, v in enumerate(flat_values.tolist())
                }
                self._write_scalars(step, scalars)

    def _write_scalars(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        summary = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._write_event(step, summary=Summary(value=summary))

    def _write_histogram(self, step: int, tag: str, values: np.ndarray) -> None:
        from tensorboardX.summary import histogram

        flat_values = values.ravel()[:: -(-values.size // _MAX_HISTOGRAM_VALUES) or 1].astype(np.float64)
        if (finite := flat_values[np.isfinite(flat_values)]).size:
            self._write_event(step, summary=histogram(tag, finite, bins=64))

    def _write_image(self, step: int, tag: str, picture: np.ndarray) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        height, width = picture.shape[:2]
        channels = 1 if picture.ndim == 2 else 3
        image = Summary.Image(
            height=height, width=width, colorspace=channels, encoded_image_string=encode_image(picture)
        )
        self._write_event(step, summary=Summary(value=[Summary.Value(tag=tag, image=image)]))

    def _write_event(self, step: int, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        if self._writer is None:
            return
        try:
            self._writer.write_event(Event(wall_time=time.time(), step=step, **fields))
        except OSError as error:
            self._warn(error)

    def _flush(self) -> None:
        try:
            self._writer.flush()  # waits for the disk, so it is not called for each event
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: events cannot be written (%s); training continues without them", self.folder, error.strerror
            )

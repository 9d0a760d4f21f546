"""The view of a net file in `caffejax view`, as JSON and as a page: layers, boxes, repeated blocks and problems."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.atomic_write import replace_file
from ...base.config import NetConfig
from ...base.errors import CaffejaxError, Problem
from ...base.glog import collect_warnings
from ...base.human_readable import format_count
from ...core.graph import make_net_state
from ...core.graph.resolve import find_sources, is_included
from ...core.layers import Phase
from ...core.schema import format_text, read_valid_part
from ...core.schema.caffe_pb2 import LayerParameter, NetParameter, NetState
from ..model_check.placeholder_sources import AssumedGraph, MissingSourceError, build_assumed_graphs
from ..net_states import has_no_data
from ..summary import LayerSummary, summarize
from .html_page import render_page
from .layer_graph import DrawnLayer, connect_layers
from .repeated_blocks import Block, Box, find_blocks, make_boxes

PHASES: tuple[Phase, ...] = ("TRAIN", "TEST")


@dataclass(frozen=True)
class PhaseView:
    """A net in one phase.

    Attributes:
        layers: the layers of the phase, in the order of execution.
        definitions: for each layer, its index among all layers of the prototxt.
        boxes: layers grouped with the in-place layers on their tops.
        blocks: repeated blocks, as ranges of boxes.
        summaries: shapes and counts of each layer; None for layers that cannot be built.
        problems: the reasons why the net cannot be built; () if it can be built.
        notes: assumptions and ignored settings.
    """

    layers: tuple[DrawnLayer, ...]
    definitions: tuple[int, ...]
    boxes: tuple[Box, ...]
    blocks: tuple[Block, ...]
    summaries: tuple[LayerSummary | None, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class NetView:
    """The view of a net file.

    Attributes:
        file: the path of the file.
        net: the part of the net that could be read.
        problems: problems of the prototxt text.
        notes: old forms that the prototxt uses.
        phases: the view of each phase.
    """

    file: Path
    net: NetParameter
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    phases: dict[Phase, PhaseView]


def load_view(file: Path, level: int = 0, stages: Sequence[str] = (), config: NetConfig = NetConfig()) -> NetView:
    """Load the view of a net, without running layers. The files that its data layers read may be missing.

    Args:
        file: a prototxt.
        level, stages: the level and stages of the net state.
        config: how data layers read data files, if these exist.

    Raises:
        SchemaError: if the file does not exist or is not text. All other problems are recorded in the view.
    """
    with collect_warnings(f"{file}: ") as notes:
        net, problems = read_valid_part(file)
    if not net.layer and not problems:
        problems = (Problem("has no layers", str(file)),)
    phases = {phase: _load_phase_view(net, make_net_state(net, phase, level, stages), file, config) for phase in PHASES}
    return NetView(file, net, problems, tuple(notes), phases)


def _load_phase_view(net: NetParameter, state: NetState, file: Path, config: NetConfig) -> PhaseView:
    indices = [i for i, layer in enumerate(net.layer) if is_included(layer, state)]
    layers = [net.layer[i] for i in indices]
    summaries: dict[int, LayerSummary] = {}
    problems: tuple[Problem, ...] = ()
    notes: list[str] = []
    if has_no_data(net, state):
        notes.append("this phase has no data layer, so it is drawn without shapes")
    else:
        with collect_warnings(f"{file}: ") as warnings:
            summaries, problems, assumptions = _summarize_layers(net, state, file, config, layers)
        notes += [*assumptions, *dict.fromkeys(warnings)]
    drawn_layers = connect_layers(layers)
    boxes = make_boxes(drawn_layers)
    return PhaseView(
        layers=drawn_layers,
        definitions=tuple(indices),
        boxes=boxes,
        blocks=find_blocks(boxes),
        summaries=tuple(summaries.get(i) for i in range(len(layers))),
        problems=problems,
        notes=tuple(notes),
    )


_Summaries = tuple[dict[int, LayerSummary], tuple[Problem, ...], tuple[str, ...]]


def _summarize_layers(
    net: NetParameter, state: NetState, file: Path, config: NetConfig, layers: Sequence[LayerParameter]
) -> _Summaries:
    """Return the layer summaries by index, the problems of the net, and the assumptions about missing data.

    If the net cannot be built, only layers that do not depend on a layer with a problem have summaries.
    """
    try:
        return _summarize_graph(next(build_assumed_graphs(net, state, file, config)), range(len(layers)))
    except MissingSourceError as reason:
        return {}, (), (f"{reason}; therefore no shapes are known",)
    except CaffejaxError as error:
        problems = error.problems
    valid_indices = _find_valid_layers(layers, problems)
    if not 0 < len(valid_indices) < len(layers):
        return {}, problems, ()
    valid_net = NetParameter(name=net.name, layer=[layers[i] for i in valid_indices])
    try:
        summaries, _, assumptions = _summarize_graph(
            next(build_assumed_graphs(valid_net, state, file, config)), valid_indices
        )
    except (MissingSourceError, CaffejaxError):
        return {}, problems, ()
    return summaries, problems, assumptions


def _summarize_graph(assumed: AssumedGraph, indices: Sequence[int]) -> _Summaries:
    return dict(zip(indices, summarize(assumed.graph).layers, strict=True)), (), assumed.assumptions


def _find_valid_layers(layers: Sequence[LayerParameter], problems: Sequence[Problem]) -> list[int]:
    problem_layers = {problem.layer for problem in problems}
    sources, missing_bottoms = find_sources(layers)
    layers_with_missing_bottoms = {i for i, _, _ in missing_bottoms}
    invalid_indices: set[int] = set()
    for i, layer in enumerate(layers):
        producers = (sources.get((i, j)) for j in range(len(layer.bottom)))
        if (
            layer.name in problem_layers
            or i in layers_with_missing_bottoms
            or any(producer is None or producer[0] in invalid_indices for producer in producers)
        ):
            invalid_indices.add(i)
    return [i for i in range(len(layers)) if i not in invalid_indices]


def collect_problems(view: NetView) -> list[tuple[Problem, tuple[Phase, ...]]]:
    """Return each distinct problem of a net with its phases. Problems of the prototxt text have no phases."""
    phases_by_problem: dict[Problem, tuple[Phase, ...]] = dict.fromkeys(view.problems, ())
    for phase, phase_view in view.phases.items():
        for problem in phase_view.problems:
            if problem not in view.problems:
                phases_by_problem[problem] = (*phases_by_problem.get(problem, ()), phase)
    return list(phases_by_problem.items())


_MAX_TEXT_LENGTH = 20_000  # maximum characters of a layer's prototxt


def to_json(view: NetView) -> dict[str, Any]:
    """Return a net view as JSON-compatible values for the page's scripts.

    A problem contains the name of its layer and its phases; problems of the prototxt text have no phases. Layers refer
    to other layers and to their prototxt by index.
    """
    layer_summaries = [summary for phase_view in view.phases.values() for summary in phase_view.summaries if summary]
    families = {summary.type: summary.family for summary in layer_summaries}  # families of layers that cannot be built
    problems = [{**_problem_as_json(p), "phases": phases} for p, phases in collect_problems(view)]
    return {
        "name": view.net.name,
        "file": str(view.file),
        "problems": problems,
        "notes": view.notes,
        "texts": [format_layer(layer) for layer in view.net.layer],
        "phases": {phase: _phase_as_json(phase_view, families) for phase, phase_view in view.phases.items()},
    }


def format_layer(layer: LayerParameter) -> str:
    """Return a layer's prototxt without weights, truncated to a readable length."""
    message = LayerParameter()
    message.CopyFrom(layer)
    message.ClearField("blobs")
    text = "".join(f"  {line}\n" for line in format_text(message).splitlines())
    truncated_text = (
        f"{text[:_MAX_TEXT_LENGTH]}\n  # and {format_count(len(text) - _MAX_TEXT_LENGTH, 'character')} more\n"
    )
    weights_comment = f"  # blobs: {format_count(len(layer.blobs), 'array')} of weights\n" if layer.blobs else ""
    return f"layer {{\n{text if len(text) <= _MAX_TEXT_LENGTH else truncated_text}{weights_comment}}}"


def _problem_as_json(problem: Problem) -> dict[str, Any]:
    location = {"file": problem.file, "line": problem.line, "layer": problem.layer, "type": problem.layer_type}
    return {"message": problem.message, **{key: value for key, value in location.items() if value is not None}}


def _phase_as_json(view: PhaseView, families: Mapping[str, str]) -> dict[str, Any]:
    layers = [
        {
            "name": layer.layer.name,
            "type": layer.layer.type,
            "family": summary.family if summary else families.get(layer.layer.type, "unbuilt"),
            "detail": _format_detail(layer),
            "text": definition,
            "bottoms": list(layer.layer.bottom),
            "tops": list(layer.layer.top),
            "sources": layer.sources,
            **(_summary_as_json(summary) if summary else {}),
        }
        for layer, definition, summary in zip(view.layers, view.definitions, view.summaries, strict=True)
    ]
    return {
        "layers": layers,
        "boxes": [_box_as_json(box) for box in view.boxes],
        "blocks": [_block_as_json(block) for block in view.blocks],
        "builds": not view.problems,
        "notes": view.notes,
    }


def _format_detail(layer: DrawnLayer) -> str:
    """Return the kind, kernel and stride of a layer as text, such as "MAX 3x3 /2"; "" for a layer without a kernel."""
    if layer.style.format_window is None:
        return ""
    kernel, stride = (line.rpartition(": ")[2] for line in layer.style.format_window(layer.layer)[:2])
    kernel = f"{kernel}x{kernel}" if kernel.isdecimal() else kernel
    kind = f"{layer.style.format_kind(layer.layer)} " if layer.style.format_kind else ""
    return f"{kind}{kernel}{'' if stride == '1' else f' /{stride}'}"


def _summary_as_json(summary: LayerSummary) -> dict[str, Any]:
    return {
        "shapes": summary.top_shapes,
        "paramShapes": summary.param_shapes,
        "parameters": summary.parameters,
        "multiplyAdds": summary.multiply_adds,
        "activationBytes": summary.activation_bytes,
        "receptiveField": summary.receptive_field,
        "stride": summary.stride,
    }


def _box_as_json(box: Box) -> dict[str, Any]:
    return {"layers": [layer.index for layer in box.layers], "sources": box.sources}


def _block_as_json(block: Block) -> dict[str, Any]:
    return {
        "start": block.start,
        "stop": block.stop,
        "label": block.label,
        "parts": [_block_as_json(part) for part in block.parts],
    }


def make_page(view: NetView) -> bytes:
    """Return the self-contained HTML page of a net as bytes."""
    return render_page(to_json(view))


def write_view(
    file: str | os.PathLike[str],
    out: str | os.PathLike[str],
    level: int = 0,
    stages: Sequence[str] = (),
    config: NetConfig = NetConfig(),
) -> NetView:
    """Write the HTML page of a net file. An invalid net is drawn with its problems.

    Args:
        file: a prototxt.
        out: the path of the page, `.html`.
        level, stages: the level and stages of the net state.
        config: how data layers read data files, if these exist.

    Returns:
        The view on the page.

    Raises:
        SchemaError: if the prototxt does not exist or is not text.
        CaffejaxError: if the page cannot be written.
    """
    view = load_view(Path(file), level, stages, config)
    content = make_page(view)
    with replace_file(out) as page_file:
        page_file.write(content)
    return view

"""What a page shows of a net: its layers in a phase with their numbers, its blocks, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.placeholder_sources import AbsentError, AssumedGraph, assumed_graphs
from ..errors import CaffejaxError, Problem
from ..glog import warnings_kept
from ..graph import net_state
from ..graph.resolve import find_sources, included, lacks_data
from ..layers import Phase
from ..options import Reading
from ..schema import read_what_is_right
from ..schema.caffe_pb2 import LayerParameter, NetParameter, NetState
from ..summary import LayerSummary, summarize
from .blocks import Block, blocks_of
from .boxes import Box, boxes_of
from .wiring import WiredLayer, wired

PHASES: tuple[Phase, ...] = ("TRAIN", "TEST")


@dataclass(frozen=True)
class SeenPhase:
    """A net in one phase.

    Attributes:
        layers: those of the phase, in the order of execution.
        definitions: for each the index among all layers of the text.
        boxes: layers with those that work in place on their tops.
        blocks: what repeats, as ranges of boxes.
        numbers: what is known of each layer; None where the net cannot be built as far as there.
        problems: why it cannot be built; none if it can.
        notes: what was assumed or ignored.
    """

    layers: tuple[WiredLayer, ...]
    definitions: tuple[int, ...]
    boxes: tuple[Box, ...]
    blocks: tuple[Block, ...]
    numbers: tuple[LayerSummary | None, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SeenNet:
    """A net's file.

    Attributes:
        file: its path.
        net: what could be read of it.
        problems: what is wrong with its text.
        notes: old forms that it is written in.
        phases: by name.
    """

    file: Path
    net: NetParameter
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    phases: dict[Phase, SeenPhase]


def see(file: Path, level: int = 0, stages: Sequence[str] = (), reading: Reading = Reading()) -> SeenNet:
    """Look at a net; nothing is run, and no data is opened that is not there.

    Args:
        file: a prototxt.
        level, stages: of the states to see it in.
        reading: how its data is read, where it is there.

    Raises:
        SchemaError: if there is no such file, or it is no text. All else that is wrong is among the problems.
    """
    with warnings_kept(f"{file}: ") as notes:
        net, problems = read_what_is_right(file)
    if not net.layer and not problems:
        problems = (Problem("has no layers", str(file)),)
    phases = {phase: _see_phase(net, net_state(net, phase, level, stages), file, reading) for phase in PHASES}
    return SeenNet(file, net, problems, tuple(notes), phases)


def _see_phase(net: NetParameter, state: NetState, file: Path, reading: Reading) -> SeenPhase:
    places = [i for i, layer in enumerate(net.layer) if included(layer, state)]
    layers = [net.layer[i] for i in places]
    numbers: dict[int, LayerSummary] = {}
    problems: tuple[Problem, ...] = ()
    notes: list[str] = []
    if lacks_data(net, state):
        notes.append("this phase has no data layer: it is drawn as its text stands, without shapes")
    else:
        with warnings_kept(f"{file}: ") as warnings:
            numbers, problems, assumed = _numbers(net, state, file, reading, layers)
        notes += [*assumed, *dict.fromkeys(warnings)]
    all_wired = wired(layers)
    boxes = boxes_of(all_wired)
    return SeenPhase(
        layers=all_wired,
        definitions=tuple(places),
        boxes=boxes,
        blocks=blocks_of(boxes),
        numbers=tuple(numbers.get(i) for i in range(len(layers))),
        problems=problems,
        notes=tuple(notes),
    )


_Numbers = tuple[dict[int, LayerSummary], tuple[Problem, ...], tuple[str, ...]]


def _numbers(
    net: NetParameter, state: NetState, file: Path, reading: Reading, layers: Sequence[LayerParameter]
) -> _Numbers:
    """Return the layers' numbers by index, why there are none, and what was assumed; as far as the net can be built."""
    try:
        return _of_graph(next(assumed_graphs(net, state, file, reading)), range(len(layers)))
    except AbsentError as reason:
        return {}, (), (f"{reason}; no shapes are known",)
    except CaffejaxError as error:
        problems = error.problems
    sound = _sound(layers, problems)
    if not 0 < len(sound) < len(layers):
        return {}, problems, ()
    rest = NetParameter(name=net.name, layer=[layers[i] for i in sound])
    try:
        numbers, _, assumed = _of_graph(next(assumed_graphs(rest, state, file, reading)), sound)
    except (AbsentError, CaffejaxError):
        return {}, problems, ()
    return numbers, problems, assumed


def _of_graph(found: AssumedGraph, places: Sequence[int]) -> _Numbers:
    return dict(zip(places, summarize(found.graph).layers, strict=True)), (), found.assumed


def _sound(layers: Sequence[LayerParameter], problems: Sequence[Problem]) -> list[int]:
    """Return which layers have no problem, and read from none that has."""
    wrong = {problem.layer for problem in problems}
    sources, missing = find_sources(layers)
    lacking = {i for i, _, _ in missing}
    bad: set[int] = set()
    for i, layer in enumerate(layers):
        makers = (sources.get((i, j)) for j in range(len(layer.bottom)))
        if layer.name in wrong or i in lacking or any(maker is None or maker[0] in bad for maker in makers):
            bad.add(i)
    return [i for i in range(len(layers)) if i not in bad]


def all_problems(seen: SeenNet) -> list[tuple[Problem, tuple[Phase, ...]]]:
    """Return every problem of a net, each once, with the phases that have it; none for those of the text."""
    found: dict[Problem, tuple[Phase, ...]] = dict.fromkeys(seen.problems, ())
    for phase, part in seen.phases.items():
        for problem in part.problems:
            if problem not in seen.problems:
                found[problem] = (*found.get(problem, ()), phase)
    return list(found.items())

"""Runs of steps that a net repeats, but for the numbers in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .program import Part, Program, Step

_LONGEST = 48  # steps in a block

# arguments that a module of a block may have or leave out, with their values then
OPTIONAL: dict[str, dict[str, Any]] = {"nnx.Conv": {"strides": 1}}


@dataclass(frozen=True)
class Segment:
    """Some steps in a row that have one input, and one output, the last one's.

    Attributes:
        start, stop: where they are among the program's steps.
        input: the value that they read from outside.
    """

    start: int
    stop: int
    input: int


def repeated(program: Program) -> list[Segment]:
    """Return the segments, all of one form, that are worth most to be written once; none if none is worth it."""
    found: dict[Any, list[Segment]] = {}
    for form, segment in _segments(program):
        apart = found.setdefault(form, [])
        if not apart or segment.start >= apart[-1].stop:
            apart.append(segment)
    worth = [(_saved(program, segments), segments[0].stop - segments[0].start) for segments in found.values()]
    saved, _ = best = max(worth, default=(0, 0))
    return list(found.values())[worth.index(best)] if saved > 0 else []


def _saved(program: Program, segments: Sequence[Segment]) -> int:
    """Return how many lines are saved: each block costs lines to make and to call it; the class counts double."""
    lines = sum(
        (step.part is not None) + (not step.after) for step in program.steps[segments[0].start : segments[0].stop]
    )
    half = sum(_is_half(program, segment) for segment in segments)
    return len(segments) * lines - (2 * len(segments) + 2 * lines + 5) - 2 * half


def _is_half(program: Program, segment: Segment) -> bool:
    """Return whether steps further on read the input, too: such as a sum that belongs to the block."""
    return any(segment.input in step.reads for step in program.steps[segment.stop :])


def _segments(program: Program) -> Iterator[tuple[Any, Segment]]:
    steps = program.steps
    last = {number: at for at, step in enumerate(steps) for number in step.reads}
    last |= dict.fromkeys(program.outputs, len(steps))
    uses = Counter(id(step.part) for step in steps)
    readers = Counter(number for step in steps for number in step.reads)
    forms = [_form(step) for step in steps]
    for start, first in enumerate(steps):
        if len(first.reads) != 1 or (first.after and readers[first.reads[0]] == 1):  # it belongs to what is before it
            continue
        places, form = {first.reads[0]: 0}, list[Any]()
        for stop in range(start + 1, min(start + _LONGEST, len(steps)) + 1):
            step = steps[stop - 1]
            shared = step.part is not None and (uses[id(step.part)] > 1 or step.part.kind == "block")
            if shared or any(number not in places for number in step.reads):
                break
            form.append((forms[stop - 1], tuple(places[number] for number in step.reads)))
            places |= {number: len(places) + k for k, number in enumerate(step.writes)}
            read_outside = [n for n in places if n != first.reads[0] and last.get(n, -1) >= stop]
            one = stop - start > 1 and read_outside == list(step.writes) and len(step.writes) == 1
            if one and _branchings(steps[start:stop]) <= 1:
                yield tuple(form), Segment(start, stop, first.reads[0])


def _branchings(steps: Sequence[Step]) -> int:
    """Return how often the way through some steps parts and comes together again."""
    last = {number: at for at, step in enumerate(steps) for number in step.reads}
    alive, cuts = set(steps[0].reads), [0]
    for at, step in enumerate(steps, start=1):
        alive = {number for number in (*alive, *step.writes) if last.get(number, -1) >= at}
        if len(alive) <= 1:
            cuts.append(at)
    return sum(after - before > 1 for before, after in pairwise(cuts))


def _form(step: Step) -> Any:
    part: Part | None = step.part
    if part is None:
        return step.text, len(step.writes), None
    optional = OPTIONAL.get(part.maker, {})
    arguments = tuple(name for name, _ in part.arguments if name not in optional)
    return step.text, len(step.writes), (part.maker, arguments, part.positional, part.random, *sorted(part.weights))

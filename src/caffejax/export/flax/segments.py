"""Runs of steps that a net repeats, but for the numbers in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .program import Part, Program, Step

_LONGEST = 48  # steps in a block
_INPUTS = 2  # that a block may have


@dataclass(frozen=True)
class Segment:
    """Some steps in a row that have few inputs and one output, the last one's.

    Attributes:
        start, stop: where they are among the program's steps.
        inputs: the values that they read from outside.
    """

    start: int
    stop: int
    inputs: tuple[int, ...]


def repeated(program: Program) -> list[Segment]:
    """Return the segments, all of one form, that are worth most to be written once; none if none is worth it."""
    found: dict[Any, list[Segment]] = {}
    for form, segment in _segments(program):
        apart = found.setdefault(form, [])
        if not apart or segment.start >= apart[-1].stop:
            apart.append(segment)
    best = max(found.values(), key=lambda segments: _saved(program, segments), default=[])
    return best if best and _saved(program, best) > 0 else []


def _saved(program: Program, segments: Sequence[Segment]) -> int:
    """Return how many lines are saved: each block costs a line to make and one to call, and its class some more."""
    lines = sum(
        (step.part is not None) + (not step.after) for step in program.steps[segments[0].start : segments[0].stop]
    )
    return len(segments) * lines - (2 * len(segments) + lines + 5)


def _segments(program: Program) -> Iterator[tuple[Any, Segment]]:
    steps = program.steps
    last = {number: at for at, step in enumerate(steps) for number in step.reads}
    last |= dict.fromkeys(program.outputs, len(steps))
    uses: dict[int, int] = {}
    for step in steps:
        uses[id(step.part)] = uses.get(id(step.part), 0) + 1
    forms = [_form(step) for step in steps]
    for start in range(len(steps)):
        inputs, places, form = list[int](), dict[int, int](), list[Any]()
        for stop in range(start + 1, min(start + _LONGEST, len(steps)) + 1):
            step = steps[stop - 1]
            if step.part is not None and (uses[id(step.part)] > 1 or step.part.kind == "block"):
                break
            for number in step.reads:
                if number not in places and number not in inputs:
                    inputs.append(number)
            if len(inputs) > _INPUTS:
                break
            reads = tuple(places.get(n, -1 - inputs.index(n) if n in inputs else 0) for n in step.reads)
            form.append((forms[stop - 1], reads))
            places |= {number: len(places) + k for k, number in enumerate(step.writes)}
            seen_outside = [number for number in places if last.get(number, -1) >= stop]
            if stop - start > 1 and seen_outside == list(step.writes) and len(step.writes) == 1:
                yield tuple(form), Segment(start, stop, tuple(inputs))


def _form(step: Step) -> Any:
    part: Part | None = step.part
    of_part = part and (part.maker, tuple(name for name, _ in part.arguments), part.positional, part.random)
    return step.text, len(step.writes), of_part, part and tuple(sorted(part.weights))

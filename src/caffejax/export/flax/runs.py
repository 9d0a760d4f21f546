"""Blocks of one kind, one after the other, as a list with a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .names import shared_start, words
from .program import Program, Step

_SHORTEST = 3


def with_lists(program: Program) -> Program:
    """Return the program with lists in place of blocks in a row whose arguments are equal, or grow evenly."""
    readers: dict[int, int] = dict.fromkeys(program.outputs, 2)
    for step in program.steps:
        for number in step.reads:
            readers[number] = readers.get(number, 0) + 1
    steps, at = list[Step](), 0
    while at < len(program.steps):
        run = _run(program.steps, at, readers)
        steps.append(_listed(run) if len(run) >= _SHORTEST else run[0])
        at += len(run) if len(run) >= _SHORTEST else 1
    return program.with_steps(tuple(steps))


def _run(steps: Sequence[Step], at: int, readers: dict[int, int]) -> list[Step]:
    """Return the step with those after it that make a list with it."""
    run = [steps[at]]
    if not _may_be_listed(run[0]):
        return run
    for step in steps[at + 1 :]:
        before = run[-1]
        follows = step.reads == before.writes and readers[before.writes[0]] == 1
        if not (
            follows and _may_be_listed(step) and step.part and before.part and step.part.maker == before.part.maker
        ):
            break
        if len(run) > 1 and _steps(run[0], run[1]) != _steps(before, step):
            break
        if _steps(before, step) is None:
            break
        run.append(step)
    return run


def _may_be_listed(step: Step) -> bool:
    return step.part is not None and step.part.kind == "block" and len(step.reads) == 1


def _steps(before: Step, after: Step) -> tuple[int, ...] | None:
    """Return by how much each argument grows; None where it is no number and another."""
    assert before.part is not None
    assert after.part is not None
    found = []
    for (_, old), (_, new) in zip(before.part.arguments, after.part.arguments, strict=True):
        if old == new:
            found.append(0)
        elif type(old) is int and type(new) is int:
            found.append(new - old)
        else:
            return None
    return tuple(found)


def _listed(run: Sequence[Step]) -> Step:
    parts = [step.part for step in run if step.part is not None]
    weights = {f"{i}.{path}": array for i, part in enumerate(parts) for path, array in part.weights.items()}
    prefix = shared_start([step.layer for step in run]).rstrip("_")
    name = f"{prefix}_blocks" if words(prefix) else f"{run[0].layer}_to_{run[-1].layer}"
    part = replace(parts[0], weights=weights, count=len(run), steps=_steps(run[0], run[1]) or (), kind="blocks")
    return replace(run[0], layer=name, part=part, writes=run[-1].writes)

"""Classes for what a net repeats: inception modules, residual blocks, fire modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .names import TAKEN, class_name, common, common_prefix, identifier, shared_start, unique, words
from .program import Block, Parameter, Part, Program, Step
from .segments import OPTIONAL, Segment, repeated

_SHORT = {"out_features": "features", "num_features": "features"}


def with_blocks(program: Program) -> Program:
    """Return the program with classes for what it repeats."""
    while segments := repeated(program):
        program = _with_block(program, segments)
    return program


def _with_block(program: Program, segments: Sequence[Segment]) -> Program:
    runs = [program.steps[segment.start : segment.stop] for segment in segments]
    instances = _without_ending([_instance_name(run, program) for run in runs])
    members = _member_names(runs)
    parameters, body = _parameters(runs, members)
    taken = {*TAKEN, *program.helpers, *(block.name for block in program.blocks)}
    name = unique(_class_of(instances), taken, "")
    names = _blob_names(program, runs)
    typed = tuple((parameter, _type_of(values)) for parameter, values in parameters.items())
    title = f"{instances[0]} and {len(runs) - 1} more like it."
    block = Block(name, title, typed, body, segments[0].input, runs[0][-1].writes[0], names)
    steps, at = list[Step](), 0
    for k, (segment, run, instance) in enumerate(zip(segments, runs, instances, strict=True)):
        given = tuple((parameter, values[k]) for parameter, values in parameters.items())
        weights = {
            f"{member}.{path}".rstrip("."): array
            for step, member in zip(run, members, strict=True)
            if step.part is not None
            for path, array in step.part.weights.items()
        }
        part = Part(name, given, "block", len(given), weights)
        made = Step(instance, "{part}({0})", (segment.input,), run[-1].writes, part)
        steps += [*program.steps[at : segment.start], made]
        at = segment.stop
    return program.with_steps((*steps, *program.steps[at:]), block)


def _instance_name(run: Sequence[Step], program: Program) -> str:
    """Return what all layers' names begin with, else the name of the blob that is made."""
    prefix = common_prefix([step.layer for step in run])
    return "_".join(prefix or words(program.values[run[-1].writes[0]].blob)) or "block"


def _without_ending(names: Sequence[str]) -> list[str]:
    """Return the names without the words that all end with."""
    split = [words(name) for name in names]
    while min(map(len, split)) > 1 and split[0][-1].isalpha() and len({ws[-1] for ws in split}) == 1:
        split = [ws[:-1] for ws in split]
    return ["_".join(ws) for ws in split]


def _class_of(instances: Sequence[str]) -> str:
    letters = shared_start(instances).rstrip("0123456789_")
    return class_name(letters, "") + "Block" if letters and letters[0].isalpha() else "Block"


def _member_names(runs: Sequence[Sequence[Step]]) -> list[str]:
    """Return a name for each step's module: what is said of it in all runs, and not of all in a run."""
    found, taken = list[str](), set(TAKEN)
    of_all = common_prefix(["_".join(common([step.layer for step in same])) for same in zip(*runs, strict=True)])
    for same in zip(*runs, strict=True):
        if (part := same[0].part) is None:
            found.append("")
            continue
        said = common([step.layer for step in same])[len(of_all) :]
        name = identifier("_".join(said), part.kind)
        if (name in taken or len(name) < 3) and not name.startswith(part.kind):
            name = f"{part.kind}_{name}"
        found.append(unique(name, taken))
        taken.add(found[-1])
    return found


def _blob_names(program: Program, runs: Sequence[Sequence[Step]]) -> dict[int, str]:
    """Return what to call the values in a block by number: by the words that all runs have in common."""
    found = {}
    for same in zip(*runs, strict=True):
        for k, number in enumerate(same[0].writes):
            found[number] = "_".join(common([program.values[step.writes[k]].blob for step in same]))
    of_all = common_prefix(found.values())
    return {number: "_".join(words(name)[len(of_all) :]) for number, name in found.items()}


def _parameters(
    runs: Sequence[Sequence[Step]], members: Sequence[str]
) -> tuple[dict[str, tuple[Any, ...]], tuple[Step, ...]]:
    """Return a block's parameters with their values in each run, and its steps."""
    parameters: dict[str, tuple[Any, ...]] = {}
    body = []
    for same, member in zip(zip(*runs, strict=True), members, strict=True):
        first = same[0].part
        if first is None:
            body.append(same[0])
            continue
        arguments = []
        parts = [step.part for step in same if step.part is not None]
        for argument, _ in max((part.arguments for part in parts), key=len):
            otherwise = OPTIONAL.get(first.maker, {}).get(argument)
            values = tuple(dict(part.arguments).get(argument, otherwise) for part in parts)
            value = values[0]
            if any(v != value for v in values):
                value = Parameter(_parameter(parameters, values, argument, member))
            arguments.append((argument, value))
        body.append(replace(same[0], part=replace(first, arguments=tuple(arguments)), name=member))
    return parameters, tuple(body)


def _parameter(parameters: dict[str, tuple[Any, ...]], values: tuple[Any, ...], argument: str, member: str) -> str:
    """Return the parameter that has these values, a new one if there is none."""
    for name, known in parameters.items():
        if known == values:
            return name
    short = (
        argument
        if argument in ("in_features", "strides") and argument not in parameters
        else f"{member}_{_SHORT.get(argument, argument)}"
    )
    name = unique(short, {*parameters, *TAKEN})
    parameters[name] = values
    return name


def _type_of(values: tuple[Any, ...]) -> str:
    kinds = sorted({_kind(value) for value in values})
    return " | ".join(kinds)


def _kind(value: Any) -> str:
    if not isinstance(value, tuple):
        return type(value).__name__
    return f"tuple[{_kind(value[0]) if value else 'int'}, ...]"

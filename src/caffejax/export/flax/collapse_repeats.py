"""Replacement of repeated steps of a program by block classes, and of consecutive equal blocks by lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from .ir import (
    TAKEN,
    Block,
    Parameter,
    Part,
    Program,
    Step,
    class_name,
    common,
    common_prefix,
    identifier,
    shared_start,
    unique,
    words,
)

_MAX_STEPS = 48  # maximum steps in a block

# optional module arguments that may differ between instances of a block, with their defaults
OPTIONAL: dict[str, dict[str, Any]] = {"nnx.Conv": {"strides": 1}}


@dataclass(frozen=True)
class Segment:
    """Consecutive steps of a program with one input and one output, which is the output of the last step.

    Attributes:
        start, stop: the range of the steps in the program.
        input: number of the value from outside that the steps read.
    """

    start: int
    stop: int
    input: int


def find_repeats(program: Program) -> list[Segment]:
    """Return the equal segments whose replacement by a class saves most lines; [] if no replacement saves lines."""
    by_form: dict[Any, list[Segment]] = {}
    for form, segment in _segments(program):
        segments = by_form.setdefault(form, [])
        if not segments or segment.start >= segments[-1].stop:
            segments.append(segment)
    worth = [(_lines_saved(program, segments), segments[0].stop - segments[0].start) for segments in by_form.values()]
    saved, _ = best = max(worth, default=(0, 0))
    return list(by_form.values())[worth.index(best)] if saved > 0 else []


def _lines_saved(program: Program, segments: Sequence[Segment]) -> int:
    """Return the number of lines that a class for the segments saves.

    Creating and calling each block costs lines, and the lines of the class count double.
    """
    lines = sum(
        (step.part is not None) + (not step.after) for step in program.steps[segments[0].start : segments[0].stop]
    )
    incomplete = sum(_is_incomplete(program, segment) for segment in segments)
    return len(segments) * lines - (2 * len(segments) + 2 * lines + 5) - 2 * incomplete


def _is_incomplete(program: Program, segment: Segment) -> bool:
    """Return whether steps after the segment read its input too, for example the sum at the end of a residual block."""
    return any(segment.input in step.reads for step in program.steps[segment.stop :])


def _segments(program: Program) -> Iterator[tuple[Any, Segment]]:
    steps = program.steps
    last = {number: at for at, step in enumerate(steps) for number in step.reads}
    last |= dict.fromkeys(program.outputs, len(steps))
    uses = Counter(id(step.part) for step in steps)
    readers = Counter(number for step in steps for number in step.reads)
    forms = [_form(step) for step in steps]
    for start, first in enumerate(steps):
        if len(first.reads) != 1 or (
            first.after and readers[first.reads[0]] == 1
        ):  # the step is nested in the previous step's statement
            continue
        numbering, form = {first.reads[0]: 0}, list[Any]()
        for stop in range(start + 1, min(start + _MAX_STEPS, len(steps)) + 1):
            step = steps[stop - 1]
            shared = step.part is not None and (uses[id(step.part)] > 1 or step.part.kind == "block")
            if shared or any(number not in numbering for number in step.reads):
                break
            form.append((forms[stop - 1], tuple(numbering[number] for number in step.reads)))
            numbering |= {number: len(numbering) + k for k, number in enumerate(step.writes)}
            read_outside = [n for n in numbering if n != first.reads[0] and last.get(n, -1) >= stop]
            one = stop - start > 1 and read_outside == list(step.writes) and len(step.writes) == 1
            if one and _branchings(steps[start:stop]) <= 1:
                yield tuple(form), Segment(start, stop, first.reads[0])


def _branchings(steps: Sequence[Step]) -> int:
    """Return the number of times that the data flow of the steps branches and joins again."""
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


_SHORT = {"out_features": "features", "num_features": "features"}


def extract_blocks(program: Program) -> Program:
    """Return the program with calls of a block class instead of each repeated group of steps."""
    while segments := find_repeats(program):
        program = _with_block(program, segments)
    return program


def _with_block(program: Program, segments: Sequence[Segment]) -> Program:
    runs = [program.steps[segment.start : segment.stop] for segment in segments]
    instances = _drop_common_ending([_instance_name(run, program) for run in runs])
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
        arguments = tuple((parameter, values[k]) for parameter, values in parameters.items())
        weights = {
            f"{member}.{path}".rstrip("."): array
            for step, member in zip(run, members, strict=True)
            if step.part is not None
            for path, array in step.part.weights.items()
        }
        part = Part(name, arguments, "block", len(arguments), weights)
        call = Step(instance, "{part}({0})", (segment.input,), run[-1].writes, part)
        steps += [*program.steps[at : segment.start], call]
        at = segment.stop
    return program.with_steps((*steps, *program.steps[at:]), block)


def _instance_name(run: Sequence[Step], program: Program) -> str:
    """Return a name for a block: the common prefix of its layers' names, or else the name of the block's output."""
    prefix = common_prefix([step.layer for step in run])
    return "_".join(prefix or words(program.values[run[-1].writes[0]].blob)) or "block"


def _drop_common_ending(names: Sequence[str]) -> list[str]:
    """Return the names without the last words that are the same in all names."""
    split = [words(name) for name in names]
    while min(map(len, split)) > 1 and split[0][-1].isalpha() and len({ws[-1] for ws in split}) == 1:
        split = [ws[:-1] for ws in split]
    return ["_".join(ws) for ws in split]


def _class_of(instances: Sequence[str]) -> str:
    letters = shared_start(instances).rstrip("0123456789_")
    return class_name(letters, "") + "Block" if letters and letters[0].isalpha() else "Block"


def _member_names(runs: Sequence[Sequence[Step]]) -> list[str]:
    """Return a name for the module of each step of a block; "" for a step without a module.

    The name consists of the words that the layers of all runs share, without the words that all steps share.
    """
    names, taken = list[str](), set(TAKEN)
    of_all = common_prefix(["_".join(common([step.layer for step in same])) for same in zip(*runs, strict=True)])
    for same in zip(*runs, strict=True):
        if (part := same[0].part) is None:
            names.append("")
            continue
        own_words = common([step.layer for step in same])[len(of_all) :]
        name = identifier("_".join(own_words), part.kind)
        if (name in taken or len(name) < 3) and not name.startswith(part.kind):
            name = f"{part.kind}_{name}"
        names.append(unique(name, taken))
        taken.add(names[-1])
    return names


def _blob_names(program: Program, runs: Sequence[Sequence[Step]]) -> dict[int, str]:
    """Return names for the values in a block, by number, from the words of blob names that all runs share."""
    names = {}
    for same in zip(*runs, strict=True):
        for k, number in enumerate(same[0].writes):
            names[number] = "_".join(common([program.values[step.writes[k]].blob for step in same]))
    of_all = common_prefix(names.values())
    return {number: "_".join(words(name)[len(of_all) :]) for number, name in names.items()}


def _parameters(
    runs: Sequence[Sequence[Step]], members: Sequence[str]
) -> tuple[dict[str, tuple[Any, ...]], tuple[Step, ...]]:
    """Return the parameters of a block, by name with a value for each run, and the steps of the block."""
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
    """Return the name of the parameter with these values in the runs; add a new parameter if necessary.

    Args:
        parameters: values of each parameter by name; the new parameter is added here.
        values: a value for each run.
        argument, member: names of the module's argument and of the module, for the name of a new parameter.
    """
    for name, existing in parameters.items():
        if existing == values:
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


_MIN_BLOCKS = 3


def collapse_to_lists(program: Program) -> Program:
    """Return the program with lists of consecutive blocks whose arguments are equal or grow by equal increments."""
    readers: dict[int, int] = dict.fromkeys(program.outputs, 2)
    for step in program.steps:
        for number in step.reads:
            readers[number] = readers.get(number, 0) + 1
    steps, at = list[Step](), 0
    while at < len(program.steps):
        run = _run(program.steps, at, readers)
        steps.append(_list_step(run) if len(run) >= _MIN_BLOCKS else run[0])
        at += len(run) if len(run) >= _MIN_BLOCKS else 1
    return program.with_steps(tuple(steps))


def _run(steps: Sequence[Step], at: int, readers: dict[int, int]) -> list[Step]:
    """Return the step at index `at` and the steps after it that form a list of blocks with it."""
    run = [steps[at]]
    if not _is_block(run[0]):
        return run
    for step in steps[at + 1 :]:
        before = run[-1]
        follows = step.reads == before.writes and readers[before.writes[0]] == 1
        if not (follows and _is_block(step) and step.part and before.part and step.part.maker == before.part.maker):
            break
        if len(run) > 1 and _steps(run[0], run[1]) != _steps(before, step):
            break
        if _steps(before, step) is None:
            break
        run.append(step)
    return run


def _is_block(step: Step) -> bool:
    return step.part is not None and step.part.kind == "block" and len(step.reads) == 1


def _steps(before: Step, after: Step) -> tuple[int, ...] | None:
    """Return the increment of each module argument from one step to the next; 0 for an equal argument.

    Return None if an argument that is not an integer changes.
    """
    assert before.part is not None
    assert after.part is not None
    increments = []
    for (_, old), (_, new) in zip(before.part.arguments, after.part.arguments, strict=True):
        if old == new:
            increments.append(0)
        elif type(old) is int and type(new) is int:
            increments.append(new - old)
        else:
            return None
    return tuple(increments)


def _list_step(run: Sequence[Step]) -> Step:
    parts = [step.part for step in run if step.part is not None]
    weights = {f"{i}.{path}": array for i, part in enumerate(parts) for path, array in part.weights.items()}
    prefix = shared_start([step.layer for step in run]).rstrip("_")
    name = f"{prefix}_blocks" if words(prefix) else f"{run[0].layer}_to_{run[-1].layer}"
    part = replace(parts[0], weights=weights, count=len(run), steps=_steps(run[0], run[1]) or (), kind="blocks")
    return replace(run[0], layer=name, part=part, writes=run[-1].writes)

"""Replacement of repeated steps by module classes, called blocks, and of consecutive equal blocks by lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from .ir import (
    RESERVED_NAMES,
    Block,
    ExpressionStep,
    ModuleSpec,
    Parameter,
    Program,
    common_leading_words,
    common_string_prefix,
    common_words,
    make_unique,
    split_words,
    to_class_name,
    to_identifier,
)

_MAX_STEPS = 48  # maximum steps in a block

# optional module arguments that may differ between instances of a block, with their defaults
OPTIONAL: dict[str, dict[str, Any]] = {"nnx.Conv": {"strides": 1}}


@dataclass(frozen=True)
class Segment:
    """Consecutive steps of a program with one input and one output, which is the output of the last step.

    Attributes:
        start, stop: the segment contains the program's steps `start`, ..., `stop - 1`.
        input: the number of the value that the steps read from outside the segment.
    """

    start: int
    stop: int
    input: int


def find_repeats(program: Program) -> list[Segment]:
    """Return the group of equal segments for which a class saves the most lines, or [] if none saves lines.

    Segments are equal if they differ only in the weights and in the values of module arguments.
    """
    by_signature: dict[Any, list[Segment]] = {}
    for signature, segment in _segments(program):
        segments = by_signature.setdefault(signature, [])
        if not segments or segment.start >= segments[-1].stop:
            segments.append(segment)
    savings = [
        (_lines_saved(program, segments), segments[0].stop - segments[0].start) for segments in by_signature.values()
    ]
    num_saved, _ = best = max(savings, default=(0, 0))
    return list(by_signature.values())[savings.index(best)] if num_saved > 0 else []


def _lines_saved(program: Program, segments: Sequence[Segment]) -> int:
    """Return how many lines of source are saved if a class replaces the segments.

    The lines that create and call each block are subtracted. The lines of the class are subtracted twice, so that a
    class is made only if it clearly shortens the source.
    """
    lines = sum(
        (step.module is not None) + (not step.can_nest) for step in program.steps[segments[0].start : segments[0].stop]
    )
    incomplete = sum(_is_incomplete(program, segment) for segment in segments)
    return len(segments) * lines - (2 * len(segments) + 2 * lines + 5) - 2 * incomplete


def _is_incomplete(program: Program, segment: Segment) -> bool:
    """Return whether a later step also reads the segment's input, like the sum at the end of a residual block."""
    return any(segment.input in step.reads for step in program.steps[segment.stop :])


def _segments(program: Program) -> Iterator[tuple[Any, Segment]]:
    steps = program.steps
    last_use = {number: index for index, step in enumerate(steps) for number in step.reads}
    last_use |= dict.fromkeys(program.outputs, len(steps))
    uses = Counter(id(step.module) for step in steps)
    readers = Counter(number for step in steps for number in step.reads)
    signatures = [_signature(step) for step in steps]
    for start, first in enumerate(steps):
        if len(first.reads) != 1 or (
            first.can_nest and readers[first.reads[0]] == 1
        ):  # a segment cannot begin here, because the step is nested in the previous step's statement
            continue
        numbering, signature = {first.reads[0]: 0}, list[Any]()
        for stop in range(start + 1, min(start + _MAX_STEPS, len(steps)) + 1):
            step = steps[stop - 1]
            is_unsupported = step.module is not None and (uses[id(step.module)] > 1 or step.module.kind == "block")
            if is_unsupported or any(number not in numbering for number in step.reads):
                break
            signature.append((signatures[stop - 1], tuple(numbering[number] for number in step.reads)))
            numbering |= {number: len(numbering) + k for k, number in enumerate(step.writes)}
            used_later = [n for n in numbering if n != first.reads[0] and last_use.get(n, -1) >= stop]
            has_one_output = stop - start > 1 and used_later == list(step.writes) and len(step.writes) == 1
            if has_one_output and _branchings(steps[start:stop]) <= 1:
                yield tuple(signature), Segment(start, stop, first.reads[0])


def _branchings(steps: Sequence[ExpressionStep]) -> int:
    """Return how often the data flow of the steps branches and merges again."""
    last_use = {number: index for index, step in enumerate(steps) for number in step.reads}
    live, cuts = set(steps[0].reads), [0]
    for index, step in enumerate(steps, start=1):
        live = {number for number in (*live, *step.writes) if last_use.get(number, -1) >= index}
        if len(live) <= 1:
            cuts.append(index)
    return sum(stop - start > 1 for start, stop in pairwise(cuts))


def _signature(step: ExpressionStep) -> Any:
    module: ModuleSpec | None = step.module
    if module is None:
        return step.text, len(step.writes), None
    optional = OPTIONAL.get(module.constructor, {})
    arguments = tuple(name for name, _ in module.arguments if name not in optional)
    return (
        step.text,
        len(step.writes),
        (module.constructor, arguments, module.positional, module.needs_rngs, *sorted(module.weights)),
    )


_SHORT_NAMES = {"out_features": "features", "num_features": "features"}


def extract_blocks(program: Program) -> Program:
    """Return the program, in which calls of block classes replace repeated groups of steps."""
    while segments := find_repeats(program):
        program = _with_block(program, segments)
    return program


def _with_block(program: Program, segments: Sequence[Segment]) -> Program:
    runs = [program.steps[segment.start : segment.stop] for segment in segments]
    instances = _drop_common_suffix([_instance_name(run, program) for run in runs])
    members = _member_names(runs)
    parameters, body = _parameters(runs, members)
    used_names = {*RESERVED_NAMES, *program.helpers, *(block.name for block in program.blocks)}
    name = make_unique(_block_class_name(instances), used_names, "")
    value_names = _blob_names(program, runs)
    parameter_types = tuple((parameter, _type_of(values)) for parameter, values in parameters.items())
    docstring = f"{instances[0]} and {len(runs) - 1} more like it."
    block = Block(name, docstring, parameter_types, body, segments[0].input, runs[0][-1].writes[0], value_names)
    steps, index = list[ExpressionStep](), 0
    for k, (segment, run, instance) in enumerate(zip(segments, runs, instances, strict=True)):
        arguments = tuple((parameter, values[k]) for parameter, values in parameters.items())
        weights = {
            f"{member}.{path}".rstrip("."): array
            for step, member in zip(run, members, strict=True)
            if step.module is not None
            for path, array in step.module.weights.items()
        }
        module = ModuleSpec(name, arguments, "block", len(arguments), weights)
        block_step = ExpressionStep(instance, "{module}({0})", (segment.input,), run[-1].writes, module)
        steps += [*program.steps[index : segment.start], block_step]
        index = segment.stop
    return program.with_steps((*steps, *program.steps[index:]), block)


def _instance_name(run: Sequence[ExpressionStep], program: Program) -> str:
    """Return a name for a block: the first words that its layer names have in common, or else its output's name."""
    prefix = common_leading_words([step.layer for step in run])
    return "_".join(prefix or split_words(program.values[run[-1].writes[0]].blob)) or "block"


def _drop_common_suffix(names: Sequence[str]) -> list[str]:
    """Return the names without the last words that all names have in common; "_" joins the remaining words."""
    word_lists = [split_words(name) for name in names]
    while min(map(len, word_lists)) > 1 and word_lists[0][-1].isalpha() and len({ws[-1] for ws in word_lists}) == 1:
        word_lists = [ws[:-1] for ws in word_lists]
    return ["_".join(ws) for ws in word_lists]


def _block_class_name(instances: Sequence[str]) -> str:
    prefix = common_string_prefix(instances).rstrip("0123456789_")
    return to_class_name(prefix, "") + "Block" if prefix and prefix[0].isalpha() else "Block"


def _member_names(runs: Sequence[Sequence[ExpressionStep]]) -> list[str]:
    """Return a name for the module of each step of a block, and "" for a step without a module.

    A run is the list of steps that one instance of the block replaces. Each name consists of the words that the step's
    layer names have in common in all runs, without the leading words that the names of all steps have in common.
    """
    names, used_names = list[str](), set(RESERVED_NAMES)
    common_prefix = common_leading_words(
        ["_".join(common_words([step.layer for step in steps])) for steps in zip(*runs, strict=True)]
    )
    for steps in zip(*runs, strict=True):
        if (module := steps[0].module) is None:
            names.append("")
            continue
        distinct_words = common_words([step.layer for step in steps])[len(common_prefix) :]
        name = to_identifier("_".join(distinct_words), module.kind)
        if (name in used_names or len(name) < 3) and not name.startswith(module.kind):
            name = f"{module.kind}_{name}"
        names.append(make_unique(name, used_names))
        used_names.add(names[-1])
    return names


def _blob_names(program: Program, runs: Sequence[Sequence[ExpressionStep]]) -> dict[int, str]:
    """Return names for the values in a block, by the value's number in the first run.

    A name consists of the words that the value's blob names have in common in all runs, without the leading words that
    the names of all values have in common.
    """
    names = {}
    for steps in zip(*runs, strict=True):
        for k, number in enumerate(steps[0].writes):
            names[number] = "_".join(common_words([program.values[step.writes[k]].blob for step in steps]))
    common_prefix = common_leading_words(names.values())
    return {number: "_".join(split_words(name)[len(common_prefix) :]) for number, name in names.items()}


def _parameters(
    runs: Sequence[Sequence[ExpressionStep]], members: Sequence[str]
) -> tuple[dict[str, tuple[Any, ...]], tuple[ExpressionStep, ...]]:
    """Return the parameters of a block's constructor, and the steps of the block.

    Module arguments that are not equal in all runs become parameters. They are returned as a dict from the parameter's
    name to its value in each run.
    """
    parameters: dict[str, tuple[Any, ...]] = {}
    body = []
    for steps, member in zip(zip(*runs, strict=True), members, strict=True):
        first = steps[0].module
        if first is None:
            body.append(steps[0])
            continue
        arguments = []
        modules = [step.module for step in steps if step.module is not None]
        for argument, _ in max((module.arguments for module in modules), key=len):
            default = OPTIONAL.get(first.constructor, {}).get(argument)
            values = tuple(dict(module.arguments).get(argument, default) for module in modules)
            value = values[0]
            if any(v != value for v in values):
                value = Parameter(_parameter(parameters, values, argument, member))
            arguments.append((argument, value))
        body.append(replace(steps[0], module=replace(first, arguments=tuple(arguments)), module_name=member))
    return parameters, tuple(body)


def _parameter(parameters: dict[str, tuple[Any, ...]], values: tuple[Any, ...], argument: str, member: str) -> str:
    """Return the name of the block parameter with these values, after adding a new parameter if there is none.

    Args:
        parameters: the values of each parameter in each run, by name. A new parameter is added to this dict.
        values: the parameter's value in each run.
        argument: the name of the module argument, for the name of a new parameter.
        member: the name of the module, for the name of a new parameter.
    """
    for name, existing in parameters.items():
        if existing == values:
            return name
    preferred = (
        argument
        if argument in ("in_features", "strides") and argument not in parameters
        else f"{member}_{_SHORT_NAMES.get(argument, argument)}"
    )
    name = make_unique(preferred, {*parameters, *RESERVED_NAMES})
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
    """Return the program, in which a list of blocks replaces consecutive blocks of the same class.

    Blocks are put into one list if their arguments are equal or change by a constant increment.
    """
    reader_counts: dict[int, int] = dict.fromkeys(program.outputs, 2)
    for step in program.steps:
        for number in step.reads:
            reader_counts[number] = reader_counts.get(number, 0) + 1
    steps, index = list[ExpressionStep](), 0
    while index < len(program.steps):
        run = _find_run(program.steps, index, reader_counts)
        steps.append(_list_step(run) if len(run) >= _MIN_BLOCKS else run[0])
        index += len(run) if len(run) >= _MIN_BLOCKS else 1
    return program.with_steps(tuple(steps))


def _find_run(steps: Sequence[ExpressionStep], index: int, reader_counts: dict[int, int]) -> list[ExpressionStep]:
    """Return the step at `index` and the consecutive steps after it that can be in the same list of blocks."""
    run = [steps[index]]
    if not _is_block(run[0]):
        return run
    for step in steps[index + 1 :]:
        previous = run[-1]
        follows = step.reads == previous.writes and reader_counts[previous.writes[0]] == 1
        if not (
            follows
            and _is_block(step)
            and step.module
            and previous.module
            and step.module.constructor == previous.module.constructor
        ):
            break
        if len(run) > 1 and _increments(run[0], run[1]) != _increments(previous, step):
            break
        if _increments(previous, step) is None:
            break
        run.append(step)
    return run


def _is_block(step: ExpressionStep) -> bool:
    return step.module is not None and step.module.kind == "block" and len(step.reads) == 1


def _increments(previous: ExpressionStep, step: ExpressionStep) -> tuple[int, ...] | None:
    """Return the increment of each module argument from `previous` to `step`, which is 0 if it does not change.

    Return None if an argument that is not an integer changes.
    """
    assert previous.module is not None
    assert step.module is not None
    increments = []
    for (_, old), (_, new) in zip(previous.module.arguments, step.module.arguments, strict=True):
        if old == new:
            increments.append(0)
        elif type(old) is int and type(new) is int:
            increments.append(new - old)
        else:
            return None
    return tuple(increments)


def _list_step(run: Sequence[ExpressionStep]) -> ExpressionStep:
    modules = [step.module for step in run if step.module is not None]
    weights = {f"{i}.{path}": array for i, module in enumerate(modules) for path, array in module.weights.items()}
    prefix = common_string_prefix([step.layer for step in run]).rstrip("_")
    name = f"{prefix}_blocks" if split_words(prefix) else f"{run[0].layer}_to_{run[-1].layer}"
    module = replace(
        modules[0], weights=weights, count=len(run), increments=_increments(run[0], run[1]) or (), kind="blocks"
    )
    return replace(run[0], layer=name, module=module, writes=run[-1].writes)

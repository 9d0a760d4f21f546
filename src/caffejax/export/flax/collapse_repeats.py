"""Shorter source for nets that repeat steps: a module class (a block) for repeated steps, a list for equal blocks."""

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
OPTIONAL_ARGUMENTS: dict[str, dict[str, Any]] = {"nnx.Conv": {"strides": 1}}


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
    """Return the equal segments whose replacement by one class saves the most lines, or [] if no class saves lines.

    Segments are equal if they differ only in the weights and in the values of module arguments.
    """
    segments_by_signature: dict[Any, list[Segment]] = {}
    for signature, segment in _find_segments(program):
        segments = segments_by_signature.setdefault(signature, [])
        if not segments or segment.start >= segments[-1].stop:
            segments.append(segment)
    savings = [
        (_count_saved_lines(program, segments), segments[0].stop - segments[0].start)
        for segments in segments_by_signature.values()
    ]
    num_saved, _ = best = max(savings, default=(0, 0))
    return list(segments_by_signature.values())[savings.index(best)] if num_saved > 0 else []


def _count_saved_lines(program: Program, segments: Sequence[Segment]) -> int:
    """Return how many lines of source are saved if a class replaces the segments.

    The lines that create and call each block are subtracted. The lines of the class are subtracted twice, so that a
    class is made only if it clearly shortens the source.
    """
    lines = sum(
        (step.module is not None) + (not step.can_nest) for step in program.steps[segments[0].start : segments[0].stop]
    )
    num_read_later = sum(_has_later_reader(program, segment) for segment in segments)
    return len(segments) * lines - (2 * len(segments) + 2 * lines + 5) - 2 * num_read_later


def _has_later_reader(program: Program, segment: Segment) -> bool:
    """Return whether a later step also reads the segment's input, like the sum at the end of a residual block."""
    return any(segment.input in step.reads for step in program.steps[segment.stop :])


def _find_segments(program: Program) -> Iterator[tuple[Any, Segment]]:
    steps = program.steps
    last_use = {number: index for index, step in enumerate(steps) for number in step.reads}
    last_use |= dict.fromkeys(program.outputs, len(steps))
    module_uses = Counter(id(step.module) for step in steps)
    readers = Counter(number for step in steps for number in step.reads)
    signatures = [_make_signature(step) for step in steps]
    for start, first in enumerate(steps):
        if len(first.reads) != 1 or (
            first.can_nest and readers[first.reads[0]] == 1
        ):  # a segment cannot begin here, because the step is nested in the previous step's statement
            continue
        numbering, signature = {first.reads[0]: 0}, list[Any]()
        for stop in range(start + 1, min(start + _MAX_STEPS, len(steps)) + 1):
            step = steps[stop - 1]
            is_unsupported = step.module is not None and (
                module_uses[id(step.module)] > 1 or step.module.short_name == "block"
            )
            if is_unsupported or any(number not in numbering for number in step.reads):
                break
            signature.append((signatures[stop - 1], tuple(numbering[number] for number in step.reads)))
            numbering |= {number: len(numbering) + k for k, number in enumerate(step.writes)}
            later_reads = [n for n in numbering if n != first.reads[0] and last_use.get(n, -1) >= stop]
            has_one_output = stop - start > 1 and later_reads == list(step.writes) and len(step.writes) == 1
            if has_one_output and _count_branchings(steps[start:stop]) <= 1:
                yield tuple(signature), Segment(start, stop, first.reads[0])


def _count_branchings(steps: Sequence[ExpressionStep]) -> int:
    """Return how often the data flow of the steps branches and merges again."""
    last_use = {number: index for index, step in enumerate(steps) for number in step.reads}
    live, cuts = set(steps[0].reads), [0]
    for index, step in enumerate(steps, start=1):
        live = {number for number in (*live, *step.writes) if last_use.get(number, -1) >= index}
        if len(live) <= 1:
            cuts.append(index)
    return sum(stop - start > 1 for start, stop in pairwise(cuts))


def _make_signature(step: ExpressionStep) -> Any:
    module: ModuleSpec | None = step.module
    if module is None:
        return step.text, len(step.writes), None
    optional_arguments = OPTIONAL_ARGUMENTS.get(module.constructor, {})
    arguments = tuple(name for name, _ in module.arguments if name not in optional_arguments)
    return (
        step.text,
        len(step.writes),
        (module.constructor, arguments, module.num_positional, module.needs_rngs, *sorted(module.weights)),
    )


_SHORT_ARGUMENT_NAMES = {"out_features": "features", "num_features": "features"}


def extract_blocks(program: Program) -> Program:
    """Return the program with block classes, whose calls replace the repeated segments of its steps."""
    while segments := find_repeats(program):
        program = _replace_by_block(program, segments)
    return program


def _replace_by_block(program: Program, segments: Sequence[Segment]) -> Program:
    step_groups = [program.steps[segment.start : segment.stop] for segment in segments]
    instance_names = _drop_common_suffix([_instance_name(group, program) for group in step_groups])
    member_names = _name_members(step_groups)
    parameters, body = _collect_parameters(step_groups, member_names)
    used_names = {*RESERVED_NAMES, *program.helpers, *(block.name for block in program.blocks)}
    name = make_unique(_block_class_name(instance_names), used_names, "")
    value_names = _name_values(program, step_groups)
    parameter_types = tuple((parameter, _type_of(values)) for parameter, values in parameters.items())
    docstring = f"{instance_names[0]} and {len(step_groups) - 1} more like it."
    block = Block(name, docstring, parameter_types, body, segments[0].input, step_groups[0][-1].writes[0], value_names)
    steps, index = list[ExpressionStep](), 0
    for k, (segment, group, instance_name) in enumerate(zip(segments, step_groups, instance_names, strict=True)):
        arguments = tuple((parameter, values[k]) for parameter, values in parameters.items())
        weights = {
            f"{member_name}.{path}".rstrip("."): array
            for step, member_name in zip(group, member_names, strict=True)
            if step.module is not None
            for path, array in step.module.weights.items()
        }
        module = ModuleSpec(name, arguments, "block", len(arguments), weights)
        block_step = ExpressionStep(instance_name, "{module}({0})", (segment.input,), group[-1].writes, module)
        steps += [*program.steps[index : segment.start], block_step]
        index = segment.stop
    return program.with_steps((*steps, *program.steps[index:]), block)


def _instance_name(group: Sequence[ExpressionStep], program: Program) -> str:
    """Return a name for a block: the leading words that all its layer names share, or else the name of its output."""
    prefix = common_leading_words([step.layer for step in group])
    return "_".join(prefix or split_words(program.values[group[-1].writes[0]].blob)) or "block"


def _drop_common_suffix(names: Sequence[str]) -> list[str]:
    """Return the names without the last words that all names have in common; "_" joins the remaining words."""
    word_lists = [split_words(name) for name in names]
    while min(map(len, word_lists)) > 1 and word_lists[0][-1].isalpha() and len({ws[-1] for ws in word_lists}) == 1:
        word_lists = [ws[:-1] for ws in word_lists]
    return ["_".join(ws) for ws in word_lists]


def _block_class_name(instance_names: Sequence[str]) -> str:
    prefix = common_string_prefix(instance_names).rstrip("0123456789_")
    return to_class_name(prefix, "") + "Block" if prefix and prefix[0].isalpha() else "Block"


def _name_members(step_groups: Sequence[Sequence[ExpressionStep]]) -> list[str]:
    """Return a name for the module of each step of a block, and "" for a step without a module.

    `step_groups` has the steps that each instance of the block replaces. A name consists of the words that the layer
    names of the step have in common in all instances, without the leading words that all steps have in common.
    """
    names, used_names = list[str](), set(RESERVED_NAMES)
    common_prefix = common_leading_words(
        ["_".join(common_words([step.layer for step in steps])) for steps in zip(*step_groups, strict=True)]
    )
    for steps in zip(*step_groups, strict=True):
        if (module := steps[0].module) is None:
            names.append("")
            continue
        distinct_words = common_words([step.layer for step in steps])[len(common_prefix) :]
        name = to_identifier("_".join(distinct_words), module.short_name)
        if (name in used_names or len(name) < 3) and not name.startswith(module.short_name):
            name = f"{module.short_name}_{name}"
        names.append(make_unique(name, used_names))
        used_names.add(names[-1])
    return names


def _name_values(program: Program, step_groups: Sequence[Sequence[ExpressionStep]]) -> dict[int, str]:
    """Return names for the values in a block, by the value's number in the first instance of the block.

    A name consists of the words that the blob names of the value have in common in all instances, without the leading
    words that all values have in common. `step_groups` has the steps that each instance replaces.
    """
    names = {}
    for steps in zip(*step_groups, strict=True):
        for k, number in enumerate(steps[0].writes):
            names[number] = "_".join(common_words([program.values[step.writes[k]].blob for step in steps]))
    common_prefix = common_leading_words(names.values())
    return {number: "_".join(split_words(name)[len(common_prefix) :]) for number, name in names.items()}


def _collect_parameters(
    step_groups: Sequence[Sequence[ExpressionStep]], member_names: Sequence[str]
) -> tuple[dict[str, tuple[Any, ...]], tuple[ExpressionStep, ...]]:
    """Return the parameters of a block's constructor, and the steps of the block.

    Module arguments that are not equal in all instances of the block become parameters, returned as
    `{name: (its value in each instance, ...)}`. `step_groups` has the steps that each instance replaces.
    """
    parameters: dict[str, tuple[Any, ...]] = {}
    body = []
    for steps, member_name in zip(zip(*step_groups, strict=True), member_names, strict=True):
        first_module = steps[0].module
        if first_module is None:
            body.append(steps[0])
            continue
        arguments = []
        modules = [step.module for step in steps if step.module is not None]
        for argument, _ in max((module.arguments for module in modules), key=len):
            default = OPTIONAL_ARGUMENTS.get(first_module.constructor, {}).get(argument)
            values = tuple(dict(module.arguments).get(argument, default) for module in modules)
            value = values[0]
            if any(v != value for v in values):
                value = Parameter(_find_or_add_parameter(parameters, values, argument, member_name))
            arguments.append((argument, value))
        body.append(
            replace(steps[0], module=replace(first_module, arguments=tuple(arguments)), module_name=member_name)
        )
    return parameters, tuple(body)


def _find_or_add_parameter(
    parameters: dict[str, tuple[Any, ...]], values: tuple[Any, ...], argument: str, member_name: str
) -> str:
    """Return the name of the parameter of a block that has these values; add a new parameter if there is none.

    Args:
        parameters: for each parameter of the block, by name, its value in each instance. A new parameter is added here.
        values: the value in each instance of the block.
        argument: the name of the module argument that the parameter sets. A new parameter is named after it.
        member_name: the name of the module. A new parameter is named after it.
    """
    for name, existing_values in parameters.items():
        if existing_values == values:
            return name
    preferred_name = (
        argument
        if argument in ("in_features", "strides") and argument not in parameters
        else f"{member_name}_{_SHORT_ARGUMENT_NAMES.get(argument, argument)}"
    )
    name = make_unique(preferred_name, {*parameters, *RESERVED_NAMES})
    parameters[name] = values
    return name


def _type_of(values: tuple[Any, ...]) -> str:
    type_names = sorted({_type_name(value) for value in values})
    return " | ".join(type_names)


def _type_name(value: Any) -> str:
    if not isinstance(value, tuple):
        return type(value).__name__
    return f"tuple[{_type_name(value[0]) if value else 'int'}, ...]"


_MIN_BLOCKS = 3


def collapse_to_lists(program: Program) -> Program:
    """Return the program with consecutive blocks of the same class replaced by one list of blocks.

    Blocks are put into one list if their arguments are equal or change by a constant increment.
    """
    reader_counts: dict[int, int] = dict.fromkeys(program.outputs, 2)
    for step in program.steps:
        for number in step.reads:
            reader_counts[number] = reader_counts.get(number, 0) + 1
    steps, index = list[ExpressionStep](), 0
    while index < len(program.steps):
        run = _find_run(program.steps, index, reader_counts)
        steps.append(_make_list_step(run) if len(run) >= _MIN_BLOCKS else run[0])
        index += len(run) if len(run) >= _MIN_BLOCKS else 1
    return program.with_steps(tuple(steps))


def _find_run(steps: Sequence[ExpressionStep], index: int, reader_counts: dict[int, int]) -> list[ExpressionStep]:
    """Return the step at `index` and the consecutive steps after it that can be in the same list of blocks."""
    run = [steps[index]]
    if not _is_block(run[0]):
        return run
    for step in steps[index + 1 :]:
        previous = run[-1]
        is_next = step.reads == previous.writes and reader_counts[previous.writes[0]] == 1
        if not (
            is_next
            and _is_block(step)
            and step.module
            and previous.module
            and step.module.constructor == previous.module.constructor
        ):
            break
        if len(run) > 1 and _find_increments(run[0], run[1]) != _find_increments(previous, step):
            break
        if _find_increments(previous, step) is None:
            break
        run.append(step)
    return run


def _is_block(step: ExpressionStep) -> bool:
    return step.module is not None and step.module.short_name == "block" and len(step.reads) == 1


def _find_increments(previous: ExpressionStep, step: ExpressionStep) -> tuple[int, ...] | None:
    """Return the increment of each module argument from `previous` to `step`, 0 for equal arguments.

    Return None if an argument that is not an integer changes.
    """
    assert previous.module is not None
    assert step.module is not None
    increments = []
    for (_, old_value), (_, new_value) in zip(previous.module.arguments, step.module.arguments, strict=True):
        if old_value == new_value:
            increments.append(0)
        elif type(old_value) is int and type(new_value) is int:
            increments.append(new_value - old_value)
        else:
            return None
    return tuple(increments)


def _make_list_step(run: Sequence[ExpressionStep]) -> ExpressionStep:
    modules = [step.module for step in run if step.module is not None]
    weights = {f"{i}.{path}": array for i, module in enumerate(modules) for path, array in module.weights.items()}
    prefix = common_string_prefix([step.layer for step in run]).rstrip("_")
    name = f"{prefix}_blocks" if split_words(prefix) else f"{run[0].layer}_to_{run[-1].layer}"
    module = replace(
        modules[0],
        weights=weights,
        list_length=len(run),
        increments=_find_increments(run[0], run[1]) or (),
        short_name="blocks",
    )
    return replace(run[0], layer=name, module=module, writes=run[-1].writes)

"""Generation of flax source from a program: classes, statements, variable names and line breaks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .ir import (
    RESERVED_NAMES,
    RESERVED_VARIABLES,
    Block,
    ExpressionStep,
    ModuleSpec,
    Parameter,
    Program,
    make_unique,
    sanitize_docstring,
    to_class_name,
    to_identifier,
)
from .runtime_helpers import HELPERS

_LOAD_TEMPLATES = {
    "safetensors": '''
WEIGHTS = Path(__file__).with_name("model.safetensors")


def load(path: str | Path = WEIGHTS) -> {name}:
    """Return the net in eval mode, with the weights of a file."""
    # create only the shapes, because the weights are read from the file
    model = nnx.eval_shape(lambda: {name}(rngs=nnx.Rngs(0)))
    weights = load_file(path)
    variables = nnx.to_flat_state(nnx.state(model, (nnx.Param, nnx.BatchStat)))
    loaded = [(names, variable.replace(weights[".".join(map(str, names))])) for names, variable in variables]
    nnx.update(model, nnx.from_flat_state(loaded))
    nnx.reseed(model, default=0)
    model.eval()
    return model
''',
    "orbax": '''
WEIGHTS = Path(__file__).with_name("weights")


def load(path: str | Path = WEIGHTS) -> {name}:
    """Return the net in eval mode, with the weights of an orbax checkpoint."""
    # create only the shapes, because the weights are read from the checkpoint
    model = nnx.eval_shape(lambda: {name}(rngs=nnx.Rngs(0)))
    state = nnx.state(model, (nnx.Param, nnx.BatchStat))
    with ocp.StandardCheckpointer() as checkpointer:
        weights = checkpointer.restore(Path(path).absolute(), nnx.to_pure_dict(state))
    nnx.replace_by_pure_dict(state, weights)
    nnx.update(model, state)
    nnx.reseed(model, default=0)
    model.eval()
    return model
''',
}
_READER_IMPORTS = {"safetensors": "from safetensors.flax import load_file", "orbax": "import orbax.checkpoint as ocp"}


def name_modules(program: Program) -> Program:
    """Return the program with a name for each module: the attribute of the net's class that stores the module."""
    used_names, module_names, steps = set(RESERVED_NAMES), dict[int, str](), list[ExpressionStep]()
    for step in program.steps:
        if step.module is None:
            steps.append(step)
            continue
        if id(step.module) not in module_names:
            module_names[id(step.module)] = make_unique(to_identifier(step.layer, step.module.short_name), used_names)
            used_names.add(module_names[id(step.module)])
        steps.append(replace(step, module_name=module_names[id(step.module)]))
    return program.with_steps(tuple(steps))


def make_net_class_name(program: Program, net_name: str) -> str:
    """Return a name for the net's class that is derived from `net_name` and is not used in the program."""
    return make_unique(
        to_class_name(net_name, "Net"), {*RESERVED_NAMES, *HELPERS, *(block.name for block in program.blocks)}
    )


def generate_source(program: Program, name: str, weight_format: str) -> str:
    """Return the source code of a program whose modules have names.

    Args:
        program: the program.
        name: the name of the net's class.
        weight_format: the format of the weights that the source loads: "safetensors" or "orbax".
    """
    helpers = [HELPERS[helper].strip("\n") for helper in HELPERS if helper in program.helpers]
    parts = [
        *helpers,
        *map(_generate_block_class, program.blocks),
        _generate_net_class(program, name),
        _LOAD_TEMPLATES[weight_format].format(name=name).strip("\n"),
    ]
    body = "\n\n\n".join(parts)
    title = (
        f'"""{name} in flax, written by caffejax. Arrays have their channels last: (batch, height, width, channels)."""'
    )
    imports = ["import jax", *(["import jax.numpy as jnp"] if "jnp." in body else [])]
    if weight_format == "orbax":
        imports += [_READER_IMPORTS[weight_format], "from flax import nnx"]
    else:
        imports += ["from flax import nnx", _READER_IMPORTS[weight_format]]
    header = "\n".join([title, "", "from pathlib import Path", "", *imports])
    return f"{header}\n\n\n{body}\n"


def _generate_net_class(program: Program, name: str) -> str:
    inputs = {number: program.values[number] for number in program.inputs}
    used_names = set(RESERVED_VARIABLES)
    variable_names = dict[int, str]()
    for number, value in inputs.items():
        variable_names[number] = make_unique(to_identifier(value.blob, "input"), used_names)
        used_names.add(variable_names[number])
    blob_names = {value.number: value.blob for value in program.values}
    arguments = "".join(f", {argument}: jax.Array" for argument in variable_names.values())
    statements = make_statements(program.steps, program.outputs)
    names = name_variables(statements, variable_names, blob_names, program.outputs)
    keys = make_output_keys(program)
    items = ", ".join(f'"{key}": <{number}>' for key, number in keys.items())
    result = f"<{program.outputs[0]}>" if len(keys) == 1 else f"{{{items}}}"
    return_type = "jax.Array" if len(keys) == 1 else "dict[str, jax.Array]"
    lines = [f"class {name}(nnx.Module):", *_generate_docstring(program, variable_names, keys), ""]
    lines += ["    def __init__(self, *, rngs: nnx.Rngs) -> None:", *_generate_constructor(program.steps), ""]
    lines += break_line(f"def __call__(self{arguments}) -> {return_type}:", 4)
    return "\n".join(lines + _break_lines(emit_lines(statements, names, result)))


def make_output_keys(program: Program) -> dict[str, int]:
    """Return `{name: number}`: for each output, its name in the source and the number of its value."""
    keys = dict[str, int]()
    for number, blob in program.named_outputs:
        keys[make_unique(to_identifier(blob, "output"), keys)] = number
    return keys


def _generate_docstring(program: Program, variable_names: Mapping[int, str], keys: Mapping[str, int]) -> list[str]:
    arguments = [f"        {name}: {_format_shape(program, number)}." for number, name in variable_names.items()]
    results = [f"        {name}: {_format_shape(program, number)}." for name, number in keys.items()]
    title = f"The net {sanitize_docstring(program.net_name)}.".replace("net .", "net.")
    return [f'    """{title}', "", "    Takes:", *arguments, "", "    Returns:", *results, '    """']


def _format_shape(program: Program, number: int) -> str:
    value = program.values[number]
    sizes = ["batch", *map(str, value.stored_shape[1:])]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})" if value.shape else "a scalar"


def _generate_constructor(steps: Sequence[ExpressionStep]) -> list[str]:
    lines, module_names = list[str](), set[str]()
    for step in steps:
        if step.module is not None and step.module_name not in module_names:
            module_names.add(step.module_name)
            lines += break_line(f"self.{step.module_name} = {_format_constructor_call(step.module)}", 8)
    return lines or ["        pass"]


def _format_constructor_call(module: ModuleSpec) -> str:
    values = [_format_literal(value) for _, value in module.arguments]
    if module.list_length:
        arguments_and_increments = zip(values, module.increments, strict=True)
        values = [
            f"{value} {_format_increment(increment)}" if increment else value
            for value, increment in arguments_and_increments
        ]
    arguments = [
        value if k < module.num_positional else f"{name}={value}"
        for k, ((name, _), value) in enumerate(zip(module.arguments, values, strict=True))
    ]
    call = f"{module.constructor}({', '.join([*arguments, *(['rngs=rngs'] if module.needs_rngs else [])])})"
    if not module.list_length:
        return call
    return f"nnx.List([{call} for {'i' if any(module.increments) else '_'} in range({module.list_length})])"


def _format_increment(increment: int) -> str:
    return f"{'-' if increment < 0 else '+'} {'i' if abs(increment) == 1 else f'{abs(increment)} * i'}"


def _format_literal(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return value.name if isinstance(value, Parameter) else repr(value)


def _generate_block_class(block: Block) -> str:
    parameters = "".join(f", {name}: {type_name}" for name, type_name in block.parameters)
    statements = make_statements(block.steps, [block.output])
    names = name_variables(statements, {block.input: "x"}, block.value_names, [block.output])
    lines = [f"class {block.name}(nnx.Module):", f'    """{block.docstring}"""', ""]
    lines += break_line(f"def __init__(self{parameters}, *, rngs: nnx.Rngs) -> None:", 4)
    lines += [*_generate_constructor(block.steps), "", "    def __call__(self, x: jax.Array) -> jax.Array:"]
    return "\n".join(lines + _break_lines(emit_lines(statements, names, f"<{block.output}>")))


def _break_lines(lines: Sequence[str]) -> list[str]:
    broken_lines = list[str]()
    for line in lines:
        indent = len(line) - len(line.lstrip())
        broken_lines += break_line(line.strip(), 8 + indent)
    return broken_lines


_MAX_NESTED_LENGTH = 96  # maximum characters of nested expressions, with x as the name of every value
_MAX_DEPTH = 3  # maximum nested calls


@dataclass(frozen=True)
class Statement:
    """A statement of the forward pass.

    Attributes:
        text: the expression, in which `<7>` stands for the value with number 7.
        reads: numbers of the values that the statement reads.
        writes: numbers of the values that the statement computes.
        module_list: the attribute with the list of modules that a loop applies, such as "self.blocks". It is "" for a
            statement without a loop.
        depth: the number of steps that are nested in the expression: 2 for f(g(x)).
    """

    text: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    module_list: str = ""
    depth: int = 1


def make_statements(steps: Sequence[ExpressionStep], outputs: Sequence[int]) -> list[Statement]:
    """Return the statements that compute the steps. Short steps are nested in one statement, as in f(g(x))."""
    reader_counts: dict[int, int] = dict.fromkeys(outputs, 2)
    for step in steps:
        for number in step.reads:
            reader_counts[number] = reader_counts.get(number, 0) + 1
    result = list[Statement]()
    for step in steps:
        statement = _make_statement(step)
        previous = result[-1] if result else None
        if (
            previous
            and step.can_nest
            and not previous.module_list
            and _is_only_reader(previous, step, reader_counts)
            and previous.depth < _MAX_DEPTH
        ):
            nested_text = statement.text.replace(f"<{step.reads[0]}>", previous.text)
            if len(re.sub(r"<\d+>", "x", nested_text)) <= _MAX_NESTED_LENGTH and not _is_operator_expression(
                statement.text
            ):
                result[-1] = replace(statement, text=nested_text, reads=previous.reads, depth=previous.depth + 1)
                continue
        result.append(statement)
    return result


def _is_only_reader(previous: Statement, step: ExpressionStep, reader_counts: Mapping[int, int]) -> bool:
    return previous.writes == step.reads and reader_counts[step.reads[0]] == 1 and step.text.count("{0}") == 1


def _is_operator_expression(text: str) -> bool:
    """Return whether an expression applies an operator to a value, as in `<1> + 2`.

    The result is False if the value is an argument of a function, as in `f(<1>)`.
    """
    return re.search(r"\(<\d+>[,)]", text) is None


def _make_statement(step: ExpressionStep) -> Statement:
    patterns = [f"<{number}>" for number in step.reads]
    loop = f"self.{step.module_name}" if step.module is not None and step.module.list_length else ""
    text = step.text.format(*patterns, module=f"self.{step.module_name}")
    return Statement(text, step.reads, step.writes, loop)


def name_variables(
    statements: Sequence[Statement],
    argument_names: Mapping[int, str],
    blob_names: Mapping[int, str],
    outputs: Sequence[int],
) -> dict[int, str]:
    """Return the variable name of each value, by the value's number.

    Values on the main path of the forward pass are called `x`. Other values have the names of their blobs.

    Args:
        statements: the statements.
        argument_names: names of the values that are arguments of the generated function, by number.
        blob_names: blob names of the values, by number.
        outputs: numbers of the output values.
    """
    last_use = {number: line_index for line_index, statement in enumerate(statements) for number in statement.reads}
    last_use |= dict.fromkeys(outputs, len(statements))
    reader_counts: dict[int, int] = {}
    for statement in statements:
        for number in set(statement.reads):
            reader_counts[number] = reader_counts.get(number, 0) + 1
    chains = list[list[int]]()
    chain_of: dict[int, list[int]] = {}
    main_chain: list[int] | None = next(
        (chain_of.setdefault(n, [n]) for n, name in argument_names.items() if name == "x"), None
    )
    main_chains = [main_chain] if main_chain else []
    for line_index, statement in enumerate(statements):
        last_reads = [n for n in dict.fromkeys(statement.reads) if last_use[n] == line_index and n in chain_of]
        main_reads = [
            n for n in last_reads if main_chain is not None and main_chain[-1] == n and chain_of[n] is main_chain
        ]
        extended_values = main_reads[:1] or (last_reads if len(last_reads) == 1 else [])
        if len(statement.writes) == 1 and extended_values and reader_counts[extended_values[0]] < 3:
            chain_of[extended_values[0]].append(statement.writes[0])
            chain_of[statement.writes[0]] = chain_of[extended_values[0]]
            continue
        for number in statement.writes:
            chain_of[number] = [number]
            chains.append(chain_of[number])
            if (
                len(statement.writes) == 1
                and not main_reads
                and (main_chain is None or last_use.get(main_chain[-1], -1) <= line_index)
            ):
                main_chain = chain_of[number]
                main_chains.append(main_chain)
    names, used_names = dict(argument_names), {*RESERVED_VARIABLES, *argument_names.values()}
    for chain in chains:
        is_main = any(chain is main for main in main_chains)
        name = "x" if is_main else make_unique(to_identifier(blob_names.get(chain[-1], ""), "y"), used_names)
        used_names.add(name)
        names |= dict.fromkeys(chain, name)
    for chain in main_chains:
        names |= {number: "x" for number in chain if number not in argument_names}
    return names


def emit_lines(statements: Sequence[Statement], names: Mapping[int, str], result: str) -> list[str]:
    """Return the source lines of the statements, and of the statement that returns `result`.

    Args:
        statements: the statements.
        names: the variable name of each value, by the value's number.
        result: the returned expression, in which `<7>` stands for the value with number 7.
    """
    source_lines, last_index = list[str](), len(statements) - 1
    for line_index, statement in enumerate(statements):
        targets = ", ".join(names[number] for number in statement.writes)
        if statement.module_list:
            if names[statement.reads[0]] != targets:
                source_lines.append(f"{targets} = {names[statement.reads[0]]}")
            source_lines += [f"for block in {statement.module_list}:", f"    {targets} = block({targets})"]
            continue
        text = _substitute_names(statement.text, names)
        if line_index == last_index and len(statement.writes) == 1 and result == f"<{statement.writes[0]}>":
            return [*source_lines, f"return {text}"]
        source_lines.append(f"{targets} = {text}")
    return [*source_lines, f"return {_substitute_names(result, names)}"]


def _substitute_names(text: str, names: Mapping[int, str]) -> str:
    return re.sub(r"<(\d+)>", lambda match: names[int(match[1])], text)


LINE_LENGTH = 120
_OPENING_BRACKETS, _CLOSING_BRACKETS = "([{", ")]}"


def break_line(text: str, indent: int) -> list[str]:
    """Return the lines of a statement. If it is longer than `LINE_LENGTH` characters, break it at brackets."""
    margin = " " * indent
    if len(margin + text) <= LINE_LENGTH:
        return [margin + text]
    brackets = _find_brackets(text)
    if brackets is None:
        return _wrap_in_brackets(text, indent)
    head, body, tail = text[: brackets[0] + 1], text[brackets[0] + 1 : brackets[1]], text[brackets[1] :]
    if len(margin) + 4 + len(body) <= LINE_LENGTH:
        return [margin + head, f"{margin}    {body}", margin + tail]
    items = [line for item in _split_items(body) for line in break_line(f"{item},", indent + 4)]
    return [margin + head, *items, margin + tail]


def _wrap_in_brackets(text: str, indent: int) -> list[str]:
    """Return the lines of a statement such as `name = a + b`, with brackets added around the sum."""
    margin = " " * indent
    head, separator, value = text.partition(" = ") if not text.startswith("return ") else ("return", " ", text[7:])
    indented_value = f"{margin}    {value}"
    terms = value.replace(" + ", "\n+ ").replace(" - ", "\n- ").split("\n")
    lines = [indented_value] if len(indented_value) <= LINE_LENGTH else [f"{margin}    {term}" for term in terms]
    return [f"{margin}{head}{separator}(", *lines, f"{margin})"]


def _find_brackets(text: str) -> tuple[int, int] | None:
    """Return the positions of the pair of brackets at which a statement is broken, or None if there is no such pair.

    In a function definition, the brackets enclose the parameters. In other statements, they are the last pair.
    """
    depth, start = 0, -1
    for position, letter in enumerate(text):
        if letter in _OPENING_BRACKETS:
            start = position if depth == 0 else start
            depth += 1
        elif letter in _CLOSING_BRACKETS:
            depth -= 1
            if depth == 0 and (text.startswith("def ") or not text[position + 1 :].strip(",")):
                return start, position
    return None


def _split_items(body: str) -> Iterator[str]:
    """Yield the items of an argument list, which are separated by commas outside nested brackets."""
    depth, start = 0, 0
    for position, letter in enumerate(body):
        depth += (letter in _OPENING_BRACKETS) - (letter in _CLOSING_BRACKETS)
        if letter == "," and depth == 0:
            yield body[start:position].strip()
            start = position + 1
    if body[start:].strip():
        yield body[start:].strip()

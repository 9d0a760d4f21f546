"""Generation of the flax source of a program: classes, statements, variable names and line breaks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .ir import TAKEN, USED_IN_LINES, Block, Parameter, Part, Program, Step, class_name, comment, identifier, unique
from .runtime_helpers import HELPERS

_LOAD = {
    "safetensors": '''
WEIGHTS = Path(__file__).with_name("model.safetensors")


def load(path: str | Path = WEIGHTS) -> {name}:
    """Return the net with the weights of a file, in eval mode."""
    # shapes alone: weights drawn here would be replaced
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
    """Return the net with the weights of an orbax checkpoint, in eval mode."""
    # shapes alone: weights drawn here would be replaced
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
_READER = {"safetensors": "from safetensors.flax import load_file", "orbax": "import orbax.checkpoint as ocp"}


def name_modules(program: Program) -> Program:
    """Return the program with a name for each module, which becomes an attribute of the net's class."""
    taken, names, steps = set(TAKEN), dict[int, str](), list[Step]()
    for step in program.steps:
        if step.part is None:
            steps.append(step)
            continue
        if id(step.part) not in names:
            names[id(step.part)] = unique(identifier(step.layer, step.part.kind), taken)
            taken.add(names[id(step.part)])
        steps.append(replace(step, name=names[id(step.part)]))
    return program.with_steps(tuple(steps))


def net_class(program: Program, net: str) -> str:
    """Return an unused name for the net's class, derived from the net's name `net`."""
    return unique(class_name(net, "Net"), {*TAKEN, *HELPERS, *(block.name for block in program.blocks)})


def source(program: Program, name: str, weights: str) -> str:
    """Return the source code of a program. Its modules must have names.

    Args:
        program: the program.
        name: name of the net's class.
        weights: format of the weights that the source loads: "safetensors" or "orbax".
    """
    helpers = [HELPERS[helper].strip("\n") for helper in HELPERS if helper in program.helpers]
    parts = [*helpers, *map(_block, program.blocks), _net(program, name), _LOAD[weights].format(name=name).strip("\n")]
    body = "\n\n\n".join(parts)
    title = (
        f'"""{name} in flax, written by caffejax. Arrays have their channels last: (batch, height, width, channels)."""'
    )
    imports = ["import jax", *(["import jax.numpy as jnp"] if "jnp." in body else [])]
    if weights == "orbax":
        imports += [_READER[weights], "from flax import nnx"]
    else:
        imports += ["from flax import nnx", _READER[weights]]
    head = "\n".join([title, "", "from pathlib import Path", "", *imports])
    return f"{head}\n\n\n{body}\n"


def _net(program: Program, name: str) -> str:
    inputs = {number: program.values[number] for number in program.inputs}
    taken = set(USED_IN_LINES)
    variables = dict[int, str]()
    for number, value in inputs.items():
        variables[number] = unique(identifier(value.blob, "input"), taken)
        taken.add(variables[number])
    blobs = {value.number: value.blob for value in program.values}
    arguments = "".join(f", {argument}: jax.Array" for argument in variables.values())
    lines = statements(program.steps, program.outputs)
    names = name_variables(lines, variables, blobs, program.outputs)
    keys = output_keys(program)
    several = ", ".join(f'"{key}": <{number}>' for key, number in keys.items())
    result = f"<{program.outputs[0]}>" if len(keys) == 1 else f"{{{several}}}"
    returned = "jax.Array" if len(keys) == 1 else "dict[str, jax.Array]"
    text = [f"class {name}(nnx.Module):", *_docstring(program, variables, keys), ""]
    text += ["    def __init__(self, *, rngs: nnx.Rngs) -> None:", *_constructor(program.steps), ""]
    text += break_line(f"def __call__(self{arguments}) -> {returned}:", 4)
    return "\n".join(text + _body(emit_lines(lines, names, result)))


def output_keys(program: Program) -> dict[str, int]:
    """Return the number of each output's value, by the output's name in the source."""
    keys = dict[str, int]()
    for number, blob in program.named_outputs:
        keys[unique(identifier(blob, "output"), keys)] = number
    return keys


def _docstring(program: Program, variables: Mapping[int, str], keys: Mapping[str, int]) -> list[str]:
    arguments = [f"        {name}: {_shape(program, number)}." for number, name in variables.items()]
    results = [f"        {name}: {_shape(program, number)}." for name, number in keys.items()]
    title = f"The net {comment(program.title)}.".replace("net .", "net.")
    return [f'    """{title}', "", "    Takes:", *arguments, "", "    Returns:", *results, '    """']


def _shape(program: Program, number: int) -> str:
    value = program.values[number]
    sizes = ["batch", *map(str, value.stored[1:])]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})" if value.shape else "one number"


def _constructor(steps: Sequence[Step]) -> list[str]:
    lines, names = list[str](), set[str]()
    for step in steps:
        if step.part is not None and step.name not in names:
            names.add(step.name)
            lines += break_line(f"self.{step.name} = {_constructor_call(step.part)}", 8)
    return lines or ["        pass"]


def _constructor_call(part: Part) -> str:
    values = [_literal(value) for _, value in part.arguments]
    if part.count:
        grown = zip(values, part.steps, strict=True)
        values = [f"{value} {_times_i(step)}" if step else value for value, step in grown]
    arguments = [
        value if k < part.positional else f"{name}={value}"
        for k, ((name, _), value) in enumerate(zip(part.arguments, values, strict=True))
    ]
    call = f"{part.maker}({', '.join([*arguments, *(['rngs=rngs'] if part.random else [])])})"
    if not part.count:
        return call
    return f"nnx.List([{call} for {'i' if any(part.steps) else '_'} in range({part.count})])"


def _times_i(step: int) -> str:
    return f"{'-' if step < 0 else '+'} {'i' if abs(step) == 1 else f'{abs(step)} * i'}"


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return value.name if isinstance(value, Parameter) else repr(value)


def _block(block: Block) -> str:
    parameters = "".join(f", {name}: {kind}" for name, kind in block.parameters)
    lines = statements(block.steps, [block.output])
    names = name_variables(lines, {block.input: "x"}, block.names, [block.output])
    text = [f"class {block.name}(nnx.Module):", f'    """{block.title}"""', ""]
    text += break_line(f"def __init__(self{parameters}, *, rngs: nnx.Rngs) -> None:", 4)
    text += [*_constructor(block.steps), "", "    def __call__(self, x: jax.Array) -> jax.Array:"]
    return "\n".join(text + _body(emit_lines(lines, names, f"<{block.output}>")))


def _body(lines: Sequence[str]) -> list[str]:
    broken = list[str]()
    for line in lines:
        indent = len(line) - len(line.lstrip())
        broken += break_line(line.strip(), 8 + indent)
    return broken


_MAX_NESTED_LENGTH = 96  # maximum characters of nested expressions, with x as the name of every value
_MAX_DEPTH = 3  # maximum nested calls


@dataclass(frozen=True)
class Statement:
    """A statement of the forward pass.

    Attributes:
        text: the expression, with `<7>` for value 7.
        reads, writes: numbers of the values that the statement reads and computes.
        loop: attribute with the list of modules that are applied in a loop; "" for a statement without a loop.
        depth: number of steps in the expression.
    """

    text: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    loop: str = ""
    depth: int = 1


def statements(steps: Sequence[Step], outputs: Sequence[int]) -> list[Statement]:
    """Return the statements of the steps. Several short steps are nested in one statement, as in f(g(x))."""
    readers: dict[int, int] = dict.fromkeys(outputs, 2)
    for step in steps:
        for number in step.reads:
            readers[number] = readers.get(number, 0) + 1
    result = list[Statement]()
    for step in steps:
        statement = _statement(step)
        before = result[-1] if result else None
        if (
            before
            and step.after
            and not before.loop
            and _is_only_reader(before, step, readers)
            and before.depth < _MAX_DEPTH
        ):
            joined = statement.text.replace(f"<{step.reads[0]}>", before.text)
            if len(re.sub(r"<\d+>", "x", joined)) <= _MAX_NESTED_LENGTH and not _is_operation(statement.text):
                result[-1] = replace(statement, text=joined, reads=before.reads, depth=before.depth + 1)
                continue
        result.append(statement)
    return result


def _is_only_reader(before: Statement, step: Step, readers: Mapping[int, int]) -> bool:
    return before.writes == step.reads and readers[step.reads[0]] == 1 and step.text.count("{0}") == 1


def _is_operation(text: str) -> bool:
    """Return whether an operator reads the value, as in `<1> + 2`, and not only a call, as in `f(<1>)`."""
    return re.search(r"\(<\d+>[,)]", text) is None


def _statement(step: Step) -> Statement:
    patterns = [f"<{number}>" for number in step.reads]
    loop = f"self.{step.name}" if step.part is not None and step.part.count else ""
    text = step.text.format(*patterns, part=f"self.{step.name}")
    return Statement(text, step.reads, step.writes, loop)


def name_variables(
    lines: Sequence[Statement], arguments: Mapping[int, str], blobs: Mapping[int, str], outputs: Sequence[int]
) -> dict[int, str]:
    """Return the name of a variable for each value, by number: `x` along the main path, elsewhere the blob's name.

    Args:
        lines: the statements.
        arguments: names of the values that exist before the statements.
        blobs: blob names of the values.
        outputs: numbers of the output values.
    """
    last = {number: at for at, line in enumerate(lines) for number in line.reads}
    last |= dict.fromkeys(outputs, len(lines))
    readers: dict[int, int] = {}
    for line in lines:
        for number in set(line.reads):
            readers[number] = readers.get(number, 0) + 1
    chains = list[list[int]]()
    chain_of: dict[int, list[int]] = {}
    main: list[int] | None = next((chain_of.setdefault(n, [n]) for n, name in arguments.items() if name == "x"), None)
    mains = [main] if main else []
    for at, line in enumerate(lines):
        dying = [n for n in dict.fromkeys(line.reads) if last[n] == at and n in chain_of]
        on_main = [n for n in dying if main is not None and main[-1] == n and chain_of[n] is main]
        followed = on_main[:1] or (dying if len(dying) == 1 else [])
        if len(line.writes) == 1 and followed and readers[followed[0]] < 3:
            chain_of[followed[0]].append(line.writes[0])
            chain_of[line.writes[0]] = chain_of[followed[0]]
            continue
        for number in line.writes:
            chain_of[number] = [number]
            chains.append(chain_of[number])
            if len(line.writes) == 1 and not on_main and (main is None or last.get(main[-1], -1) <= at):
                main = chain_of[number]
                mains.append(main)
    names, taken = dict(arguments), {*USED_IN_LINES, *arguments.values()}
    for chain in chains:
        is_main = any(chain is one for one in mains)
        name = "x" if is_main else unique(identifier(blobs.get(chain[-1], ""), "y"), taken)
        taken.add(name)
        names |= dict.fromkeys(chain, name)
    for one in mains:
        names |= {number: "x" for number in one if number not in arguments}
    return names


def emit_lines(lines: Sequence[Statement], names: Mapping[int, str], result: str) -> list[str]:
    """Return the source lines of the statements, and of the statement that returns `result`.

    Args:
        lines: the statements.
        names: the variable of each value, by number.
        result: the returned expression, with `<7>` for value 7.
    """
    source_lines, at_end = list[str](), len(lines) - 1
    for at, line in enumerate(lines):
        targets = ", ".join(names[number] for number in line.writes)
        if line.loop:
            if names[line.reads[0]] != targets:
                source_lines.append(f"{targets} = {names[line.reads[0]]}")
            source_lines += [f"for block in {line.loop}:", f"    {targets} = block({targets})"]
            continue
        text = _with_names(line.text, names)
        if at == at_end and len(line.writes) == 1 and result == f"<{line.writes[0]}>":
            return [*source_lines, f"return {text}"]
        source_lines.append(f"{targets} = {text}")
    return [*source_lines, f"return {_with_names(result, names)}"]


def _with_names(text: str, names: Mapping[int, str]) -> str:
    return re.sub(r"<(\d+)>", lambda match: names[int(match[1])], text)


WIDTH = 120
_OPEN, _CLOSE = "([{", ")]}"


def break_line(text: str, indent: int) -> list[str]:
    """Return the lines of a statement. A statement longer than `WIDTH` characters is broken at brackets."""
    margin = " " * indent
    if len(margin + text) <= WIDTH:
        return [margin + text]
    brackets = _brackets(text)
    if brackets is None:
        return _split_brackets(text, indent)
    head, body, tail = text[: brackets[0] + 1], text[brackets[0] + 1 : brackets[1]], text[brackets[1] :]
    if len(margin) + 4 + len(body) <= WIDTH:
        return [margin + head, f"{margin}    {body}", margin + tail]
    items = [line for item in _items(body) for line in break_line(f"{item},", indent + 4)]
    return [margin + head, *items, margin + tail]


def _split_brackets(text: str, indent: int) -> list[str]:
    """Return the lines of a statement such as `name = a + b`, with the sum in brackets."""
    margin = " " * indent
    head, sign, value = text.partition(" = ") if not text.startswith("return ") else ("return", " ", text[7:])
    inner = f"{margin}    {value}"
    terms = value.replace(" + ", "\n+ ").replace(" - ", "\n- ").split("\n")
    lines = [inner] if len(inner) <= WIDTH else [f"{margin}    {term}" for term in terms]
    return [f"{margin}{head}{sign}(", *lines, f"{margin})"]


def _brackets(text: str) -> tuple[int, int] | None:
    """Return the positions of the brackets at which a statement is broken, or None.

    They enclose the parameters of a definition, or are the last brackets of another statement.
    """
    depth, opened = 0, -1
    for at, letter in enumerate(text):
        if letter in _OPEN:
            opened = at if depth == 0 else opened
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
            if depth == 0 and (text.startswith("def ") or not text[at + 1 :].strip(",")):
                return opened, at
    return None


def _items(body: str) -> Iterator[str]:
    """Yield the items of a list of arguments, which are separated by commas outside nested brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(body):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0:
            yield body[start:at].strip()
            start = at + 1
    if body[start:].strip():
        yield body[start:].strip()

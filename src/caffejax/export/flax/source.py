"""The written source of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .formatting import laid_out
from .helpers import HELPERS
from .names import TAKEN, USED_IN_LINES, class_name, comment, identifier, unique
from .program import Block, Parameter, Part, Program, Step
from .statements import named, statements, written

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


def settled(program: Program) -> Program:
    """Return the program with names for the modules of the net."""
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
    """Return the name of the net's class."""
    return unique(class_name(net, "Net"), {*TAKEN, *HELPERS, *(block.name for block in program.blocks)})


def source(program: Program, name: str, weights: str) -> str:
    """Return the source of a program with its modules' names settled.

    Args:
        program: the net.
        name: of its class.
        weights: "safetensors" or "orbax".
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
    given = dict[int, str]()
    for number, value in inputs.items():
        given[number] = unique(identifier(value.blob, "input"), taken)
        taken.add(given[number])
    blobs = {value.number: value.blob for value in program.values}
    arguments = "".join(f", {argument}: jax.Array" for argument in given.values())
    lines = statements(program.steps, program.outputs)
    names = named(lines, given, blobs, program.outputs)
    keys = output_keys(program)
    several = ", ".join(f'"{key}": <{number}>' for key, number in keys.items())
    result = f"<{program.outputs[0]}>" if len(keys) == 1 else f"{{{several}}}"
    returned = "jax.Array" if len(keys) == 1 else "dict[str, jax.Array]"
    text = [f"class {name}(nnx.Module):", *_docstring(program, given, keys), ""]
    text += ["    def __init__(self, *, rngs: nnx.Rngs) -> None:", *_constructor(program.steps), ""]
    text += laid_out(f"def __call__(self{arguments}) -> {returned}:", 4)
    return "\n".join(text + _body(written(lines, names, result)))


def output_keys(program: Program) -> dict[str, int]:
    """Return the outputs' names in the source with the values that they have."""
    found = dict[str, int]()
    for number, blob in program.named_outputs:
        found[unique(identifier(blob, "output"), found)] = number
    return found


def _docstring(program: Program, given: Mapping[int, str], keys: Mapping[str, int]) -> list[str]:
    taken = [f"        {name}: {_shape(program, number)}." for number, name in given.items()]
    made = [f"        {name}: {_shape(program, number)}." for name, number in keys.items()]
    title = f"The net {comment(program.title)}.".replace("net .", "net.")
    return [f'    """{title}', "", "    Takes:", *taken, "", "    Returns:", *made, '    """']


def _shape(program: Program, number: int) -> str:
    value = program.values[number]
    sizes = ["batch", *map(str, value.stored[1:])]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})" if value.shape else "one number"


def _constructor(steps: Sequence[Step]) -> list[str]:
    found, seen = list[str](), set[str]()
    for step in steps:
        if step.part is not None and step.name not in seen:
            seen.add(step.name)
            found += laid_out(f"self.{step.name} = {_made(step.part)}", 8)
    return found or ["        pass"]


def _made(part: Part) -> str:
    values = [_literal(value) for _, value in part.arguments]
    if part.count:
        grown = zip(values, part.steps, strict=True)
        values = [f"{value} {_times_i(step)}" if step else value for value, step in grown]
    arguments = [
        value if k < part.positional else f"{name}={value}"
        for k, ((name, _), value) in enumerate(zip(part.arguments, values, strict=True))
    ]
    made = f"{part.maker}({', '.join([*arguments, *(['rngs=rngs'] if part.random else [])])})"
    if not part.count:
        return made
    return f"nnx.List([{made} for {'i' if any(part.steps) else '_'} in range({part.count})])"


def _times_i(step: int) -> str:
    return f"{'-' if step < 0 else '+'} {'i' if abs(step) == 1 else f'{abs(step)} * i'}"


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return value.name if isinstance(value, Parameter) else repr(value)


def _block(block: Block) -> str:
    parameters = "".join(f", {name}: {kind}" for name, kind in block.parameters)
    lines = statements(block.steps, [block.output])
    names = named(lines, {block.input: "x"}, block.names, [block.output])
    text = [f"class {block.name}(nnx.Module):", f'    """{block.title}"""', ""]
    text += laid_out(f"def __init__(self{parameters}, *, rngs: nnx.Rngs) -> None:", 4)
    text += [*_constructor(block.steps), "", "    def __call__(self, x: jax.Array) -> jax.Array:"]
    return "\n".join(text + _body(written(lines, names, f"<{block.output}>")))


def _body(lines: Sequence[str]) -> list[str]:
    found = list[str]()
    for line in lines:
        indent = len(line) - len(line.lstrip())
        found += laid_out(line.strip(), 8 + indent)
    return found

"""The lines of a forward pass: steps joined where they belong together, and names for what they make."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .names import USED_IN_LINES, identifier, unique
from .program import Step

_LONGEST = 96  # of an expression that further ones are put around, with short names
_DEEPEST = 3  # calls around each other


@dataclass(frozen=True)
class Statement:
    """A line of the forward pass.

    Attributes:
        text: the expression, with `<7>` for value 7.
        reads, writes: values by number.
        loop: the list of modules that the value goes through, if it does.
        depth: how many steps it has.
    """

    text: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    loop: str = ""
    depth: int = 1


def statements(steps: Sequence[Step], outputs: Sequence[int]) -> list[Statement]:
    """Return the statements of some steps."""
    readers: dict[int, int] = dict.fromkeys(outputs, 2)
    for step in steps:
        for number in step.reads:
            readers[number] = readers.get(number, 0) + 1
    found = list[Statement]()
    for step in steps:
        made = _statement(step)
        before = found[-1] if found else None
        if before and step.after and not before.loop and _only(before, step, readers) and before.depth < _DEEPEST:
            joined = made.text.replace(f"<{step.reads[0]}>", before.text)
            if len(re.sub(r"<\d+>", "x", joined)) <= _LONGEST and not _is_operation(made.text):
                found[-1] = replace(made, text=joined, reads=before.reads, depth=before.depth + 1)
                continue
        found.append(made)
    return found


def _only(before: Statement, step: Step, readers: Mapping[int, int]) -> bool:
    return before.writes == step.reads and readers[step.reads[0]] == 1 and step.text.count("{0}") == 1


def _is_operation(text: str) -> bool:
    """Return whether what it reads is not just an argument of a call."""
    return re.search(r"\(<\d+>[,)]", text) is None


def _statement(step: Step) -> Statement:
    places = [f"<{number}>" for number in step.reads]
    loop = f"self.{step.name}" if step.part is not None and step.part.count else ""
    text = step.text.format(*places, part=f"self.{step.name}")
    return Statement(text, step.reads, step.writes, loop)


def named(
    lines: Sequence[Statement], given: Mapping[int, str], blobs: Mapping[int, str], outputs: Sequence[int]
) -> dict[int, str]:
    """Return a variable for each value: `x` along the main path, the blob's name beside it.

    Args:
        lines: the statements.
        given: the variables of the values that there are before.
        blobs: what values are called in the prototxt.
        outputs: the values that are wanted in the end.
    """
    last = {number: at for at, line in enumerate(lines) for number in line.reads}
    last |= dict.fromkeys(outputs, len(lines))
    readers: dict[int, int] = {}
    for line in lines:
        for number in set(line.reads):
            readers[number] = readers.get(number, 0) + 1
    chains = list[list[int]]()
    chain_of: dict[int, list[int]] = {}
    main: list[int] | None = next((chain_of.setdefault(n, [n]) for n, name in given.items() if name == "x"), None)
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
    names, taken = dict(given), {*USED_IN_LINES, *given.values()}
    for chain in chains:
        is_main = any(chain is one for one in mains)
        name = "x" if is_main else unique(identifier(blobs.get(chain[-1], ""), "y"), taken)
        taken.add(name)
        names |= dict.fromkeys(chain, name)
    for one in mains:
        names |= {number: "x" for number in one if number not in given}
    return names


def written(lines: Sequence[Statement], names: Mapping[int, str], result: str) -> list[str]:
    """Return the statements' source, and the line that returns the result; `<7>` in it is value 7."""
    found, at_end = list[str](), len(lines) - 1
    for at, line in enumerate(lines):
        targets = ", ".join(names[number] for number in line.writes)
        if line.loop:
            if names[line.reads[0]] != targets:
                found.append(f"{targets} = {names[line.reads[0]]}")
            found += [f"for block in {line.loop}:", f"    {targets} = block({targets})"]
            continue
        text = _with_names(line.text, names)
        if at == at_end and len(line.writes) == 1 and result == f"<{line.writes[0]}>":
            return [*found, f"return {text}"]
        found.append(f"{targets} = {text}")
    return [*found, f"return {_with_names(result, names)}"]


def _with_names(text: str, names: Mapping[int, str]) -> str:
    return re.sub(r"<(\d+)>", lambda match: names[int(match[1])], text)

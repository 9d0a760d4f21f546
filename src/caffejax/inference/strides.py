"""Strides moved up: where a value is only read at every second cell, the others are not computed.

In Caffe's ResNets each stage begins with two convolutions of 1x1 and stride 2, and nothing else reads the sum before
them. So the convolution that the sum belongs to takes the stride, then the one before it, up to a value that is also
read whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from .operation import Numbers, Operation, Shape

Steps = tuple[int, ...]


def move_up(
    operations: Sequence[Operation], arguments: Sequence[Shape], weights: Sequence[Shape], results: Collection[int]
) -> tuple[list[Operation], list[int]]:
    """Move strides up through the convolutions of a program.

    Args:
        operations: the program's, which stay as they are.
        arguments: the shapes of its arguments.
        weights: the shapes of its weights.
        results: the values that are wanted.

    Returns:
        The operations, among them new ones that take every second cell of values which are also read whole; and for
        each value of before its number now.
    """
    first = len(arguments)
    made = [replace(o, fields=dict(o.fields), after=list(o.after)) for o in operations]
    thinned: list[dict[int, Steps]] = [{} for _ in made]  # by operation: what it reads only every so many cells of
    readers_of: dict[int, list[Operation]] = defaultdict(list)
    for o in made:
        for number in {*_many(o.fields["in"]), *_added(o)}:
            readers_of[number].append(o)
    for i in reversed(range(len(made))):
        o, number = made[i], first + i
        readers = readers_of[number]
        steps = _steps(readers, number, weights)
        if o.word != "convolution" or number in results or steps is None:
            continue
        added = [n for n in _added(o) if _shape(n, made, arguments)[2:] != (1,) * len(steps)]
        if any(_shape(n, made, arguments) != o.out for n in added):
            continue
        for r in readers:
            r.fields["stride"] = (1,) * len(steps)
        o.fields["stride"] = tuple(a * b for a, b in zip(_many(o.fields["stride"]), steps, strict=True))
        o.out = _every(o.out, steps)
        thinned[i] = dict.fromkeys(added, steps)
    return _with_thinning(made, thinned, arguments)


def _with_thinning(
    made: Sequence[Operation], thinned: Sequence[dict[int, Steps]], arguments: Sequence[Shape]
) -> tuple[list[Operation], list[int]]:
    now = list(range(len(arguments)))
    found: list[Operation] = []
    for o, wanted in zip(made, thinned, strict=True):
        instead = {}
        for value, steps in wanted.items():
            zeros, ones = (0,) * len(steps), (1,) * len(steps)
            fields: dict[str, Numbers] = {
                "in": [now[value]],
                "stride": steps,
                "kernel": ones,
                "low": zeros,
                "high": zeros,
            }
            found.append(Operation("mean", fields, _every(_shape(value, made, arguments), steps)))
            instead[value] = len(arguments) + len(found) - 1
        fields = o.fields | {"in": [now[n] for n in _many(o.fields["in"])]}
        after = [
            (word, own | {"value": instead.get(n, now[n])} if isinstance(n := own.get("value"), int) else own)
            for word, own in o.after
        ]
        found.append(replace(o, fields=fields, after=after))
        now.append(len(arguments) + len(found) - 1)
    return found, now


def _steps(readers: Sequence[Operation], number: int, weights: Sequence[Shape]) -> Steps | None:
    """Return the stride that all have who read a value, if none reads the cells between."""
    strides = {_many(r.fields["stride"]) if _skips(r, number, weights) else None for r in readers}
    steps = strides.pop() if len(strides) == 1 else None
    return steps if steps and max(steps) > 1 else None


def _skips(reader: Operation, number: int, weights: Sequence[Shape]) -> bool:
    if reader.word != "convolution" or number in _added(reader):
        return False
    kernel = weights[_many(reader.fields["weight"])[0]][2:]
    return max(*kernel, 1) == 1 and not any(_many(reader.fields["low"]) + _many(reader.fields["high"]))


def _added(o: Operation) -> tuple[int, ...]:
    """Return the values that are combined with what an operation makes."""
    return tuple(n for _, fields in o.after if isinstance(n := fields.get("value"), int))


def _shape(number: int, made: Sequence[Operation], arguments: Sequence[Shape]) -> Shape:
    return arguments[number] if number < len(arguments) else made[number - len(arguments)].out


def _every(shape: Shape, steps: Steps) -> Shape:
    return (*shape[:2], *(-(n // -step) for n, step in zip(shape[2:], steps, strict=True)))


def _many(numbers: Numbers) -> tuple[int, ...]:
    return tuple(int(n) for n in numbers) if isinstance(numbers, Sequence) else (int(numbers),)

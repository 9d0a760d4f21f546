"""Builder of oneDNN programs, and the pass that moves strides up.

In Caffe's ResNets each stage begins with two convolutions of 1x1 and stride 2, and no other layer reads the sum before
them. `hoist_strides` gives the stride to the convolution that computes the sum, then to the one before it, up to a
value that is also read in full: three of four pixels need not be computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..kernels.onednn_program import Numbers, Operation, Program, Shape, encode

Steps = tuple[int, ...]
_FUSES = ("convolution", "deconvolution", "dense", "apply")  # operations that compute what comes after in their pass


@dataclass(frozen=True)
class Value:
    """A value of a program: its number, and its shape."""

    number: int
    shape: Shape


class ProgramBuilder:
    """A program under construction.

    Args:
        arguments: shapes of what it is given.
    """

    def __init__(self, arguments: Sequence[Shape]) -> None:
        self.arguments = tuple(arguments)
        self.weights: list[Any] = []
        self._operations: list[Operation] = []
        self._shared: set[int] = set()

    def argument(self, i: int) -> Value:
        """Return an argument."""
        return Value(i, self.arguments[i])

    def share(self, value: Value) -> None:
        """Note that a value is read by several, or a result: what it is stays as it is."""
        self._shared.add(value.number)

    def weight(self, array: Any) -> int:
        """Add a weight; return its number."""
        self.weights.append(array)
        return len(self.weights) - 1

    def add(self, word: str, values: Sequence[Value], out: Iterable[int], **fields: Numbers) -> Value:
        """Add an operation on values; return what it makes."""
        shape = tuple(out)
        self._operations.append(Operation(word, {"in": [v.number for v in values], **fields}, shape))
        return Value(len(self.arguments) + len(self._operations) - 1, shape)

    def apply(self, x: Value, word: str, a: float = 0, b: float = 0) -> Value:
        """Compute a function of each number, where `x` is made if nothing else reads it."""
        return self._after(x, word, {"a": float(a), "b": float(b)})

    def apply_by_channel(self, x: Value, word: str, array: Any) -> Value:
        """Combine each channel with a number, likewise: "plus", "times", "maximum"."""
        return self._after(x, word, {"weight": self.weight(array)})

    def combine(self, word: str, x: Value, y: Value) -> Value:
        """Combine two values, the second along the first, where the later of them is made if nothing else reads it."""
        for own, other in ((x, y), (y, x))[: 2 if x.shape == y.shape else 1]:
            if self._can_grow(own) and other.number < own.number:
                return self._after(own, word, {"value": other.number})
        return self._after(self.add("apply", [x], x.shape), word, {"value": y.number})

    def _can_grow(self, x: Value) -> bool:
        own = x.number - len(self.arguments)
        return own >= 0 and self._operations[own].word in _FUSES and x.number not in self._shared

    def _after(self, x: Value, word: str, fields: dict[str, Numbers]) -> Value:
        if not self._can_grow(x):
            x = self.add("apply", [x], x.shape)
        self._operations[x.number - len(self.arguments)].after.append((word, fields))
        return x

    def finish(self, results: Sequence[Value]) -> Program:
        """Return the program, with strides hoisted."""
        weights = [tuple(np.shape(w)) for w in self.weights]
        wanted = [value.number for value in results]
        operations, numbers = hoist_strides(self._operations, self.arguments, weights, wanted)
        return encode(self.arguments, weights, operations, [numbers[n] for n in wanted])


def hoist_strides(
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

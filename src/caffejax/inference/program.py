"""Writing programs for frozen nets: what `kernels.frozen` runs, see frozen_program.h."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .operation import Numbers, Operation, Shape
from .strides import move_up

_FUSES = ("convolution", "deconvolution", "dense", "apply")  # operations that compute what comes after in their pass


@dataclass(frozen=True)
class Value:
    """A value of a program: its number, and its shape."""

    number: int
    shape: Shape


class Writer:
    """A program that is being written.

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

    def text(self, results: Sequence[Value]) -> str:
        """Return the program."""
        weights = [np.shape(w) for w in self.weights]
        wanted = [value.number for value in results]
        operations, now = move_up(self._operations, self.arguments, weights, wanted)
        lines = [_line("argument", {"dims": shape}) for shape in self.arguments]
        lines += [_line("weight", {"dims": shape}) for shape in weights]
        for operation in operations:
            lines.append(_line(operation.word, operation.fields | {"out": operation.out}))
            lines += [_line(f"+{word}", fields) for word, fields in operation.after]
        return "\n".join([*lines, *(_line("result", {"value": now[n]}) for n in wanted)])


def _line(word: str, fields: dict[str, Numbers]) -> str:
    return " ".join([word, *(f"{name} {_numbers(value)}" for name, value in fields.items())])


def _numbers(value: Numbers) -> str:
    return " ".join(map(repr, map(_plain, value if isinstance(value, Sequence) else [value])))


def _plain(number: Any) -> int | float:
    return float(number) if isinstance(number, float | np.floating) else int(number)

"""Sizes that depend on the batch, and are computed when the model runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import helper

from .values import Shape


class Names(Protocol):
    """What gives names in a model: its builder."""

    def free(self, wanted: str) -> str:
        """Return a name that no value has."""
        ...

    def integers(self, numbers: Sequence[int]) -> str:
        """Return the name of an initializer with these numbers in int64."""
        ...


class Sizes:
    """Makes nodes that compute sizes; they come before all others, so that subgraphs may read them.

    Attributes:
        nodes: these.
        sources: by the name of each symbolic size, the input that has it and along which axis.
    """

    def __init__(self, builder: Names) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.sources: dict[str, tuple[str, int]] = {}
        self._builder = builder
        self._found: dict[Any, str] = {}

    def one(self, size: Any) -> str:
        """Return the name of a size: an int64 vector of one number."""
        if isinstance(size, int | np.integer):
            return self._builder.integers([int(size)])
        key = str(size)
        if key not in self._found:
            known = {name: _Computed(self, self._of_input(name)) for name in self.sources if _mentions(key, name)}
            self._found[key] = size._evaluate(known).name
        return self._found[key]

    def vector(self, shape: Shape) -> str:
        """Return the name of a shape, as Reshape and Expand want it."""
        if all(isinstance(n, int | np.integer) for n in shape):
            return self._builder.integers(shape)
        key = tuple(map(str, shape))
        if key not in self._found:
            self._found[key] = self.one(shape[0]) if len(shape) == 1 else self.node("Concat", map(self.one, shape), 0)
        return self._found[key]

    def node(self, op: str, inputs: Any, axis: int | None = None, **attributes: Any) -> str:
        """Add a node; return its output's name."""
        name = self._builder.free(f"sizes/{op}")
        given = attributes if axis is None else {"axis": axis, **attributes}
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **given))
        return name

    def _of_input(self, name: str) -> str:
        if name not in self._found:
            source, axis = self.sources[name]
            self._found[name] = self.node("Shape", [source], start=axis, end=axis + 1)
        return self._found[name]


class _Computed:
    """A size in the making: JAX evaluates its expression with it in the place of the batch."""

    def __init__(self, sizes: Sizes, name: str) -> None:
        self.sizes, self.name = sizes, name

    def _with(self, op: str, first: Any, second: Any) -> _Computed:
        names = [n.name if isinstance(n, _Computed) else self.sizes.one(int(n)) for n in (first, second)]
        return _Computed(self.sizes, self.sizes.node(op, names))

    def __add__(self, other: Any) -> _Computed:
        return self._with("Add", self, other)

    def __radd__(self, other: Any) -> _Computed:
        return self._with("Add", other, self)

    def __mul__(self, other: Any) -> _Computed:
        return self._with("Mul", self, other)

    def __rmul__(self, other: Any) -> _Computed:
        return self._with("Mul", other, self)

    def __divmod__(self, other: Any) -> Sequence[_Computed]:
        return self._with("Div", self, other), self._with("Mod", self, other)


def _mentions(expression: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", expression) is not None

"""ONNX nodes that compute symbolic sizes, such as the batch size, at run time."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import helper

Shape = tuple[Any, ...]  # elements are integers or symbolic sizes from `jax.export.symbolic_shape`


class Names(Protocol):
    """Protocol for the part of `Builder` that `Sizes` uses: unique names and integer constants."""

    def free(self, preferred: str) -> str:
        """Return an unused name for a value."""
        ...

    def integers(self, numbers: Sequence[int]) -> str:
        """Return the name of an int64 initializer."""
        ...


class Sizes:
    """The nodes of a graph that compute sizes. They precede all other nodes, so that subgraphs can read their results.

    Attributes:
        nodes: the nodes.
        sources: for each symbol the name of an input, and the axis of the input with this size.
    """

    def __init__(self, builder: Names) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.sources: dict[str, tuple[str, int]] = {}
        self._builder = builder
        self._names: dict[Any, str] = {}

    def one(self, size: Any) -> str:
        """Return the name of an int64 vector with a single element, the size."""
        if isinstance(size, int | np.integer):
            return self._builder.integers([int(size)])
        return self._computed(_tree(size))

    def _computed(self, size: ast.expr) -> str:
        key = ast.unparse(size)
        if key not in self._names:
            self._names[key] = self._new(size)
        return self._names[key]

    def _new(self, size: ast.expr) -> str:
        """Add the nodes for an expression in JAX's syntax of symbolic sizes; return the name of the result."""
        match size:
            case ast.Constant(value=int(number)):
                return self._builder.integers([number])
            case ast.Name(id=name):
                source, axis = self.sources[name]
                return self.node("Shape", [source], start=axis, end=axis + 1)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.node("Neg", [self._computed(operand)])
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int(power))):
                return reduce(lambda product, one: self.node("Mul", [product, one]), [self._computed(base)] * power)
            case ast.BinOp(left=left, op=op, right=right):
                return self.node(_OPERATORS[type(op)], map(self._computed, (left, right)))
            case ast.Call(func=ast.Name(id="floordiv"), args=args):
                dividend, divisor = map(self._computed, args)
                whole = self.node("Sub", [dividend, self.node("Mod", [dividend, divisor])])  # ONNX rounds towards zero
                return self.node("Div", [whole, divisor])
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.node(_FUNCTIONS[name], map(self._computed, args))
        raise NotImplementedError(f"unsupported symbolic size: {ast.unparse(size)}")

    def vector(self, shape: Shape) -> str:
        """Return the name of an int64 vector with the sizes of a shape, for Reshape and Expand."""
        if all(isinstance(n, int | np.integer) for n in shape):
            return self._builder.integers(shape)
        key = tuple(map(str, shape))
        if key not in self._names:
            self._names[key] = self.one(shape[0]) if len(shape) == 1 else self.node("Concat", map(self.one, shape), 0)
        return self._names[key]

    def node(self, op: str, inputs: Any, axis: int | None = None, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        name = self._builder.free(f"sizes/{op}")
        attributes_ = attributes if axis is None else {"axis": axis, **attributes}
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes_))
        return name


_OPERATORS = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul"}
_FUNCTIONS = {"mod": "Mod", "max": "Max", "min": "Min"}


def _tree(size: Any) -> ast.expr:
    """Return the syntax tree of a size, from the text that JAX prints for it."""
    return ast.parse(str(size).replace("^", "**"), mode="eval").body

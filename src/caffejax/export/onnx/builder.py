"""What an ONNX graph is built with: nodes, initializers, names that are free, sizes known only when it runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from .symbolic_dims import Shape as Shape
from .symbolic_dims import Sizes

_AXES_AS_INPUT = {"ReduceSum": 13}  # the opset from which on axes are an input; 18 for other reductions


class Builder:
    """A model in the making.

    Args:
        opset: the version of ONNX's operators.
        reserved: names that values of the graph will have, and no others may.

    Attributes:
        nodes: those of the graph, or of the subgraph that is being built.
        sizes: gives sizes that are known only when the model runs.
    """

    def __init__(self, opset: int, reserved: Sequence[str] = ()) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, TensorProto] = {}
        self.sizes = Sizes(self)
        self._taken = set(reserved)
        self._node_names: set[str] = set()
        self._constants: dict[tuple[Any, ...], str] = {}
        self._layer = ""

    def free(self, wanted: str) -> str:
        """Return a name for a value that no other has: the one that is wanted, or with a number."""
        name = _free(wanted, self._taken)
        self._taken.add(name)
        return name

    def node(self, op: str, inputs: Sequence[str], *, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; return its output's name, or with several outputs their names. Attributes None are left out."""
        names = [self.free(f"{self._layer}/{op}") for _ in range(outputs)]
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(op, list(inputs), names, **given))
        return names[0] if outputs == 1 else names

    def emit(self, op: str, inputs: Sequence[Value], shape: Shape, dtype: Any = None, **attributes: Any) -> Value:
        """Add a node of one output on whole inputs; return that, of the first one's dtype unless given."""
        name = self.node(op, [self.whole(v) for v in inputs], **attributes)
        return computed(name, shape, inputs[0].dtype if dtype is None else dtype)

    def reduce(self, op: str, x: str, axes: Sequence[int], *, keepdims: bool = False) -> str:
        """Add a reduction, whose axes are an attribute or an input, as the opset has them."""
        if self.opset < _AXES_AS_INPUT.get(op, 18):
            found: str = self.node(op, [x], axes=list(axes), keepdims=int(keepdims))
        else:
            found = self.node(op, [x, self.integers(axes)], keepdims=int(keepdims))
        return found

    def constant(self, array: Any, wanted: str = "") -> str:
        """Return the name of an initializer; equal ones are stored once."""
        array = np.asarray(array)
        data = np.ascontiguousarray(array).tobytes()
        key = (array.dtype, array.shape, data if len(data) < 64 else hashlib.blake2b(data).digest())
        if key not in self._constants:
            name = self.free(wanted or f"{self._layer}/constant")
            self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            self._constants[key] = name
        return self._constants[key]

    def integers(self, numbers: Sequence[int]) -> str:
        """Return the name of an initializer with these numbers in int64, as operators want axes and sizes."""
        return self.constant(np.asarray(list(numbers), np.int64))

    def held(self, value: Value) -> str:
        """Return the name of a value in the shape in which it is held."""
        return value.what if isinstance(value.what, str) else self.constant(value.what)

    def whole(self, value: Value) -> str:
        """Return the name of a value in its whole shape."""
        if value.is_whole:
            return self.held(value)
        found: str = self.node("Expand", [self.held(value), self.sizes.vector(value.shape)])
        return found

    def expanded(self, value: Value) -> Value:
        """Return a value held whole; one that is known stays as it is."""
        return value if value.is_whole else computed(self.whole(value), value.shape, value.dtype)

    def reshaped(self, name: str, shape: Shape) -> str:
        """Add a Reshape to a shape that may hold the batch."""
        unknown = [i for i, n in enumerate(shape) if not isinstance(n, int)]
        if len(unknown) == 1 and 0 not in shape:
            target = self.integers([-1 if i in unknown else n for i, n in enumerate(shape)])
        else:
            target = self.sizes.vector(shape)
        found: str = self.node("Reshape", [name, target])
        return found

    def cast(self, name: str, dtype: Any) -> str:
        """Add a Cast."""
        found: str = self.node("Cast", [name], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        return found

    def where(self, at: str, yes: str, no: str, dtype: Any) -> str:
        """Add a choice, of truth values as well, which engines have no Where for."""
        if np.dtype(dtype) != np.bool_:
            found: str = self.node("Where", [at, yes, no])
        else:
            other = self.node("And", [self.node("Not", [at]), no])
            found = self.node("Or", [self.node("And", [at, yes]), other])
        return found

    @contextmanager
    def of_layer(self, name: str) -> Iterator[None]:
        """Name what is added meanwhile after a layer: its node as the layer, several nodes `layer/operator`."""
        self._layer, start = name, len(self.nodes)
        try:
            yield
        finally:
            own = self.nodes[start:]
            for node in own:
                node.name = _free(name if len(own) == 1 else f"{name}/{node.op_type}", self._node_names)
                self._node_names.add(node.name)

    def rename(self, start: int, old: str, new: str) -> bool:
        """Rename a value that a node from number `start` on makes; return whether one does."""
        own = self.nodes[start:]
        if not any(old in node.output for node in own):
            return False
        for node in own:
            renamed(node, old, new)
        return True

    @contextmanager
    def subgraph(self, inputs: Sequence[Value] = ()) -> Iterator[Subgraph]:
        """Add the nodes of the with block to a subgraph, which reads of the graph around it what it likes.

        Args:
            inputs: what it is given; only their shapes and dtypes count.
        """
        outer, self.nodes = self.nodes, []
        try:
            names = [self.free(f"{self._layer}/in") for _ in inputs]
            own = [computed(name, v.shape, v.dtype) for name, v in zip(names, inputs, strict=True)]
            yield (found := Subgraph(self, own))
            found.nodes = self.nodes
        finally:
            self.nodes = outer


class Subgraph:
    """The body of a Loop or the branch of an If.

    Attributes:
        inputs: what it is given.
        nodes: its nodes, once it is built.
    """

    def __init__(self, builder: Builder, inputs: Sequence[Value]) -> None:
        self.inputs = list(inputs)
        self.nodes: list[onnx.NodeProto] = []
        self._builder = builder
        self._outputs: list[onnx.ValueInfoProto] = []

    def give(self, values: Sequence[Value]) -> None:
        """Make these its outputs; to be called last in the with block."""
        for value in values:
            name = self._builder.node("Identity", [self._builder.whole(value)])
            self._outputs.append(value_info(computed(name, value.shape, value.dtype)))

    def proto(self, name: str) -> onnx.GraphProto:
        """Return it as ONNX has it."""
        return helper.make_graph(self.nodes, name, [value_info(v) for v in self.inputs], self._outputs)


def value_info(value: Value) -> onnx.ValueInfoProto:
    """Return name, shape and dtype as ONNX has them; sizes that depend on the batch in words."""
    shape = [n if isinstance(n, int) else str(n) for n in map(_plain, value.shape)]
    return helper.make_tensor_value_info(str(value.what), helper.np_dtype_to_tensor_dtype(value.dtype), shape)


def _plain(n: Any) -> Any:
    return int(n) if isinstance(n, np.integer) else n


def _free(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


@dataclass(frozen=True, eq=False)
class Value:
    """An array of JAX's, as the model has it.

    It is held as small as broadcasting makes it: along some axes once, where the array repeats itself. Operators that
    broadcast take it as it is; the rest ask `Builder.whole` for all of it.

    Attributes:
        shape: the array's shape.
        dtype: its dtype.
        what: the name of a value in the model, or an array known already, of the held shape.
        held: the shape in which it is held: of as many axes, each as long as in `shape`, or 1.
    """

    shape: Shape
    dtype: np.dtype[Any]
    what: str | np.ndarray
    held: Shape

    @property
    def array(self) -> np.ndarray | None:
        """The array in its held shape, if it is known already."""
        return self.what if isinstance(self.what, np.ndarray) else None

    @property
    def number(self) -> Any:
        """The one number that it holds throughout, if that is known already."""
        return self.what.ravel()[0] if isinstance(self.what, np.ndarray) and self.what.size == 1 else None

    @property
    def is_whole(self) -> bool:
        """Whether it is held in its whole shape."""
        return self.held == self.shape

    def named(self, name: str) -> Value:
        """Return the same under another name."""
        return replace(self, what=name)


def known(array: Any, shape: Shape | None = None) -> Value:
    """Return the value of an array; of a shape that it broadcasts to, if one is given."""
    held = np.asarray(array)
    return Value(held.shape if shape is None else shape, held.dtype, held, held.shape)


def computed(name: str, shape: Sequence[Any], dtype: Any) -> Value:
    """Return the value of that name, held whole."""
    return Value(tuple(shape), np.dtype(dtype), name, tuple(shape))


def renamed(node: NodeProto, old: str, new: str) -> None:
    """Rename a value wherever a node reads or makes it."""
    for names in (node.input, node.output):
        for i, name in enumerate(names):
            if name == old:
                names[i] = new
    for inner in _inner(node):
        renamed(inner, old, new)


def reads(node: NodeProto) -> Iterable[str]:
    """Yield the names of all values that a node reads, those of its subgraphs included."""
    yield from node.input
    for inner in _inner(node):
        yield from reads(inner)


def _inner(node: NodeProto) -> Iterable[NodeProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield from attribute.g.node

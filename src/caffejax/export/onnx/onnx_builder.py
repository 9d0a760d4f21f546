"""`OnnxBuilder`, an ONNX graph under construction, and `OnnxValue`, an array in the graph."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from ...base.errors import LayerError
from ..engines import ANY_ENGINE, Engine

Shape = tuple[Any, ...]  # elements are integers or symbolic sizes from `jax.export.symbolic_shape`


class SizeNodes:
    """The nodes of a graph that compute symbolic sizes, which are known only at run time.

    These nodes precede all other nodes, so that subgraphs can read their results.

    Attributes:
        nodes: the nodes.
        sources: for each symbol, `(input, axis)`: the name of an input and the axis whose length is the symbol's value.
    """

    def __init__(self, builder: OnnxBuilder) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.sources: dict[str, tuple[str, int]] = {}
        self._builder = builder
        self._names: dict[Any, str] = {}

    def add_size_vector(self, size: Any) -> str:
        """Return the name of an int64 vector of shape (1,) that contains the size."""
        if isinstance(size, int | np.integer):
            return self._builder.add_int64_vector([int(size)])
        return self._find_or_add(_parse_size(size))

    def _find_or_add(self, size: ast.expr) -> str:
        text = ast.unparse(size)
        if text not in self._names:
            self._names[text] = self._add_nodes(size)
        return self._names[text]

    def _add_nodes(self, size: ast.expr) -> str:
        """Add nodes that compute a symbolic size from its syntax tree `size`; return the name of the result."""
        match size:
            case ast.Constant(value=int(number)):
                return self._builder.add_int64_vector([number])
            case ast.Name(id=name):
                source, axis = self.sources[name]
                return self.add_node("Shape", [source], start=axis, end=axis + 1)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.add_node("Neg", [self._find_or_add(operand)])
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int(power))):
                return reduce(
                    lambda product, factor: self.add_node("Mul", [product, factor]), [self._find_or_add(base)] * power
                )
            case ast.BinOp(left=left, op=op, right=right):
                return self.add_node(_OPERATORS[type(op)], map(self._find_or_add, (left, right)))
            case ast.Call(func=ast.Name(id="floordiv"), args=args):
                dividend, divisor = map(self._find_or_add, args)
                multiple = self.add_node(
                    "Sub", [dividend, self.add_node("Mod", [dividend, divisor])]
                )  # a multiple of the divisor, because Div rounds towards zero, and floordiv rounds down
                return self.add_node("Div", [multiple, divisor])
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.add_node(_FUNCTIONS[name], map(self._find_or_add, args))
        raise NotImplementedError(f"ONNX nodes for the symbolic size {ast.unparse(size)} are not implemented")

    def add_shape_vector(self, shape: Shape) -> str:
        """Return the name of an int64 vector with the sizes of a shape, for Reshape and Expand."""
        if all(isinstance(n, int | np.integer) for n in shape):
            return self._builder.add_int64_vector(shape)
        key = tuple(map(str, shape))
        if key not in self._names:
            self._names[key] = (
                self.add_size_vector(shape[0])
                if len(shape) == 1
                else self.add_node("Concat", map(self.add_size_vector, shape), 0)
            )
        return self._names[key]

    def add_node(self, op: str, inputs: Any, axis: int | None = None, **attributes: Any) -> str:
        """Add a node to the nodes that compute sizes; return the name of its output."""
        name = self._builder.reserve_name(f"sizes/{op}")
        all_attributes = attributes if axis is None else {"axis": axis, **attributes}
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **all_attributes))
        return name


_OPERATORS = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul"}
_FUNCTIONS = {"mod": "Mod", "max": "Max", "min": "Min"}


def _parse_size(size: Any) -> ast.expr:
    """Return the syntax tree of a symbolic size, parsed from the text that JAX prints, such as "2*batch + 1"."""
    return ast.parse(str(size).replace("^", "**"), mode="eval").body


_AXES_INPUT_OPSETS = {"ReduceSum": 13}  # first opset in which the axes are an input; 18 for other reductions


class OnnxBuilder:
    """An ONNX graph under construction.

    Args:
        opset: the version of ONNX's operator set.
        reserved_names: names that other values cannot get, because the graph's inputs and blobs have them.
        engine: the engine that will run the model.

    Attributes:
        nodes: the nodes of the graph, or of the subgraph that is being built.
        initializers: constants (weights and others) by name.
        sizes: the nodes that compute symbolic sizes, which are known only at run time.
    """

    def __init__(self, opset: int, reserved_names: Sequence[str] = (), engine: Engine = ANY_ENGINE) -> None:
        self.opset = opset
        self.engine = engine
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, TensorProto] = {}
        self.sizes = SizeNodes(self)
        self._used_names = set(reserved_names)
        self._node_names: set[str] = set()
        self._constants: dict[tuple[Any, ...], str] = {}
        self._layer = ""

    def reserve_name(self, preferred_name: str) -> str:
        """Return an unused name for a value: `preferred_name`, with a number appended if the graph already uses it."""
        name = _find_unused_name(preferred_name, self._used_names)
        self._used_names.add(name)
        return name

    def add_node(self, op: str, inputs: Sequence[str], *, num_outputs: int = 1, **attributes: Any) -> Any:
        """Add a node with the operator `op`; return the name of its output, or a list of names if `num_outputs` > 1.

        Attributes that are None are omitted.
        """
        if op in self.engine.lacks:
            raise LayerError(
                f"cannot be exported for {self.engine.title}, which has no operator {op} that can be used; "
                "end the net before it with --outputs"
            )
        names = [self.reserve_name(f"{self._layer}/{op}") for _ in range(num_outputs)]
        present_attributes = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(op, list(inputs), names, **present_attributes))
        return names[0] if num_outputs == 1 else names

    def emit(
        self, op: str, inputs: Sequence[OnnxValue], shape: Shape, dtype: Any = None, **attributes: Any
    ) -> OnnxValue:
        """Add a node with the operator `op` and one output; return the output.

        The inputs are expanded to their full shapes; see `OnnxValue`.

        Args:
            op: the operator.
            inputs: the inputs.
            shape: the shape of the output.
            dtype: the dtype of the output. By default, it is the dtype of the first input.
            attributes: the node's attributes.
        """
        name = self.add_node(op, [self.add_broadcast(v) for v in inputs], **attributes)
        return node_output(name, shape, inputs[0].dtype if dtype is None else dtype)

    def reduce(self, op: str, x: str, axes: Sequence[int] | None, *, keepdims: bool = False) -> str:
        """Add a reduction of the value named `x` over axes with the operator `op`; return the name of the result.

        In older opsets the axes are an attribute of the node, in newer opsets an input. None stands for all axes: then
        no axes are written, because OpenCV 5 gives a vector instead of a scalar where all axes are named.
        """
        if axes is None:
            output: str = self.add_node(op, [x], keepdims=int(keepdims))
        elif self.opset < _AXES_INPUT_OPSETS.get(op, 18):
            output = self.add_node(op, [x], axes=list(axes), keepdims=int(keepdims))
        else:
            output = self.add_node(op, [x, self.add_int64_vector(axes)], keepdims=int(keepdims))
        return output

    def add_constant(self, array: Any, preferred_name: str = "") -> str:
        """Add an initializer with this array, or reuse an initializer with an equal array; return its name."""
        array = np.asarray(array)
        data = np.ascontiguousarray(array).tobytes()
        key = (array.dtype, array.shape, data if len(data) < 64 else hashlib.blake2b(data).digest())
        if key not in self._constants:
            name = self.reserve_name(preferred_name or f"{self._layer}/constant")
            self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            self._constants[key] = name
        return self._constants[key]

    def add_int64_vector(self, numbers: Sequence[int]) -> str:
        """Add an initializer with an int64 vector, which operators require for axes and sizes; return its name."""
        return self.add_constant(np.asarray(list(numbers), np.int64))

    def add_stored(self, value: OnnxValue) -> str:
        """Return the name of a value in its stored shape; add an initializer if it is a constant."""
        return value.source if isinstance(value.source, str) else self.add_constant(value.source)

    def add_broadcast(self, value: OnnxValue) -> str:
        """Return the name of a value in its full shape; add an Expand node if it is stored in a smaller shape."""
        if value.has_full_shape:
            return self.add_stored(value)
        expanded_name: str = self.add_node("Expand", [self.add_stored(value), self.sizes.add_shape_vector(value.shape)])
        return expanded_name

    def expand(self, value: OnnxValue) -> OnnxValue:
        """Return the value, broadcast to its full shape."""
        return value if value.has_full_shape else node_output(self.add_broadcast(value), value.shape, value.dtype)

    def reshape(self, name: str, shape: Shape) -> str:
        """Add a Reshape to a shape that may contain symbolic sizes; return the name of the result."""
        symbolic_axes = [i for i, n in enumerate(shape) if not isinstance(n, int)]
        if len(symbolic_axes) == 1 and 0 not in shape:
            target = self.add_int64_vector([-1 if i in symbolic_axes else n for i, n in enumerate(shape)])
        else:
            target = self.sizes.add_shape_vector(shape)
        output: str = self.add_node("Reshape", [name, target])
        return output

    def cast(self, name: str, dtype: Any) -> str:
        """Add a Cast to a dtype; return the name of the result."""
        output: str = self.add_node("Cast", [name], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        return output

    def where(self, condition: str, on_true: str, on_false: str, dtype: Any) -> str:
        """Select `on_true` where `condition` is true, and `on_false` elsewhere; return the name of the result.

        For booleans, And and Or are used instead of Where, because some engines do not support Where for booleans.
        """
        if np.dtype(dtype) != np.bool_:
            output: str = self.add_node("Where", [condition, on_true, on_false])
        else:
            on_false_part = self.add_node("And", [self.add_node("Not", [condition]), on_false])
            output = self.add_node("Or", [self.add_node("And", [condition, on_true]), on_false_part])
        return output

    @contextmanager
    def layer_scope(self, name: str) -> Iterator[None]:
        """Return a context manager that names the added nodes after a layer.

        A single node is called `layer`. Several nodes are called `layer/operator`.
        """
        self._layer, start = name, len(self.nodes)
        try:
            yield
        finally:
            added_nodes = self.nodes[start:]
            for node in added_nodes:
                node.name = _find_unused_name(
                    name if len(added_nodes) == 1 else f"{name}/{node.op_type}", self._node_names
                )
                self._node_names.add(node.name)

    def rename(self, start: int, old: str, new: str) -> bool:
        """Rename an output of the nodes `nodes[start:]`; return False if they have no such output."""
        nodes = self.nodes[start:]
        if not any(old in node.output for node in nodes):
            return False
        for node in nodes:
            rename_value(node, old, new)
        return True

    @contextmanager
    def subgraph(self, inputs: Sequence[OnnxValue] = ()) -> Iterator[Subgraph]:
        """Return a context manager inside which nodes are added to a subgraph, which can read the outer graph's values.

        Args:
            inputs: values with the shapes and dtypes of the subgraph's inputs.
        """
        outer_nodes, self.nodes = self.nodes, []
        try:
            names = [self.reserve_name(f"{self._layer}/in") for _ in inputs]
            parameters = [node_output(name, v.shape, v.dtype) for name, v in zip(names, inputs, strict=True)]
            yield (graph := Subgraph(self, parameters))
            graph.nodes = self.nodes
        finally:
            self.nodes = outer_nodes


class Subgraph:
    """The body of a Loop, or a branch of an If.

    Attributes:
        inputs: the values of the subgraph's inputs.
        nodes: the subgraph's nodes, which are complete when the context of `OnnxBuilder.subgraph` ends.
    """

    def __init__(self, builder: OnnxBuilder, inputs: Sequence[OnnxValue]) -> None:
        self.inputs = list(inputs)
        self.nodes: list[onnx.NodeProto] = []
        self._builder = builder
        self._outputs: list[onnx.ValueInfoProto] = []

    def set_outputs(self, values: Sequence[OnnxValue]) -> None:
        """Set the outputs of the subgraph. It must be called at the end of the context of `OnnxBuilder.subgraph`."""
        for value in values:
            name = self._builder.add_node("Identity", [self._builder.add_broadcast(value)])
            self._outputs.append(value_info(node_output(name, value.shape, value.dtype)))

    def make_proto(self, name: str) -> onnx.GraphProto:
        """Return the subgraph's ONNX message."""
        return helper.make_graph(self.nodes, name, [value_info(v) for v in self.inputs], self._outputs)


def value_info(value: OnnxValue) -> onnx.ValueInfoProto:
    """Return the name, shape and dtype of a value as an ONNX message, with symbolic sizes as text."""
    shape = [n if isinstance(n, int) else str(n) for n in map(_to_python_integer, value.shape)]
    return helper.make_tensor_value_info(str(value.source), helper.np_dtype_to_tensor_dtype(value.dtype), shape)


def _to_python_integer(size: Any) -> Any:
    return int(size) if isinstance(size, np.integer) else size


def _find_unused_name(preferred_name: str, used_names: set[str]) -> str:
    name, number = preferred_name, 1
    while name in used_names:
        number += 1
        name = f"{preferred_name}_{number}"
    return name


@dataclass(frozen=True, eq=False)
class OnnxValue:
    """An array in the model, stored before broadcasting.

    The array has a full shape and a stored shape. If the array repeats one element along an axis, the axis may have
    length 1 in the stored shape. ONNX operators that broadcast read the stored array. For other operators,
    `OnnxBuilder.expand` expands it to the full shape.

    Attributes:
        shape: the full shape.
        dtype: the dtype.
        source: the name of a value in the model, or a constant array; both have the stored shape.
        stored_shape: the stored shape. It has the axes of `shape`, each with the same length or with length 1.
    """

    shape: Shape
    dtype: np.dtype[Any]
    source: str | np.ndarray
    stored_shape: Shape

    @property
    def array(self) -> np.ndarray | None:
        """The constant array in the stored shape; None if the value is computed at run time."""
        return self.source if isinstance(self.source, np.ndarray) else None

    @property
    def uniform_value(self) -> Any:
        """The value of every element of a constant that is stored as one element; None for other values."""
        return self.source.ravel()[0] if isinstance(self.source, np.ndarray) and self.source.size == 1 else None

    @property
    def has_full_shape(self) -> bool:
        """True if the stored shape is the full shape."""
        return self.stored_shape == self.shape

    def with_name(self, name: str) -> OnnxValue:
        """Return a copy of the value with a different name in the model."""
        return replace(self, source=name)


def constant_value(array: Any, shape: Shape | None = None) -> OnnxValue:
    """Return a value for a constant array that broadcasts to `shape`. By default, `shape` is the array's shape."""
    stored_array = np.asarray(array)
    return OnnxValue(
        stored_array.shape if shape is None else shape, stored_array.dtype, stored_array, stored_array.shape
    )


def node_output(name: str, shape: Sequence[Any], dtype: Any) -> OnnxValue:
    """Return a value for the output `name` of a node. Its stored shape is its full shape."""
    return OnnxValue(tuple(shape), np.dtype(dtype), name, tuple(shape))


def rename_value(node: NodeProto, old: str, new: str) -> None:
    """Rename a value in a node's inputs and outputs, and in the node's subgraphs."""
    for names in (node.input, node.output):
        for i, name in enumerate(names):
            if name == old:
                names[i] = new
    for inner_node in _subgraph_nodes(node):
        rename_value(inner_node, old, new)


def input_names(node: NodeProto) -> Iterable[str]:
    """Yield the names of all values that a node or its subgraphs read."""
    yield from node.input
    for inner_node in _subgraph_nodes(node):
        yield from input_names(inner_node)


def _subgraph_nodes(node: NodeProto) -> Iterable[NodeProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield from attribute.g.node

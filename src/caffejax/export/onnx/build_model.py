"""Construction of an ONNX model from a net, layer by layer.

A layer without an ONNX operator is converted from the jaxpr of its JAX function, equation by equation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from onnx import ModelProto, ValueInfoProto, helper

from ..._version import __version__
from ...base.config import NetConfig
from ...base.errors import GraphError
from ...core.graph import Layer
from ...core.layers.context import Epilogue
from ...core.layers.dispatch import call as run
from ...core.layers.row_padding import count_marked_rows, matching_rows_axis
from ...core.program.schedule import find_padded_blobs
from ...core.program.targets import find_readers, translate
from ...forks.detection.boxes import suppress_without_loops
from ..engines import ANY_ENGINE, Engine
from ..inference_model import InferenceModel
from ..uint8_input import Uint8Preprocessing
from .layer_converters import ONNX, OnnxCall
from .onnx_builder import OnnxBuilder, OnnxValue, Shape, constant_value, node_output, value_info
from .primitives import Equation, get_converter, is_elementwise

_MAX_FOLDED_SIZE = 1 << 16  # maximum number of elements of constant results that are always computed at export
_UNFOLDED_PRIMITIVES = {
    "dim_as_value",
    "broadcast_in_dim",
    "iota",
    "reshape",
    "scan",
    "while",
    "cond",
}  # primitives with converters that handle constants


def convert(builder: OnnxBuilder, function: Callable[..., Any], inputs: Sequence[OnnxValue]) -> list[OnnxValue]:
    """Trace a function with JAX and add its computation to a model; return the results as a flat list.

    Args:
        builder: the model.
        function: a function that takes JAX arrays and returns arrays, or a tree of arrays.
        inputs: the function's arguments, as values of the model.

    Raises:
        LayerError: if the function uses a primitive without an ONNX operator.
    """
    arguments = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in inputs]
    return convert_jaxpr(builder, jax.make_jaxpr(function)(*arguments), inputs)


def convert_jaxpr(builder: OnnxBuilder, closed_jaxpr: ClosedJaxpr, inputs: Sequence[OnnxValue]) -> list[OnnxValue]:
    """Add the computation of the closed jaxpr `closed_jaxpr` to a model; return its results as values of the model."""
    jaxpr = closed_jaxpr.jaxpr
    values: dict[Any, OnnxValue] = dict(zip(jaxpr.constvars, map(constant_value, closed_jaxpr.consts), strict=True))
    values.update(zip(jaxpr.invars, inputs, strict=True))

    def value_of(atom: Any) -> OnnxValue:
        if isinstance(atom, Literal):
            return constant_value(np.asarray(atom.val, getattr(atom.aval, "dtype", None)))
        return values[atom]

    for eqn in _find_used_equations(jaxpr):
        results = _convert_equation(builder, eqn, [value_of(atom) for atom in eqn.invars])
        values.update(zip(eqn.outvars, results, strict=True))
    return [value_of(atom) for atom in jaxpr.outvars]


def _find_used_equations(jaxpr: Any) -> list[Any]:
    """Return the equations on which the jaxpr's results depend, in the order of the jaxpr."""
    used_atoms = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    equations = []
    for eqn in reversed(jaxpr.eqns):
        if not used_atoms.isdisjoint(eqn.outvars):
            equations.append(eqn)
            used_atoms.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
    return equations[::-1]


def _convert_equation(builder: OnnxBuilder, eqn: Any, inputs: list[OnnxValue]) -> Sequence[OnnxValue]:
    name = eqn.primitive.name
    shapes = [to_python_sizes(v.aval.shape) for v in eqn.outvars]
    dtypes = [np.dtype(v.aval.dtype) for v in eqn.outvars]
    convert_equation = get_converter(name)
    if name not in _UNFOLDED_PRIMITIVES and all(v.array is not None for v in inputs) and _has_no_jaxpr(eqn):
        folded_values = _fold_equation(eqn, inputs, shapes)
        if folded_values is not None:
            return folded_values
    equation = Equation(
        builder, name, inputs, shapes, dtypes, eqn.params, lambda *arguments: convert_jaxpr(builder, *arguments)
    )
    result = convert_equation(equation)
    values = [result] if isinstance(result, OnnxValue) else list(result)
    return [_add_axes(v, shape) for v, shape in zip(values, shapes, strict=True)]


def _fold_equation(eqn: Any, inputs: Sequence[OnnxValue], shapes: Sequence[Shape]) -> list[OnnxValue] | None:
    """Compute an equation now, during the export; return its results as constants.

    Args:
        eqn: the equation, whose operands are all constants.
        inputs: the operands.
        shapes: the shapes of the results.

    Returns:
        The results, or None if they are too large to be stored or have symbolic shapes.
    """
    arrays = [v.array for v in inputs if v.array is not None]
    if is_elementwise(eqn.primitive.name):
        results = eqn.primitive.bind(*np.broadcast_arrays(*arrays), **eqn.params)
        rank = len(shapes[0])
        array = np.asarray(results[0] if eqn.primitive.multiple_results else results)
        return [constant_value(array.reshape((1,) * (rank - array.ndim) + array.shape), shapes[0])]
    if any(not isinstance(n, int) for v in inputs for n in v.shape) or any(
        not isinstance(n, int) for shape in shapes for n in shape
    ):
        return None
    if sum(map(math.prod, shapes)) > max(_MAX_FOLDED_SIZE, 2 * sum(a.size for a in arrays)):
        return None
    full_arrays = [np.broadcast_to(a, v.shape) for a, v in zip(arrays, inputs, strict=True)]
    results = eqn.primitive.bind(*full_arrays, **eqn.params)
    return [constant_value(np.asarray(r)) for r in (results if eqn.primitive.multiple_results else [results])]


def _has_no_jaxpr(eqn: Any) -> bool:
    return not any(hasattr(value, "eqns") or isinstance(value, ClosedJaxpr) for value in eqn.params.values())


def _add_axes(value: OnnxValue, shape: Shape) -> OnnxValue:
    """Return `value` with the shape `shape`, and with leading axes of length 1 added to its stored shape if needed."""
    if value.shape == shape:
        return value
    stored_shape = (1,) * (len(shape) - len(value.stored_shape)) + value.stored_shape
    source = value.array.reshape(stored_shape) if value.array is not None else value.source
    return OnnxValue(shape, value.dtype, source, stored_shape)


def to_python_sizes(shape: Sequence[Any]) -> Shape:
    """Return a shape with NumPy integers converted to Python integers. Symbolic sizes stay unchanged."""
    return tuple(int(n) if isinstance(n, int | np.integer) else n for n in shape)


def build_model(
    model: InferenceModel,
    blobs: Mapping[str, jax.ShapeDtypeStruct],
    opset: int,
    preprocessing: Uint8Preprocessing | None,
    pad_rows: bool = False,
    engine: Engine = ANY_ENGINE,
) -> ModelProto:
    """Build the ONNX model of a net.

    Args:
        model: the net with its weights.
        blobs: shapes and dtypes of the net's blobs by name. Sizes may be symbolic.
        opset: the version of ONNX's operator set.
        preprocessing: the image preprocessing to include in the model, whose input then takes uint8 images, or None.
        pad_rows: True if outputs keep their padding rows; see `export_onnx`.
        engine: the engine that will run the model.

    Raises:
        GraphError: if layers cannot be exported. The message names each of them.
    """
    with suppress_without_loops() if pad_rows or "Loop" in engine.lacks else nullcontext():
        return _ModelBuilder(model, blobs, opset, preprocessing, pad_rows, engine).build()


class _ModelBuilder:
    def __init__(
        self,
        model: InferenceModel,
        blobs: Mapping[str, jax.ShapeDtypeStruct],
        opset: int,
        preprocessing: Uint8Preprocessing | None,
        pad_rows: bool,
        engine: Engine,
    ) -> None:
        self.model, self.blobs = model, blobs
        names = [top for layer in model.layers for top in layer.tops]
        self.builder = OnnxBuilder(opset, [*model.inputs, *names], engine)
        self.values: dict[str, OnnxValue] = {}
        self.readers = find_readers(model.layers, model.outputs)
        all_row_sources = {} if pad_rows else find_padded_blobs(model.layers)
        self.row_sources = {name: all_row_sources[name] for name in model.outputs if name in all_row_sources}
        self.input_values: list[OnnxValue] = []
        for name in model.inputs:
            self._add_input(name, preprocessing if preprocessing and preprocessing.input_name == name else None)

    def _add_input(self, name: str, preprocessing: Uint8Preprocessing | None) -> None:
        blob = self.blobs[name]
        input_spec = blob if preprocessing is None else preprocessing.image_spec(blob)
        value = node_output(name, to_python_sizes(input_spec.shape), input_spec.dtype)
        self.input_values.append(value)
        for axis, n in enumerate(value.shape):
            if not isinstance(n, int):
                self.builder.sizes.sources.setdefault(str(n), (name, axis))
        self.values[name] = value
        if preprocessing is not None:
            with self.builder.layer_scope(f"preprocess/{name}"):
                (preprocessed_input,) = convert(self.builder, preprocessing, [value])
                self.values[name] = self.builder.expand(preprocessed_input)

    def build(self) -> ModelProto:
        """Add all layers, and return the model.

        Raises:
            GraphError: if layers cannot be exported. The message names each of them.
        """
        problems = translate(self.model.layers, self.values, self._add_layer, self._placeholder)
        if problems:
            raise GraphError(chain.from_iterable(problems.values()))
        return self._make_proto([self._add_output(name) for name in self.model.outputs])

    def _placeholder(self, blob: str) -> OnnxValue:
        spec = self.blobs[blob]
        return node_output(blob, to_python_sizes(spec.shape), spec.dtype)

    def _find_affine_reader(self, layer: Layer) -> tuple[Layer, Epilogue] | None:
        """Return the only reader of a layer's only top, if it applies just a factor and a bias to each channel."""
        readers = self.readers.get(layer.tops[0], []) if len(layer.tops) == 1 else []
        reader = readers[0] if len(readers) == 1 else None
        shape = self.blobs[layer.tops[0]].shape
        if reader is None or reader.type.traits.channel_affine is None or len(reader.bottoms) != 1 or len(shape) < 2:
            return None
        affine = Epilogue(reader.context, self.model.arrays(reader))
        return (reader, affine) if affine.blobs and affine.is_channel_affine(1, shape[1]) else None

    def _add_layer(self, layer: Layer, bottoms: tuple[OnnxValue, ...]) -> dict[str, OnnxValue]:
        start, arrays, affine = len(self.builder.nodes), self.model.arrays(layer), self._find_affine_reader(layer)
        call = OnnxCall(layer, arrays, bottoms, self.blobs, self.builder, affine[1] if affine else None)
        with self.builder.layer_scope(layer.key):
            matched_tops = ONNX.match(call)
            if matched_tops is not None:
                tops = list(matched_tops.values())
            else:
                del self.builder.nodes[start:]
                tops = convert(self.builder, lambda *xs: _run_forward(layer, arrays, xs), bottoms)
            names = affine[0].tops if affine and call.merges else layer.tops
            return dict(self._name_tops(start, names, tops))

    def _name_tops(
        self, start: int, blobs: Sequence[str], tops: Sequence[OnnxValue]
    ) -> Iterator[tuple[str, OnnxValue]]:
        """Give the tops of a layer, which the nodes from `start` on compute, the names of their blobs."""
        new_names: dict[str, str] = {}
        for blob, top in zip(blobs, tops, strict=True):
            new_name = f"{blob}/padded" if blob in self.row_sources else blob
            name = self.builder.add_broadcast(top)
            if name not in new_names and self.builder.rename(start, name, new_name):
                new_names[name] = new_name
            else:
                self._add_named_node("Identity", [new_names.get(name, name)], new_name)
            yield blob, node_output(new_name, top.shape, top.dtype)

    def _add_named_node(self, op: str, inputs: Sequence[str], output: str) -> None:
        self.builder.rename(len(self.builder.nodes), self.builder.add_node(op, inputs), output)

    def _add_output(self, name: str) -> OnnxValue:
        """Return the value of the net's output `name`, after adding nodes that remove its padding rows."""
        value = self.values[name]
        if name not in self.row_sources:
            return value
        row_source, b = self.values[self.row_sources[name]], self.builder
        row_source_spec, blob = (jax.ShapeDtypeStruct(v.shape, v.dtype) for v in (row_source, value))
        if (axis := matching_rows_axis(blob, row_source_spec)) is None:
            self._add_named_node("Identity", [b.add_broadcast(value)], name)
            return node_output(name, value.shape, value.dtype)
        with b.layer_scope(f"trim/{name}"):
            (num_rows,) = convert(b, count_marked_rows, [row_source])
            end = b.reshape(b.cast(b.add_broadcast(num_rows), np.int64), (1,))
            self._add_named_node(
                "Slice", [b.add_broadcast(value), b.add_int64_vector([0]), end, b.add_int64_vector([axis])], name
            )
        return node_output(name, (*value.shape[:axis], "rows", *value.shape[axis + 1 :]), value.dtype)

    def _make_proto(self, outputs: Sequence[OnnxValue]) -> ModelProto:
        b, graph = self.builder, self.model.net.graph
        interface_names = {str(v.source) for v in (*self.input_values, *outputs)}
        inner_values = [v for v in self.values.values() if v.source not in interface_names]
        proto = helper.make_graph(
            [*b.sizes.nodes, *b.nodes],
            graph.name or "net",
            [value_info(v) for v in self.input_values],
            [value_info(v) for v in outputs],
            list(b.initializers.values()),
            value_info=[value_info(v) for v in inner_values],
        )
        model = helper.make_model(
            proto,
            opset_imports=[helper.make_opsetid("", b.opset)],
            producer_name="caffejax",
            producer_version=__version__,
        )
        model.ir_version = helper.find_min_ir_version_for(model.opset_import)
        return model


class ShapeAndDtype(NamedTuple):
    """A shape and a dtype. The sizes are integers or names such as "batch"."""

    shape: tuple[int | str, ...]
    dtype: np.dtype[Any]


def get_shapes(values: Iterable[ValueInfoProto]) -> dict[str, ShapeAndDtype]:
    """Return the shape and dtype of each ONNX value, by name."""
    shapes = {}
    for value in values:
        tensor = value.type.tensor_type
        shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim)
        shapes[value.name] = ShapeAndDtype(shape, helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return shapes


def _run_forward(layer: Layer, blobs: Sequence[Any], bottoms: Sequence[Any]) -> tuple[jax.Array, ...]:
    """Run a layer's forward pass in float32, with JAX operations instead of special kernels; return the tops."""
    context = replace(layer.context, config=NetConfig().with_plain_kernels())
    tops, _ = run(context, tuple(blobs), tuple(bottoms))
    return tops

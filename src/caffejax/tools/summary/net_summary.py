"""Summaries of a net and its layers: sizes, multiply-adds and receptive fields, as a table and as JSON."""

from __future__ import annotations

import functools
import html
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from ...base.human_readable import format_bytes, format_count, format_number
from ...base.text_table import align_columns, escape_unprintable
from ...core.graph import Graph, Layer
from ...core.graph.element_counts import count_layer_elements
from ...core.layers import Context
from ...core.layers.dispatch import forward
from ...core.ops.window import Window
from ...core.program.net import Net

Family = Literal[
    "data", "convolution", "product", "normalisation", "activation", "pooling", "merge", "shape", "loss", "other"
]
FAMILIES: tuple[Family, ...] = get_args(Family)

_FAMILIES_BY_TYPE: dict[str, Family] = {
    "Dropout": "activation",
    "PReLU": "activation",
}  # their traits do not determine the family


def get_family(layer: Layer) -> Family:
    """Return a layer's family, derived from the traits of its type.

    A "product" layer has weights and no window, such as InnerProduct and LSTM. A "merge" layer combines several blobs
    into one. The family "loss" includes metrics.
    """
    layer_type, traits = layer.type, layer.type.traits
    if layer_type.is_input or not layer.bottoms:
        return "data"
    if (
        layer_type.signature.loss
        or any(layer.loss_weights)
        or (layer.index_bottoms and not layer_type.gradient.differentiable)
    ):
        return "loss"
    if layer_type.name in _FAMILIES_BY_TYPE:
        return _FAMILIES_BY_TYPE[layer_type.name]
    if traits.channel_affine is not None or any(not p.spec.learnable for p in layer.params):
        return "normalisation"
    if traits.window is not None:
        return "convolution" if layer.params else "pooling"
    if traits.elementwise and len(layer.bottoms) == 1 and traits.data_movement == "nothing":
        return "activation"
    if layer.params:
        return "normalisation" if traits.spatial_map == "same" else "product"
    if len(layer.bottoms) > 1 and len(layer.tops) == 1 and (traits.data_movement == "all" or traits.elementwise):
        return "merge"
    if traits.data_movement != "nothing":
        return "shape"
    return "normalisation" if traits.spatial_map == "same" else "other"


_FIRST_SPATIAL_AXIS = 2  # after the batch and the channels


@dataclass(frozen=True)
class ReceptiveField:
    """The receptive field of a blob's elements, with one entry for each spatial axis.

    Attributes:
        size: the size, in pixels of the net's inputs. It may exceed the size of the inputs.
        stride: the distance between the receptive fields of neighbouring elements, in pixels of the net's inputs. It is
            a fraction after a Deconvolution.
    """

    size: tuple[int, ...]
    stride: tuple[Fraction, ...]

    def apply_window(self, window: Window) -> ReceptiveField:
        """Return the receptive field of the output of a window, such as the kernel of a Convolution."""
        pairs = zip(self.size, self.stride, window.extent, strict=True)
        size = tuple(n + math.ceil((extent - 1) * stride) for n, stride, extent in pairs)
        return ReceptiveField(size, tuple(a * b for a, b in zip(self.stride, window.stride, strict=True)))

    def apply_transposed_window(self, window: Window) -> ReceptiveField:
        """Return the receptive field of the output of a transposed window, such as the kernel of a Deconvolution."""
        cells = (math.ceil(extent / stride) for extent, stride in zip(window.extent, window.stride, strict=True))
        size = tuple(
            n + math.ceil((k - 1) * stride) for n, stride, k in zip(self.size, self.stride, cells, strict=True)
        )
        return ReceptiveField(size, tuple(a / b for a, b in zip(self.stride, window.stride, strict=True)))


def find_receptive_fields(graph: Graph) -> dict[str, ReceptiveField | None]:
    """Return the receptive field of each layer's first top by the layer's key.

    The value is None if the field is unknown or covers all inputs.
    """
    fields: dict[str, ReceptiveField | None] = {}
    blobs: dict[str, ReceptiveField | None] = {}
    for layer in graph.layers:
        field = _find_receptive_field(layer, graph, [blobs[name] for name in layer.bottoms])
        fields[layer.key] = field
        blobs.update(dict.fromkeys(layer.tops, field))
    return fields


def _find_receptive_field(
    layer: Layer, graph: Graph, bottoms: Sequence[ReceptiveField | None]
) -> ReceptiveField | None:
    traits, tops = layer.type.traits, [graph.blobs[top] for top in layer.tops]
    if not tops:
        return None
    if not layer.bottoms:
        num_axes = len(_get_spatial_shape(tops[0]))
        return ReceptiveField((1,) * num_axes, (Fraction(1),) * num_axes) if num_axes else None
    first_bottom = graph.blobs[layer.bottoms[0]]
    if traits.window is not None:
        window, field = layer.context.call(traits.window, first_bottom), bottoms[0]
        if field is None or len(field.size) != len(window.kernel):
            return None
        return (
            field.apply_transposed_window(window) if traits.spatial_map == "transposed" else field.apply_window(window)
        )
    if traits.spatial_map == "cropped":
        return bottoms[0]
    if not _get_spatial_shape(tops[0]):
        return None
    window = None
    if traits.receptive_window is not None:
        window = (
            layer.context.call(traits.receptive_window, first_bottom)
            if _get_spatial_shape(tops[0]) == _get_spatial_shape(first_bottom)
            else None
        )
        if window is None:
            return None
    elif not (
        traits.keeps_pixels
        or (traits.data_movement != "nothing" and _get_spatial_shape(tops[0]) == _get_spatial_shape(first_bottom))
    ):
        return None
    fields = [b for b in bottoms if b is not None]
    if len(fields) < len(bottoms) or len({len(b.size) for b in fields}) > 1:
        return None
    sizes, strides = (
        zip(*(b.size for b in fields), strict=True),
        zip(*(b.stride for b in fields), strict=True),
    )
    field = ReceptiveField(tuple(map(max, sizes)), tuple(map(max, strides)))
    return field if window is None else field.apply_window(window)


def _get_spatial_shape(blob: jax.ShapeDtypeStruct) -> tuple[int, ...]:
    return tuple(blob.shape[_FIRST_SPATIAL_AXIS:])


_KEY = jax.eval_shape(jax.random.key, 0)
_FLOAT_BYTES = jnp.dtype(jnp.float32).itemsize


@dataclass(frozen=True)
class LayerSummary:
    """The summary of one layer.

    Attributes:
        key: the layer's key in the graph, which is its name, with a number if the net repeats the name.
        name, type: the layer's name and type in Caffe.
        family: the layer's family; see `get_family`.
        bottoms, tops: the names of the blobs.
        top_shapes: the shapes of the tops.
        param_shapes: the shapes of the params, including running statistics and shared params.
        parameters: the number of elements of the params that no earlier layer uses.
        activations: the number of elements of the tops, without tops that share memory with a bottom because the layer
            works in place or is a Split.
        activation_bytes: the size of these tops in bytes.
        multiply_adds: the multiply-adds of the forward pass for the full batch, or None for host layers.
        field: the receptive field of the first top, or None if it is unknown or covers all inputs, as after an
            InnerProduct.
    """

    key: str
    name: str
    type: str
    family: Family
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    top_shapes: tuple[tuple[int, ...], ...]
    param_shapes: tuple[tuple[int, ...], ...]
    parameters: int
    activations: int
    activation_bytes: int
    multiply_adds: int | None
    field: ReceptiveField | None = None

    @property
    def parameter_bytes(self) -> int:
        """The size of the params in bytes. Params are float32."""
        return self.parameters * _FLOAT_BYTES

    @property
    def receptive_field(self) -> tuple[int, ...] | None:
        """The size of the first top's receptive field in pixels of the inputs, for each spatial axis."""
        return None if self.field is None else self.field.size

    @property
    def stride(self) -> tuple[float, ...] | None:
        """The distance between neighbouring elements of the first top, for each spatial axis, in the inputs' pixels."""
        return None if self.field is None else tuple(map(float, self.field.stride))


def summarize_layer(layer: Layer, graph: Graph, *, field: ReceptiveField | None = None) -> LayerSummary:
    """Return the summary of a layer. `field` is the receptive field of its first top, if it is known."""
    tops = [graph.blobs[top] for top in layer.tops]
    parameters, activations, activation_bytes = count_layer_elements(layer, graph)
    return LayerSummary(
        key=layer.key,
        name=layer.name,
        type=layer.type.name,
        family=get_family(layer),
        bottoms=tuple(graph.split_roots.get(bottom, bottom) for bottom in layer.bottoms),  # the names in the prototxt
        tops=layer.tops,
        top_shapes=tuple(x.shape for x in tops),
        param_shapes=tuple(p.spec.shape for p in layer.params),
        parameters=parameters,
        activations=activations,
        activation_bytes=activation_bytes,
        multiply_adds=_count_layer_multiply_adds(layer, graph),
        field=field,
    )


def _count_layer_multiply_adds(layer: Layer, graph: Graph) -> int | None:
    if layer.type.is_input:
        return 0
    if layer.type.on_host:
        return None
    shapes = tuple(p.spec.shape for p in layer.all_params)
    bottoms = tuple((graph.blobs[bottom].shape, graph.blobs[bottom].dtype) for bottom in layer.bottoms)
    context = layer.context.replace(config=layer.context.config.with_plain_kernels())
    return _count_cached_multiply_adds(context, shapes, bottoms)


@functools.lru_cache(maxsize=4096)
def _count_cached_multiply_adds(
    context: Context, blobs: Sequence[tuple[int, ...]], bottoms: Sequence[tuple[tuple[int, ...], str]]
) -> int:
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in blobs]
    inputs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in bottoms]
    return count_multiply_adds(
        lambda key, *arrays: forward(context.replace(fold_in_args=(key, 0)), *arrays), _KEY, arrays, inputs
    )


_COLUMN_TITLES = ("layer", "type", "tops", "parameters", "multiply-adds", "activations", "field", "stride")
_TEXT_COLUMNS = 3


@dataclass(frozen=True, repr=False)
class Summary:
    """The summary of a net by layer. It is printed as a table, also in notebooks.

    Attributes:
        name: the net's name.
        phase: "TRAIN" or "TEST".
        layers: the layers in the order of execution, without inserted splits.
    """

    name: str
    phase: str
    layers: tuple[LayerSummary, ...]

    @property
    def parameters(self) -> int:
        """The number of elements of all params, including running statistics."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds of a forward pass for the full batch, without host layers."""
        return sum(layer.multiply_adds or 0 for layer in self.layers)

    @property
    def activation_bytes(self) -> int:
        """The size of all activations in bytes."""
        return sum(layer.activation_bytes for layer in self.layers)

    def to_json(self) -> str:
        """Return the summary as JSON text `{"name", "phase", "layers": [{...}], "total": {...}}` with exact numbers."""
        return json.dumps(self.as_dict(), indent=1)

    def as_dict(self) -> dict[str, Any]:
        """Return the content of `to_json` as a dict."""
        totals = {name: getattr(self, name) for name in ("parameters", "multiply_adds", "activation_bytes")}
        return {"name": self.name, "phase": self.phase, "layers": list(map(_as_dict, self.layers)), "total": totals}

    def __str__(self) -> str:
        return "\n".join([*align_columns(self._rows(), _TEXT_COLUMNS), "", self._format_totals()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self._rows())
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead>{body}</table><p>{html.escape(self._format_totals())}</p>"

    def _rows(self) -> Iterator[Sequence[str]]:
        yield _COLUMN_TITLES
        for layer in self.layers:
            multiply_adds = "?" if layer.multiply_adds is None else format_number(layer.multiply_adds)
            memory = format_bytes(layer.activation_bytes) if layer.activation_bytes else "-"
            field_cells = _join_numbers("x", layer.receptive_field), _join_numbers("x", layer.stride)
            tops = " ".join(_join_numbers("x", shape) or "scalar" for shape in layer.top_shapes)
            yield (
                layer.name,
                layer.type,
                tops,
                format_number(layer.parameters),
                multiply_adds,
                memory,
                *(cell or "-" for cell in field_cells),
            )

    def _format_totals(self) -> str:
        num_host_layers = sum(layer.multiply_adds is None for layer in self.layers)
        host_note = f" (without {num_host_layers} on the host)" if num_host_layers else ""
        name = escape_unprintable(self.name) or "net"
        return (
            f"{name} ({self.phase}): {format_count(len(self.layers), 'layer')}, "
            f"{format_count(self.parameters, 'parameter')}, "
            f"{format_count(self.multiply_adds, 'multiply-add')}{host_note}, "
            f"activations {format_bytes(self.activation_bytes)}"
        )


def summarize(net: Net | Graph) -> Summary:
    """Return the shapes, parameters and multiply-adds of each layer. Nothing is run; the result prints as a table."""
    graph = net if isinstance(net, Graph) else net.graph
    fields = find_receptive_fields(graph)
    layers = [x for x in graph.layers if not x.is_inserted_split]
    return Summary(graph.name, graph.phase, tuple(summarize_layer(x, graph, field=fields[x.key]) for x in layers))


def _as_dict(layer: LayerSummary) -> dict[str, Any]:
    values = {name: value for name, value in asdict(layer).items() if name != "field"}
    return values | {"receptive_field": layer.receptive_field, "stride": layer.stride}


def _join_numbers(separator: str, numbers: Sequence[float] | None) -> str:
    return separator.join(str(n) if isinstance(n, int) else f"{n:g}" for n in numbers or ())


def count_multiply_adds(function: Callable[..., Any], *arguments: Any, padding: bool = True) -> int:
    """Count the multiply-adds of one call of a function.

    A conditional counts as its most expensive branch. The body of a `scan` is counted once for each iteration, and the
    body of a loop with an unknown number of iterations is counted once.

    Args:
        function: the function.
        arguments: its arguments, as arrays or `jax.ShapeDtypeStruct`.
        padding: whether products with the zeros around a convolution's input are counted. Products with the zeros
            between the input's elements, as in a Deconvolution, are never counted.
    """
    return _count_jaxpr(
        jax.make_jaxpr(function)(*arguments).jaxpr, _count_convolution if padding else _count_without_padding
    )


def _count_jaxpr(jaxpr: Any, count_convolution: Callable[[Any], int]) -> int:
    return sum(_count_equation(eqn, count_convolution) for eqn in jaxpr.eqns)


def _count_equation(eqn: Any, count_convolution: Callable[[Any], int]) -> int:
    name, p = eqn.primitive.name, eqn.params
    if name == "dot_general":
        contracted_axes = p["dimension_numbers"][0][0]
        return int(eqn.outvars[0].aval.size * math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted_axes))
    if name == "conv_general_dilated":
        return count_convolution(eqn)
    if name == "cond":
        return max(_count_jaxpr(branch.jaxpr, count_convolution) for branch in p["branches"])
    inner_count = sum(_count_jaxpr(jaxpr, count_convolution) for jaxpr in jaxprs_in_params(p))
    return int(p["length"]) * inner_count if name == "scan" else inner_count


def _count_convolution(eqn: Any) -> int:
    dimension_numbers = eqn.params["dimension_numbers"]
    x, weight = (v.aval for v in eqn.invars)
    output_axis, input_axis, *spatial_axes = dimension_numbers.rhs_spec
    kernel = math.prod(weight.shape[axis] for axis in spatial_axes)
    # a transposed convolution multiplies each element of the input by each element of the kernel
    if max(eqn.params["lhs_dilation"], default=1) > 1:
        return int(x.size * kernel * weight.shape[output_axis] // eqn.params["feature_group_count"])
    return int(eqn.outvars[0].aval.size * kernel * weight.shape[input_axis])


def _count_without_padding(eqn: Any) -> int:
    """Count the multiply-adds of a convolution, without products with padding."""
    p, dimension_numbers = eqn.params, eqn.params["dimension_numbers"]
    x, weight, y = (v.aval.shape for v in (*eqn.invars, *eqn.outvars))
    count = y[dimension_numbers.out_spec[0]] * y[dimension_numbers.out_spec[1]] * weight[dimension_numbers.rhs_spec[1]]
    axes = zip(
        dimension_numbers.lhs_spec[2:], dimension_numbers.rhs_spec[2:], dimension_numbers.out_spec[2:], strict=True
    )
    for i, (x_axis, weight_axis, y_axis) in enumerate(axes):
        starts = np.arange(y[y_axis])[:, None] * p["window_strides"][i] - p["padding"][i][0]
        positions, dilation = starts + np.arange(weight[weight_axis]) * p["rhs_dilation"][i], p["lhs_dilation"][i]
        is_input = (positions >= 0) & (positions <= (x[x_axis] - 1) * dilation) & (positions % dilation == 0)
        count *= int(is_input.sum())
    return int(count)

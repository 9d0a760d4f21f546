"""Layers without bottoms that need no file: Input, MemoryData, DummyData, Parameter."""

from __future__ import annotations

import jax
from jax import Array

from ...base.errors import require
from ..schema.caffe_pb2 import FillerParameter, InputParameter, MemoryDataParameter, ParameterParameter
from .context import Context, Params, ParamSpec, Shape
from .declaration import register
from .fillers import fill, is_random
from .types import CallerInput, TopFiller


def input_shapes(p: InputParameter, *, num_tops: int) -> list[Shape]:
    """Declare the tops as inputs of the net, which the caller passes; return their shapes.

    `input_param` has one shape for all tops, or a shape for each top.
    """
    shapes = [tuple(int(d) for d in shape.dim) for shape in p.shape]
    require(
        len(shapes) in (1, num_tops),
        f"input_param needs one shape, or one for each of the {num_tops} tops, but has {len(shapes)}; {_ANY_SIZE}",
    )
    for shape in shapes:
        require(
            all(n >= 0 for n in shape),
            f"dimensions in input_param must not be negative, but a shape is {shape}; {_ANY_SIZE}",
        )
    return shapes * num_tops if len(shapes) == 1 else shapes


_ANY_SIZE = (
    "write shape { dim: ... } with a size that the net supports, such as 1, 3, 224, 224; "
    "arrays of other sizes may be passed when it runs"
)


register("Input", CallerInput(input_shapes), bottoms=0, tops=(1, None), param="input_param")


def memory_data_shapes(p: MemoryDataParameter, *, num_tops: int) -> list[Shape]:
    """Declare images and labels, which the caller sets as arrays; return their shapes.

    The shapes are (batch_size, channels, height, width) and (batch_size,). With one top (MyCaffe) there are no labels.
    """
    shape = (p.batch_size, p.channels, p.height, p.width)
    require(all(n > 0 for n in shape), f"batch_size, channels, height and width must be positive, but are {shape}")
    return [shape, shape[:1]][:num_tops]


register(
    "MemoryData", CallerInput(memory_data_shapes, from_arrays=True), bottoms=0, tops=(1, 2), param="memory_data_param"
)


def _fill_dummy_top(i: int, shape: Shape, *, ctx: Context) -> Array:
    filler = _dummy_fillers(ctx)[i]
    return fill(filler, jax.random.fold_in(ctx.key, i) if is_random(filler) else None, shape)


@register(
    "DummyData",
    bottoms=0,
    tops=(1, None),
    param="dummy_data_param",
    # Caffe's refill_, which is false for constant fillers only
    filler=TopFiller(lambda *, ctx: [filler.type != "constant" for filler in _dummy_fillers(ctx)], _fill_dummy_top),
)
def dummy_data(*, ctx: Context) -> tuple[Array, ...]:
    """Return tops filled by `data_filler`. Random fillers sample new values in every forward pass.

    `dummy_data_param` has one shape for all tops, or a shape for each top; the same holds for fillers. Without a
    filler, tops are zeros. In Caffe's Python interface, tops with a constant filler keep what scripts write to them.
    Caffe's rule: dummy_data_layer.cpp.
    """
    return tuple(_fill_dummy_top(i, shape, ctx=ctx) for i, shape in enumerate(_dummy_shapes(ctx)))


def _dummy_fillers(ctx: Context) -> list[FillerParameter]:
    fillers = list(ctx.param.data_filler) or [FillerParameter()]  # constant, 0
    require(
        len(fillers) in (1, ctx.num_tops),
        f"dummy_data_param must have no data_filler, one for all tops, or one for each of the {ctx.num_tops} tops, but "
        f"has {len(fillers)}",
    )
    return fillers * ctx.num_tops if len(fillers) == 1 else fillers


def _dummy_shapes(ctx: Context) -> list[Shape]:
    p = ctx.param
    legacy_sizes = [list(p.num), list(p.channels), list(p.height), list(p.width)]
    require(not (p.shape and any(legacy_sizes)), "give either shape or num, channels, height and width, not both")
    if p.shape:
        shapes = [tuple(int(d) for d in shape.dim) for shape in p.shape]
    else:
        require(
            all(len(dims) in (1, ctx.num_tops) for dims in legacy_sizes),
            "each of num, channels, height and width must be set once, or once per top, but they are set "
            f"{', '.join(str(len(dims)) for dims in legacy_sizes)} times for {ctx.num_tops} tops",
        )
        shapes = list(zip(*(dims * ctx.num_tops if len(dims) == 1 else dims for dims in legacy_sizes), strict=True))
    require(
        len(shapes) in (1, ctx.num_tops),
        f"dummy_data_param needs one shape, or one for each of the {ctx.num_tops} tops, but has {len(shapes)}",
    )
    return shapes * ctx.num_tops if len(shapes) == 1 else shapes


@register("Parameter", bottoms=0, param="parameter_param", overwrites_diffs=True, top_is_param=True)
def parameter(params: Params) -> Array:
    """Return a learnable blob as a top, with the `shape` of parameter_param. The blob is initially zero."""
    return params["weight"]


@parameter.params
def parameter_params(p: ParameterParameter) -> list[ParamSpec]:
    return [ParamSpec(tuple(int(d) for d in p.shape.dim), name="weight")]


@parameter.backward
def parameter_backward(params: Params, *, y: Array, dy: Array) -> tuple[Array]:
    return (dy,)

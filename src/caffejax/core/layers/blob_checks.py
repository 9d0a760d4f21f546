"""Checks of a layer's blobs and bottoms while the layer is traced, and errors that contain the shapes of both.

Kernels read memory according to these shapes, so a mismatch must be reported before a kernel runs.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import CaffejaxError, LayerError, describe_type, require
from .context import Context, ParamSpec
from .types import LayerType

_LIBRARIES = ("caffejax", "jax", "jaxlib", "numpy")
# the messages of these errors are clear, or do not concern shapes
_UNCHANGED_ERRORS = (CaffejaxError, FloatingPointError, jax.errors.JaxRuntimeError)


@contextmanager
def checked(ctx: Context, blobs: Sequence[Any], bottoms: Sequence[Any]) -> Iterator[None]:
    """Return a context manager for a layer's call: check that the blobs match the bottoms, then `wrap_layer_errors`.

    Python layers are not checked, because they declare their blobs only once, when they are set up.
    """
    with wrap_layer_errors(ctx.type, bottoms):
        if ctx.type.instance is None:
            check_param_shapes(ctx, blobs, bottoms)
        yield


def declared_params(ctx: Context, bottoms: Sequence[Any]) -> list[ParamSpec]:
    """Return the specs of a layer's blobs, given its bottoms or values with their shapes and dtypes.

    Raises:
        LayerError: if `params` of a user's type returns anything but ParamSpecs in a valid order.
    """
    specs = ctx.call(ctx.type.params, *bottoms) if ctx.type.params else []
    require(isinstance(specs, Iterable), f"params must return a list of ParamSpecs, not {describe_type(specs)}")
    specs = list(specs)
    for spec in specs:
        require(isinstance(spec, ParamSpec), f"params must list ParamSpecs, not {spec!r}")
    names = [spec.name or str(i) for i, spec in enumerate(specs)]
    require(len({*names}) == len(names), f"params must have different names, not {names}")
    is_persistent = [spec.persistent for spec in specs]
    require(
        is_persistent == sorted(is_persistent, reverse=True), "params that are not persistent must be declared last"
    )
    return specs


def blob_names(ctx: Context, bottoms: Sequence[Any]) -> tuple[tuple[str, bool], ...]:
    """Return the name of each blob of a layer in Caffe's order, and whether it is learnable."""
    if ctx.blob_names is not None:
        return ctx.blob_names
    return tuple((spec.name or str(i), spec.learnable) for i, spec in enumerate(declared_params(ctx, bottoms)))


def check_param_shapes(ctx: Context, blobs: Sequence[Any], bottoms: Sequence[Any]) -> list[ParamSpec]:
    """Check that blobs have the shapes that a layer declares for its bottoms; return the specs of the blobs.

    Args:
        ctx: the context of the layer.
        blobs: the blobs, or values with their shapes.
        bottoms: the bottoms, or values with their shapes.

    Raises:
        LayerError: if a blob has a different shape.
    """
    specs = declared_params(ctx, bottoms)
    for i, (blob, spec) in enumerate(zip(blobs, specs, strict=False)):
        if spec.persistent and tuple(blob.shape) != tuple(spec.shape):  # layers report mismatches of other blobs
            verb = "needs" if len(bottoms) == 1 else "need"
            raise LayerError(
                f"blob {i} has shape {tuple(blob.shape)}, "
                f"but {format_bottoms(bottoms)} {verb} shape {tuple(spec.shape)}"
            )
    return specs


def check_dtypes(ctx: Context, names: Sequence[str], bottoms: Sequence[Any]) -> None:
    """Raise `LayerError` if a bottom that the layer computes with does not have a floating-point dtype.

    Labels, indices and values that are only moved may be integers. `names` has the name of each bottom.
    """
    indices = ctx.type.gradient.indices.positions(len(bottoms))
    for i, (name, x) in enumerate(zip(names, bottoms, strict=True)):
        if jnp.issubdtype(x.dtype, jnp.floating):
            continue
        is_integer = jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == bool
        if not (is_integer and (ctx.type.traits.accepts_integers or i in indices)):
            raise LayerError(
                f"bottom {i} ('{name}') has dtype {x.dtype}, but the layer computes in floating point; "
                "pass float32, for example with .astype(jnp.float32)"
            )


@contextmanager
def wrap_layer_errors(layer_type: LayerType, bottoms: Sequence[Any]) -> Iterator[None]:
    """Return a context manager that turns unexpected exceptions of a layer into LayerErrors with the bottoms' shapes.

    Exceptions in the code of others, such as Python layers and types that a program has registered, are raised
    unchanged, with a note if the call does not fit their function.

    Args:
        layer_type: the layer's type.
        bottoms: arrays, or values with their shapes and dtypes.
    """
    try:
        yield
    except _UNCHANGED_ERRORS:
        raise
    except Exception as error:
        if layer_type.instance is not None:
            raise
        if not _is_of_this_package(layer_type):
            if isinstance(error, TypeError) and not format_user_frame(error):  # the call itself failed
                error.add_note(
                    "a type's functions take `p`, `params`, the bottoms and keywords; see `caffejax.register`"
                )
            if isinstance(error, KeyError):
                error.add_note(
                    "params have the names of the type's ParamSpecs or, without names, their numbers as text"
                    if layer_type.params
                    else "the type declares no params: a function under its decorator `.params` lists ParamSpecs"
                )
            raise
        explanation = _explain(error, bottoms)
        raise LayerError(f"cannot take {format_bottoms(bottoms)}: {explanation}{format_user_frame(error)}") from error


def _is_of_this_package(layer_type: LayerType) -> bool:
    """Return whether this package has a type's forward function, also if the type is made for one layer."""
    forward = getattr(layer_type.implementation, "forward", None)
    while isinstance(forward, functools.partial):
        forward = forward.func
    return forward is None or str(forward.__module__).partition(".")[0] == __name__.partition(".")[0]


def format_user_frame(error: Exception) -> str:
    """Return an error's type and the location in user code where it was raised, or "" if it was raised elsewhere."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module not in _LIBRARIES and module not in sys.stdlib_module_names:
            code = frame.f_code
            return f" ({type(error).__name__} in {code.co_name}, {code.co_filename}:{line})"
    return ""


def _explain(error: Exception, bottoms: Sequence[Any]) -> str:
    """Return the text of an error, preceded by its cause if it is a known problem of settings or shapes."""
    if not isinstance(error, OverflowError | MemoryError) and any(0 in tuple(b.shape) for b in bottoms):
        return f"a size is 0, but the layer needs at least one element ({error})"
    match error:
        case OverflowError():
            cause = "one of its settings is too large"
        case MemoryError():
            cause = "its settings or its bottoms need more memory than is available"
        case ZeroDivisionError():
            cause = "it divides by a size or a setting of 0"
        case IndexError() if "tuple index" in str(error):
            cause = "a bottom has too few axes"
        case TypeError() if "same dtypes" in str(error):
            cause = 'params and inputs must be float32; to compute in bfloat16, use Net(..., precision="bfloat16")'
        case _:
            return str(error).partition("\n")[0]  # the other lines of JAX's messages concern the type's author
    return f"{cause} ({error})" if str(error) else cause


def shape_remedy(shape: Sequence[int], expected_shape: Sequence[int]) -> str:
    """Return advice such as "; transpose it ..." for an array that does not have the shape `expected_shape`, or ""."""
    if len(shape) != len(expected_shape):
        num_axes = "1 axis" if len(expected_shape) == 1 else f"{len(expected_shape)} axes"
        return f"; pass an array with {num_axes}, of which only the first may have a different size"
    if len(shape) == 4 and (shape[3], *shape[1:3]) == tuple(expected_shape[1:]) != tuple(shape[1:]):
        return "; transpose it by (0, 3, 1, 2) to Caffe's order"
    return ""


def format_bottoms(bottoms: Sequence[Any]) -> str:
    """Return a noun phrase with the shapes of bottoms, and with their dtypes if they are not float32."""
    shapes = [str(tuple(b.shape)) + ("" if b.dtype == jnp.float32 else f" {b.dtype}") for b in bottoms]
    return f"a bottom of shape {shapes[0]}" if len(shapes) == 1 else f"bottoms of shapes {', '.join(shapes)}"

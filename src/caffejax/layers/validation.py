"""Checks of a layer's blobs and bottoms while it is traced, and errors that name their shapes.

Kernels read memory by these shapes, so a mismatch must not reach them.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from ..errors import CaffejaxError, LayerError, require
from .context import Context, ParamSpec

R = TypeVar("R")

_NOT_OWN = ("caffejax", "jax", "jaxlib", "numpy")
_SAYS_IT_ALREADY = (CaffejaxError, FloatingPointError, jax.errors.JaxRuntimeError)  # or is not of shapes and types


def validate_params(run: Callable[..., R]) -> Callable[..., R]:
    """Decorate a function `run(ctx, blobs, bottoms, ...)` to check that the blobs match the bottoms first.

    Unexpected exceptions become LayerErrors. Python layers declare their blobs once, when they are set up, and their
    exceptions pass unchanged.
    """

    @functools.wraps(run)
    def call(ctx: Context, blobs: Sequence[Any], bottoms: Sequence[Any], *more: Any) -> R:
        with wrap_layer_errors(bottoms, unless=ctx.type.instance is not None):
            if ctx.type.instance is None:
                check_param_shapes(ctx, blobs, bottoms)
            return run(ctx, blobs, bottoms, *more)

    return call


def declared_params(ctx: Context, bottoms: Sequence[Any]) -> list[ParamSpec]:
    """Return the specs of a layer's blobs for bottoms of these shapes."""
    specs = list(ctx.type.params(ctx, *bottoms)) if ctx.type.params else []
    for spec in specs:
        require(isinstance(spec, ParamSpec), f"params must list ParamSpecs, not {spec!r}")
    lasting = [spec.persistent for spec in specs]
    require(lasting == sorted(lasting, reverse=True), "params that are not persistent must be declared last")
    return specs


def check_param_shapes(ctx: Context, blobs: Sequence[Any], bottoms: Sequence[Any]) -> list[ParamSpec]:
    """Check that blobs have the shapes that a layer declares for its bottoms; return the specs.

    Args:
        ctx: the layer.
        blobs: the blobs, or values with their shapes.
        bottoms: the bottoms, or values with their shapes.

    Raises:
        LayerError: if a blob has another shape.
    """
    declared = declared_params(ctx, bottoms)
    for i, (blob, wanted) in enumerate(zip(blobs, declared, strict=False)):
        if wanted.persistent and tuple(blob.shape) != tuple(wanted.shape):  # of the others the layer itself says more
            needs = "needs" if len(bottoms) == 1 else "need"
            raise LayerError(
                f"blob {i} is of shape {tuple(blob.shape)}, but {format_bottoms(bottoms)} {needs} {tuple(wanted.shape)}"
            )
    return declared


def check_dtypes(ctx: Context, names: Sequence[str], bottoms: Sequence[Any]) -> None:
    """Raise `LayerError` for a bottom that is not floating point where the layer computes with it.

    Labels and indices may be integers, and so may what is only moved. `names` are the bottoms'.
    """
    indices = ctx.type.gradient.indices.of(len(bottoms))
    for i, (name, x) in enumerate(zip(names, bottoms, strict=True)):
        if jnp.issubdtype(x.dtype, jnp.floating):
            continue
        counts = jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == bool
        if not (counts and (ctx.type.traits.accepts_integers or i in indices)):
            raise LayerError(
                f"bottom {i} ('{name}') is {x.dtype}, and layers compute in floating point: "
                "give the net float32, as by .astype(jnp.float32)"
            )


@contextmanager
def wrap_layer_errors(bottoms: Sequence[Any], *, unless: bool = False) -> Iterator[None]:
    """Turn what a layer's definition did not foresee into a LayerError that tells the bottoms' shapes.

    Args:
        bottoms: what has their shapes and dtypes.
        unless: whether to let it pass: what users' Python layers raise is theirs.
    """
    try:
        yield
    except _SAYS_IT_ALREADY:
        raise
    except Exception as error:
        if unless:
            raise
        said = _in_words(error, bottoms)
        raise LayerError(f"cannot take {format_bottoms(bottoms)}: {said}{_in_own_code(error)}") from error


def _in_own_code(error: Exception) -> str:
    """Return where in a user's own code an error comes from, and of which type it is; "" if from none."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module not in _NOT_OWN and module not in sys.stdlib_module_names:
            code = frame.f_code
            return f" ({type(error).__name__} in {code.co_name}, {code.co_filename}:{line})"
    return ""


def _in_words(error: Exception, bottoms: Sequence[Any]) -> str:
    """Return what an error says, and before it what that means of settings and shapes, where its type tells."""
    if not isinstance(error, OverflowError | MemoryError) and any(0 in tuple(b.shape) for b in bottoms):
        return f"a size is 0, and the layer needs numbers ({error})"
    match error:
        case OverflowError():
            means = "one of its settings is too large"
        case MemoryError():
            means = "its settings or its bottoms ask for more memory than there is"
        case ZeroDivisionError():
            means = "a size or a setting of 0 that it divides by"
        case IndexError() if "tuple index" in str(error):
            means = "one has too few axes"
        case _:
            return str(error).partition("\n")[0]  # JAX's go on about how to write programs
    return f"{means} ({error})" if str(error) else means


def format_bottoms(bottoms: Sequence[Any]) -> str:
    """Describe bottoms: their shapes, and their dtypes where those are not float32."""
    each = [str(tuple(b.shape)) + ("" if b.dtype == jnp.float32 else f" {b.dtype}") for b in bottoms]
    return f"a bottom of shape {each[0]}" if len(each) == 1 else f"bottoms of shapes {', '.join(each)}"

"""Calls of functions of NumPy arrays from JAX programs, by the primitive of this module.

Outside of traced code the function is called directly, and its results may have any shape. In a compiled program it is
a callback, which is pure as `jax.pure_callback` is: it runs as often as the program needs its results. In contrast to
`jax.pure_callback`, on one device the function gets the program's arrays without a transfer, which can deadlock if the
function itself runs a program; and errors name the layer.

A program that must call its functions once, and in order, passes an array from call to call, its `order`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.backend import backends
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ...base.errors import CaffejaxError, LayerError
from ...base.host_memory import count_available_cores
from ..ops.platform_dispatch import is_single_device
from ..ops.vma import vary_as
from .blob_checks import format_user_frame
from .row_padding import zero_pad_rows

Arrays = tuple[Any, ...]


class ChangedShapeError(LayerError):
    """A top that has another shape than in the trace of the program."""


@dataclass
class HostCalls:
    """The state that the calls of a program share which runs each of them once, in order.

    Attributes:
        error: the exception that one of them raised, or None. The program then fails with an error of JAX.
    """

    error: BaseException | None = None

    def reraise(self) -> None:
        """Raise the exception, if there is one, and forget it."""
        error, self.error = self.error, None
        if error is not None:
            raise error


@dataclass(frozen=True, eq=False)
class HostCall:
    """A function of NumPy arrays.

    Attributes:
        function: `function(*arrays)` returns a sequence of NumPy arrays.
        infer_results: `infer_results(*arrays)` returns the shape and dtype of each result, for arguments that have
            `.shape` and `.dtype`. It raises `LayerError` if they depend on values.
        locate_errors: returns a context manager that adds the layer's name to errors.
        calls: for a function that runs once, in order, what it has in common with the others; None for a pure function.
        row_axes: for each result, the axis along which it may have fewer rows than `infer_results` says, or None. In a
            program such a result is padded with zeros. Default: None for all results.
    """

    function: Callable[..., Sequence[Any]]
    infer_results: Callable[..., Sequence[jax.ShapeDtypeStruct]]
    locate_errors: Callable[[], AbstractContextManager[Any]]
    calls: HostCalls | None = None
    row_axes: Sequence[int | None] = ()

    def __call__(self, *arrays: Any) -> list[Array]:
        """Return the function's results. The arrays may be traced."""
        results: list[Array] = _host_call_p.bind(*arrays, call=self)
        return [vary_as(result, *arrays) for result in results]

    def run_in_program(self, types: Sequence[Any], *arrays: Any) -> Arrays:
        """Run the function in a compiled program whose results have the given shapes and dtypes."""
        # the program may reuse the memory of its arrays after the call
        copies = [np.array(array) for array in arrays]
        try:
            with self.locate_errors():
                results = list(self.function(*copies))
                for i, axis in enumerate(self.row_axes):
                    if axis is not None:
                        results[i] = zero_pad_rows(results[i], types[i].shape[axis], axis)
                for i, (result, expected) in enumerate(zip(results, types, strict=True)):
                    if np.shape(result) != expected.shape:
                        raise ChangedShapeError(
                            f"top {i} has shape {np.shape(result)}, but had {expected.shape} when the net was traced, "
                            "and a program has fixed shapes: call the net outside of JAX's transformations, or train "
                            "it on one device"
                        )
        except BaseException as error:
            if self.calls is not None:
                self.calls.error = error
            if isinstance(error, CaffejaxError) or not isinstance(error, Exception):
                raise
            with self.locate_errors():
                raise LayerError(f"{type(error).__name__}: {error}{format_user_frame(error)}") from error
        return tuple(np.asarray(result, expected.dtype) for result, expected in zip(results, types, strict=True))

    def refuse(self, use: str) -> None:
        """Raise an error for a use that JAX's callbacks do not support."""
        with self.locate_errors():
            raise LayerError(f"runs on the host, where JAX cannot {use}")


_host_call_p = Primitive("caffejax_host_call")
_host_call_p.multiple_results = True


def _lower(ctx: mlir.LoweringRuleContext, *operands: Any, call: HostCall) -> Any:
    module = ctx.module_context
    inputs: Any = ctx.avals_in
    types: Any = ctx.avals_out

    def run(*arrays: Any) -> Arrays:
        return call.run_in_program(types, *arrays)

    if module.lowering_parameters.for_export:
        call.refuse("export a function: export the net without this layer")
    if module.platforms[0] == "cuda" and "cuda" not in backends():  # a plan for absent GPUs, whose client JAX asks for
        return jax.ffi.ffi_lowering("xla_ffi_python_gpu_callback")(ctx, *operands, index=np.uint64(0))
    if is_single_device(module) and getattr(module.axis_context, "manual_axes", None) is None:
        results, _, _ = mlir.emit_python_callback(
            ctx, run, None, [*operands], inputs, types, has_side_effect=call.calls is not None, returns_token=False
        )
        return results

    def run_on_each_device(*arrays: Any) -> Any:
        # as vectors: on TPUs JAX gives all results of a callback the sharding of the first, which fits its rank alone
        vectors = tuple(jax.ShapeDtypeStruct((math.prod(t.shape),), t.dtype) for t in types)
        results = jax.pure_callback(lambda *arrays: tuple(x.ravel() for x in run(*arrays)), vectors, *arrays)
        return [x.reshape(t.shape) for x, t in zip(results, types, strict=True)]

    return mlir.lower_fun(run_on_each_device, multiple_results=True)(ctx, *operands)


def _refuse_derivative(*_: Any, call: HostCall) -> Any:
    call.refuse("differentiate a function twice, as in Hessians; it has first derivatives in reverse mode (jax.grad)")


def _refuse_forward_mode(*_: Any, call: HostCall) -> Any:
    call.refuse("differentiate a function in forward mode (jax.jvp); use reverse mode, as in jax.grad")


def _batch(arrays: Sequence[Any], axes: Sequence[int | None], *, call: HostCall) -> Any:
    mapped = tuple(jnp.moveaxis(a, axis, 0) for a, axis in zip(arrays, axes, strict=True) if axis is not None)

    def run(mapped_arrays: Arrays) -> list[Array]:
        remaining = iter(mapped_arrays)
        return call(*(a if axis is None else next(remaining) for a, axis in zip(arrays, axes, strict=True)))

    results: list[Array] = jax.lax.map(run, mapped)
    return results, (0,) * len(results)


_host_call_p.def_impl(lambda *arrays, call: [jnp.asarray(x) for x in call.function(*map(np.asarray, arrays))])
_host_call_p.def_abstract_eval(
    lambda *types, call: [jax.core.ShapedArray(x.shape, x.dtype) for x in call.infer_results(*types)]
)
mlir.register_lowering(_host_call_p, _lower, cacheable=False)
ad.primitive_jvps[_host_call_p] = _refuse_derivative
ad.primitive_transposes[_host_call_p] = _refuse_forward_mode
batching.primitive_batchers[_host_call_p] = _batch


def callbacks_may_run_programs() -> bool:
    """Return whether a callback may run a program itself. That takes a second thread of JAX's.

    JAX has as many threads as the environment variable NPROC says, or as there are CPUs.
    """
    num_threads = os.environ.get("NPROC", "")
    return (int(num_threads) if num_threads.isdigit() else count_available_cores()) > 1


def is_traced(tree: Any) -> bool:
    """Return whether a function of these arrays is traced, by `jax.jit` or `jax.vmap` for example.

    Under `jax.grad` alone it is not: host layers then run on the arrays' values.
    """
    traced = False

    @jax.custom_jvp
    def look(*arrays: Any) -> Array:
        nonlocal traced
        # in jax.jit a new array is traced, too, even if no argument is
        traced = any(isinstance(a, jax.core.Tracer) for a in (*arrays, jnp.zeros(())))
        return jnp.zeros(())

    # the rule gets the values that jax.grad differentiates at
    look.defjvp(lambda primals, tangents: (look(*primals), jnp.zeros(())))
    look(*(x for x in jax.tree.leaves(tree) if isinstance(x, jax.core.Tracer)))
    return traced

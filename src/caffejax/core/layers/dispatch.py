"""Calls of the functions of layers, in the same way for all types: they take and return tuples of arrays."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...base.errors import LayerError, did_you_mean, require
from ..ops.compilation import is_eager
from ..ops.custom_gradient import make_differentiable
from ..ops.elementwise import apply_elementwise
from ..ops.program_cache import ProgramCache
from .blob_checks import blob_names, checked
from .context import Arrays, Context, Epilogue, read_parameters
from .dtype_policy import matmul_precision
from .helpers import as_tuple
from .host_call import HostCall, HostCalls
from .row_padding import PaddedRows, first_rows, without_count
from .types import HostFunction, Traced

ErrorLocator = Callable[[], contextlib.AbstractContextManager[Any]]


def forward(
    ctx: Context, blobs: Sequence[Any], bottoms: Sequence[Any], epilogues: Sequence[Epilogue] = ()
) -> tuple[Arrays, Arrays]:
    """Return the tops of a layer, and the new values of the blobs that are not learnable.

    The second tuple is empty if the type has no such blobs. With `epilogues` the tops are those of the last of them.
    """
    impl = ctx.type.implementation
    assert isinstance(impl, Traced | HostFunction), f"{ctx.type.name} does not compute"
    named_blobs = name_blobs(ctx, blobs, bottoms)
    function, arguments = impl.forward, tuple(bottoms)
    if epilogues:
        assert isinstance(impl, Traced)
        assert impl.fused is not None
        function, arguments = impl.fused, (*bottoms, epilogues)
    return _split_result(ctx, ctx.call(function, *arguments, blobs=blobs, named_blobs=named_blobs), named_blobs[1])


def backward(
    ctx: Context, blobs: Sequence[Any], bottoms: Sequence[Any], tops: Sequence[Any], top_diffs: Sequence[Any]
) -> tuple[Arrays, Arrays]:
    """Return the diffs of the blobs and of the bottoms, computed by the hand-written rule.

    Where the rule returns None, the diff is an array of zeros.
    """
    rule = ctx.type.gradient.backward
    assert rule is not None, f"{ctx.type.name} has no backward rule"
    # a single top is passed as an array, as forward returned it
    y, dy = (s[0] if len(s) == 1 else tuple(s) for s in (tops, top_diffs))
    named_blobs = name_blobs(ctx, blobs, bottoms)
    diffs = as_tuple(ctx.call(rule, *bottoms, blobs=blobs, named_blobs=named_blobs, y=y, dy=dy))
    first_names, _ = read_parameters(rule)
    takes_params, takes_blobs = "params" in first_names, "blobs" in first_names
    has_diffs = takes_params or takes_blobs
    require(
        len(diffs) == has_diffs + len(bottoms),
        f"the backward rule must return {'the gradients of the params, then ' * has_diffs}a gradient for each "
        f"bottom: {has_diffs + len(bottoms)} in all, not {len(diffs)}",
    )
    bottom_diffs = diffs[has_diffs:]
    for i, diff in enumerate(bottom_diffs):
        require(not isinstance(diff, Mapping), f"the gradient of bottom {i} is a dict; return that of the params first")
    names = [name for name, _ in blob_names(ctx, bottoms)[: len(blobs)]] if blobs else []
    blob_diffs = _name_diffs(diffs[0], list(named_blobs[0]) if takes_params else names) if has_diffs else {}
    return _cast_diffs([blob_diffs.get(name) for name in names], blobs), _cast_diffs(bottom_diffs, bottoms)


def _name_diffs(diffs: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if isinstance(diffs, Mapping):
        unknown = next((name for name, diff in diffs.items() if diff is not None and name not in names), None)
        require(
            unknown is None,
            f"the backward rule returns a gradient of '{unknown}', which is no param"
            + (did_you_mean(str(unknown), names) or f"; the params are {', '.join(names)}"),
        )
        return diffs
    arrays = as_tuple(diffs)
    require(
        len(arrays) == len(names),
        f"the backward rule must return a gradient for each param: {len(names)} in all, not {len(arrays)}",
    )
    return dict(zip(names, arrays, strict=True))


def call(
    ctx: Context,
    blobs: Sequence[Array],
    bottoms: Sequence[Array],
    epilogues: Sequence[Epilogue] = (),
    **pass_values: Any,
) -> tuple[Arrays, Arrays]:
    """Return the result of `forward`. Its gradient is computed by autodiff or by the hand-written rule.

    `NetConfig.backward` selects one of these; types with `overrides_autodiff` always use their rule.

    Args:
        ctx, blobs, bottoms: the layer's context and arrays.
        epilogues: the layers that are fused with it; the gradient is then by autodiff.
        pass_values: fields of the context that belong to a forward pass: `fold_in_args`, `num_rows`.
    """
    layer_type, gradient = ctx.type, ctx.type.gradient
    if pass_values:
        ctx = ctx.replace(**pass_values)
    uses_rule = gradient.backward is not None and (gradient.overrides_autodiff or ctx.config.backward == "rules")
    run = _call_with_custom_backward if uses_rule else forward
    with checked(ctx, blobs, bottoms):
        if epilogues:
            return forward(ctx, blobs, bottoms, epilogues)
        if layer_type.on_host:
            return call_on_host(ctx, blobs, bottoms, contextlib.nullcontext)[:2]
        if layer_type.traits.elementwise and ctx.fast and layer_type.params is None:
            keyless_ctx = ctx.replace(fold_in_args=None)  # the function below must not close over arrays
            return apply_elementwise(lambda *bottoms: run(keyless_ctx, (), bottoms)[0], *bottoms), ()
        return run(ctx, blobs, bottoms)


def cached_call(
    ctx: Context,
    fold_in_args: Any,
    blobs: Sequence[Array],
    bottoms: Sequence[Array],
    num_rows: Array | None = None,
    epilogues: Sequence[Epilogue] = (),
) -> tuple[Arrays, Arrays]:
    """Return the result of `call`. Layers with equal contexts are traced and lowered once."""
    pass_values = {"fold_in_args": fold_in_args, "num_rows": num_rows}
    arrays = tuple(blobs), tuple(bottoms), tuple(epilogues)
    if any(c.has_own_type for c in (ctx, *(e.ctx for e in epilogues))):
        return call(ctx, *arrays, **pass_values)
    result: tuple[Arrays, Arrays] = _find_jitted(ctx, (arrays, pass_values))(*arrays, **pass_values)
    return result


_programs = ProgramCache()  # the traces of layers, and where a net is not compiled as a whole, their programs
_TRACE_BYTES, _PROGRAM_BYTES = 128 * 2**10, 2 * 2**20  # of one layer


def _find_jitted(ctx: Context, arguments: Any) -> Any:
    """Return the jitted function of `arguments` that runs `call` with a context, one for each shape."""
    is_traced = not is_eager()
    leaves, tree = jax.tree.flatten(arguments)
    key = ctx, is_traced, tree, *(getattr(leaf, "shape", None) for leaf in leaves)
    entry = _programs.find(key)
    if entry is None:
        run = functools.partial(call, ctx)  # a new object, with which JAX drops its programs
        vars(run).update(__caffejax_program__=True, __name__=call.__name__)
        num_bytes = _TRACE_BYTES if is_traced else _PROGRAM_BYTES
        entry = _programs.add(key, jax.jit(run), num_bytes, is_traced=is_traced)
    return entry.program


def call_on_host(
    ctx: Context,
    blobs: Sequence[Array],
    bottoms: Sequence[Array | PaddedRows],
    locate_errors: ErrorLocator,
    order: Arrays = (),
    calls: HostCalls | None = None,
    row_axes: Sequence[int | None] | None = None,
) -> tuple[Arrays, Arrays, Arrays, list[Array | None]]:
    """Return the tops of a layer that runs on the host, its new state, the next order, and the tops' numbers of rows.

    In traced code the layer is a callback, whose gradient is another one. It gets the valid rows of its bottoms, as a
    function of NumPy arrays does, or one of JAX arrays that depends on all rows.

    Args:
        ctx: the layer's context.
        blobs, bottoms: the layer's arrays.
        locate_errors: returns a context manager that adds the layer's name to errors after this call, such as a
            compiled program's.
        order: an array that the previous call in the pass returned, so that layers run in order; () for any order.
        calls: see `HostCall`.
        row_axes: where the code may be traced, the axis of each top along which the number of rows depends on values,
            or None. Such a top has the largest number of rows, and its last result is the number of valid ones.
    """
    impl = ctx.type.implementation
    host_function = impl if isinstance(impl, HostFunction) else None
    if ctx.type.instance is not None:  # users' layers have no random key
        ctx = ctx.replace(fold_in_args=None)
    key, restore = _split_pass(ctx.fold_in_args, ctx.device_index)
    counts = tuple(b.num_rows if isinstance(b, PaddedRows) else None for b in bottoms)
    bottom_axes = [b.origin.axis if isinstance(b, PaddedRows) else None for b in bottoms]
    bottoms = tuple(map(without_count, bottoms))
    tree: Any = jax.tree.structure((order, key, counts, tuple(blobs), bottoms))
    has_backward = host_function is None or ctx.type.gradient.backward is not None
    top_axes = row_axes or (None,) * ctx.num_tops
    run_layer, run_rule = (forward, backward) if host_function else _make_calls_in_callbacks()

    def take_rows(arrays: Sequence[Any], counts: Sequence[Any], axes: Sequence[int | None]) -> list[Any]:
        return [
            x if n is None or i is None else first_rows(x, int(n), i)
            for x, n, i in zip(arrays, counts, axes, strict=True)
        ]

    def infer_results(*types: Any) -> Sequence[Any]:
        if host_function and host_function.ragged_axis is not None and row_axes is None:
            raise LayerError(
                "runs on the host, and the number of rows of its tops depends on values, so JAX cannot trace it: "
                "call the net outside of JAX's transformations; only jax.grad is possible"
            )
        *_, blobs, bottoms = tree.unflatten(types)
        tops, state = infer_results_on_host(ctx, blobs, bottoms)
        # floats, since JAX has no tangents of integers that vary over devices
        counts = [jax.ShapeDtypeStruct((), jnp.float32) for axis in top_axes if axis is not None]
        return [*tops, *counts, *types[: len(order)], *state]

    def compute_results(*arrays: np.ndarray) -> Sequence[Any]:
        order, key, counts, blobs, bottoms = tree.unflatten(arrays)
        bottoms = take_rows(bottoms, counts, bottom_axes)
        tops, state = run_layer(ctx.replace(**restore(key)), blobs, bottoms)
        sizes = [np.float32(top.shape[i]) for top, i in zip(tops, top_axes, strict=True) if i is not None]
        return *tops, *sizes, *order, *state

    def run(*arguments: Any) -> Any:
        call_layer = HostCall(compute_results, infer_results, locate_errors, calls, top_axes)
        results = iter(call_layer(*jax.tree.leaves(arguments)))
        tops = tuple(itertools.islice(results, ctx.num_tops))
        top_counts = tuple(None if axis is None else next(results) for axis in top_axes)
        next_order = tuple(itertools.islice(results, len(order)))
        return (tops, next_order, tuple(results), top_counts), (*arguments[1:], top_counts, tops)

    def run_backward(residuals: Any, diffs: Any, needed: Any) -> Any:
        *_, blobs, bottoms, _, tops = residuals
        top_diffs, order_diffs, *_ = diffs
        if order and not any(jax.tree.leaves(needed[3:])):
            return order_diffs, None, None, None, None  # the gradient of an earlier layer follows
        if not has_backward:
            with locate_errors():
                raise LayerError(
                    "has no backward pass, but the gradient of an earlier layer or of an input requires it"
                )
        needed_by_net = ctx.propagate_down or (False,) * len(bottoms)
        backward_ctx = ctx.replace(propagate_down=tuple(map(operator.or_, needed_by_net, needed[4])))
        top_diffs = tuple(jnp.zeros_like(t) if d is None else d for d, t in zip(top_diffs, tops, strict=True))
        residual_tree: Any
        arrays, residual_tree = jax.tree.flatten((order_diffs, residuals, top_diffs))

        def compute_diffs(*arrays: np.ndarray) -> Sequence[Any]:
            order_diffs, (key, counts, blobs, bottoms, top_counts, tops), top_diffs = residual_tree.unflatten(arrays)
            bottoms = take_rows(bottoms, counts, bottom_axes)
            tops, top_diffs = (take_rows(x, top_counts, top_axes) for x in (tops, top_diffs))
            diffs = run_rule(backward_ctx.replace(**restore(key)), blobs, bottoms, tops, top_diffs)
            return jax.tree.leaves((order_diffs, diffs))

        def infer_diffs(*types: Any) -> Sequence[Any]:
            order_types, (_, _, blob_types, bottom_types, *_), _ = residual_tree.unflatten(types)
            return [*order_types, *blob_types, *bottom_types]

        diff_axes = (*(None for _ in (*order_diffs, *blobs)), *bottom_axes)
        results = iter(HostCall(compute_diffs, infer_diffs, locate_errors, calls, diff_axes)(*arrays))
        order_diffs, *others = (tuple(next(results) for _ in group) for group in (order_diffs, blobs, bottoms))
        return order_diffs, None, None, *others

    tops, order, state, top_counts = make_differentiable(run, run_backward)(order, key, counts, tuple(blobs), bottoms)
    return tops, state, order, [None if n is None else n.astype(jnp.int32) for n in top_counts]


def infer_results_on_host(ctx: Context, blobs: Sequence[Any], bottoms: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the shapes and dtypes of the tops of a layer that runs on the host, and of its new state."""
    impl = ctx.type.implementation
    if isinstance(impl, HostFunction):
        return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ctx.call(impl.top_shapes, *bottoms)], []
    tops, state = jax.eval_shape(functools.partial(call, ctx), tuple(blobs), tuple(bottoms))
    return list(tops), list(state)


def _make_calls_in_callbacks() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the calls of a function of JAX arrays, and of its gradient, for callbacks, which run in other threads."""
    try:
        x64, device = bool(jax.config.read("jax_enable_x64")), jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise LayerError(
            "runs on the CPU here, which JAX may not use: set JAX_PLATFORMS=cuda,cpu or the like"
        ) from error

    @contextlib.contextmanager
    def as_traced(ctx: Context) -> Iterator[None]:
        with jax.enable_x64(x64), jax.default_device(device), matmul_precision(ctx):  # of a thread each
            yield

    def run(ctx: Context, blobs: Sequence[Any], bottoms: Sequence[Any]) -> Any:
        with as_traced(ctx):
            return jax.tree.map(np.asarray, cached_call(ctx, ctx.fold_in_args, blobs, bottoms))

    def run_backward(ctx: Context, blobs: Any, bottoms: Any, tops: Any, top_diffs: Any) -> Any:
        with as_traced(ctx):
            _, pullback, _ = jax.vjp(
                lambda *arrays: cached_call(ctx, ctx.fold_in_args, *arrays), tuple(blobs), tuple(bottoms), has_aux=True
            )
            blob_diffs, bottom_diffs = jax.tree.map(np.asarray, pullback(tuple(map(jnp.asarray, top_diffs))))
            return _cast_diffs(blob_diffs, blobs), _cast_diffs(bottom_diffs, bottoms)

    return run, run_backward


def _split_pass(fold_in_args: Any, device_index: Any) -> tuple[Arrays, Callable[[Sequence[Any]], dict[str, Any]]]:
    """Return the values of a context that belong to one pass as arrays of numbers, and the function back."""
    tree: Any
    leaves, tree = jax.tree.flatten({"fold_in_args": fold_in_args, "device_index": device_index})
    implementations = [
        jax.random.key_impl(x) if isinstance(x, Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else None
        for x in leaves
    ]
    arrays = (x if i is None else jax.random.key_data(x) for x, i in zip(leaves, implementations, strict=True))

    def restore(arrays: Sequence[Any]) -> dict[str, Any]:
        values: dict[str, Any] = tree.unflatten(
            a if i is None else jax.random.wrap_key_data(a, impl=i)
            for a, i in zip(arrays, implementations, strict=True)
        )
        return values

    return tuple(arrays), restore


def _call_with_custom_backward(ctx: Context, blobs: Sequence[Array], bottoms: Sequence[Array]) -> tuple[Arrays, Arrays]:
    def run(key: Any, num_rows: Any, blobs: Arrays, bottoms: Arrays) -> Any:
        tops, state = forward(ctx.replace(fold_in_args=key, num_rows=num_rows), blobs, bottoms)
        return (tops, state), (key, num_rows, blobs, bottoms, tops)

    def run_backward(residuals: Any, diffs: Any, needed: Any) -> Any:
        key, num_rows, blobs, bottoms, tops = residuals
        with matmul_precision(ctx):  # JAX may call this function after the forward pass left the context manager
            backward_ctx = ctx.replace(fold_in_args=key, num_rows=num_rows)
            return None, None, *backward(backward_ctx, blobs, bottoms, tops, diffs[0])

    result: tuple[Arrays, Arrays] = make_differentiable(run, run_backward)(
        ctx.fold_in_args, ctx.num_rows, tuple(blobs), tuple(bottoms)
    )
    return result


def name_blobs(ctx: Context, blobs: Sequence[Any], bottoms: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a layer's params and its state, by name, in Caffe's order."""
    if not blobs:
        return {}, {}
    named = list(zip(blob_names(ctx, bottoms), blobs, strict=False))
    return (
        {name: blob for (name, learnable), blob in named if learnable},
        {name: blob for (name, learnable), blob in named if not learnable},
    )


def _split_result(ctx: Context, result: Any, old_state: Mapping[str, Any]) -> tuple[Arrays, Arrays]:
    impl = ctx.type.implementation
    tops, state = result if isinstance(impl, Traced) and impl.stateful else (result, {})
    new_state = tuple(state[name] for name in old_state) if isinstance(state, Mapping) and state else tuple(state)
    arrays = as_tuple(tops)
    for top in arrays:
        is_array = hasattr(top, "shape")
        require(is_array, f"forward must return an array, or a tuple with an array for each top, not {top!r}")
    return arrays, new_state


def _cast_diffs(diffs: Sequence[Any], arrays: Sequence[Array]) -> Arrays:
    # a host layer may run in a callback, where operations of JAX could wait for each other
    numpy = np if any(isinstance(a, np.ndarray) for a in arrays) else jnp
    cast_diffs = (
        (numpy.zeros_like(a) if d is None else numpy.asarray(d)).astype(a.dtype)
        for d, a in zip(diffs, arrays, strict=True)
    )
    return tuple(cast_diffs)

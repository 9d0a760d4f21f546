"""The interpreter: `run_schedule` loops over the parts of a schedule, and `compute_part` over the steps of a part."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from ...base.config import Kernels
from ...base.errors import LayerError
from ..graph import Layer
from ..layers import HostFunction, cross_replica
from ..layers.blob_checks import check_dtypes, checked
from ..layers.context import Context, Epilogue
from ..layers.dispatch import cached_call, call_on_host, infer_results_on_host
from ..layers.dtype_policy import cast_inputs, matmul_precision
from ..layers.host_call import callbacks_may_run_programs
from ..layers.row_padding import PaddedRows, RowsOrigin, count_marked_rows, rows_axis, strip_padding, without_count
from ..ops import compilation
from .schedule import ORDER, LayerSchedule, Part, Step, find_top_rows

log = logging.getLogger("caffejax.net")

Values = dict[str, jax.Array]
Arrays = tuple[jax.Array, ...]
Rows = Sequence[tuple[Any, RowsOrigin] | None]  # for each top, num_rows and origin of its `PaddedRows`, or None
VariableTrees = tuple[Mapping[str, Any], Mapping[str, Any]]  # a net's params and state


class PassInputs(NamedTuple):
    """Inputs of a forward pass.

    Attributes:
        params, state: a net's variables.
        blobs: input blobs by name: the tops of Input and data layers.
        key: PRNG key, or None if no layer is random. (pycaffe passes a tuple of a key and numbers to fold into the
            key.)
        perturbations: arrays of zeros that are added to blobs to compute the blobs' gradients (see `Net.loss`).
    """

    params: Mapping[str, Any]
    state: Mapping[str, Any]
    blobs: Mapping[str, jax.Array]
    key: Any
    perturbations: Mapping[str, jax.Array]


class PassOutputs(NamedTuple):
    """Outputs of a forward pass.

    Attributes:
        values: blobs by name. A blob that is overwritten in place has its last value. In traced code, blobs whose
            number of rows depends on values are `PaddedRows`.
        state: the state after the pass.
        loss: the sum of the weighted losses, a float32 scalar.
    """

    values: Values
    state: dict[str, Any]
    loss: Any


ComputePart = Callable[[Part, PassInputs, Values, frozenset[str] | None], PassOutputs]
"""A function that computes a part from the inputs of the pass and earlier blobs: the blobs that are named, or all."""


def compute_part(
    part: Part, inputs: PassInputs, earlier_blobs: Mapping[str, jax.Array], needed: frozenset[str] | None = None
) -> PassOutputs:
    """Run a part's steps in order. The function can be traced if the part has no host layers.

    Args:
        part: the part.
        inputs: the inputs of the pass.
        earlier_blobs: the blobs of earlier layers that the part reads.
        needed: the blobs to return. The default is all blobs that the part computes.
    """
    values: dict[str, Any] = dict(earlier_blobs)
    state, total = dict(inputs.state), jnp.zeros(())
    order: Arrays = (values.get(ORDER, jnp.zeros(())),) if part.calls else ()
    # divided when the blobs before it have values
    for step in chain.from_iterable(_divide_step(step, values) for step in part.steps):
        layer = step.first_layer
        with jax.named_scope(layer.name), layer.locate_errors(), matmul_precision(layer.context):
            new_state: Arrays = ()
            rows: Rows
            if layer.type.on_host:
                tops, new_state, order, rows = _call_on_host(layer, inputs, state, values, order, part)
            elif layer.type.is_input:
                blobs = [inputs.blobs[top] for top in layer.tops]
                tops = layer.transform_on_device([without_count(blob) for blob in blobs])
                rows = [(blob.num_rows, blob.origin) if isinstance(blob, PaddedRows) else None for blob in blobs]
            elif _find_top_rows(layer, values) is None:
                tops, new_state, _, rows = _call_on_host(layer, inputs, state, values, (), replace(part, calls=None))
            else:
                tops, new_state, rows = _compute_tops(step, inputs, state, values)
                if part.tracks_rows and layer.type.traits.pads_rows:
                    rows = [
                        (count_marked_rows(top), RowsOrigin(layer.key, rows_axis(top), is_marked=True)) for top in tops
                    ]
            tops = cross_replica.reduce_scalar_tops(layer.context, tops, layer.loss_weights)
        _store_state(layer, new_state, state)
        tops = tuple(
            # Caffe's diff of an in-place blob is the gradient of its first value
            top + inputs.perturbations[name].astype(top.dtype)
            if name in inputs.perturbations and name not in values
            else top
            for name, top in zip(layer.tops, tops, strict=True)
        )
        for name, top, weight, num_and_origin in zip(layer.tops, tops, layer.loss_weights, rows, strict=True):
            named_top = checkpoint_name(top, name)  # policies of jax.checkpoint save blobs by name
            values[name] = named_top if num_and_origin is None else PaddedRows(named_top, *num_and_origin)
            if weight:
                terms = top if num_and_origin is None else PaddedRows(top, *num_and_origin).zero_padding()
                loss = jnp.sum(terms, dtype=jnp.promote_types(top.dtype, jnp.float32))
                total += weight * cross_replica.psum_loss(layer.context, loss)  # shared tops count once
    if order:  # the loss depends on it, so that the last call is kept, and its place in the backward pass
        values[ORDER] = order[0]
        total += cross_replica.psum_loss(part.layers[0].context, order[0])
    names = part.writes if needed is None else part.writes & needed
    return PassOutputs({name: values[name] for name in values if name in names}, state, total)


def run_schedule(
    schedule: LayerSchedule,
    inputs: PassInputs,
    *,
    earlier_blobs: Mapping[str, jax.Array] = MappingProxyType({}),
    output_names: Collection[str] | None = None,
    compute: ComputePart = compute_part,
) -> PassOutputs:
    """Run a schedule.

    Args:
        schedule: the schedule.
        inputs: the inputs of the pass.
        earlier_blobs: for a range of layers, the blobs that earlier layers made.
        output_names: the blobs to return; default: all. Other blobs are released after their last reader.
        compute: the function that computes each part. It can also observe the blobs that the part reads and computes.
    """
    outputs = PassOutputs(dict(earlier_blobs), dict(inputs.state), jnp.zeros(()))
    for _, _, outputs_so_far in iterate_parts(
        schedule, inputs, earlier_blobs=earlier_blobs, output_names=output_names, compute=compute
    ):
        outputs = outputs_so_far
    return outputs


def iterate_parts(
    schedule: LayerSchedule,
    inputs: PassInputs,
    *,
    earlier_blobs: Mapping[str, jax.Array] = MappingProxyType({}),
    output_names: Collection[str] | None = None,
    compute: ComputePart = compute_part,
) -> Iterator[tuple[Part, Values, PassOutputs]]:
    """Run a schedule part by part; yield each part with the blobs that it read and the outputs so far.

    For the arguments, see `run_schedule`.
    """
    values, state, total = dict(earlier_blobs), dict(inputs.state), jnp.zeros(())
    for i, part in enumerate(schedule.parts):
        needed = None if output_names is None else schedule.blobs_needed_after[i].union(output_names)
        reads = {name: values[name] for name in part.reads if name in values}
        outputs = compute(part, select_inputs(inputs._replace(state=state), part), reads, needed)
        values |= outputs.values
        if needed is not None:
            values = {name: value for name, value in values.items() if name in needed}
        state |= outputs.state
        total += outputs.loss
        yield part, reads, PassOutputs(dict(values), dict(state), total)  # copies: later parts change both


def select_inputs(inputs: PassInputs, part: Part) -> PassInputs:
    """Return the inputs of a pass that a part uses."""
    return inputs._replace(
        params=part.select(inputs.params),
        state=part.select(inputs.state),
        blobs={name: value for name, value in inputs.blobs.items() if name in part.writes},
        perturbations={name: value for name, value in inputs.perturbations.items() if name in part.writes},
    )


def _compute_tops(
    step: Step, inputs: PassInputs, state: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[Arrays, Arrays, Rows]:
    """Return a step's tops, the new state of the step's first layer, and the rows of the tops."""
    layer, *fused = step.layers
    padded = {name: blob for name in layer.bottoms if isinstance(blob := values[name], PaddedRows)}
    rows: Rows = [None] * len(layer.tops)
    num_rows = None
    if padded:
        num_rows, origins = next(iter(padded.values())).num_rows, _find_top_rows(layer, values)
        rows = [None if origin is None else (num_rows, origin) for origin in origins or ()]
        values = {name: without_count(values[name]) for name in layer.bottoms}
        if layer.counts_rows:
            values |= {name: blob.zero_padding() for name, blob in padded.items()}
        else:
            num_rows = None
    params, bottoms = prepare_layer_inputs(layer, inputs.params, state, values)
    context = cross_replica.with_mesh_axis(layer.context, bottoms)
    epilogues = [Epilogue(later.context, _get_params(later, inputs.params, state)) for later in fused]
    key = None if fused else layer.make_fold_in_args(inputs.key)
    return *cached_call(context, key, params, bottoms, num_rows, epilogues), rows


def _divide_step(step: Step, values: Mapping[str, Any]) -> tuple[Step, ...]:
    """Return a step, or its layers as steps if the first one gets the valid rows of its bottoms on the host."""
    if len(step.layers) > 1 and _find_top_rows(step.first_layer, values) is None:
        return tuple(Step((layer,)) for layer in step.layers)
    return (step,)


def _find_top_rows(layer: Layer, values: Mapping[str, Any]) -> Sequence[RowsOrigin | None] | None:
    origins = {name: blob.origin for name in layer.bottoms if isinstance(blob := values[name], PaddedRows)}
    return find_top_rows(layer, origins)


def _call_on_host(
    layer: Layer,
    inputs: PassInputs,
    state: Mapping[str, Any],
    values: Mapping[str, Any],
    order: Arrays,
    part: Part,
) -> tuple[Arrays, Arrays, Arrays, Rows]:
    """Return the tops of a layer that runs on the host, its new state, the order for the next one, and the tops' rows.

    It is a host layer, or one that depends on all rows of its bottoms, of which some have rows of padding.
    """
    padded = {name: blob for name in layer.bottoms if isinstance(blob := values[name], PaddedRows)}
    arrays = {name: without_count(values[name]) for name in layer.bottoms}
    params, bottoms = prepare_layer_inputs(layer, inputs.params, state, arrays)
    if part.calls and not layer.need_backward:  # otherwise the order would ask for its backward pass
        params, bottoms = jax.lax.stop_gradient((params, bottoms))
    context = layer.context.replace(
        fold_in_args=layer.make_fold_in_args(inputs.key),
        propagate_down=layer.bottom_need_backward,
        device_index=cross_replica.find_device_index(layer.context) if part.calls else None,
    )
    blobs = [
        padded[name].replace_array(x) if name in padded else x for name, x in zip(layer.bottoms, bottoms, strict=True)
    ]
    origins = None
    if part.tracks_rows or padded:
        origins = _find_top_rows(layer, values)
        if origins is None:
            origins = _infer_top_rows(layer, context, params, blobs)
    implementation, new_state = layer.type.implementation, tuple[jax.Array, ...]()
    with checked(context, params, blobs):
        if origins is not None and isinstance(implementation, HostFunction) and implementation.traced:
            tops, num_rows = context.call(implementation.traced, *blobs)
            counts = [num_rows] * len(tops)
        else:
            row_axes = None if origins is None else [None if origin is None else origin.axis for origin in origins]
            tops, new_state, order, counts = call_on_host(
                context, params, blobs, layer.locate_errors, order, part.calls, row_axes
            )
    known = {blob.origin: blob.num_rows for blob in padded.values()}
    rows = [
        None if origin is None else (known.get(origin, n), origin)
        for origin, n in zip(origins or (None,) * len(tops), counts, strict=True)
    ]
    return tops, new_state, order, rows


def _infer_top_rows(layer: Layer, context: Context, params: Arrays, bottoms: Sequence[Any]) -> list[RowsOrigin | None]:
    """Return where the rows of the tops come from, of a layer that depends on all rows of bottoms with padding.

    The axis of a top that grows with the bottoms has such rows. They are those of the bottoms if there are as many.

    Raises:
        LayerError: if the callback of the layer cannot run, or if the layer does not take other numbers of rows.
    """
    name, blob = next((n, b) for n, b in zip(layer.bottoms, bottoms, strict=True) if isinstance(b, PaddedRows))
    reason = f"depends on all rows of '{name}', whose number depends on values, so JAX cannot trace it"
    remedy = "call the net outside of JAX's transformations; only jax.grad is possible"
    if context.config.axis_name is not None:
        raise LayerError(f"{reason}: train on one device")
    if not layer.type.on_host and not callbacks_may_run_programs():
        raise LayerError(f"{reason} on a single CPU: set the environment variable NPROC=2, or {remedy}")

    def infer_shapes(factor: int) -> list[tuple[int, ...]]:
        types = [
            jax.ShapeDtypeStruct(
                [n * factor if isinstance(x, PaddedRows) and i == x.origin.axis else n for i, n in enumerate(x.shape)],
                x.dtype,
            )
            for x in bottoms
        ]
        return [top.shape for top in infer_results_on_host(context, params, types)[0]]

    try:
        larger_shapes, shapes = infer_shapes(2), infer_shapes(1)  # users' layers keep the shapes of the last call
    except Exception as error:  # such as one about a bottom whose number of rows is fixed
        raise LayerError(f"{reason}: {remedy}") from error
    has_other_rows = any(isinstance(x, PaddedRows) and x.origin != blob.origin for x in bottoms)
    origins: list[RowsOrigin | None] = []
    for i, (shape, larger_shape) in enumerate(zip(shapes, larger_shapes, strict=True)):
        axes = [axis for axis, (n, m) in enumerate(zip(shape, larger_shape, strict=True)) if n != m]
        if len(axes) > 1:
            raise LayerError(f"{reason}: {remedy}")
        keeps_rows = axes == [blob.origin.axis] and shape[axes[0]] == blob.shape[axes[0]] and not has_other_rows
        origins.append(None if not axes else blob.origin if keeps_rows else RowsOrigin(f"{layer.key}/{i}", axes[0]))
    return origins


def prepare_layer_inputs(
    layer: Layer, params: Mapping[str, Any], state: Mapping[str, Any], values: Mapping[str, jax.Array]
) -> tuple[Arrays, Arrays]:
    """Return a layer's params and bottoms, in the dtypes in which the layer computes.

    Gradients are stopped at bottoms and params that do not need them.
    """
    bottoms = [
        jax.lax.stop_gradient(values[name]) if stops else values[name]
        for name, stops in zip(layer.bottoms, layer.gradient_stops, strict=True)
    ]
    check_dtypes(layer.context, layer.bottoms, bottoms)
    return cast_inputs(layer.context, _get_params(layer, params, state), bottoms)


def _get_params(layer: Layer, params: Mapping[str, Any], state: Mapping[str, Any]) -> Arrays:
    arrays = layer.arrays(params, state)
    return tuple(
        a if p.need_backward else jax.lax.stop_gradient(a) for p, a in zip(layer.all_params, arrays, strict=True)
    )


def _store_state(layer: Layer, values: Sequence[jax.Array], state: dict[str, Any]) -> None:
    """Store a layer's new state in `state`, so that later layers that share it read the new values."""
    state_params = [p for p in layer.all_params if not p.spec.learnable]
    for param, value in zip(state_params, values, strict=False):  # no values: the layer has left its state unchanged
        state[param.owner.layer] = {**state[param.owner.layer], param.owner.name: value}


class CompiledParts:
    """A `ComputePart` that compiles each part of a schedule separately, for nets with host layers.

    The shapes of a host layer's tops may differ between passes. The layers after it are compiled again for each new
    shape, and a message is logged. It accepts only concrete arrays, even under `jax.grad`.

    Args:
        kernels: the implementation of operations, as in `NetConfig.kernels`.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._compiled_parts: dict[Any, Any] = {}
        self._compiled_shapes: dict[Any, set[Any]] = {}  # by the part's key: the row counts or shapes compiled so far

    def __call__(
        self,
        part: Part,
        inputs: PassInputs,
        earlier_blobs: Mapping[str, jax.Array],
        needed: frozenset[str] | None = None,
    ) -> PassOutputs:
        """Run a part; see `compute_part`."""
        key = part.key, needed
        if key not in self._compiled_parts:
            function = partial(compute_part, part, needed=needed)
            self._compiled_parts[key] = function if part.mode == "host" else compilation.Jitted(function, self._kernels)
        compute = self._compiled_parts[key]
        # perturbations have the rows of Caffe's blobs, so they cannot be added to padded ones
        row_counts = {
            len(v) for name, v in earlier_blobs.items() if name in part.bucketed_inputs and not inputs.perturbations
        }
        if len(row_counts) != 1:
            self._log_shapes(part, earlier_blobs)
            outputs = compute(inputs, earlier_blobs)
            return strip_top_padding(part, outputs) if part.mode == "trimmed" else outputs
        (n,) = row_counts
        padded_rows = 1 << (n - 1).bit_length() if n else 1
        sizes = self._compiled_shapes.setdefault(part.key, set())
        if padded_rows not in sizes:
            sizes.add(padded_rows)
            log.info(
                "Compiling layers %s for up to %d rows (%d sizes so far)", _format_layers(part), padded_rows, len(sizes)
            )

        def pad(v: jax.Array) -> jax.Array:
            return jnp.pad(v, [(0, padded_rows - n)] + [(0, 0)] * (v.ndim - 1))

        outputs = compute(
            inputs, {name: pad(v) if name in part.bucketed_inputs else v for name, v in earlier_blobs.items()}
        )
        return outputs._replace(values={name: v[:n] for name, v in outputs.values.items()})

    def _log_shapes(self, part: Part, earlier_blobs: Mapping[str, jax.Array]) -> None:
        compiled_shapes = self._compiled_shapes.setdefault(part.key, set())
        shapes = tuple(v.shape for v in earlier_blobs.values())
        if part.mode != "traced" or shapes in compiled_shapes:
            return
        compiled_shapes.add(shapes)
        if len(compiled_shapes) > 1:
            text = ", ".join(f"{name} {shape}" for name, shape in zip(earlier_blobs, shapes, strict=True))
            log.info("Compiling layers %s for %s (%d shapes so far)", _format_layers(part), text, len(compiled_shapes))


def strip_top_padding(part: Part, outputs: PassOutputs) -> PassOutputs:
    """Remove the padded rows from the tops of a part whose layers pad their tops.

    Raises:
        LayerError: if the outputs are traced, as those with perturbations are, so that the number of rows is not known.
    """
    if any(isinstance(top, jax.core.Tracer) for top in outputs.values.values()):
        with part.layers[0].locate_errors():
            raise LayerError(
                "has tops whose number of rows depends on values, and layers that run on the host follow, so its tops "
                "cannot be traced"
            )
    return outputs._replace(values={name: strip_padding(top) for name, top in outputs.values.items()})


def _format_layers(part: Part) -> str:
    return f"{part.layers[0].name} .. {part.layers[-1].name}"

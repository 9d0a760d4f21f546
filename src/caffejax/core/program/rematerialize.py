"""Rematerialization: recompute layers in the backward pass instead of storing their residuals.

There are three steps. `measure_residuals` traces the layers and counts the bytes that each saves for the backward pass.
`search_groups` chooses the fewest layers to recompute such that training fits into a memory limit. `apply_groups` makes
each group a part of the schedule, and the interpreter runs these parts by `rematerialize`.

`jax.checkpoint` with a policy is not sufficient. A policy decides by primitive which residuals are saved, and knows
neither their sizes nor a limit, so a search would still be needed. On CPUs it saves no memory: XLA removes the
optimization barrier by which `jax.checkpoint` separates the two runs, merges the runs, and stores every residual. With
jax 0.10, the gradient of 12 residual blocks needs 8.3 MB of temporary memory without rematerialization, 8.3 MB with
`jax.checkpoint` over the groups chosen here or over the full net (policies `nothing_saveable`, `dots_saveable`), and
4.8 MB with `rematerialize`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.host_memory import get_memory_budget
from ...base.human_readable import format_bytes, format_count
from ..layers.row_padding import PaddedRows, without_count
from ..ops.custom_gradient import make_differentiable
from .interpreter import PassInputs, PassOutputs, Values, compute_part, run_schedule
from .schedule import LayerSchedule, Part, Step

log = logging.getLogger("caffejax.net")

_PARAM_COPIES = 3  # the parameters, their gradients and the solver's history
_HALVINGS = 40
_INPUT = ""  # the origin of parameters and other inputs, which are in memory in any case
_VIEWS = {"transpose", "reshape", "squeeze", "expand_dims", "layout_constraint", "stop_gradient", "copy", "name"}


@dataclass(frozen=True)
class RematGroups:
    """Consecutive groups of layers. All groups except the last are recomputed in the backward pass.

    Attributes:
        groups: the steps of each group, in the order of the net.
        fixed: the bytes in use throughout training: parameters, gradients, history, statistics, a batch.
        peak: the estimated peak memory of training in bytes: `fixed`, activations and their diffs.
        peak_without_remat: the estimated peak memory in bytes without recomputation.
        fits: whether `peak` is within the limit. If not, `peak` is the lowest possible peak.
    """

    groups: tuple[tuple[Step, ...], ...]
    fixed: int
    peak: int
    peak_without_remat: int
    fits: bool

    @property
    def num_recomputed(self) -> int:
        """The number of layers that are recomputed."""
        return sum(len(step.layers) for group in self.groups[:-1] for step in group)


class Rematerializer:
    """An object that chooses the parts of a schedule to recompute, once for each set of input shapes.

    Args:
        schedule: a schedule with one part, in which host layers are callbacks.
        limit: the bytes that training may use, including parameters, gradients and history; default: the device's free
            memory.
    """

    def __init__(self, schedule: LayerSchedule, limit: int | None = None) -> None:
        self._schedule, self._limit = schedule, limit
        self._groups_by_shapes: dict[Any, RematGroups] = {}

    def choose_groups(self, inputs: PassInputs) -> RematGroups:
        """Return the groups for the shapes of `inputs` (arrays or `jax.ShapeDtypeStruct`)."""
        shapes = tuple((name, x.shape, x.dtype) for name, x in sorted(inputs.blobs.items()))
        if shapes not in self._groups_by_shapes:
            limit = get_memory_budget(jax.devices()[0]) if self._limit is None else self._limit
            self._groups_by_shapes[shapes] = groups = choose_remat_groups(self._schedule, inputs, limit)
            _log_groups(groups, limit, len(self._schedule.graph.layers))
        return self._groups_by_shapes[shapes]

    def make_schedule(self, inputs: PassInputs) -> LayerSchedule:
        """Return the schedule for the shapes of `inputs`, with the parts to recompute marked."""
        arrays = {name: without_count(blob) for name, blob in inputs.blobs.items()}
        return apply_groups(self._schedule, self.choose_groups(inputs._replace(blobs=arrays, perturbations={})))


def choose_remat_groups(schedule: LayerSchedule, inputs: PassInputs, limit: int) -> RematGroups:
    """Choose the groups to recompute for a memory limit.

    Args:
        schedule: a schedule with one part, in which host layers are callbacks.
        inputs: the inputs of a pass (arrays or `jax.ShapeDtypeStruct`).
        limit: the bytes that training may use.
    """
    fixed = _PARAM_COPIES * count_bytes(inputs.params) + count_bytes(inputs.state) + count_bytes(inputs.blobs)
    units, values = measure_residuals(schedule, inputs)
    fixed += sum(unit.live_bytes for unit in units if _is_callback(unit.steps[0]))  # they are not recomputed
    return search_groups(units, values, limit, fixed)


def _log_groups(groups: RematGroups, limit: int, layers: int) -> None:
    peak, peak_without = format_bytes(groups.peak), format_bytes(groups.peak_without_remat)
    if groups.num_recomputed:
        log.info(
            f"Recomputing {groups.num_recomputed} of {layers} layers in "
            f"{format_count(len(groups.groups) - 1, 'group')}: training takes about {peak} instead of {peak_without}; "
            f"the limit is {format_bytes(limit)}."
        )
    if not groups.fits:
        log.warning(
            f"training takes about {peak}, more than the limit of {format_bytes(limit)}, even with recomputation; "
            "use a smaller batch, and a larger iter_size to keep the number of examples per update"
        )


# -- measure: the residuals of each unit of layers


@dataclass
class Value:
    """An array that one unit makes and later units read.

    Attributes:
        bytes: its size; 0 for the net's inputs, which are in memory in any case.
        producer, last_consumer: indices of the unit that makes the array and of the last unit that reads it, under any
            blob name.
        is_residual: whether it is stored for the backward pass.
    """

    bytes: int
    producer: int
    last_consumer: int
    is_residual: bool = False


@dataclass
class Unit:
    """Consecutive layers that are recomputed together: a layer, the in-place layers after it, and its splits.

    Attributes:
        steps: the steps.
        residuals: the bytes of the arrays made in this unit that are stored for its backward pass, or for the
            backward pass of a reader of its tops.
        live_bytes: the bytes of its bottoms and tops, which is also the size of the diffs in its backward pass.
    """

    steps: tuple[Step, ...]
    residuals: int
    live_bytes: int


def measure_residuals(schedule: LayerSchedule, inputs: PassInputs) -> tuple[list[Unit], list[Value]]:
    """Trace a schedule; return its steps as units, in order, and the arrays that pass between units.

    Args:
        schedule: a schedule with one part, in which host layers are callbacks.
        inputs: the inputs of a pass (arrays or `jax.ShapeDtypeStruct`).
    """
    (part,) = schedule.parts
    parts = tuple(replace(part, steps=steps) for steps in _group_in_place(part.steps))
    units: list[Unit] = []
    values: list[Value] = []
    current_values: dict[str, Value] = {}  # by blob name, at this point of the pass

    def trace(part: Part, inputs: PassInputs, earlier_blobs: Any, needed: frozenset[str] | None) -> PassOutputs:
        index = len(units)
        traced_tops, residuals, state = _trace_unit(part, inputs, earlier_blobs)
        origins: dict[Any, Value] = {name: current_values[name] for name in earlier_blobs}
        for value in origins.values():
            value.last_consumer = index
        for name, (origin, shape) in traced_tops.items():
            if origin not in origins:
                origins[origin] = Value(0 if origin == _INPUT else count_bytes(shape), index, index)
                values.append(origins[origin])
            current_values[name] = origins[origin]
        inner_bytes = 0
        for origin, count in residuals.items():
            if origin in origins:
                origins[origin].is_residual = True
            elif origin != _INPUT:
                inner_bytes += count
        tops: Any = {name: shape for name, (_, shape) in traced_tops.items()}
        units.append(Unit(part.steps, inner_bytes, count_bytes((dict(earlier_blobs), tops))))
        return PassOutputs(tops, state, jnp.zeros(()))

    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), inputs)
    run_schedule(replace(schedule, parts=parts), shapes, compute=trace)
    for value in values:  # readers may have made them residuals
        units[value.producer].residuals += value.bytes if value.is_residual else 0
    return units, values


def _group_in_place(steps: Iterable[Step]) -> Iterator[tuple[Step, ...]]:
    unit: list[Step] = []
    for step in steps:
        is_alone = _is_callback(step) or (unit and _is_callback(unit[-1]))
        is_new = not step.first_layer.is_in_place and not all(s.first_layer.is_inserted_split for s in unit)
        if unit and (is_alone or is_new):
            yield tuple(unit)
            unit = []
        unit.append(step)
    yield tuple(unit)


def _trace_unit(
    part: Part, inputs: PassInputs, earlier_blobs: Mapping[str, Any]
) -> tuple[dict[str, tuple[Any, jax.ShapeDtypeStruct]], dict[Any, int], Any]:
    """Return the origin and shape of each top of a unit, the bytes of its residuals by their origins, and its state.

    The origin of an array is the name of a bottom, `_INPUT`, or for one that the unit makes a unique object.
    """
    names = sorted(part.writes)

    def trace_with_pullback(params: Any, earlier_blobs: Any, other_inputs: PassInputs) -> Any:
        def forward(params: Any, earlier_blobs: Any) -> Any:
            result = compute_part(part, other_inputs._replace(params=params), earlier_blobs)
            return (result.loss, [without_count(result.values[name]) for name in names]), result.state

        (_, tops), pullback, state = jax.vjp(forward, params, earlier_blobs, has_aux=True)
        return tops, jax.tree.leaves(pullback), state

    traced, (tops, residuals, state) = jax.make_jaxpr(trace_with_pullback, return_shape=True)(
        inputs.params, dict(earlier_blobs), inputs
    )
    params, other_inputs = ([_INPUT] * len(jax.tree.leaves(tree)) for tree in (inputs.params, inputs))
    origins = _find_origins(traced.jaxpr, [*params, *sorted(earlier_blobs), *other_inputs])
    origins_and_shapes = dict(zip(names, zip(origins, tops, strict=False), strict=True))
    sizes = {origin: count_bytes(x) for origin, x in zip(origins[len(tops) :], residuals, strict=False)}
    return origins_and_shapes, sizes, state


def _find_origins(jaxpr: Any, arguments: Sequence[Any]) -> list[Any]:
    """Return the origin of each result of a jaxpr. A view, such as a reshaped array, has the origin of its base array.

    Args:
        jaxpr: a `jax.extend.core.Jaxpr`.
        arguments: the origin of each argument. The origin of an array made inside the jaxpr is its variable.
    """
    origins = {**dict.fromkeys(jaxpr.constvars, _INPUT), **dict(zip(jaxpr.invars, arguments, strict=True))}

    def find_origin(var: Any) -> Any:
        return _INPUT if hasattr(var, "val") else origins.get(var, var)  # a literal needs no memory

    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in ("jit", "pjit"):
            origins.update(
                zip(eqn.outvars, _find_origins(eqn.params["jaxpr"].jaxpr, [*map(find_origin, eqn.invars)]), strict=True)
            )
        elif name in _VIEWS:
            origins[eqn.outvars[0]] = find_origin(eqn.invars[0])
    return [find_origin(v) for v in jaxpr.outvars]


def count_bytes(tree: Any) -> int:
    """Return the total bytes of all arrays in a tree."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


# -- search: the groups that recompute the fewest layers


def search_groups(units: Sequence[Unit], values: Sequence[Value], limit: int, fixed: int = 0) -> RematGroups:
    """Choose the groups that recompute the fewest layers within a memory limit.

    In the backward pass of a group, three kinds of arrays are in memory: the group's residuals, diffs, and the arrays
    that each earlier group has made for later groups. The last group is not recomputed, because its backward pass
    directly follows its forward pass. It starts as early as memory allows. The ends of the other groups are chosen such
    that the arrays that these groups make for later groups have the fewest bytes.

    Args:
        units, values: from `measure_residuals`.
        limit: the bytes that training may use.
        fixed: the bytes that are in use throughout training; they count towards the limit.
    """
    group_bytes, crossing_bytes = _measure_groups(units, values)
    total, find_cuts = group_bytes[0, -1], partial(_find_cuts, group_bytes, crossing_bytes)
    cuts = find_cuts(limit - fixed)
    fits = cuts is not None
    if cuts is None:  # find the lowest reachable peak by bisection
        low, high = float(limit - fixed), float(total)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if find_cuts(middle) is None else (low, middle)
        cuts = find_cuts(high) or ([0], total)
    starts, peak = cuts
    groups = [
        tuple(step for unit in units[a:b] for step in unit.steps)
        for a, b in zip(starts, [*starts[1:], len(units)], strict=True)
    ]
    return RematGroups(tuple(groups), fixed, fixed + int(peak), fixed + int(total), fits)


def _measure_groups(units: Sequence[Unit], values: Sequence[Value]) -> tuple[np.ndarray, np.ndarray]:
    """Return the memory that each possible group of consecutive units needs, arrays of shape (units + 1, units + 1).

    Entry [i, j] is for the group of units i to j - 1: the bytes of residuals and diffs in its backward pass, infinite
    for an empty group, and the bytes of the arrays that it makes for later groups.
    """
    n = len(units)
    crossing_bytes = np.zeros((n + 1, n + 1))
    for v in values:
        crossing_bytes[: v.producer + 1, v.producer + 1 : v.last_consumer + 1] += v.bytes
    residuals = np.concatenate([[0], np.cumsum([float(u.residuals) for u in units])])
    live = np.array([float(u.live_bytes) for u in units])
    group_bytes = np.full((n + 1, n + 1), np.inf)
    for start in range(n):
        max_live = np.maximum.accumulate(live[start:])
        group_bytes[start, start + 1 :] = residuals[start + 1 :] - residuals[start] + max_live
    return group_bytes, crossing_bytes


def _find_cuts(group_bytes: np.ndarray, crossing_bytes: np.ndarray, limit: float) -> tuple[list[int], float] | None:
    """Return the index of the first unit of each group, and the peak memory in bytes.

    The result is None if no grouping stays within the limit.
    """
    n = len(group_bytes) - 1
    crossing_before = np.full(n, np.inf)  # by unit: the fewest bytes that cross the ends of the groups before it
    crossing_before[0] = 0
    previous = np.zeros(n, int)
    for end in range(1, n):
        within_limit = crossing_before[:end] + group_bytes[:end, end] <= limit
        totals = np.where(within_limit, crossing_before[:end] + crossing_bytes[:end, end], np.inf)
        previous[end] = np.argmin(totals)
        crossing_before[end] = totals[previous[end]]
    last_starts = np.flatnonzero(crossing_before + group_bytes[:n, n] <= limit)
    if not last_starts.size:
        return None
    starts = [int(last_starts[0])]
    while starts[0]:
        starts.insert(0, int(previous[starts[0]]))
    ends = [*starts[1:], n]
    return starts, float(max(crossing_before[a] + group_bytes[a, b] for a, b in zip(starts, ends, strict=True)))


# -- apply: parts that the interpreter recomputes


def apply_groups(schedule: LayerSchedule, groups: RematGroups) -> LayerSchedule:
    """Return the schedule with a part for each group. All parts except the last are recomputed in the backward pass.

    Each callback is a separate part, which runs once.
    """
    (part,) = schedule.parts
    *recomputed_groups, last_group = groups.groups
    pieces = ((once, tuple(steps)) for group in recomputed_groups for once, steps in groupby(group, _is_callback))
    parts = (
        replace(part, steps=steps) if once else replace(part, steps=steps, mode="remat", calls=None)
        for once, steps in pieces
    )
    return replace(schedule, parts=(*parts, replace(part, steps=last_group)))


def _is_callback(step: Step) -> bool:
    return step.first_layer.type.on_host and not step.first_layer.type.has_traced_form


def compute_part_with_remat(
    part: Part, inputs: PassInputs, earlier_blobs: Values, needed: frozenset[str] | None = None
) -> PassOutputs:
    """Run a part like `compute_part`. If the part is marked "remat", it is recomputed in the backward pass."""
    if part.mode != "remat":
        return compute_part(part, inputs, earlier_blobs, needed)

    def compute(inputs: PassInputs, earlier_blobs: Any) -> Any:
        result = compute_part(part, inputs, earlier_blobs, needed)
        return (_convert_counts(result.values, jnp.float32), result.loss), result.state

    (values, loss), state = rematerialize(compute)(inputs, dict(earlier_blobs))
    return PassOutputs(_convert_counts(values, jnp.int32), state, loss)


def _convert_counts(values: Values, dtype: Any) -> Values:
    """Return blobs with numbers of rows of another dtype, as JAX has no tangents of integers that vary over devices."""
    return {
        name: PaddedRows(blob.array, blob.num_rows.astype(dtype), blob.origin) if isinstance(blob, PaddedRows) else blob
        for name, blob in values.items()
    }


def rematerialize(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function that computes `function`, and whose backward pass runs `function` again.

    `function` maps (inputs, earlier_blobs) to (result, aux).

    The residuals of the first run are not stored. No gradient passes through `aux`. The second run depends on the diffs
    of the result; otherwise XLA would merge the two runs and store every residual (see the module's docstring).
    """

    def forward(inputs: Any, earlier_blobs: Any) -> Any:
        return function(inputs, earlier_blobs), (inputs, earlier_blobs)

    def backward(residuals: Any, diffs: Any, needed: Any) -> Any:
        inputs, earlier_blobs = residuals
        token = _make_token(diffs[0])
        inputs = inputs._replace(blobs=_depend_on(token, inputs.blobs))
        result, pullback, _ = jax.vjp(function, inputs, _depend_on(token, earlier_blobs), has_aux=True)
        # numbers of rows are integers, without diffs
        return pullback(
            jax.tree.map(lambda x, d: np.zeros(x.shape, jax.dtypes.float0) if d is None else d, result, diffs[0])
        )

    return make_differentiable(forward, backward)


def _make_token(diffs: Any) -> jax.Array:
    """Return a boolean scalar that depends on every floating-point array: True if the first element of any is NaN."""
    first_elements = [x.ravel()[0] for x in jax.tree.leaves(diffs) if jnp.issubdtype(x.dtype, jnp.floating) and x.size]
    token: jax.Array = jnp.any(jnp.stack([jnp.isnan(x) for x in first_elements]))
    return token


def _depend_on(token: jax.Array, tree: Any) -> Any:
    """Return a tree of arrays with the same values, made to depend on a token.

    If the token is True, floating-point values become NaN and other values 0. The diffs from which the token was
    computed contain NaN in that case.
    """

    def depend(x: jax.Array) -> jax.Array:
        return jnp.where(token, jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0, x).astype(x.dtype)

    return jax.tree.map(depend, tree)

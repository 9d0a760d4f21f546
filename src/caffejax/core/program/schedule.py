"""Schedules: the order and grouping of a graph's layers, and how each group runs.

`schedule_layers` makes a net's schedule in two passes: `split_at_host_layers` and `fuse`. A third pass, in
`rematerialize`, marks the parts to recompute in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby, takewhile
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ...base.variables import Blobs
from ..graph import Graph, Layer
from ..layers import HostFunction
from ..layers.context import Epilogue
from ..layers.host_call import HostCalls
from ..layers.row_padding import PaddedRows, RowsOrigin, first_rows, matching_rows_axis, num_valid_rows

Mode = Literal["traced", "bucketed", "trimmed", "host", "remat"]

ORDER = ""  # the blob by which host layers that run once a pass depend on the one before them; it is 0
_DESCRIPTIONS: Mapping[Mode, str] = {
    "traced": "compiled",
    "bucketed": "compiled for rows padded to a power of two",
    "trimmed": "compiled, padding rows removed from the tops",
    "host": "on the host",
    "remat": "compiled, and run again in the backward pass",
}


@dataclass(frozen=True, eq=False)
class Step:
    """A layer, and the in-place layers after it that are fused with it."""

    layers: tuple[Layer, ...]

    @property
    def first_layer(self) -> Layer:
        """The layer with which the other layers of the step are fused."""
        return self.layers[0]


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive steps that run together.

    Attributes:
        steps: the steps.
        mode: how the part runs. "traced": together with the code around it. "bucketed": compiled for row counts padded
            to powers of two. "trimmed": compiled separately, with the padded rows removed from its tops. "host": in
            Python. "remat": like "traced", and recomputed in the backward pass.
        bucketed_inputs: if the part is "bucketed", the blobs that it reads and whose row count depends on the data.
        tracks_rows: whether blobs whose number of rows depends on values are `PaddedRows`, since JAX traces the part.
        calls: if the part's host layers are callbacks that run exactly once a pass, in Caffe's order, what they have in
            common; otherwise None. The parts of such a schedule pass on the blob `ORDER`.
    """

    steps: tuple[Step, ...]
    mode: Mode = "traced"
    bucketed_inputs: frozenset[str] = frozenset()
    tracks_rows: bool = False
    calls: HostCalls | None = None

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The part's layers, in order."""
        return tuple(chain.from_iterable(step.layers for step in self.steps))

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """A cache key. Two parts of one graph with equal keys compute the same function."""
        return self.mode, tuple(tuple(layer.key for layer in step.layers) for step in self.steps)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The blobs that the part reads from earlier parts, in the order of reading."""
        names_read: dict[str, None] = {}
        names_written: set[str] = set()
        for layer in self.layers:
            names_read.update(dict.fromkeys(name for name in layer.bottoms if name not in names_written))
            names_written.update(layer.tops)
        return (*names_read, *((ORDER,) if self.calls else ()))

    @cached_property
    def writes(self) -> frozenset[str]:
        """The blobs that the part computes or overwrites."""
        return frozenset((*(top for layer in self.layers for top in layer.tops), *((ORDER,) if self.calls else ())))

    @cached_property
    def owners(self) -> frozenset[str]:
        """The keys of the layers whose parameters and state the part uses."""
        return frozenset(p.owner.layer for layer in self.layers for p in layer.all_params)

    def select(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries of a tree of parameters or state that the part uses."""
        return {key: value for key, value in tree.items() if key in self.owners}


@dataclass(frozen=True, eq=False)
class LayerSchedule:
    """The order and grouping in which a graph's layers, or a range of them, run. `str(schedule)` describes it.

    Attributes:
        graph: the graph.
        parts: the parts, in the order of execution.
    """

    graph: Graph
    parts: tuple[Part, ...]

    @cached_property
    def blobs_needed_after(self) -> list[frozenset[str]]:
        """The blobs that the parts after each part read."""
        needed: list[frozenset[str]] = [frozenset()]
        for part in reversed(self.parts[1:]):
            needed.append(needed[-1] | frozenset(part.reads))
        return needed[::-1]

    def __str__(self) -> str:
        lines = []
        for part in self.parts:
            first, last = part.layers[0].name, part.layers[-1].name
            names = first if first == last else f"{first} .. {last}"
            fusions = [" + ".join(layer.name for layer in step.layers) for step in part.steps if len(step.layers) > 1]
            lines += [f"{_DESCRIPTIONS[part.mode]}: {names}", *(f"  fused: {text}" for text in fusions)]
        return "\n".join(lines)


def schedule_layers(graph: Graph) -> LayerSchedule:
    """Return the schedule of a graph's layers."""
    return fuse(split_at_host_layers(make_unfused_schedule(graph), trim=graph.has_host_layers))


def make_unfused_schedule(graph: Graph, first: int = 0, last: int | None = None) -> LayerSchedule:
    """Return the layers with indices `first` to `last` as a schedule of one part, with a step for each layer."""
    layers = graph.layers[first : None if last is None else last + 1]
    return LayerSchedule(graph, (make_part(layers),) if layers else ())


def make_part(layers: Iterable[Layer]) -> Part:
    """Return layers as one part, with a step for each layer."""
    return Part(tuple(Step((layer,)) for layer in layers))


def split_by_layer(schedule: LayerSchedule) -> LayerSchedule:
    """Return the schedule with a part for each layer."""
    layers = (layer for part in schedule.parts for layer in part.layers)
    return replace(schedule, parts=tuple(make_part((layer,)) for layer in layers))


# -- the pass that splits at host layers


def split_at_host_layers(schedule: LayerSchedule, *, trim: bool) -> LayerSchedule:
    """Split the parts of a schedule so that each has layers of one kind: on the host, on padded rows, or neither.

    The number of rows after a Filter layer depends on the data. Row-wise layers after it are compiled for row counts
    padded to powers of two, which requires about log2(batch) compilations at most.

    Args:
        schedule: the schedule.
        trim: whether to split also at layers with padded tops. The padded rows of these tops are then removed, so that
            all blobs have Caffe's shapes.
    """
    row_modes = _find_row_modes([layer for part in schedule.parts for layer in part.layers], trim)
    pieces = []
    for part in schedule.parts:
        for mode, steps in groupby(part.steps, key=lambda step: row_modes[step.first_layer.key][0]):
            piece = replace(part, steps=tuple(steps), mode=mode)
            varying_blobs = row_modes[piece.layers[0].key][1] if mode == "bucketed" else frozenset()
            pieces.append(replace(piece, bucketed_inputs=varying_blobs.intersection(piece.reads)))
    return replace(schedule, parts=tuple(pieces))


def _find_row_modes(layers: Sequence[Layer], trim: bool) -> dict[str, tuple[Mode, frozenset[str]]]:
    """Return, for each layer key, the layer's mode and the earlier blobs whose row count depends on the data."""
    varying_blobs: set[str] = set()
    modes: dict[str, tuple[Mode, frozenset[str]]] = {}
    for layer in layers:
        # for a layer that pools regions of maps, only the number of regions may vary
        rows_vary = varying_blobs & set(layer.bottoms) == set(layer.row_bottoms)
        tops_vary = bool(layer.bottoms) and rows_vary and _ignores_padding(layer)
        layer_mode: Mode = "host" if layer.type.on_host else "bucketed" if tops_vary else "traced"
        if isinstance(implementation := layer.type.implementation, HostFunction):
            tops_vary = implementation.ragged_axis is not None
        elif trim and layer.type.traits.pads_rows:
            layer_mode, tops_vary = "trimmed", True
        modes[layer.key] = layer_mode, frozenset(varying_blobs)
        (varying_blobs.update if tops_vary else varying_blobs.difference_update)(layer.tops)
    return modes


def find_padded_blobs(layers: Sequence[Layer]) -> dict[str, str]:
    """Return the blobs that have padded rows if no rows are trimmed.

    Returns:
        `{blob: root}`. The root is a top that its layer pads. The blob is the root, or is computed from it row by row.
    """
    origins: dict[str, str] = {}
    for layer in layers:
        roots = {origins.get(bottom) for bottom in layer.row_bottoms}
        for top in layer.tops:
            if layer.type.traits.pads_rows:
                origins[top] = top
            elif len(roots) == 1 and (root := roots.copy().pop()) is not None and _ignores_padding(layer):
                origins[top] = root
            else:
                origins.pop(top, None)
    return origins


def find_top_rows(layer: Layer, origins: Mapping[str, RowsOrigin]) -> Sequence[RowsOrigin | None] | None:
    """Return where the rows of a layer's tops come from, None for a top without rows of padding.

    The result is None if the layer cannot run on padded rows, since its tops depend on all rows.

    Args:
        layer: the layer. For layers that pad their tops, see `LayerTraits.pads_rows`, the result is None for each top.
        origins: where the rows come from, for each bottom with rows of padding.
    """
    no_rows = (None,) * len(layer.tops)
    if isinstance(function := layer.type.implementation, HostFunction):
        if function.ragged_axis is not None:
            return (RowsOrigin(layer.key, function.ragged_axis),) * len(layer.tops)
        return no_rows if not origins or not layer.tops else None
    if not origins or not layer.tops:
        return no_rows
    origin, *others = dict.fromkeys(origins.values())
    if layer.type.traits.pads_rows and all(o.is_marked for o in (origin, *others)):
        return no_rows
    if others or origins.keys() != set(layer.row_bottoms):  # without padding the numbers of rows would differ
        return None
    if (origin.axis == 0 or layer.type.traits.elementwise) and _keeps_rows(layer):
        return (origin,) * len(layer.tops)
    if origin.axis == 0 and layer.counts_rows:
        return tuple(origin if i in layer.type.traits.row_tops else None for i in range(len(layer.tops)))
    return None


def strip_blob_padding(graph: Graph, blobs: Mapping[str, Any]) -> Blobs:
    """Return blobs without their padded rows; see `Net.strip_padding`."""
    blobs = {name: jnp.asarray(np.asarray(b)) if isinstance(b, PaddedRows) else b for name, b in blobs.items()}
    roots = find_padded_blobs(graph.layers)
    rows = {name: num_valid_rows(blobs[name]) for name in set(roots.values()) if name in blobs}
    stripped = dict(blobs)
    for name, root in roots.items():
        if name in blobs and root in rows and (axis := matching_rows_axis(blobs[name], blobs[root])) is not None:
            stripped[name] = first_rows(blobs[name], rows[root], axis)
    return stripped


def _ignores_padding(layer: Layer) -> bool:
    """Return whether padded rows leave a layer's other rows and the loss unchanged."""
    return _keeps_rows(layer) and not any(layer.loss_weights)


def _keeps_rows(layer: Layer) -> bool:
    """Return whether padded rows leave a layer's other rows unchanged. Statistics would include them.

    A type that says for which settings it is row-wise considers its statistics.
    """
    return layer.is_row_wise and (
        callable(layer.type.traits.row_wise) or all(p.spec.learnable for p in layer.all_params)
    )


# -- the pass that fuses layers


def fuse(schedule: LayerSchedule) -> LayerSchedule:
    """Fuse layers within each part. With `backward="rules"` nothing is fused, because each layer needs its own rule."""
    parts = (
        part if part.mode == "host" else replace(part, steps=tuple(_fused_steps(schedule.graph, part.layers)))
        for part in schedule.parts
    )
    return replace(schedule, parts=tuple(parts))


def unfuse(schedule: LayerSchedule, blobs: frozenset[str]) -> LayerSchedule:
    """Undo the fusion of the layers that compute the given blobs, so that the result of each layer is computed."""

    def split(step: Step) -> tuple[Step, ...]:
        if blobs.isdisjoint(step.first_layer.tops):
            return (step,)
        return tuple(Step((layer,)) for layer in step.layers)

    parts = (replace(part, steps=tuple(s for step in part.steps for s in split(step))) for part in schedule.parts)
    return replace(schedule, parts=tuple(parts)) if blobs else schedule


def _fused_steps(graph: Graph, layers: Sequence[Layer]) -> Iterator[Step]:
    end = 0
    for i, layer in enumerate(layers):
        if i >= end:
            end = i + 1 + _num_fused(graph, layer, layers[i + 1 :])
            yield Step(tuple(layers[i:end]))


def _num_fused(graph: Graph, layer: Layer, later_layers: Sequence[Layer]) -> int:
    count_fusible = getattr(layer.type.implementation, "count_fusible", None)
    if (
        count_fusible is None
        or not layer.context.fast
        or layer.context.config.backward == "rules"
        or any(layer.loss_weights)
    ):
        return 0
    epilogues = [
        Epilogue(
            later_layer.context, tuple(jax.ShapeDtypeStruct(p.spec.shape, jnp.float32) for p in later_layer.all_params)
        )
        for later_layer in takewhile(lambda later_layer: _is_epilogue(layer, later_layer), later_layers)
    ]
    if not epilogues:
        return 0
    return layer.context.call(count_fusible, graph.blobs[layer.bottoms[0]], epilogues)


def _is_epilogue(layer: Layer, later_layer: Layer) -> bool:
    """Return whether `later_layer` works in place on a layer's only top, has no loss weight, and passes gradients."""
    same_blob = later_layer.is_in_place and layer.tops == later_layer.tops
    return same_blob and not any(later_layer.loss_weights) and not any(later_layer.gradient_stops)

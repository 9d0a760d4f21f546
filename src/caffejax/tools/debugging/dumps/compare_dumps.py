"""Comparison of two dumps by layer, in the order of execution: first forward, then backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ....base.human_readable import format_count
from ....core.schema.blob_proto import Array
from .comparison_report import Comparison, Distance, Kind, Row, Verdict, compute_distance
from .dump import Dump, DumpedLayer


class Pair(NamedTuple):
    """A layer, and its index in dump A and in dump B, or None if a dump has no layer with this name."""

    layer: DumpedLayer
    a_index: int | None
    b_index: int | None

    def mismatch(self, a: Dump, b: Dump) -> str | None:
        """Return a description of how the two layers differ in type or blobs, or None if they do not differ.

        Input layers are not compared.
        """
        if self.a_index is None or self.b_index is None:
            return None
        x, y = a.layers[self.a_index], b.layers[self.b_index]
        if not x.bottoms and not y.bottoms:
            return None
        for field in ("type", "bottoms", "tops"):
            if (in_a := getattr(x, field)) != (in_b := getattr(y, field)):
                return f"{field} {_join_names(in_a)} in A, {_join_names(in_b)} in B"
        return None


def pair_layers(a: Sequence[DumpedLayer], b: Sequence[DumpedLayer]) -> Iterator[Pair]:
    """Yield a pair for each layer name, in the order of A. A layer that only B has follows the layer before it in B."""
    a_indices, b_indices = ({layer.name: i for i, layer in enumerate(layers)} for layers in (a, b))
    next_b = 0
    for i, layer in enumerate(a):
        index = b_indices.get(layer.name)
        if index is not None:
            yield from (Pair(b[j], None, j) for j in range(next_b, index) if b[j].name not in a_indices)
            next_b = max(next_b, index)
        yield Pair(layer, i, index)
    yield from (Pair(b[j], None, j) for j in range(next_b, len(b)) if b[j].name not in a_indices)


def describe_mismatch(first: str, a: Mapping[str, str], second: str, b: Mapping[str, str]) -> str:
    """Return a message if two nets are different, otherwise "".

    They are different if fewer than half of their layers have the same name and type.

    Args:
        first, second: descriptions of the nets for the message.
        a, b: layer types by layer name.
    """
    common = len(a.items() & b.items())
    if 2 * common >= min(len(a), len(b)):
        return ""
    counts = f"{first} with {format_count(len(a), 'layer')}, {second} with {len(b)}"
    return f"these are two different nets: {counts}, and {common} of them have the same name and type"


class RandomLayers:
    """The names of the layers whose arrays depend on random numbers.

    If each layer of a dump ran on recorded arrays, only the random layers themselves depend on random numbers.

    Attributes:
        forward: the layers whose values depend on random numbers.
        backward: the layers whose diffs depend on random numbers.
    """

    def __init__(self, a: Dump, b: Dump) -> None:
        random_names = {layer.name for dump in (a, b) for layer in dump.layers if layer.random}
        self.forward: set[str] = set()
        self.backward: set[str] = set()
        if a.is_isolated or b.is_isolated:
            self.forward, self.backward = random_names, random_names
            return
        is_random_by_blob: dict[str, bool] = {}
        for layer in a.layers:
            if layer.name in random_names or any(is_random_by_blob.get(name) for name in layer.bottoms):
                self.forward.add(layer.name)
            is_random_by_blob |= dict.fromkeys(layer.tops, layer.name in self.forward)
        random_diffs: set[str] = set()
        for layer in reversed(a.layers):
            if layer.name in self.forward or random_diffs.intersection(layer.tops):
                self.backward.add(layer.name)
                random_diffs.update(layer.bottoms)


def _join_names(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "none"


RTOL = 1e-3  # relative to a blob's largest value: ten times the effect of summation order in float32; see comparing.md
ATOL = 1e-7


class _Tolerances(NamedTuple):
    rtol: float
    atol: float

    def are_equal(self, distance: Distance, scale: float) -> bool:
        return distance.error <= self.atol + self.rtol * max(distance.scale, scale)


def compare_dumps(
    a: Dump, b: Dump, *, rtol: float = RTOL, atol: float = ATOL, compare_random: bool = False
) -> Comparison:
    """Compare two dumps.

    Two arrays are equal if their largest absolute difference is at most `atol + rtol * scale`. The scale is the
    largest absolute value in either array. For gradients of parameters the scale is the largest absolute value in all
    gradients of the layer, because the gradient of a bias may be zero up to rounding. NaN equals NaN at the same index.

    A top or parameter that is in only one dump counts as a difference, unless the other dump has no arrays of this
    kind. A missing diff does not count, because not all programs compute the diffs that no layer needs. A missing
    gradient is compared as zeros.

    Args:
        a, b: the dumps.
        rtol, atol: the tolerances.
        compare_random: whether differences of arrays that depend on random numbers count, such as after dropout in
            phase TRAIN.
    """
    pairs = list(pair_layers(a.layers, b.layers))
    tolerances = _Tolerances(rtol, atol)
    random_layers = RandomLayers(a, b) if not compare_random else None
    rows = [*_compare_inputs(a, b, tolerances)]
    for pair in pairs:
        rows += _compare_forward(a, b, pair, tolerances, random_layers)
    if a.has_backward and b.has_backward:
        for pair in reversed(pairs):
            rows += _compare_backward(a, b, pair, tolerances, random_layers)
    return Comparison(tuple(rows), _format_title(a), _format_title(b), rtol, atol, _describe_nets(a, b))


def _describe_nets(a: Dump, b: Dump) -> str:
    """Return a message if the dumps are of different nets, otherwise ""."""
    x, y = ({layer.name: layer.type for layer in dump.layers} for dump in (a, b))
    return describe_mismatch(f"A is of net '{a.net}'", x, f"B of '{b.net}'", y)


def _format_title(dump: Dump) -> str:
    isolation_note = ", each layer by itself" if dump.is_isolated else ""
    return f"{dump.file}, by {dump.maker}" if dump.file else f"{dump.maker}{isolation_note}"


def _compare_inputs(a: Dump, b: Dump, tolerances: _Tolerances) -> Iterator[Row]:
    inputs_a, inputs_b = a.arrays_of_kind("input"), b.arrays_of_kind("input")
    producers = {top: layer for layer in a.layers for top in layer.tops if not layer.bottoms}
    for name, array in inputs_a.items():
        if name in inputs_b:
            layer = producers.get(name, DumpedLayer("(fed)", "", (), ()))
            yield _make_row(layer, "input", name, array, inputs_b[name], tolerances)


def _compare_forward(
    a: Dump, b: Dump, pair: Pair, tolerances: _Tolerances, random_layers: RandomLayers | None
) -> Iterator[Row]:
    layer = pair.layer
    if (mismatch := pair.mismatch(a, b)) is not None:
        yield Row(layer.name, layer.type, "top", mismatch, (None, None), None, "layers", True)
        return
    params = a.blobs_of("param", layer.name), b.blobs_of("param", layer.name)
    is_random = random_layers is not None and layer.name in random_layers.forward
    for i in sorted({*params[0], *params[1]}) if a.arrays_of_kind("param") and b.arrays_of_kind("param") else ():
        yield _make_row(layer, "param", str(i), params[0].get(i), params[1].get(i), tolerances)
    b_tops = b.layers[pair.b_index].tops if pair.b_index is not None else ()
    for name in dict.fromkeys((*layer.tops, *b_tops)):
        x, y = (_find_top(dump, i, layer, name) for i, dump in ((pair.a_index, a), (pair.b_index, b)))
        if x is not None or y is not None:
            # if two layers write the same blob in place, a dump may contain only the result of the last one
            has_only_last_value = None not in (pair.a_index, pair.b_index) and all(
                f"blob/{name}" in dump.arrays for dump in (a, b)
            )
            yield _make_row(layer, "top", name, x, y, tolerances, is_random, is_absence_counted=not has_only_last_value)


def _find_top(dump: Dump, index: int | None, layer: DumpedLayer, blob: str) -> Array | None:
    """Return a layer's top from a dump, or None. The input layers of the two dumps may have different names."""
    if index is None and not layer.bottoms:
        index = next((i for i, other in enumerate(dump.layers) if blob in other.tops and not other.bottoms), None)
    return None if index is None or blob not in dump.layers[index].tops else dump.top_value(index, blob)


def _compare_backward(
    a: Dump, b: Dump, pair: Pair, tolerances: _Tolerances, random_layers: RandomLayers | None
) -> Iterator[Row]:
    layer = pair.layer
    if pair.a_index is None or pair.b_index is None or pair.mismatch(a, b) is not None:
        return
    is_random = random_layers is not None and layer.name in random_layers.backward
    unread_tops = [top for top in layer.tops if not any(top in other.bottoms for other in a.layers[pair.a_index + 1 :])]
    for name in dict.fromkeys(unread_tops):
        yield from _compare_diffs(
            layer, name, (a.top_diff(pair.a_index, name), b.top_diff(pair.b_index, name)), tolerances, is_random
        )
    grads = a.blobs_of("grad", layer.name), b.blobs_of("grad", layer.name)
    stored_grads = [(i, grads[0].get(i), grads[1].get(i)) for i in sorted({*grads[0], *grads[1]})]
    grad_pairs = [(i, _fill_missing(x, y), _fill_missing(y, x)) for i, x, y in stored_grads]
    scale = max((float(np.abs(g[np.isfinite(g)]).max(initial=0)) for _, *xy in grad_pairs for g in xy), default=0.0)
    for i, x, y in grad_pairs:
        yield _make_row(layer, "grad", str(i), x, y, tolerances, is_random, scale=scale)
    for name in dict.fromkeys(layer.bottoms):
        diffs = a.bottom_diff(pair.a_index, name), b.bottom_diff(pair.b_index, name)
        yield from _compare_diffs(layer, name, diffs, tolerances, is_random)


def _compare_diffs(
    layer: DumpedLayer, name: str, diffs: tuple[Array | None, Array | None], tolerances: _Tolerances, is_random: bool
) -> Iterator[Row]:
    if any(diff is not None and diff.any() for diff in diffs):  # diffs that no layer needs are zero in Caffe
        yield _make_row(layer, "diff", name, *diffs, tolerances, is_random, is_absence_counted=False)


def _fill_missing(x: Array | None, reference: Array | None) -> Array:
    if x is not None:
        return x
    assert reference is not None
    return np.zeros_like(reference)


def _make_row(
    layer: DumpedLayer,
    kind: Kind,
    name: str,
    x: Array | None,
    y: Array | None,
    tolerances: _Tolerances,
    is_random: bool = False,
    is_absence_counted: bool = True,
    scale: float = 0.0,
) -> Row:
    shapes = (None if x is None else x.shape, None if y is None else y.shape)
    error = None if x is None or y is None or x.shape != y.shape else compute_distance(x, y)
    verdict: Verdict
    if x is None or y is None:
        verdict, is_difference = "only in B" if x is None else "only in A", is_absence_counted
    elif error is None:
        verdict, is_difference = "shapes", True
    elif tolerances.are_equal(error, scale):
        verdict, is_difference = "equal", False
    else:
        verdict, is_difference = "differs", True
    if is_random and is_difference:
        verdict, is_difference = "random", False
    return Row(layer.name, layer.type, kind, name, shapes, error, verdict, is_difference)

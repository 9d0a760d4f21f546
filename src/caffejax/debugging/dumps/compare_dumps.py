"""Comparison of two dumps, layer by layer in the order of execution: forward, then backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...human_readable import format_count
from ...schema.blob_proto import Array
from .comparison import Comparison, Distance, Kind, Row, Verdict, distance
from .dump import Dump, DumpedLayer


class Pair(NamedTuple):
    """A pair of layers with the same name: their indices in both dumps, or None for a dump without this layer."""

    layer: DumpedLayer
    a: int | None
    b: int | None

    def mismatch(self, a: Dump, b: Dump) -> str | None:
        """Return a description of how the two layers differ in type or blobs; None if they do not differ.

        For input layers only the blobs count.
        """
        if self.a is None or self.b is None:
            return None
        x, y = a.layers[self.a], b.layers[self.b]
        if not x.bottoms and not y.bottoms:
            return None
        for what in ("type", "bottoms", "tops"):
            if (ours := getattr(x, what)) != (theirs := getattr(y, what)):
                return f"{what} {_words(ours)} in A, {_words(theirs)} in B"
        return None


def pair_layers(a: Sequence[DumpedLayer], b: Sequence[DumpedLayer]) -> Iterator[Pair]:
    """Yield pairs of layers by name, in the order of A. A layer that is only in B follows B's previous layer."""
    in_a, in_b = ({layer.name: i for i, layer in enumerate(layers)} for layers in (a, b))
    done = 0
    for i, layer in enumerate(a):
        index = in_b.get(layer.name)
        if index is not None:
            yield from (Pair(b[j], None, j) for j in range(done, index) if b[j].name not in in_a)
            done = max(done, index)
        yield Pair(layer, i, index)
    yield from (Pair(b[j], None, j) for j in range(done, len(b)) if b[j].name not in in_a)


def describe_mismatch(first: str, a: Mapping[str, str], second: str, b: Mapping[str, str]) -> str:
    """Return a message if two nets are different: fewer than half of their layers have the same name and type.

    Otherwise return "".

    Args:
        first, second: descriptions of the nets for the message.
        a, b: layer types by layer name.
    """
    common = len(a.items() & b.items())
    if 2 * common >= min(len(a), len(b)):
        return ""
    counts = f"{first} with {format_count(len(a), 'layer')}, {second} with {len(b)}"
    return f"these are two different nets: {counts}, and {common} of them have the same name and type"


class Chance:
    """The names of the layers whose values (`forward`) or diffs (`backward`) depend on random numbers.

    In a dump of isolated layers, only the random layers themselves depend on random numbers.
    """

    def __init__(self, a: Dump, b: Dump) -> None:
        random = {layer.name for dump in (a, b) for layer in dump.layers if layer.random}
        self.forward: set[str] = set()  # layers
        self.backward: set[str] = set()
        if a.isolated or b.isolated:
            self.forward, self.backward = random, random
            return
        blobs: dict[str, bool] = {}
        for layer in a.layers:
            if layer.name in random or any(blobs.get(name) for name in layer.bottoms):
                self.forward.add(layer.name)
            blobs |= dict.fromkeys(layer.tops, layer.name in self.forward)
        diffs: set[str] = set()
        for layer in reversed(a.layers):
            if layer.name in self.forward or diffs.intersection(layer.tops):
                self.backward.add(layer.name)
                diffs.update(layer.bottoms)


def _words(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "none"


RTOL = 1e-3  # of a blob's largest value: ten times the effect of the order of float32 sums, see docs/comparing.md
ATOL = 1e-7


class _Limits(NamedTuple):
    rtol: float
    atol: float

    def equal(self, distance: Distance, scale: float) -> bool:
        return distance.error <= self.atol + self.rtol * max(distance.scale, scale)


def compare(a: Dump, b: Dump, *, rtol: float = RTOL, atol: float = ATOL, random: bool = False) -> Comparison:
    """Compare two dumps.

    Two arrays are equal if their largest absolute difference is at most `atol + rtol * scale`. The scale is the
    largest absolute value in either array. For gradients of parameters the scale is the largest absolute value in all
    gradients of the layer, because the gradient of a bias may be zero up to rounding. NaN equals NaN at the same index.

    A top or parameter that is in only one dump counts as a difference, unless the other dump has no arrays of this
    kind. A missing diff does not count, because programs differ in which unneeded diffs they compute. A missing
    gradient is compared as zeros.

    Args:
        a, b: the dumps.
        rtol, atol: the tolerances.
        random: compare also arrays that depend on random layers, such as dropout in phase TRAIN.
    """
    pairs = list(pair_layers(a.layers, b.layers))
    limits = _Limits(rtol, atol)
    chance = Chance(a, b) if not random else None
    rows = [*_inputs(a, b, limits)]
    for pair in pairs:
        rows += _forward(a, b, pair, limits, chance)
    if a.has_backward and b.has_backward:
        for pair in reversed(pairs):
            rows += _backward(a, b, pair, limits, chance)
    return Comparison(tuple(rows), _title(a), _title(b), rtol, atol, _strangers(a, b))


def _strangers(a: Dump, b: Dump) -> str:
    x, y = ({layer.name: layer.type for layer in dump.layers} for dump in (a, b))
    return describe_mismatch(f"A is of net '{a.net}'", x, f"B of '{b.net}'", y)


def _title(dump: Dump) -> str:
    isolated = ", each layer by itself" if dump.isolated else ""
    return f"{dump.file}, by {dump.maker}" if dump.file else f"{dump.maker}{isolated}"


def _inputs(a: Dump, b: Dump, limits: _Limits) -> Iterator[Row]:
    ours, theirs = a.group("input"), b.group("input")
    makers = {top: layer for layer in a.layers for top in layer.tops if not layer.bottoms}
    for name in ours if ours and theirs else ():
        if name in theirs:
            layer = makers.get(name, DumpedLayer("(fed)", "", (), ()))
            yield _row(layer, "input", name, ours[name], theirs[name], limits)


def _forward(a: Dump, b: Dump, pair: Pair, limits: _Limits, chance: Chance | None) -> Iterator[Row]:
    layer = pair.layer
    if (other := pair.mismatch(a, b)) is not None:
        yield Row(layer.name, layer.type, "top", other, (None, None), None, "layers", True)
        return
    params = a.blobs_of("param", layer.name), b.blobs_of("param", layer.name)
    by_chance = chance is not None and layer.name in chance.forward
    for i in sorted({*params[0], *params[1]}) if a.group("param") and b.group("param") else ():
        yield _row(layer, "param", str(i), params[0].get(i), params[1].get(i), limits)
    other_tops = b.layers[pair.b].tops if pair.b is not None else ()
    for name in dict.fromkeys((*layer.tops, *other_tops)):
        x, y = (_top(dump, i, layer, name) for i, dump in ((pair.a, a), (pair.b, b)))
        if x is not None or y is not None:
            # if two layers write the same blob in place, a dump may contain only the result of the last one
            last_only = None not in (pair.a, pair.b) and all(f"blob/{name}" in dump.arrays for dump in (a, b))
            yield _row(layer, "top", name, x, y, limits, by_chance, absent_counts=not last_only)


def _top(dump: Dump, index: int | None, layer: DumpedLayer, blob: str) -> Array | None:
    """Return a layer's top from a dump, or None. The top of an input layer may be of a layer with another name."""
    if index is None and not layer.bottoms:
        index = next((i for i, other in enumerate(dump.layers) if blob in other.tops and not other.bottoms), None)
    return None if index is None or blob not in dump.layers[index].tops else dump.value(index, blob)


def _backward(a: Dump, b: Dump, pair: Pair, limits: _Limits, chance: Chance | None) -> Iterator[Row]:
    layer = pair.layer
    if pair.a is None or pair.b is None or pair.mismatch(a, b) is not None:
        return
    by_chance = chance is not None and layer.name in chance.backward
    ends = [top for top in layer.tops if not any(top in other.bottoms for other in a.layers[pair.a + 1 :])]
    for name in dict.fromkeys(ends):
        yield from _diff(layer, name, (a.diff(pair.a, name), b.diff(pair.b, name)), limits, by_chance)
    grads = a.blobs_of("grad", layer.name), b.blobs_of("grad", layer.name)
    pairs = [(i, grads[0].get(i), grads[1].get(i)) for i in sorted({*grads[0], *grads[1]})]
    filled = [(i, _or_zeros(x, y), _or_zeros(y, x)) for i, x, y in pairs]
    scale = max((float(np.abs(g[np.isfinite(g)]).max(initial=0)) for _, *both in filled for g in both), default=0.0)
    for i, x, y in filled:
        yield _row(layer, "grad", str(i), x, y, limits, by_chance, scale=scale)
    for name in dict.fromkeys(layer.bottoms):
        read = a.diff_read(pair.a, name), b.diff_read(pair.b, name)
        yield from _diff(layer, name, read, limits, by_chance)


def _diff(
    layer: DumpedLayer, name: str, diffs: tuple[Array | None, Array | None], limits: _Limits, by_chance: bool
) -> Iterator[Row]:
    if any(diff is not None and diff.any() for diff in diffs):  # diffs that no layer needs are zero in Caffe
        yield _row(layer, "diff", name, *diffs, limits, by_chance, absent_counts=False)


def _or_zeros(x: Array | None, other: Array | None) -> Array:
    if x is not None:
        return x
    assert other is not None
    return np.zeros_like(other)


def _row(
    layer: DumpedLayer,
    kind: Kind,
    name: str,
    x: Array | None,
    y: Array | None,
    limits: _Limits,
    by_chance: bool = False,
    absent_counts: bool = True,
    scale: float = 0.0,
) -> Row:
    shapes = (None if x is None else x.shape, None if y is None else y.shape)
    error = None if x is None or y is None or x.shape != y.shape else distance(x, y)
    verdict: Verdict
    if x is None or y is None:
        verdict, counts = "only in B" if x is None else "only in A", absent_counts
    elif error is None:
        verdict, counts = "shapes", True
    elif limits.equal(error, scale):
        verdict, counts = "equal", False
    else:
        verdict, counts = "parts", True
    if by_chance and counts:
        verdict, counts = "random", False
    return Row(layer.name, layer.type, kind, name, shapes, error, verdict, counts)

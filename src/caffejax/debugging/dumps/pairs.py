"""Which layers of two dumps belong together, and what of them random numbers decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...sizes import counted
from .dump import Dump, DumpedLayer


class Pair(NamedTuple):
    """A layer's places in both dumps; None where one does not have it."""

    layer: DumpedLayer
    a: int | None
    b: int | None

    def moved(self, a: Dump, b: Dump) -> str | None:
        """Say how the two layers differ in type or wiring; of what a net is fed by, only the blobs count."""
        if self.a is None or self.b is None:
            return None
        x, y = a.layers[self.a], b.layers[self.b]
        if not x.bottoms and not y.bottoms:
            return None
        for what in ("type", "bottoms", "tops"):
            if (ours := getattr(x, what)) != (theirs := getattr(y, what)):
                return f"{what} {_words(ours)} in A, {_words(theirs)} in B"
        return None


def paired(a: Sequence[DumpedLayer], b: Sequence[DumpedLayer]) -> Iterator[Pair]:
    """Pair layers by name, in A's order; those that only B has follow the layer they follow there."""
    in_a, in_b = ({layer.name: i for i, layer in enumerate(layers)} for layers in (a, b))
    done = 0
    for i, layer in enumerate(a):
        place = in_b.get(layer.name)
        if place is not None:
            yield from (Pair(b[j], None, j) for j in range(done, place) if b[j].name not in in_a)
            done = max(done, place)
        yield Pair(layer, i, place)
    yield from (Pair(b[j], None, j) for j in range(done, len(b)) if b[j].name not in in_a)


def strangers(first: str, a: Mapping[str, str], second: str, b: Mapping[str, str]) -> str:
    """Say that two nets are not the same, where less than half of their layers have one name and type.

    Args:
        first, second: what the two are, in words.
        a, b: the types of their layers by name.
    """
    common = len(a.items() & b.items())
    if 2 * common >= min(len(a), len(b)):
        return ""
    counts = f"{first} with {counted(len(a), 'layer')}, {second} with {len(b)}"
    return f"these are two different nets: {counts}, and {common} of them have the same name and type"


class Chance:
    """What random numbers decide: what random layers make and what follows, and all diffs on the way back from it.

    Of a dump whose layers ran apart, only what random layers make and give back.
    """

    def __init__(self, a: Dump, b: Dump) -> None:
        random = {layer.name for dump in (a, b) for layer in dump.layers if layer.random}
        self.forward: set[str] = set()  # layers
        self.backward: set[str] = set()
        if a.apart or b.apart:
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

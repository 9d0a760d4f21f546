"""A dump: the numbers of one pass of a net, by names that plain Caffe can make as well.

They have the layers' and blobs' own names:

    loss                      the sum of all losses, weighted
    input/<blob>              what the net was fed
    param/<layer>/<i>         the layers' params as the pass began, running statistics and shared ones included
    blob/<blob>               a blob after the forward pass
    top/<layer>/<blob>        what a layer made and another then wrote over, in place
    diff/<blob>               a blob's diff after the backward pass: that of the first value it had
    top_diff/<layer>/<blob>   the diff of what a layer made, where that layer works in place
    grad/<layer>/<i>          a param's diff: the sum over all layers that share it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ...schema.blob_proto import Array


@dataclass(frozen=True)
class DumpedLayer:
    """A layer of the net that was run, as the dump's `meta` tells of it.

    Attributes:
        name: the layer's; with a number, `name#2`, where a net has it twice.
        type: its type.
        bottoms, tops: the blobs that it reads and makes.
        random: whether it draws random numbers in this phase; plain Caffe does not say.
    """

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    random: bool = False


@dataclass(frozen=True)
class Dump:
    """The numbers of one pass.

    Attributes:
        maker: the program that ran the net, with its version.
        net: the net's name.
        phase: "TRAIN" or "TEST".
        layers: in the order of execution, the Splits that Caffe inserts included.
        arrays: the numbers, by member (see the module's text).
        file: where it was read from, for messages.
        apart: whether each layer read what another dump says of its bottoms, not what the layers before it made.
    """

    maker: str
    net: str
    phase: str
    layers: tuple[DumpedLayer, ...]
    arrays: Mapping[str, Array]
    file: str | None = None
    apart: bool = False

    @cached_property
    def _makers(self) -> dict[str, list[int]]:
        """The layers that make or write over each blob, by their places in `layers`."""
        makers: dict[str, list[int]] = {}
        for i, layer in enumerate(self.layers):
            for top in dict.fromkeys(layer.tops):
                makers.setdefault(top, []).append(i)
        return makers

    @cached_property
    def has_backward(self) -> bool:
        """Whether there are diffs or gradients."""
        return any(name.startswith(("diff/", "grad/", "top_diff/")) for name in self.arrays)

    def group(self, kind: str) -> dict[str, Array]:
        """Return the members of a kind, such as "input", by what follows it."""
        start = f"{kind}/"
        return {name.removeprefix(start): array for name, array in self.arrays.items() if name.startswith(start)}

    def blobs_of(self, kind: str, layer: str) -> dict[int, Array]:
        """Return what a layer has of a kind that is numbered, "param" or "grad", by the number."""
        start = f"{kind}/{layer}/"
        found = ((n.removeprefix(start), array) for n, array in self.arrays.items() if n.startswith(start))
        return {int(number): array for number, array in found if number.isdecimal() and len(number) < 4}

    def value(self, place: int, blob: str) -> Array | None:
        """Return what the layer at a place in `layers` made of a blob; None if it was not recorded."""
        own = self.arrays.get(f"top/{self.layers[place].name}/{blob}")
        return self.arrays.get(f"blob/{blob}") if own is None and self._makers[blob][-1] == place else own

    def diff(self, place: int, blob: str) -> Array | None:
        """Return the diff of that; None if it was not recorded."""
        own = self.arrays.get(f"top_diff/{self.layers[place].name}/{blob}")
        return self.arrays.get(f"diff/{blob}") if own is None and self._makers[blob][0] == place else own

    def value_read(self, place: int, blob: str) -> Array | None:
        """Return what the layer at a place reads as `blob`; None if it was not recorded."""
        maker = self._maker(place, blob)
        return None if maker is None else self.value(maker, blob)

    def diff_read(self, place: int, blob: str) -> Array | None:
        """Return the diff of that; None if it was not recorded."""
        maker = self._maker(place, blob)
        return None if maker is None else self.diff(maker, blob)

    def _maker(self, place: int, blob: str) -> int | None:
        """Return the place of the layer that made what the layer at a place reads."""
        return max((i for i in self._makers.get(blob, ()) if i < place), default=None)

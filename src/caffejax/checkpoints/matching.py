"""Which blobs of a file go to which layers of a net: by layer name, as Caffe does; and a report of it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import Problem, WeightsError, did_you_mean
from ..graph import Graph
from ..graph.graph import Slot
from ..schema.blob_proto import Array
from .blobs import fit

Stored = Mapping[str, Sequence[Array | None]]
_SHOWN = 6  # layers of a list that is cut short


@dataclass(frozen=True)
class LoadReport:
    """What loading a file into a net does, by names of layers; printed it says so in a few lines.

    Attributes:
        file: the file.
        taken: layers whose blobs were taken from it.
        skipped: layers that have blobs in the file, but are not in the net, or are in `without`.
        left: layers with blobs of their own that stay as they were: the file has none for them, or they are in
            `without`.
        without: layers that were not to be loaded.
        misfits: what is wrong with blobs that do not fit; loading raises them.
    """

    file: str
    taken: tuple[str, ...]
    skipped: tuple[str, ...]
    left: tuple[str, ...]
    without: tuple[str, ...] = ()
    misfits: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"Weights of {self.file}",
            f"  taken:   {_listed(self.taken)}",
            f"  skipped: {self._with_reason(self.skipped, 'file')}",
            f"  left:    {self._with_reason(self.left, 'net')}",
        ]
        return "\n".join([*lines, *(f"  misfit:  {problem}" for problem in self.misfits)])

    def _with_reason(self, names: Sequence[str], only: str) -> str:
        by_reason = {
            f"in the {only} only": [name for name in names if name not in self.without],
            "named in `without`": [name for name in names if name in self.without],
        }
        return "; ".join(f"{_listed(some)}, {reason}" for reason, some in by_reason.items() if some) or "none"

    __repr__ = __str__


def match_blobs(
    graph: Graph, stored: Stored, file: str | os.PathLike[str], *, copies: bool, without: Collection[str] = ()
) -> tuple[dict[Slot, Array], LoadReport]:
    """Match a file's blobs with a net's: return an array for each blob that is taken, by its owner, and the report.

    Of the net's layers of one name the first is meant. Where layers share a blob, the last of them in the file counts.

    Args:
        graph: the net's graph.
        stored: the file's blobs by layer name.
        file: for messages.
        copies: whether the file has a shared blob with every layer that uses it; else it may leave it out.
        without: layers that are not to be loaded.

    Raises:
        WeightsError: if a layer of `without` is not in the net.
    """
    first = {layer.name: layer for layer in reversed(graph.layers) if not layer.inserted_split}
    unknown = [
        Problem(f"without: no layer '{n}' in the net{did_you_mean(n, first)}") for n in without if n not in first
    ]
    if unknown:
        raise WeightsError(unknown)
    found: dict[Slot, Array] = {}
    taken: set[str] = set()
    misfits: list[Problem] = []
    wanted = {name: layer for name, layer in first.items() if name not in without}
    for name, layer in ((name, wanted[name]) for name in stored if name in wanted):
        blobs = stored[name][: len(layer.params)] if layer.carried else stored[name]
        optional = [i for i, p in enumerate(layer.params) if not (copies or p.is_owner)]
        try:
            arrays = fit(name, blobs, [p.spec.shape for p in layer.params], optional)
        except WeightsError as error:
            misfits += [replace(p, file=os.fspath(file)) for p in error.problems]
            continue
        if layer.params:
            taken.add(name)
        for param, array in zip(layer.params, arrays, strict=True):
            if array is not None:
                shape = graph.layer(param.owner.layer).params[param.owner.index].spec.shape
                found[param.owner] = array.reshape(shape)
    skipped = tuple(name for name in stored if name not in wanted and stored[name])
    names = list(dict.fromkeys(layer.name for layer in graph.layers))  # in the net's order
    stay = (name for name in names if name in without or not stored.get(name))
    left = tuple(name for name in stay if name in first and any(param.is_owner for param in first[name].params))
    in_order = tuple(name for name in names if name in taken)
    return found, LoadReport(os.fspath(file), in_order, skipped, left, tuple(without), tuple(misfits))


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "none"
    shown = [*names[: _SHOWN - 1], "...", names[-1]] if len(names) > _SHOWN else names
    return f"{len(names)} ({', '.join(shown)})"

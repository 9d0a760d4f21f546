"""Which blobs of a file go to which layers of a net: by layer name, as Caffe does; and a report of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import Problem, WeightsError, did_you_mean, shorten_list
from ..graph import Graph, Layer, Param
from ..graph.graph import Slot
from ..human_readable import counted
from ..schema.blob_proto import Array, Legacy4D, shape_text

Stored = Mapping[str, Sequence[Array | None]]


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
    return f"{len(names)} ({', '.join(shorten_list(names))})"


def fit(
    name: str,
    source: Sequence[Array | None],
    shapes: Sequence[Sequence[int]],
    optional: Collection[int] = (),
) -> tuple[Array | None, ...]:
    """Fit a layer's stored blobs to the shapes that its net wants.

    Args:
        name: the layer, for error messages.
        source: its blobs, as read from a file; None where the file leaves one out.
        shapes: what they have to be.
        optional: the blobs that the file may leave out.

    Returns:
        An array per shape; None for those left out.

    Raises:
        WeightsError: for another number of blobs, and for every shape that does not fit.
    """
    remedy = "; rename the layer to train it from scratch"
    blobs = [*source, *[None] * (len(shapes) - len(source))]
    if len(blobs) > len(shapes) or any(blob is None and i not in optional for i, blob in enumerate(blobs)):
        count = sum(blob is not None for blob in source)
        message = f"the file has {counted(count, 'blob')}, the net {len(shapes)}{remedy}"
        raise WeightsError(Problem(message, layer=name))
    problems = [
        Problem(f"blob {i} is {shape_text(blob.shape)} in the file, {shape_text(shape)} in the net{remedy}", layer=name)
        for i, (blob, shape) in enumerate(zip(blobs, shapes, strict=True))
        if blob is not None and not _fits(blob, tuple(shape))
    ]
    if problems:
        raise WeightsError(problems)
    return tuple(
        None if blob is None else np.asarray(blob).reshape(shape) for blob, shape in zip(blobs, shapes, strict=True)
    )


def _fits(blob: Array, shape: tuple[int, ...]) -> bool:
    if isinstance(blob, Legacy4D):
        return len(shape) <= 4 and blob.shape == (1,) * (4 - len(shape)) + shape
    return blob.shape == shape


log = logging.getLogger("caffejax")

_LOGGED = 20  # layer names in a line of the log


def has_own_values(layer: Layer, param: Param) -> bool:
    """Return whether the net's own definition says what a blob holds: it needs none from a file."""
    return bool(layer.site.layer.blobs) or param.spec.value is not None


def layers_without(graph: Graph, found: Collection[Slot]) -> list[Layer]:
    """Return the layers with a blob of their own that was not found, nor stands in the net's definition."""
    return [
        layer
        for layer in graph.layers
        if any(p.is_owner and p.owner not in found and not has_own_values(layer, p) for p in layer.params)
    ]


def tell_coverage(graph: Graph, found: Collection[Slot], files: Sequence[str | os.PathLike[str]], strict: bool) -> None:
    """Name the layers that files have no weights for: in the log, in TEST as a warning; if strict, in an error.

    Args:
        graph: the net's graph.
        found: the blobs that were found.
        files: where, for messages.
        strict: whether there must be weights for every layer that has some.

    Raises:
        WeightsError: if strict, naming every layer without weights.
    """
    without = layers_without(graph, found)
    if not without:
        return
    names = ", ".join(os.fspath(file) for file in files)
    if strict:
        reason = f"has no weights in {names}, and strict_weights (--strict_weights) wants some; layers match by name"
        raise WeightsError(layer.problem(reason) for layer in without)
    layers_found = [layer.name for layer in graph.layers if layer.params and layer not in without]
    log.info("Weights from %s for %s", names, _counted_layers(layers_found))
    missing = [layer.name for layer in without]
    level = logging.WARNING if graph.phase == "TEST" else logging.INFO
    log.log(level, "No weights in %s for %s: as the fillers made them", names, _counted_layers(missing))


def _counted_layers(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LOGGED} more" if len(names) > _LOGGED else ""
    return f"{counted(len(names), 'layer')}: {', '.join(names[:_LOGGED])}{more}" if names else "no layer"

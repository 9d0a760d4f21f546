"""Matching of a file's blobs to a net's layers, by layer name as in Caffe, and a report of the result."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...base.errors import Problem, WeightsError, did_you_mean, raise_if_any, shorten_list
from ...base.glog import warn_once
from ...base.human_readable import format_count, format_list
from ..graph import Graph, Layer, Param
from ..graph.graph import Slot
from ..schema.blob_proto import Array, Legacy4D, format_shape

StoredBlobs = Mapping[str, Sequence[Array | None] | Mapping[str, Array]]
log = logging.getLogger("caffejax")

_MAX_LOGGED = 20  # layer names in a line of the log
_MAX_PAIRS = 3  # of similar names in a message


@dataclass(frozen=True)
class LoadReport:
    """The layers that were and were not loaded from a file. `str(report)` is a summary of a few lines.

    Attributes:
        file: the file.
        loaded: the names of the net's layers whose blobs were loaded.
        unused: the names of the file's layers with blobs that are not in the net, or are in `exclude`.
        missing: the names of the net's layers that keep their values, because the file has no blobs for them or they
            are in `exclude`. Layers that only share blobs of other layers are omitted.
        excluded: the names of the layers that the caller excluded.
        mismatched: the problems of layers whose blobs differ from the file's in number or shape. Loading raises an
            error with these problems.
    """

    file: str
    loaded: tuple[str, ...]
    unused: tuple[str, ...]
    missing: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    mismatched: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"Weights of {self.file}",
            f"  loaded:   {_join_names(self.loaded)}",
            f"  unused:   {self._format_with_reason(self.unused, 'file')}",
            f"  missing:  {self._format_with_reason(self.missing, 'net')}",
        ]
        return "\n".join([*lines, *(f"  mismatch: {problem}" for problem in self.mismatched)])

    def _format_with_reason(self, names: Sequence[str], origin: str) -> str:
        names_by_reason = {
            f"in the {origin} only": [name for name in names if name not in self.excluded],
            "named in `exclude`": [name for name in names if name in self.excluded],
        }
        texts = (f"{_join_names(selected)}, {reason}" for reason, selected in names_by_reason.items() if selected)
        return "; ".join(texts) or "none"

    __repr__ = __str__


def match_blobs(
    graph: Graph,
    stored_blobs: StoredBlobs,
    file: str | os.PathLike[str],
    *,
    stores_copies: bool,
    exclude: Collection[str] = (),
) -> tuple[dict[Slot, Array], LoadReport]:
    """Match a file's blobs to a net's layers by name.

    If several layers of the net have the same name, the first of them is loaded. If layers share a blob, the blob of
    the last of them in the file is loaded.

    Args:
        graph: the net's graph.
        stored_blobs: the file's blobs by layer name.
        file: the file, for error messages.
        stores_copies: whether the file stores a shared blob with every layer that uses it. Otherwise only the owner of
            the blob needs it.
        exclude: the names of layers to exclude.

    Returns:
        The arrays to load and the report. The arrays have the net's shapes, and are keyed by the `Slot` in the layer
        that owns the blob. Blobs that differ in number or shape are problems in the report.

    Raises:
        WeightsError: if a layer of `exclude` is not in the net.
    """
    layers_by_name = {layer.name: layer for layer in reversed(graph.param_layers) if not layer.is_inserted_split}
    mismatched: list[Problem] = []
    unknown_names = (name for name in exclude if name not in layers_by_name)
    messages = (f"exclude: no layer '{name}' in the net{did_you_mean(name, layers_by_name)}" for name in unknown_names)
    raise_if_any(WeightsError, messages)
    matches: dict[Slot, Array] = {}
    loaded_layers: set[str] = set()
    layers_by_warning: dict[str, list[str]] = {}
    included_layers = {name: layer for name, layer in layers_by_name.items() if name not in exclude}
    for name, blobs in stored_blobs.items():
        if name not in included_layers:
            continue
        layer = included_layers[name]
        if isinstance(blobs, Mapping):
            blob_names = graph.blob_names[layer.key][: len(layer.params)]
            if not set(blobs) <= set(blob_names):
                message = f"the file has blobs {', '.join(blobs)}, the net {', '.join(blob_names) or 'none'}"
                mismatched.append(Problem(message, os.fspath(file), layer=name))
                continue
            blobs = tuple(blobs.get(blob) for blob in blob_names)
        elif layer.recurrent_state:
            blobs = blobs[: len(layer.params)]
        blobs, warning = layer.context.convert_stored(blobs, [p.spec.shape for p in layer.params])
        if warning:
            layers_by_warning.setdefault(warning, []).append(name)
        optional_indices = [i for i, p in enumerate(layer.params) if not (stores_copies or p.is_owner)]
        try:
            arrays = reshape_to_net(name, blobs, [p.spec.shape for p in layer.params], optional_indices)
        except WeightsError as error:
            mismatched += [replace(p, file=os.fspath(file)) for p in error.problems]
            continue
        if layer.params:
            loaded_layers.add(name)
        for param, array in zip(layer.params, arrays, strict=True):
            if array is not None:
                shape = graph.find_param(param.owner).spec.shape
                matches[param.owner] = array.reshape(shape)
    for warning, names in layers_by_warning.items():
        warn_once(f"{os.fspath(file)}: {_format_layers(names)}: {warning}")
    unused = tuple(name for name in stored_blobs if name not in included_layers and stored_blobs[name])
    net_names = list(dict.fromkeys(layer.name for layer in graph.param_layers))  # in the net's order
    names_without_blobs = [n for n in net_names if n in layers_by_name and (n in exclude or not stored_blobs.get(n))]
    missing = tuple(
        n for n in names_without_blobs if any(p.is_owner and p.owner not in matches for p in layers_by_name[n].params)
    )
    loaded_names = tuple(name for name in net_names if name in loaded_layers)
    return matches, LoadReport(os.fspath(file), loaded_names, unused, missing, tuple(exclude), tuple(mismatched))


def mismatch_problems(report: LoadReport) -> tuple[Problem, ...]:
    """Return the problems of blobs that differ from the file's in number or shape.

    If the blobs of most layers differ, the file probably belongs to a different net, and a single problem is returned.
    """
    first_problems = {problem.layer: problem for problem in reversed(report.mismatched)}
    if len(first_problems) < 2 or len(first_problems) <= len(report.loaded):
        return report.mismatched
    examples = "; ".join(
        f"'{name}', {p.message.partition(';')[0]}" for name, p in [*reversed(first_problems.items())][:3]
    )
    message = (
        f"these seem to be the weights of another net: the shapes of {len(first_problems)} of the "
        f"{len(report.loaded) + len(first_problems)} layers that both have differ ({examples}); use the file that was "
        "made for this net"
    )
    return (Problem(message, report.file),)


def _join_names(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(shorten_list(names))})" if names else "none"


def reshape_to_net(
    name: str,
    source: Sequence[Array | None],
    shapes: Sequence[Sequence[int]],
    optional_indices: Collection[int] = (),
) -> tuple[Array | None, ...]:
    """Convert the blobs that a file stores for a layer to the shapes that the net needs.

    The 4-D shape of a blob in an old file may begin with axes of size 1 that the shape in the net does not have.

    Args:
        name: the layer's name, for error messages.
        source: the layer's blobs in the file; None for a blob that the file omits.
        shapes: the shapes in the net.
        optional_indices: the indices of the blobs that the file may omit.

    Returns:
        An array for each shape, or None for a blob that the file omits.

    Raises:
        WeightsError: if the number of blobs or the shape of a blob differs. The message names each such blob.
    """
    advice = "; use the file that was made for this net, or rename the layer to train it from scratch"
    blobs = [*source, *[None] * (len(shapes) - len(source))]
    if len(blobs) > len(shapes) or any(blob is None and i not in optional_indices for i, blob in enumerate(blobs)):
        count = sum(blob is not None for blob in source)
        message = f"the file has {format_count(count, 'blob')}, the net {len(shapes)}{advice}"
        raise WeightsError(Problem(message, layer=name))
    messages = [
        f"blob {i} is {format_shape(blob.shape)} in the file, {format_shape(shape)} in the net{advice}"
        for i, (blob, shape) in enumerate(zip(blobs, shapes, strict=True))
        if blob is not None and not _is_compatible(blob, tuple(shape))
    ]
    raise_if_any(WeightsError, (Problem(message, layer=name) for message in messages))
    return tuple(
        None if blob is None else np.asarray(blob).reshape(shape) for blob, shape in zip(blobs, shapes, strict=True)
    )


def _is_compatible(blob: Array, shape: tuple[int, ...]) -> bool:
    if isinstance(blob, Legacy4D):
        return len(shape) <= 4 and blob.shape == (1,) * (4 - len(shape)) + shape
    return blob.shape == shape


def has_own_values(layer: Layer, param: Param) -> bool:
    """Return whether the net's definition itself contains a blob's values, so that no weights file is needed."""
    return bool(layer.definition.layer.blobs) or param.spec.value is not None


def find_missing_layers(graph: Graph, loaded_slots: Collection[Slot]) -> list[Layer]:
    """Return the layers with a blob whose values are neither in `loaded_slots` nor in the net's definition."""
    return [
        layer
        for layer in graph.param_layers
        if any(p.is_owner and p.owner not in loaded_slots and not has_own_values(layer, p) for p in layer.params)
    ]


def no_match_problem(graph: Graph, stored_blobs: StoredBlobs, file: str | os.PathLike[str]) -> Problem:
    """Return the problem of a file that has no blobs for any layer of a net."""
    file_layers = [name for name, blobs in stored_blobs.items() if blobs]
    if not file_layers:
        return Problem("has no blobs of any layer: it is not a file of trained weights", os.fspath(file))
    net_layers = [layer.name for layer in graph.layers if layer.params]
    message = (
        "has no blobs for any layer of the net, and layers match by name: the net's are "
        f"{_join_names(net_layers)}, the file's {_join_names(file_layers)}"
        f"{describe_nearest(graph.layers, stored_blobs)}; "
        "use the file that was made for this net, or rename the net's layers as in the file"
    )
    return Problem(message, os.fspath(file))


def describe_nearest(layers: Sequence[Layer], stored_blobs: StoredBlobs) -> str:
    """Return "; nearest ..." with up to three pairs of similar names, one of `layers` and one in the file.

    Layers of the file whose blobs have the shapes that the net's layer needs are preferred. The result is "" if no
    names are similar.
    """
    pairs = []
    for layer in layers[:200]:  # a layer with a pair is usually among the first
        shapes = [tuple(param.spec.shape) for param in layer.params]
        compatible_names = [
            name
            for name, blobs in stored_blobs.items()
            if len(blobs) == len(shapes) > 0
            and all(
                blob is not None and _is_compatible(blob, shape)
                for blob, shape in zip(blobs.values() if isinstance(blobs, Mapping) else blobs, shapes, strict=True)
            )
        ]
        similar_names = difflib.get_close_matches(layer.name, compatible_names, 1, 0.3) if compatible_names else []
        similar_names = similar_names or (difflib.get_close_matches(layer.name, stored_blobs, 1) if shapes else [])
        pairs += [f"'{layer.name}' and '{name}'" for name in similar_names]
        if len(pairs) == _MAX_PAIRS:
            break
    return f"; nearest (net and file): {', '.join(pairs)}" if pairs else ""


class MissingLayersError(WeightsError):
    """Error about layers without weights in a file.

    Attributes:
        missing: the names of these layers.
        unused: the names of the file's layers that are not in the net.
    """

    missing: Sequence[str] = ()
    unused: Sequence[str] = ()


def report_missing(
    graph: Graph,
    loaded_slots: Collection[Slot],
    files: Sequence[str | os.PathLike[str]],
    strict: bool | None,
    unused_blobs: StoredBlobs,
) -> None:
    """Log the names of the layers that have no weights in the files. In the phase TEST, the message is a warning.

    If more than half of the layers with blobs have no weights, the message is a warning in every phase, and names
    similar layers of the files.

    Args:
        graph: the net's graph.
        loaded_slots: the slots of the blobs that the files have.
        files: the files, for messages.
        strict: whether a layer without weights is an error.
        unused_blobs: the files' blobs for other layers, by layer name.

    Raises:
        MissingLayersError: if `strict` and a layer has no weights. The message names each such layer.
    """
    layers_without_weights = find_missing_layers(graph, loaded_slots)
    if not layers_without_weights:
        return
    names = ", ".join(os.fspath(file) for file in files)
    missing_names = [layer.name for layer in layers_without_weights]
    if strict:
        reason = f"has no weights in {names}, but each layer needs weights here; layers are matched by name"
        error = MissingLayersError(layer.make_problem(reason) for layer in layers_without_weights)
        error.missing, error.unused = missing_names, list(unused_blobs)
        raise error
    layers_with_weights = [layer.name for layer in graph.layers if layer.params and layer not in layers_without_weights]
    log.info("Weights from %s for %s", names, _format_layers(layers_with_weights))
    level = logging.WARNING if graph.phase == "TEST" else logging.INFO
    log.log(level, "No weights in %s for %s: initialized by their fillers", names, _format_layers(missing_names))
    if layers_with_weights and len(missing_names) > len(layers_with_weights):
        total = len(missing_names) + len(layers_with_weights)
        log.warning(
            "%s: only %d of the net's %d layers with weights are in the file; layers match by name%s",
            *(names, len(layers_with_weights), total, describe_nearest(layers_without_weights, unused_blobs)),
        )


def _format_layers(names: Sequence[str]) -> str:
    return f"{format_count(len(names), 'layer')}: {format_list(names, _MAX_LOGGED)}" if names else "no layer"

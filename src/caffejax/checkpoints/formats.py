"""Weights from any format to any other, as they are: blobs by layer name.

A format is known by its name's end. Where layers share blobs, some formats hold copies (.caffemodel) and others
only the owner's; the net's definition says which they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import Problem, WeightsError, did_you_mean
from ..layers import layer_types
from ..schema.blob_proto import Array, Legacy4D
from ..schema.caffe_pb2 import LayerParameter, NetParameter
from . import array_files
from .caffe_hdf5 import write_caffemodel_h5
from .caffemodel import read_caffemodel, write_caffemodel
from .orbax import CheckpointFolder

Weights = dict[str, tuple[Array | None, ...]]
_MAX_BLOBS = 1000  # of a layer; a number beyond is damage


@dataclass(frozen=True)
class Format:
    """How weights are read and written.

    Attributes:
        read: `read(path)`.
        write: `write(path, net, weights)`; the net has every layer that the weights have.
        copies: whether a shared blob is stored with every layer that uses it.
        legacy: whether it can hold the 4-D shapes of old files as such.
        by_content: whether it is one of Caffe's, which are told from each other by what is in a file.
        read_whole: reads what layers carry from pass to pass as well, behind their blobs, if the format has it; a net
            knows how many blobs its layers have.
    """

    read: Callable[[str], Weights]
    write: Callable[[str, NetParameter, Weights], None]
    copies: bool
    legacy: bool = False
    by_content: bool = False
    read_whole: Callable[[str], Weights] | None = None


def format_of(path: str) -> Format:
    """Return the format that a path's end names.

    Raises:
        WeightsError: for any other end.
    """
    return FORMATS[format_end(path)]


def format_end(path: str, *, known_only: bool = True) -> str:
    """Return the end of a path that names a format: one of `FORMATS`.

    Raises:
        WeightsError: for any other end; unless not `known_only`, where "" is returned.
    """
    name = path.rstrip("/")
    folder, last = os.path.split(name)
    if last.isdigit() and folder.endswith(".orbax"):
        name = folder
    for end in FORMATS:
        if name.endswith(end):
            return end
    if not known_only:
        return ""
    hint = did_you_mean(Path(name).suffix, FORMATS)
    raise WeightsError(Problem(f"unknown format; the name should end in one of {', '.join(FORMATS)}{hint}", file=path))


def convert(source: str, target: str, net: NetParameter | None = None) -> Weights:
    """Read weights in one format, write them in another, and return what was written.

    Args:
        source: the file or folder to read.
        target: the file or folder to write.
        net: the definition, up to date. Without one, the file has no more of layers than their names, and
            neither shared blobs that the source leaves out nor the 4-D shapes of old files can be made out.

    Raises:
        WeightsError: if a file cannot be read or written, or the net and the weights do not go together.
    """
    reader, writer = format_of(source), format_of(target)
    weights = reader.read(source)
    if net is None:
        net = NetParameter(layer=[LayerParameter(name=name) for name in weights])
    names = {layer.name for layer in net.layer}
    unknown = [name for name, blobs in weights.items() if blobs and name not in names]
    if unknown:
        message = "the model has no such layer, but the file has blobs for it; give the model it was trained with"
        raise WeightsError([Problem(message, file=source, layer=name) for name in unknown])
    if not writer.legacy:
        weights = _drop_legacy_axes(net, weights, source)
    if writer.copies:
        weights = _copy_shared(net, weights, source)
    else:
        shared = _owners_of_shared(net)
        weights = {
            name: tuple(None if (name, i) in shared else blob for i, blob in enumerate(blobs))
            for name, blobs in weights.items()
        }
    # a layer without its blobs would not load, one that is not there does
    writer.write(target, NetParameter(name=net.name, layer=[x for x in net.layer if x.name in weights]), weights)
    return weights


def _owners_of_shared(net: NetParameter) -> dict[tuple[str, int], tuple[str, int]]:
    """Map each shared blob that a layer does not own to its owner, the first with that name."""
    first: dict[str, tuple[str, int]] = {}
    owners = {}
    for layer in net.layer:
        for i, spec in enumerate(layer.param):
            if spec.name and first.setdefault(spec.name, (layer.name, i)) != (layer.name, i):
                owners[layer.name, i] = first[spec.name]
    return owners


def _copy_shared(net: NetParameter, weights: Weights, file: str) -> Weights:
    """Return the weights with every shared blob in every layer that uses it."""
    filled = {name: list(blobs) for name, blobs in weights.items()}
    for (name, i), (owner, j) in _owners_of_shared(net).items():
        blobs = filled.setdefault(name, [])
        blobs += [None] * (i + 1 - len(blobs))
        if blobs[i] is None and j < len(filled.get(owner, ())):
            blobs[i] = filled[owner][j]
    holes = [name for name, blobs in filled.items() if any(b is None for b in blobs)]
    if holes:
        message = "a blob that this layer shares is not in the file; --model says which one it is"
        raise WeightsError([Problem(message, file=file, layer=name) for name in holes])
    return {name: tuple(blobs) for name, blobs in filled.items()}


def _drop_legacy_axes(net: NetParameter, weights: Weights, file: str) -> Weights:
    """Return the weights with the 4-D shapes of old files as they are today, which depends on the layer's type."""
    types, known = {layer.name: layer.type for layer in net.layer}, layer_types()
    old = [name for name, blobs in weights.items() if any(isinstance(b, Legacy4D) for b in blobs)]
    unknown = [name for name in old if not types[name]]
    if unknown:
        message = "its blobs have 4-D shapes, as in files before 2015; --model says what they are today"
        raise WeightsError([Problem(message, file=file, layer=name) for name in unknown])

    def drop_axes(type: str, i: int, blob: Array | None) -> Array | None:
        if not isinstance(blob, Legacy4D):
            return blob
        axes = known[type].traits.weight_axes if i == 0 and type in known else 1
        shape = blob.shape[-axes:] if set(blob.shape[:-axes]) <= {1} else blob.shape
        return np.asarray(blob).reshape(shape)

    return {
        name: tuple(drop_axes(types.get(name, ""), i, b) for i, b in enumerate(blobs))
        for name, blobs in weights.items()
    }


def _flatten(weights: Weights) -> dict[str, Array]:
    return {f"{name}/{i}": blob for name, blobs in weights.items() for i, blob in enumerate(blobs) if blob is not None}


def _unflatten(path: str, arrays: Mapping[str, Array]) -> Weights:
    found: dict[str, dict[int, Array]] = {}
    wrong = []
    for key, array in arrays.items():
        name, _, index = key.rpartition("/")
        if not (name and index.isascii() and index.isdigit() and len(index) < 10 and int(index) < _MAX_BLOBS):
            wrong.append(f"array '{key}' is not named <layer>/<number of the blob>")
        elif array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
            wrong.append(f"array '{key}' holds {array.dtype}, not numbers")
        else:
            found.setdefault(name, {})[int(index)] = np.asarray(array, np.float32)
    if wrong:
        raise WeightsError([Problem(message, file=path) for message in wrong])
    return {name: tuple(blobs.get(i) for i in range(1 + max(blobs))) for name, blobs in found.items()}


def _write_caffemodel(path: str, net: NetParameter, weights: Weights) -> None:
    write_caffemodel(path, net, {name: [b for b in blobs if b is not None] for name, blobs in weights.items()})


def _write_caffemodel_h5(path: str, net: NetParameter, weights: Weights) -> None:
    write_caffemodel_h5(path, weights, layers=list(dict.fromkeys(layer.name for layer in net.layer)))


def _read_orbax(path: str, whole: bool = False) -> Weights:
    folder, step = _split_step(path)
    if not os.path.isdir(folder):
        raise WeightsError(Problem("no such folder; check the path and the working directory", file=path))
    checkpoints = CheckpointFolder(folder)
    try:
        arrays, _ = checkpoints.restore(step)
    finally:
        checkpoints.close()
    params = {name: dict(blobs) for name, blobs in arrays.get("params", {}).items()}
    for name, blobs in arrays.get("state", {}).items():
        # what a layer with params has behind them is no blob: it is carried from pass to pass (LSTM)
        last = max(map(int, params.get(name, {})), default=_MAX_BLOBS)
        params.setdefault(name, {}).update({i: b for i, b in blobs.items() if whole or int(i) < last})
    named = {f"{name}/{i}": np.asarray(blob) for name, blobs in params.items() for i, blob in blobs.items()}
    return _unflatten(path, named)


def _write_orbax(path: str, net: NetParameter, weights: Weights) -> None:
    folder, step = _split_step(path)
    arrays = {
        name: {str(i): blob for i, blob in enumerate(blobs) if blob is not None} for name, blobs in weights.items()
    }
    checkpoints = CheckpointFolder(folder)
    checkpoints.save(step or 0, {"params": {name: blobs for name, blobs in arrays.items() if blobs}}, {"weights": True})
    checkpoints.close()


def _split_step(path: str) -> tuple[Path, int | None]:
    given = Path(path)
    return (given.parent, int(given.name)) if given.name.isdigit() else (given, None)


FORMATS: dict[str, Format] = {
    ".caffemodel": Format(read_caffemodel, _write_caffemodel, copies=True, legacy=True, by_content=True),
    ".h5": Format(read_caffemodel, _write_caffemodel_h5, copies=False, by_content=True),
    ".orbax": Format(_read_orbax, _write_orbax, copies=False, read_whole=lambda path: _read_orbax(path, whole=True)),
    ".npz": Format(
        lambda path: _unflatten(path, array_files.read_npz(path)),
        lambda path, net, weights: array_files.write_npz(path, _flatten(weights)),
        copies=True,
    ),
    ".safetensors": Format(
        lambda path: _unflatten(path, array_files.read_safetensors(path)),
        lambda path, net, weights: array_files.write_safetensors(path, _flatten(weights)),
        copies=True,
    ),
}

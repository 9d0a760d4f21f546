"""The formats of weight files, and the conversion between them.

The extension of a file selects the format. If layers share a blob, some formats store a copy for each layer
(.caffemodel, .npz, .safetensors). Others store the blob once, for the layer that owns it (.h5, .orbax). The net's
definition says which blobs are shared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ...base.errors import Problem, WeightsError, did_you_mean, raise_if_any, shorten_list
from ...base.glog import log
from ..graph.graph import CARRIED
from ..layers import layer_types
from ..schema.blob_proto import Array, Legacy4D
from ..schema.caffe_pb2 import LayerParameter, NetParameter
from . import array_files
from .caffemodel import read_caffemodel, write_caffemodel
from .orbax import CheckpointFolder

Blobs = Sequence[Array | None] | Mapping[str, Array]  # in Caffe's order, or by name
Weights = Mapping[str, Blobs]
OrderedWeights = dict[str, tuple[Array | None, ...]]
_MAX_BLOBS = 1000  # in a layer; a larger number is a sign of damage


@dataclass(frozen=True)
class Format:
    """A format of weight files.

    Attributes:
        read: a function `read(path)` that returns the weights. For files of named arrays, `read(path, names)` reads
            the arrays that `names` contains under the names to which it maps them.
        write: a function `write(path, net, weights)`. The net must have every layer that the weights have. Caffe's
            formats take the blobs in Caffe's order, the others also by name.
        stores_copies: whether a shared blob is stored with every layer that uses it.
        supports_legacy_4d: whether the format can store the 4-D shapes of Caffe's files from before 2015.
    """

    read: Callable[..., Weights]
    write: Callable[[str, NetParameter, Any], None]
    stores_copies: bool
    supports_legacy_4d: bool = False


def find_extension(path: str, *, known_only: bool = True) -> str:
    """Return the extension of a path, a key of `FORMATS`.

    The path of a step in an .orbax folder, such as "net.orbax/100", has the extension ".orbax". The folder
    "net.orbax.old" of an earlier run has it, too.

    Args:
        path: the file or folder.
        known_only: whether an unknown extension is an error. Otherwise the result is "".

    Raises:
        WeightsError: if the extension is unknown and `known_only` is set.
    """
    name = re.sub(r"\.orbax(\.old)?(/+\d+)?$", ".orbax", path.rstrip("/"))
    for extension in FORMATS:
        if name.endswith(extension):
            return extension
    if not known_only:
        return ""
    hint = did_you_mean(Path(name).suffix, FORMATS)
    raise WeightsError(Problem(f"unknown format; the name should end in one of {', '.join(FORMATS)}{hint}", file=path))


def convert(source: str, target: str, net: NetParameter | None = None) -> OrderedWeights:
    """Convert weights from one format to another, and return the weights that were written.

    Args:
        source: the file or folder to read.
        target: the file or folder to write.
        net: the net's definition in the current schema, or None. The definition is needed if the source omits shared
            blobs or has the 4-D shapes of old files. Without it, a .caffemodel stores only names and blobs of layers.

    Raises:
        WeightsError: if a file cannot be read or written, the net and the weights do not match, or `net` is None
            although it is needed.
    """
    source_format, target_format = FORMATS[find_extension(source)], FORMATS[find_extension(target)]
    stored = source_format.read(source)
    if net is None:
        net = NetParameter(layer=[LayerParameter(name=name) for name in stored])
    types = {layer.name: layer.type for layer in net.layer}
    weights = {name: _in_caffe_order(blobs, name, types.get(name, ""), source) for name, blobs in stored.items()}
    message = "the file has blobs for this layer, but the model has no such layer; pass the model it was trained with"
    unknown_layers = (name for name, blobs in weights.items() if blobs and name not in types)
    raise_if_any(WeightsError, (Problem(message, source, layer=name) for name in unknown_layers))
    if not target_format.supports_legacy_4d:
        weights = _drop_legacy_axes(net, weights, source)
    if target_format.stores_copies:
        weights = _copy_shared_blobs(net, weights, source)
    else:
        shared_owners = _find_shared_owners(net)
        weights = {
            name: tuple(None if (name, i) in shared_owners else blob for i, blob in enumerate(blobs))
            for name, blobs in weights.items()
        }
    # layers without weights are omitted: a layer that is stored without its blobs could not be loaded
    target_format.write(target, NetParameter(name=net.name, layer=[x for x in net.layer if x.name in weights]), weights)
    return weights


def _in_caffe_order(blobs: Blobs, layer: str, type_name: str, file: str) -> tuple[Array | None, ...]:
    """Return a layer's blobs in Caffe's order, which the layer's type states, or any type if the model is unknown."""
    if not isinstance(blobs, Mapping):
        return tuple(blobs)
    if len(blobs) == 1:
        return tuple(blobs.values())
    all_types = layer_types()
    types = [all_types[type_name]] if type_name in all_types else all_types.values()
    full_orders = [order for layer_type in types for order in layer_type.blob_orders if set(blobs) <= set(order)]
    orders = {tuple(name for name in order if name in blobs) for order in full_orders}
    if len(orders) != 1:
        message = (
            f"the order of its blobs {', '.join(blobs)} is not known; name the model with --model, or convert it with "
            "net.load and net.save"
        )
        raise WeightsError(Problem(message, file, layer=layer))
    return tuple(blobs[name] for name in orders.pop())


def _find_shared_owners(net: NetParameter) -> dict[tuple[str, int], tuple[str, int]]:
    """Map each shared blob `(layer, index)` to its owner, the first blob with the same `param.name` in the net."""
    first_owner: dict[str, tuple[str, int]] = {}
    owners = {}
    for layer in net.layer:
        for i, spec in enumerate(layer.param):
            if spec.name and first_owner.setdefault(spec.name, (layer.name, i)) != (layer.name, i):
                owners[layer.name, i] = first_owner[spec.name]
    return owners


def _copy_shared_blobs(net: NetParameter, weights: OrderedWeights, file: str) -> OrderedWeights:
    completed_blobs = {name: list(blobs) for name, blobs in weights.items()}
    for (name, i), (owner, j) in _find_shared_owners(net).items():
        blobs = completed_blobs.setdefault(name, [])
        blobs += [None] * (i + 1 - len(blobs))
        if blobs[i] is None and j < len(completed_blobs.get(owner, ())):
            blobs[i] = completed_blobs[owner][j]
    message = "the file omits a blob that this layer shares; name the model with --model to resolve it"
    incomplete_layers = (name for name, blobs in completed_blobs.items() if any(b is None for b in blobs))
    raise_if_any(WeightsError, (Problem(message, file, layer=name) for name in incomplete_layers))
    return {name: tuple(blobs) for name, blobs in completed_blobs.items()}


def _drop_legacy_axes(net: NetParameter, weights: OrderedWeights, file: str) -> OrderedWeights:
    type_names, registered_types = {layer.name: layer.type for layer in net.layer}, layer_types()
    message = "its blobs have 4-D shapes, as in files before 2015; name the model with --model to convert them"
    legacy_layers = (name for name, blobs in weights.items() if any(isinstance(b, Legacy4D) for b in blobs))
    raise_if_any(WeightsError, (Problem(message, file, layer=name) for name in legacy_layers if not type_names[name]))

    def drop_axes(type: str, i: int, blob: Array | None) -> Array | None:
        if not isinstance(blob, Legacy4D):
            return blob
        axes = registered_types[type].traits.weight_axes if i == 0 and type in registered_types else 1
        shape = blob.shape[-axes:] if set(blob.shape[:-axes]) <= {1} else blob.shape
        return np.asarray(blob).reshape(shape)

    return {
        name: tuple(drop_axes(type_names.get(name, ""), i, b) for i, b in enumerate(blobs))
        for name, blobs in weights.items()
    }


def _name_blobs(blobs: Blobs) -> dict[str, Array]:
    if isinstance(blobs, Mapping):
        return dict(blobs)
    return {str(i): blob for i, blob in enumerate(blobs) if blob is not None}


def _flatten(weights: Weights) -> dict[str, Array]:
    return {f"{layer}.{name}": blob for layer, blobs in weights.items() for name, blob in _name_blobs(blobs).items()}


def _unflatten(path: str, arrays: Mapping[str, Array]) -> Weights:
    """Return a file's arrays by layer. They are named `<layer>.<blob>`, or `<layer>/<number>` in older files.

    Other arrays, and those that hold no numbers, are left out, and the log names them.
    """
    layers: dict[str, dict[str, Array]] = {}
    others = []
    for key, array in arrays.items():
        layer, _, name = key.rpartition("/")
        if not _is_number(name):
            layer, _, name = key.rpartition(".")
        if not (layer and name) or (array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16"):
            others.append(f"'{key}'")
        else:
            layers.setdefault(layer, {})[name] = np.asarray(array, np.float32)
    if others:
        message = f"{', '.join(shorten_list(others))}: no numbers named <layer>.<blob>"
        if not layers:
            raise WeightsError(Problem(f"the file has no weights, only {message}", file=path))
        log.warning("%s: left out %s", path, message)
    return {layer: _unname_blobs(blobs) for layer, blobs in layers.items()}


def _unname_blobs(blobs: dict[str, Array]) -> Blobs:
    """Return blobs as a tuple if all names are numbers, as in files of earlier versions, otherwise unchanged."""
    if not all(map(_is_number, blobs)):
        return blobs
    return tuple(blobs.get(str(i)) for i in range(1 + max(map(int, blobs))))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and name == str(int(name)) and int(name) < _MAX_BLOBS


def _write_caffemodel(path: str, net: NetParameter, weights: OrderedWeights) -> None:
    write_caffemodel(path, net, {name: [b for b in blobs if b is not None] for name, blobs in weights.items()})


def _write_caffemodel_h5(path: str, net: NetParameter, weights: OrderedWeights) -> None:
    from .caffe_hdf5 import write_caffemodel_h5  # importing h5py takes long

    write_caffemodel_h5(path, weights, layers=list(dict.fromkeys(layer.name for layer in net.layer)))


def read_orbax(path: str, with_state: bool = False) -> Weights:
    """Read the weights of a step of an .orbax folder; `with_state` appends each layer's recurrent state to its blobs.

    Raises:
        WeightsError: if the step does not exist or is damaged.
    """
    folder, step = _split_step(path)
    if not os.path.isdir(folder):
        raise WeightsError(Problem("no such folder; check the path and the working directory", file=path))
    check_not_orbax_item(folder)
    with closing(CheckpointFolder(folder)) as checkpoints:
        arrays, _ = checkpoints.restore(step)
    params = {name: dict(blobs) for name, blobs in arrays.get("params", {}).items()}
    for name, blobs in arrays.get("state", {}).items():
        # recurrent state is no blob: in earlier versions, it had numbers above those of the layer's params
        last_index = max((int(i) for i in params.get(name, {}) if _is_number(i)), default=_MAX_BLOBS)
        is_blob = {i: int(i) < last_index or with_state if _is_number(i) else not i.startswith(CARRIED) for i in blobs}
        params.setdefault(name, {}).update({i: b for i, b in blobs.items() if is_blob[i]})
    return _unflatten(
        path, {f"{layer}.{name}": np.asarray(blob) for layer, blobs in params.items() for name, blob in blobs.items()}
    )


def check_not_orbax_item(folder: Path) -> None:
    """Raise `WeightsError` if a folder is a checkpoint that orbax's StandardCheckpointer wrote, not one of caffejax."""
    if any((folder / name).exists() for name in ("_CHECKPOINT_METADATA", "_METADATA")):
        message = (
            "is an orbax checkpoint, but not a snapshot of caffejax; restore it with a template, such as "
            "orbax.checkpoint.StandardCheckpointer().restore(path, template), or name a snapshot: <prefix>.orbax or a "
            "step in it"
        )
        raise WeightsError(Problem(message, file=str(folder)))


def _write_orbax(path: str, net: NetParameter, weights: Weights) -> None:
    folder, step = _split_step(path)
    arrays = {layer: _name_blobs(blobs) for layer, blobs in weights.items()}
    checkpoints = CheckpointFolder(folder)
    checkpoints.save(step or 0, {"params": {name: blobs for name, blobs in arrays.items() if blobs}}, {"weights": True})
    checkpoints.close()


def _split_step(path: str) -> tuple[Path, int | None]:
    folder = Path(path)
    return (folder.parent, int(folder.name)) if folder.name.isdigit() else (folder, None)


def _make_array_format(
    read: Callable[[str], dict[str, Array]], write: Callable[[str, Mapping[str, Array]], None]
) -> Format:
    def read_weights(path: str, names: Mapping[str, str] = MappingProxyType({})) -> Weights:
        arrays = read(path)
        problems = (f"has no array '{name}'{did_you_mean(name, arrays)}" for name in names if name not in arrays)
        raise_if_any(WeightsError, problems, path)
        return _unflatten(path, {names.get(name, name): array for name, array in arrays.items()})

    return Format(read_weights, lambda path, net, weights: write(path, _flatten(weights)), stores_copies=True)


FORMATS: dict[str, Format] = {
    ".caffemodel": Format(read_caffemodel, _write_caffemodel, stores_copies=True, supports_legacy_4d=True),
    ".h5": Format(read_caffemodel, _write_caffemodel_h5, stores_copies=False),
    ".orbax": Format(read_orbax, _write_orbax, stores_copies=False),
    ".npz": _make_array_format(array_files.read_npz, array_files.write_npz),
    ".safetensors": _make_array_format(array_files.read_safetensors, array_files.write_safetensors),
}

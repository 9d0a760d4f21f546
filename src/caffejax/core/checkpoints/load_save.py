"""Loading of weight files into a net and saving of a net's weights. Layers are matched by name, as in Caffe."""

from __future__ import annotations

import logging
import mmap
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...base.errors import Problem, WeightsError
from ...base.paths import is_hdf5, read_bytes
from ...base.variables import Params, ParamsLike, Variables, as_params
from ..graph import Graph, Layer, Param
from ..graph.graph import Slot
from ..ops.compilation import as_jax, find_cpu
from ..parallel.global_arrays import put_global
from ..schema.blob_proto import Array
from ..schema.caffe_pb2 import TEST, TRAIN, LayerParameter, NetParameter, ParamSpec
from .caffemodel import decode_caffemodel, read_caffemodel, write_caffemodel
from .match_by_name import (
    LoadReport,
    MissingLayersError,
    StoredBlobs,
    match_blobs,
    mismatch_problems,
    no_match_problem,
    report_missing,
)
from .weight_formats import FORMATS, check_not_orbax_item, find_extension, read_orbax

log = logging.getLogger("caffejax")

Initializer = Callable[[Mapping[Slot, jax.Array]], Variables]

_LARGE_ARRAY_BYTES = 1 << 20  # bytes of an array after which the memory of the mapped file is freed


def load_weights(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    graph: Graph,
    variables: Variables | Initializer,
    strict: bool | None = False,
) -> Variables:
    """Load weight files into the layers of the same names, and return the net's variables.

    Layers that exist only in a file, or only in the net, are ignored. If several layers of the net have the same name,
    the first of them is loaded. If layers share a blob, the blob of the last of them in the file is loaded. The log
    names the layers without weights.

    Args:
        path: a file or folder, or a list of files that are loaded in order. The extension selects one of
            `weight_formats.FORMATS`. With any other extension, the file must be a .caffemodel or .caffemodel.h5, which
            are distinguished by content.
        graph: the net's graph.
        variables: the current variables; the loaded arrays get their dtypes and shardings. Alternatively, a function
            that takes the loaded arrays by `Slot` and returns all variables, with initial values for blobs that were
            not loaded.
        strict: if True, a layer without weights is an error. If False, a file without weights for any layer is an
            error. If None, both are only logged, as in Caffe, also for an empty file.

    Raises:
        WeightsError: if a file cannot be read, blobs differ in number or shape from the net's, a file has no weights
            for any layer, or, if `strict`, layers have no weights. The message names each such layer.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if strict is None:
        paths = drop_empty_files(paths, strict)
    loaded_arrays: dict[Slot, jax.Array] = {}
    unused_blobs: dict[str, Any] = {}
    for file_path in paths:
        arrays, _, unmatched_blobs = _read_matching(file_path, graph, variables, strict)
        loaded_arrays |= arrays
        unused_blobs |= unmatched_blobs
    if paths:
        report_missing(graph, loaded_arrays.keys(), paths, strict, unused_blobs)
    return _merge_loaded(loaded_arrays, variables)


def drop_empty_files(paths: Sequence[str | os.PathLike[str]], strict: bool | None) -> list[str | os.PathLike[str]]:
    """Return the files without those that are empty, such as /dev/null, which Caffe reads as weights of no layer.

    A warning names them. If `strict`, they are not removed, so that loading them is an error.
    """
    empty = [p for p in paths if os.path.realpath(p) == os.devnull or (os.path.isfile(p) and not os.path.getsize(p))]
    if strict or not empty:
        return list(paths)
    for path in empty:
        log.warning("%s is empty: the weights of all layers stay as their fillers set them", os.fspath(path))
    return [path for path in paths if path not in empty]


def load_and_report(
    path: str | os.PathLike[str],
    graph: Graph,
    variables: Variables | Initializer,
    strict: bool | None = False,
    exclude: Collection[str] = (),
    names: Mapping[str, str] | None = None,
) -> tuple[Variables, LoadReport]:
    """Load one file as `load_weights` does, except the layers named in `exclude`. For `names`, see `Net.load`.

    Returns:
        The variables, and a report of the layers that were and were not loaded.

    Raises:
        WeightsError: if a layer of `exclude` is not in the net, or for the reasons in `load_weights`.
    """
    loaded_arrays, report, unused_blobs = _read_matching(path, graph, variables, strict, exclude, names)
    excluded = {param.owner for layer in graph.param_layers if layer.name in exclude for param in layer.params}
    report_missing(graph, loaded_arrays.keys() | excluded, [path], strict, unused_blobs)
    return _merge_loaded(loaded_arrays, variables), report


def _merge_loaded(loaded_arrays: Mapping[Slot, jax.Array], variables: Variables | Initializer) -> Variables:
    if not isinstance(variables, Variables):
        return variables(loaded_arrays)

    def replace_blobs(tree: ParamsLike) -> Params:
        return {
            layer: {name: loaded_arrays.get(Slot(layer, name), current) for name, current in blobs.items()}
            for layer, blobs in as_params(tree).items()
        }

    return Variables(replace_blobs(variables.params), replace_blobs(variables.state))


def _read_matching(
    path: str | os.PathLike[str],
    graph: Graph,
    variables: Variables | Initializer,
    strict: bool | None,
    exclude: Collection[str] = (),
    names: Mapping[str, str] | None = None,
) -> tuple[dict[Slot, jax.Array], LoadReport, StoredBlobs]:
    stored_blobs, free_pages, stores_copies = open_blobs(path, names)
    matches, report = match_blobs(graph, stored_blobs, path, stores_copies=stores_copies, exclude=exclude)
    if report.mismatched:
        raise WeightsError(mismatch_problems(report))
    for name in report.unused:
        log.info("Ignoring source layer %s", name)
    if not matches and not set(report.missing) <= set(exclude):
        problem = no_match_problem(graph, stored_blobs, path)
        if strict is not None and not report.unused:
            raise WeightsError(problem)
        if strict is not None:
            error = MissingLayersError(problem)
            error.missing, error.unused = report.missing, report.unused
            raise error
        log.warning("%s", problem)
    loaded_arrays = {}
    trees = [as_params(tree) for tree in variables] if isinstance(variables, Variables) else []
    for slot, array in matches.items():
        current = (tree[slot.layer][slot.name] for tree in trees if slot.name in tree.get(slot.layer, {}))
        loaded_arrays[slot] = _convert_like(array, next(current, None))
        if array.nbytes >= _LARGE_ARRAY_BYTES:
            loaded_arrays[slot].block_until_ready()
            free_pages()
    unused_blobs = {name: stored_blobs[name] for name in report.unused}
    # the transfers read the mapped file until they end
    return jax.block_until_ready(loaded_arrays), report, unused_blobs


def _convert_like(array: Array, current: jax.Array | None) -> jax.Array:
    """Return a JAX array with the dtype and sharding of `current`, or float32 on the default device if it is None."""
    array = array.astype(np.float32 if current is None else current.dtype, copy=False)
    if isinstance(current, jax.Array) and len(current.sharding.device_set) > 1:
        return put_global(array, current.sharding)
    if array.ctypes.data % 64 == 0:
        # JAX on a CPU would share this memory, which may be part of a mapped file, whose bytes can change
        array = array.copy()
    return as_jax(array, find_cpu())  # jnp.asarray would compile a program


def save_weights(
    path: str | os.PathLike[str],
    graph: Graph,
    variables: Variables,
    diffs: Params | None = None,
    hdf5: bool | None = None,
) -> None:
    """Write a net's weights, in the format that the path's extension selects; see `weight_formats.FORMATS`.

    A blob that layers share is stored for each layer or only for its owner, depending on the format. In an .orbax
    folder, the weights are step 0 if the path names no step.

    Args:
        path: the file or folder.
        graph: the net's graph.
        variables: the parameters and running statistics.
        diffs: a tree like `variables.params` with gradients or updates to store beside the blobs, or None. The diffs of
            running statistics are zeros. Only .caffemodel and .caffemodel.h5 can store diffs.
        hdf5: True to write a .caffemodel.h5, False to write a .caffemodel, None to follow the extension.

    Raises:
        WeightsError: if the extension is unknown, the format cannot store `diffs` or layers of the same name, or the
            file cannot be written. An existing file then stays unchanged.
    """
    layers = graph.param_layers
    blobs = [[np.asarray(p.array(*variables), np.float32) for p in layer.params] for layer in layers]
    diff_arrays = None if diffs is None else [[make_diff_array(p, diffs) for p in layer.params] for layer in layers]
    extension = find_extension(os.fspath(path)) if hdf5 is None else ".h5" if hdf5 else ".caffemodel"
    if diffs is not None and extension not in (".h5", ".caffemodel"):
        raise WeightsError(Problem(f"a {extension} file cannot store diffs; write a .caffemodel", os.fspath(path)))
    if extension == ".caffemodel":
        net = NetParameter(name=graph.name, layer=[_make_definition(layer, graph.phase) for layer in layers])
        write_caffemodel(path, net, blobs, diff_arrays)
        return
    names = [layer.name for layer in layers]
    if extension == ".h5":
        from .caffe_hdf5 import write_caffemodel_h5  # importing h5py takes long

        owned_blobs = [
            [blob if p.is_owner else None for p, blob in zip(layer.params, arrays, strict=True)]
            for layer, arrays in zip(layers, blobs, strict=True)
        ]
        named_diffs = dict(zip(names, diff_arrays, strict=True)) if diff_arrays else None
        write_caffemodel_h5(path, dict(zip(names, owned_blobs, strict=True)), named_diffs, names)
        return
    counts = Counter(layer.name for layer in layers if layer.params)
    refused_names = [name for name, count in counts.items() if count > 1 or not name]
    if refused_names:
        kind = (
            "several layers of this name" if all(refused_names) else "several layers of one name, or one without a name"
        )
        message = f"a {extension} file cannot store {kind}; rename one, or write a .caffemodel"
        raise WeightsError(Problem(message, os.fspath(path), layer=name) for name in refused_names)
    format_ = FORMATS[extension]
    weights = {
        layer.name: {
            param.slot.name: blob
            for param, blob in zip(layer.params, arrays, strict=True)
            if format_.stores_copies or param.is_owner
        }
        for layer, arrays in zip(layers, blobs, strict=True)
        if layer.params
    }
    format_.write(os.fspath(path), NetParameter(), weights)


def _make_definition(layer: Layer, phase: str) -> LayerParameter:
    """Return a layer's definition as Caffe writes it, with phase, loss weights, and `lr_mult: 0` for statistics."""
    definition = LayerParameter()
    definition.CopyFrom(layer.definition.layer)
    definition.phase = TRAIN if phase == "TRAIN" else TEST
    if any(layer.loss_weights) and not definition.loss_weight:
        definition.loss_weight.extend(layer.loss_weights)
    if any(not p.spec.learnable for p in layer.params):
        missing_indices = range(len(definition.param), len(layer.params))
        definition.param.extend(ParamSpec(lr_mult=0) for _ in missing_indices)
    return definition


def open_blobs(
    path: str | os.PathLike[str], names: Mapping[str, str] | None = None
) -> tuple[StoredBlobs, Callable[[], object], bool]:
    """Open a weight file. The formats .caffemodel and .caffemodel.h5 are distinguished by content.

    Args:
        path: the file or folder.
        names: other names for arrays of an .npz or .safetensors file; see `Net.load`.

    Returns:
        The blobs by layer name, a function that frees the memory of the bytes that were read so far, and whether the
        format stores a shared blob with every layer that uses it.
    """
    extension = find_extension(os.fspath(path), known_only=False)
    if extension in (".npz", ".safetensors"):
        return FORMATS[extension].read(os.fspath(path), names or {}), lambda: None, True
    if names:
        raise WeightsError(Problem("only the arrays of an .npz or .safetensors file can be renamed", os.fspath(path)))
    if extension == ".orbax":
        return read_orbax(os.fspath(path), with_state=True), lambda: None, False
    if os.path.isdir(path):
        check_not_orbax_item(Path(path))
        raise WeightsError(Problem("this is a folder; name a file in it, or a <prefix>.orbax folder", os.fspath(path)))
    if is_hdf5(path):
        return read_caffemodel(path), lambda: None, False
    data, free_pages = _map_file(path)
    return decode_caffemodel(data, path), free_pages, True


def make_diff_array(param: Param, diffs: Params) -> Array:
    """Return the array of a param in a tree like a net's params as float32; Caffe stores zeros for statistics."""
    if not param.spec.learnable:
        return np.zeros(param.spec.shape, np.float32)
    return np.asarray(param.array(diffs, {}), np.float32)


def _map_file(path: str | os.PathLike[str]) -> tuple[memoryview, Callable[[], object]]:
    """Map a file into memory. Return its bytes, and a function that frees the memory of those that were read so far.

    The file must not be truncated or written to while the bytes are in use. A new file may replace it; this happens
    when caffejax writes it again.
    """
    try:
        with open(path, "rb") as file:
            mapped_file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # an empty file, a pipe, or no file
        return memoryview(read_bytes(path, WeightsError)), lambda: None
    return memoryview(mapped_file), lambda: mapped_file.madvise(mmap.MADV_DONTNEED)

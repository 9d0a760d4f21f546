"""Weights from a file into a net, and from a net into a file: by layer name, as Caffe does."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Callable, Collection, Mapping, Sequence

import jax
import numpy as np

from ..errors import Problem, WeightsError
from ..graph import Graph, Layer, Param
from ..graph.graph import Slot
from ..parallel import place
from ..schema.blob_proto import Array, read_bytes
from ..schema.caffe_pb2 import TEST, TRAIN, LayerParameter, NetParameter, ParamSpec
from ..variables import Params, ParamsLike, Variables, index_blobs
from .caffe_hdf5 import is_hdf5, write_caffemodel_h5
from .caffemodel import decode_caffemodel, read_caffemodel, write_caffemodel
from .formats import FORMATS, format_end
from .matching import LoadReport, Stored, match_blobs, tell_coverage

log = logging.getLogger("caffejax")

Initializer = Callable[[Mapping[Slot, jax.Array]], Variables]

_LARGE = 1 << 20  # bytes


def load_weights(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    graph: Graph,
    variables: Variables | Initializer,
    strict: bool = False,
) -> Variables:
    """Return the variables with every blob replaced that the file has for a layer of the same name.

    Layers that only the file or only the net has are left alone; of the net's layers of one name the first is
    meant. Where layers share a blob, the last of them in the file counts. Layers of the net without weights are
    named in the log.

    Args:
        path: a file or folder of any of `formats.FORMATS`, which one its name says; any other name is of a .caffemodel
            or .caffemodel.h5, which one, its content says. Several are read one after the other.
        graph: the net's graph.
        variables: the variables that the net has now, where arrays on several devices are replaced by such; or a
            function of the loaded arrays that returns them together with initial values for what the files lack.
        strict: whether there must be weights for every layer that has some.

    Raises:
        WeightsError: naming every layer whose blobs differ in number or shape, and the remedy; and if `strict`, every
            layer without weights.
    """
    files = [path] if isinstance(path, str | os.PathLike) else list(path)
    loaded: dict[Slot, jax.Array] = {}
    for file in files:
        loaded |= _read(file, graph, variables)[0]
    if files:
        tell_coverage(graph, loaded.keys(), files, strict)
    return _completed(loaded, variables)


def load_and_report(
    path: str | os.PathLike[str],
    graph: Graph,
    variables: Variables | Initializer,
    strict: bool = False,
    without: Collection[str] = (),
) -> tuple[Variables, LoadReport]:
    """Do as `load_weights` with one file, but leave the layers of `without` alone; return a report as well.

    Raises:
        WeightsError: as `load_weights`; and for layers of `without` that are not in the net.
    """
    loaded, report = _read(path, graph, variables, without)
    kept = {param.owner for layer in graph.layers if layer.name in without for param in layer.params}
    tell_coverage(graph, loaded.keys() | kept, [path], strict)
    return _completed(loaded, variables), report


def _completed(loaded: Mapping[Slot, jax.Array], variables: Variables | Initializer) -> Variables:
    """Return the loaded arrays together with the others: those of `variables`, or initial values."""
    if not isinstance(variables, Variables):
        return variables(loaded)

    def replace_blobs(tree: ParamsLike) -> Params:
        return {
            layer: {i: loaded.get(Slot(layer, i), old) for i, old in blobs.items()}
            for layer, blobs in index_blobs(tree).items()
        }

    return Variables(replace_blobs(variables.params), replace_blobs(variables.state))


def _read(
    path: str | os.PathLike[str], graph: Graph, variables: Variables | Initializer, without: Collection[str] = ()
) -> tuple[dict[Slot, jax.Array], LoadReport]:
    """Read one file's arrays for a net, with the dtypes and devices of those in `variables`; return a report, too."""
    stored, release, copies = _open_blobs(path)
    new, report = match_blobs(graph, stored, path, copies=copies, without=without)
    if report.misfits:
        raise WeightsError(report.misfits)
    for name in report.skipped:
        log.info("Ignoring source layer %s", name)
    if not new and not set(report.left) <= set(without):
        log.warning("%s has no blobs for any layer of the net: layers match by name", os.fspath(path))
    loaded = {}
    old = Variables(*map(index_blobs, variables)) if isinstance(variables, Variables) else Variables({}, {})
    for slot, array in new.items():
        loaded[slot] = _placed(array, _array_at(old, slot))
        if array.nbytes >= _LARGE:
            loaded[slot].block_until_ready()
            release()
    return jax.block_until_ready(loaded), report  # until then the file is being read


def _array_at(variables: Variables, slot: Slot) -> jax.Array | None:
    return next((blobs[slot.index] for tree in variables if slot.index in (blobs := tree.get(slot.layer, {}))), None)


def _placed(array: Array, old: jax.Array | None) -> jax.Array:
    """Return an array as JAX's: on the devices and with the dtype of the one that it replaces, if there is one."""
    dtype = np.dtype(np.float32) if old is None else old.dtype
    if isinstance(old, jax.Array) and len(old.sharding.device_set) > 1:
        return place(array.astype(dtype, copy=False), old.sharding)
    return jax.device_put(_misaligned(array.astype(dtype, copy=False)))  # asarray would compile a copy


def save_weights(
    path: str | os.PathLike[str],
    graph: Graph,
    variables: Variables,
    diffs: Params | None = None,
    hdf5: bool | None = None,
) -> None:
    """Write the weights of the graph's layers, in the format that the name's end says; see `formats.FORMATS`.

    Blobs that a layer shares are copies, or left out, as the format has them. An orbax folder gets step 0, unless the
    path names a step in it.

    Args:
        path: the file or folder.
        graph: the net's graph.
        variables: params and running statistics.
        diffs: gradients or updates to store beside the blobs, as `variables.params`; others get zeros. Caffe's two
            formats can hold them.
        hdf5: write a .caffemodel.h5, or else a .caffemodel, whatever the name is.

    Raises:
        WeightsError: for a name of no format, and if it cannot be written; what was there before stays whole.
    """
    blobs = [[_blob_array(p, variables) for p in layer.params] for layer in graph.layers]
    gradients = None
    if diffs is not None:
        gradients = [[_diff_array(p, diffs) for p in layer.params] for layer in graph.layers]
    end = format_end(os.fspath(path)) if hdf5 is None else ".h5" if hdf5 else ".caffemodel"
    if diffs is not None and end not in (".h5", ".caffemodel"):
        raise WeightsError(Problem(f"a file of {end} cannot hold diffs; write a .caffemodel", os.fspath(path)))
    if end == ".caffemodel":
        net = NetParameter(name=graph.name, layer=[_definition(layer, graph.phase) for layer in graph.layers])
        write_caffemodel(path, net, blobs, gradients)
        return
    names = [layer.name for layer in graph.layers]
    owned = {layer.name: _owned_blobs(layer, own) for layer, own in zip(graph.layers, blobs, strict=True)}
    if end == ".h5":
        write_caffemodel_h5(path, owned, dict(zip(names, gradients, strict=True)) if gradients else None, names)
        return
    with_blobs = [layer.name for layer in graph.layers if layer.params]
    twice = [name for name in dict.fromkeys(with_blobs) if with_blobs.count(name) > 1]
    if twice:
        message = f"a file of {end} cannot hold several layers of this name; rename one, or write a .caffemodel"
        raise WeightsError(Problem(message, os.fspath(path), layer=name) for name in twice)
    whole = dict(zip(names, blobs, strict=True))
    kept = {name: tuple((whole if FORMATS[end].copies else owned)[name]) for name in with_blobs}
    FORMATS[end].write(os.fspath(path), NetParameter(), kept)


def _definition(layer: Layer, phase: str) -> LayerParameter:
    """Return a layer's definition as Caffe writes it: with what setting it up has added."""
    definition = LayerParameter()
    definition.CopyFrom(layer.site.layer)
    definition.phase = TRAIN if phase == "TRAIN" else TEST
    if any(layer.loss_weights) and not definition.loss_weight:
        definition.loss_weight.extend(layer.loss_weights)
    if any(not p.spec.learnable for p in layer.params):
        missing = range(len(definition.param), len(layer.params))
        definition.param.extend(ParamSpec(lr_mult=0) for _ in missing)
    return definition


def _open_blobs(path: str | os.PathLike[str]) -> tuple[Stored, Callable[[], object], bool]:
    """Return the blobs in a file, what lets go of the memory of those looked at so far, and whether shared are copies.

    Caffe's formats are told by the content, whatever the name is.
    """
    form = FORMATS.get(format_end(os.fspath(path), known_only=False))
    if form is not None and not form.by_content:
        return (form.read_whole or form.read)(os.fspath(path)), lambda: None, form.copies
    if is_hdf5(path):
        return read_caffemodel(path), lambda: None, False
    data, release = map_file(path)
    return decode_caffemodel(data, path), release, True


def _misaligned(array: Array) -> Array:
    """Return the array at an address that JAX copies from. At a multiple of 64 bytes it may take the memory as it is.

    That would be the file's own bytes, which may change.
    """
    return array.copy() if array.ctypes.data % 64 == 0 else array


def _owned_blobs(layer: Layer, blobs: Sequence[Array]) -> list[Array | None]:
    return [blob if param.is_owner else None for param, blob in zip(layer.params, blobs, strict=True)]


def _blob_array(param: Param, variables: Variables) -> Array:
    return np.asarray(param.array(*variables), np.float32)


def _diff_array(param: Param, diffs: Params) -> Array:
    if not param.spec.learnable:
        return np.zeros(param.spec.shape, np.float32)
    return np.asarray(param.array(diffs, {}), np.float32)


def map_file(path: str | os.PathLike[str]) -> tuple[memoryview, Callable[[], object]]:
    """Map a file. Return its bytes, read when looked at, and a function that lets go of those read so far.

    They are read again when looked at again, so the file must not be cut short or written to while they are in
    use. It may be replaced by another, as caffejax does when it writes.

    Raises:
        WeightsError: if the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # an empty file, a pipe, or none at all
        return memoryview(read_bytes(path)), lambda: None
    return memoryview(mapped), lambda: mapped.madvise(mmap.MADV_DONTNEED)

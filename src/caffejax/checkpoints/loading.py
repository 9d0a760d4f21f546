"""Weights from a file into a net, and from a net into a file: by layer name, as Caffe does."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import Problem, WeightsError
from ..graph import Graph, Layer, Param
from ..net import Params, Variables
from ..schema.blobs import Array
from ..schema.caffe_pb2 import TEST, TRAIN, LayerParameter, NetParameter, ParamSpec
from .blobs import fit
from .caffemodel import decode_caffemodel, read_caffemodel, write_caffemodel
from .hdf5 import is_hdf5
from .mapped import map_file

log = logging.getLogger("caffejax")

_LARGE = 1 << 20  # bytes


def load_weights(graph: Graph, variables: Variables, path: str | os.PathLike[str]) -> Variables:
    """Return the variables with every blob replaced that the file has for a layer of the same name.

    Layers that only the file or only the net has are left alone; of the net's layers of one name the first is
    meant. Where layers share a blob, the last of them in the file counts.

    Args:
        graph: the net's graph.
        variables: what the net has now.
        path: a .caffemodel or .caffemodel.h5; which one, its content says.

    Raises:
        WeightsError: naming every layer whose blobs differ in number or shape, and the remedy.
    """
    stored, release = _open_blobs(path)
    may_lack_shared = is_hdf5(path)
    problems: list[Problem] = []
    new: dict[tuple[str, int], Array] = {}
    first = {layer.name: layer for layer in reversed(graph.layers) if not layer.inserted_split}
    for layer in (first[name] for name in stored if name in first):
        optional = [i for i, p in enumerate(layer.params) if may_lack_shared and not p.owned]
        try:
            arrays = fit(layer.name, stored[layer.name], [p.spec.shape for p in layer.params], optional)
        except WeightsError as error:
            problems += error.problems
            continue
        for param, array in zip(layer.params, arrays, strict=True):
            if array is not None:
                new[param.owner] = array.reshape(owner_shape(graph, param))
    for name in stored:
        if name not in first and stored[name]:
            log.info("Ignoring source layer %s", name)
    if not new and any(layer.params for layer in graph.layers):
        log.warning("%s has no blobs for any layer of the net: layers match by name", os.fspath(path))
    if problems:
        raise WeightsError([Problem(p.message, os.fspath(path), layer=p.layer) for p in problems])

    def place(array: Array, dtype: Any) -> jax.Array:
        value = jnp.asarray(_misaligned(array), dtype)
        if array.nbytes >= _LARGE:
            value.block_until_ready()
            release()
        return value

    def replace_blobs(tree: Params) -> Params:
        return {
            key: tuple(
                None if old is None else place(new[key, i], old.dtype) if (key, i) in new else old
                for i, old in enumerate(blobs)
            )
            for key, blobs in tree.items()
        }

    loaded = Variables(replace_blobs(variables.params), replace_blobs(variables.state))
    return jax.block_until_ready(loaded)  # until then the file is being read


def save_weights(
    path: str | os.PathLike[str],
    graph: Graph,
    variables: Variables,
    diffs: Params | None = None,
    hdf5: bool | None = None,
) -> None:
    """Write the weights of the graph's layers to a .caffemodel or a .caffemodel.h5.

    Blobs that a layer shares are copies in a .caffemodel, and left out of a .caffemodel.h5.

    Args:
        path: the file.
        graph: the net's graph.
        variables: params and running statistics.
        diffs: gradients or updates to store beside the blobs, as `variables.params`; others get zeros.
        hdf5: whether to write a .caffemodel.h5; by default, whether the name ends in .h5.

    Raises:
        WeightsError: if the file cannot be written; what was there before stays whole.
    """
    blobs = [[_blob_array(p, variables) for p in layer.params] for layer in graph.layers]
    gradients = None
    if diffs is not None:
        gradients = [[_diff_array(p, diffs) for p in layer.params] for layer in graph.layers]
    if os.fspath(path).endswith(".h5") if hdf5 is None else hdf5:
        from .caffemodel_h5 import write_caffemodel_h5

        names = [layer.name for layer in graph.layers]
        owned = {layer.name: _owned_blobs(layer, own) for layer, own in zip(graph.layers, blobs, strict=True)}
        write_caffemodel_h5(path, owned, dict(zip(names, gradients, strict=True)) if gradients else None, names)
    else:
        net = NetParameter(name=graph.name, layer=[_definition(layer, graph.phase) for layer in graph.layers])
        write_caffemodel(path, net, blobs, gradients)


def owner_shape(graph: Graph, param: Param) -> tuple[int, ...]:
    """Return the shape of a blob in the layer that owns it."""
    return graph.layer(param.owner.layer).params[param.owner.index].spec.shape


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


def _open_blobs(path: str | os.PathLike[str]) -> tuple[dict[str, tuple[Array | None, ...]], Callable[[], object]]:
    """Return the blobs in a file, and a function that lets go of the memory of those looked at so far."""
    if is_hdf5(path):
        return read_caffemodel(path), lambda: None
    data, release = map_file(path)
    return decode_caffemodel(data, path), release


def _misaligned(array: Array) -> Array:
    """Return the array at an address that JAX copies from. At a multiple of 64 bytes it may take the memory as it is.

    That would be the file's own bytes, which may change.
    """
    return array.copy() if array.ctypes.data % 64 == 0 else array


def _owned_blobs(layer: Layer, blobs: Sequence[Array]) -> list[Array | None]:
    return [blob if param.owned else None for param, blob in zip(layer.params, blobs, strict=True)]


def _blob_array(param: Param, variables: Variables) -> Array:
    tree: Mapping[str, Sequence[object]] = variables.params if param.spec.learnable else variables.state
    return np.asarray(tree[param.owner.layer][param.owner.index], np.float32).reshape(param.spec.shape)


def _diff_array(param: Param, diffs: Params) -> Array:
    if not param.spec.learnable:
        return np.zeros(param.spec.shape, np.float32)
    return np.asarray(diffs[param.owner.layer][param.owner.index], np.float32).reshape(param.spec.shape)

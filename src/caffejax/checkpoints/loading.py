"""Weights from a file into a net, and from a net into a file: by layer name, as Caffe does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from ..errors import Problem, WeightsError
from ..graph import Graph, Param
from ..net import Params, Variables
from ..schema.caffe_pb2 import NetParameter
from .blobs import fit
from .caffemodel import read_caffemodel, write_caffemodel


def load_weights(graph: Graph, variables: Variables, path: str | os.PathLike[str]) -> Variables:
    """The variables with every blob replaced that the file has for a layer of the same name.

    Layers that only the file or only the net has are left alone. Where layers of the net share a blob, the
    last of them in the file counts.

    Raises:
        WeightsError: naming every layer whose blobs differ in number or shape, and the remedy.
    """
    stored = read_caffemodel(path)
    problems: list[Problem] = []
    new: dict[tuple[str, int], np.ndarray] = {}
    for layer in graph.layers:
        if layer.inserted_split or layer.name not in stored:
            continue
        try:
            arrays = fit(layer.name, stored[layer.name], [p.blob.shape for p in layer.params])
        except WeightsError as error:
            problems += error.problems
            continue
        for param, array in zip(layer.params, arrays, strict=True):
            new[param.owner] = array.reshape(owner_shape(graph, param))
    if problems:
        raise WeightsError([Problem(p.message, os.fspath(path), layer=p.layer) for p in problems])

    def replaced(tree: Params) -> Params:
        return {
            key: tuple(
                None if old is None else jnp.asarray(new[key, i], old.dtype) if (key, i) in new else old
                for i, old in enumerate(blobs)
            )
            for key, blobs in tree.items()
        }

    return Variables(replaced(variables.params), replaced(variables.state))


def save_weights(path: str | os.PathLike[str], graph: Graph, variables: Variables) -> None:
    """Writes a .caffemodel: the graph's layers with their blobs, shared ones as copies.

    Raises:
        WeightsError: if the file cannot be written; what was there before stays whole.
    """
    layers = [layer for layer in graph.layers if not layer.inserted_split]
    net = NetParameter(name=graph.name, layer=[layer.context.layer for layer in layers])
    write_caffemodel(path, net, {layer.name: _blobs(layer.params, variables) for layer in layers})


def owner_shape(graph: Graph, param: Param) -> tuple[int, ...]:
    """The shape of a blob where it is owned."""
    return graph.layer(param.owner.layer).params[param.owner.index].blob.shape


def _blobs(params: Sequence[Param], variables: Variables) -> list[np.ndarray]:
    def array(param: Param) -> np.ndarray:
        tree: Mapping[str, Sequence[object]] = variables.params if param.blob.learnable else variables.state
        return np.asarray(tree[param.owner.layer][param.owner.index], np.float32).reshape(param.blob.shape)

    return [array(p) for p in params]

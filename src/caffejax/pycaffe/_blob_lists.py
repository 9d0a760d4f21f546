"""The lists of layers' blobs, as in Caffe's `layer.blobs`, in which scripts replace, reshape, add and remove blobs.

Passes read the parameters of a net by `Slot`. Before a pass, `BlobLists.bind` compares the lists with the blobs that
the last pass used, and makes the slots use the memory of the blobs that the lists hold now. Weight files get the lists
as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..base.errors import GraphError, Problem, raise_if_any
from ..base.variables import Variables
from ..core.graph import Graph, Layer, Param, Slot
from ..core.layers.context import ParamSpec
from ..core.layers.python.blob import Blob
from ..core.layers.python.layer import BlobVec
from ._synced_memory import SyncedBlob, next_version


class BlobLists:
    """The lists of the blobs of a net's layers.

    Args:
        graph: the net's graph.
        slots: the blobs that passes use, by `Slot`. Their shapes are those of the graph.
        activations: the blobs that layers compute. They cannot be parameters.

    Attributes:
        lists: the list of each layer, in order. The list of a Python layer is its attribute `blobs`.
    """

    def __init__(self, graph: Graph, slots: Mapping[Slot, SyncedBlob], activations: Iterable[SyncedBlob]) -> None:
        self._slots, self._activations = slots, tuple(activations)
        self._layers = graph.layers
        self.lists = [_make_list(layer, slots) for layer in graph.layers]
        self._user_lists = [
            (layer, blobs)
            for layer, blobs in zip(graph.layers, self.lists, strict=True)
            if _get_user_list(layer) is blobs
        ]
        self._remember()

    def bind(self) -> None:
        """Make the slots use the memory of the blobs that the lists hold.

        Raises:
            GraphError: if a list lacks a blob, the number of elements of a blob is not the layer's, layers that share a
                parameter hold different blobs, or a list holds a blob that the net computes.
        """
        if not self._have_changed():
            return
        self.adopt_blobs()
        activations = {id(blob.data_memory) for blob in self._activations}
        problems: list[Problem] = []
        holders: dict[Slot, tuple[Layer, SyncedBlob]] = {}
        for layer, blobs in zip(self._layers, self.lists, strict=True):
            if len(blobs) < len(layer.params):
                message = f"needs {len(layer.params)} blobs, but the list of its blobs has {len(blobs)}"
                problems.append(layer.make_problem(message))
            for param, blob in zip(layer.params, blobs, strict=False):
                i, shape = param.index, param.spec.shape
                holder, held_blob = holders.setdefault(param.owner, (layer, blob))
                if blob.count != np.prod(shape, dtype=int):
                    message = (
                        f"blob {i} has shape {blob.shape}, but the layer needs {shape}; for another shape, change the "
                        "prototxt, and make a net with it"
                    )
                elif held_blob.data_memory is not blob.data_memory:
                    message = (
                        f"shares its blob {i} with layer '{holder.name}', but their lists hold different blobs; assign "
                        "the same blob to both layers, or write into its data"
                    )
                elif id(blob.data_memory) in activations:
                    message = f"blob {i} is a blob that the net computes; use a blob of its own, and copy the values"
                else:
                    continue
                problems.append(layer.make_problem(message))
        raise_if_any(GraphError, problems)
        for slot, (_, blob) in holders.items():
            bound = self._slots[slot]
            if bound.data_memory is not blob.data_memory:
                blob.data_memory.version = next_version()  # a backward pass compares it with that of its forward pass
            bound.data_memory, bound.diff_memory = blob.data_memory, blob.diff_memory
        self._remember()

    def describe(self, graph: Graph) -> Graph:
        """Return a copy of the net's graph in which each layer has the blobs of its list as params, in their shapes."""
        self.adopt_blobs()
        blobs_by_slot = {
            param.slot: blob
            for layer, blobs in zip(self._layers, self.lists, strict=True)
            for param, blob in zip(layer.params, blobs, strict=False)
        }
        layers = (
            replace(layer, params=tuple(_make_param(layer, i, blob, blobs_by_slot) for i, blob in enumerate(blobs)))
            for layer, blobs in zip(graph.layers, self.lists, strict=True)
        )
        return replace(graph, layers=tuple(layers))

    def get_arrays(self, graph: Graph, device: jax.Device, diffs: bool = False) -> Variables:
        """Return the data of the blobs in the lists, or their diffs; `graph` is the result of `describe`."""
        variables = Variables({}, {})
        for param, blob in self._pair_blobs(graph):
            tree: Any = variables.params if param.spec.learnable else variables.state
            array = blob.get_diff(device) if diffs else blob.get_data(device)
            tree.setdefault(param.slot.layer, {})[param.slot.name] = array
        return variables

    def store(self, graph: Graph, variables: Variables, device: jax.Device) -> None:
        """Store arrays as the data of the blobs in the lists; `graph` is the result of `describe`."""
        for param, blob in self._pair_blobs(graph):
            tree = variables.params if param.spec.learnable else variables.state
            if (array := tree[param.slot.layer][param.slot.name]) is not blob.get_data(device):
                blob.data_memory.store(array)

    def check_training(self) -> None:
        """Raise an error if a solver would not train or not save a blob of the lists.

        Raises:
            GraphError: if a list has more blobs than the layer, or two parameters of the net's file are the same blob.
        """
        self.adopt_blobs()
        problems = []
        users: dict[int, tuple[Layer, Slot]] = {}
        for layer, blobs in zip(self._layers, self.lists, strict=True):
            if len(blobs) > len(layer.params):
                message = (
                    f"has {len(layer.params)} blobs, but the list of its blobs has {len(blobs)}, which snapshots would "
                    "lack; remove the others before training (net.save saves them)"
                )
                problems.append(layer.make_problem(message))
            for param, blob in zip(layer.params, blobs, strict=False):
                other, slot = users.setdefault(id(blob.data_memory), (layer, param.owner))
                if slot != param.owner:
                    message = (
                        f"blob {param.index} is also a blob of layer '{other.name}', which a solver cannot train; "
                        "to share it, give both the same name in the prototxt: param { name: ... }"
                    )
                    problems.append(layer.make_problem(message))
        raise_if_any(GraphError, problems)

    def _pair_blobs(self, graph: Graph) -> Iterator[tuple[Param, SyncedBlob]]:
        """Yield each param of the graph that is not shared with an earlier layer, with its blob."""
        for layer, blobs in zip(graph.layers, self.lists, strict=True):
            yield from ((p, b) for p, b in zip(layer.params, blobs, strict=True) if p.is_owner)

    def _have_changed(self) -> bool:
        """Return whether a list, or a blob's shape or memory, has changed since the lists were bound."""
        for blobs, bound in zip(self.lists, self._bound, strict=True):
            if len(blobs) != len(bound):
                return True
            for blob, (old, data, diff, shape) in zip(blobs, bound, strict=True):
                if blob is not old or blob.data_memory is not data or blob.diff_memory is not diff:
                    return True
                if blob.shape != shape:
                    return True
        return any(_get_user_list(layer) is not blobs for layer, blobs in self._user_lists)

    def _remember(self) -> None:
        self._bound = [[(b, b.data_memory, b.diff_memory, b.shape) for b in blobs] for blobs in self.lists]

    def adopt_blobs(self) -> None:
        """Replace each blob without a net by a blob of this net, and let both be the same from now on."""
        raise_if_any(
            GraphError,
            [
                layer.make_problem("its attribute blobs was replaced by a different list; change the list itself")
                for layer, blobs in self._user_lists
                if _get_user_list(layer) is not blobs
            ],
        )
        for blobs in self.lists:
            for i, blob in enumerate(blobs):
                if not isinstance(blob, SyncedBlob):
                    blobs[i] = _adopt(blob)


def _get_user_list(layer: Layer) -> BlobVec | None:
    """Return the attribute `blobs` of a user's Python layer, or None if there is no such list."""
    blobs = getattr(layer.type.instance, "blobs", None)
    return blobs if isinstance(blobs, BlobVec) else None


def _make_list(layer: Layer, slots: Mapping[Slot, SyncedBlob]) -> BlobVec:
    """Return the list of a layer's blobs, which use the memory of the params' owners, possibly in different shapes."""
    new_blobs = [SyncedBlob(p.spec.shape, slots[p.owner].data_memory, slots[p.owner].diff_memory) for p in layer.params]
    user_list = _get_user_list(layer)
    if user_list is None or len(user_list) != len(new_blobs):
        return BlobVec(new_blobs)
    for i, blob in enumerate(new_blobs):
        user_list[i].share_memory(blob)  # the layer may have references to its blobs
        user_list[i] = blob
    return user_list


def _make_param(layer: Layer, i: int, blob: SyncedBlob, blobs_by_slot: Mapping[Slot, SyncedBlob]) -> Param:
    """Return the param of a layer for the blob `i` of its list. The blob may be shared with the owner of the param."""
    if i >= len(layer.params):
        slot = Slot(layer.key, str(i))
        return Param(slot, i, slot, ParamSpec(blob.shape), "", lr_mult=1.0, decay_mult=1.0, need_backward=False)
    param = layer.params[i]
    owner = blobs_by_slot.get(param.owner)
    is_shared = owner is not None and owner.data_memory is blob.data_memory and owner.count == blob.count
    spec = ParamSpec(blob.shape, learnable=param.spec.learnable)
    return replace(param, owner=param.owner if is_shared else param.slot, spec=spec)


def _adopt(blob: Blob) -> SyncedBlob:
    """Return a blob with a net's memory that has a blob's values; the blob has this memory from now on."""
    if isinstance(blob._memory_owner, SyncedBlob):
        return blob._memory_owner
    adopted = SyncedBlob(blob.shape)
    adopted.data[...], adopted.diff[...] = blob.data, blob.diff
    blob.share_memory(adopted)
    return adopted

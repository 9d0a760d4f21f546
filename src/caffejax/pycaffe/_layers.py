"""What a net shows of its layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import GraphError, Problem
from ..graph import Layer
from ..layers.python.layer import BlobVec
from ._synced import SyncedBlob
from ._workspace import Workspace


class NetLayer:
    """A layer of a net.

    Attributes:
        type: Caffe's name of the type.
        blobs: its params, running statistics among them.
    """

    def __init__(self, type: str, blobs: list[SyncedBlob]) -> None:
        self.type, self.blobs = type, blobs


def shown_layer(layer: Layer, blobs: list[SyncedBlob]) -> Any:
    """Return what `Net.layers` shows of a layer: a Python layer is the user's own object, with the net's blobs."""
    user = layer.type.instance
    if user is None:
        return NetLayer(layer.type.name, blobs)
    if isinstance(own := getattr(user, "blobs", None), BlobVec):
        own.show(blobs)
    return user


def layer_blobs(workspace: Workspace, layer: Layer) -> list[SyncedBlob]:
    """Return a layer's blobs; one that it shares is another layer's memory, perhaps in another shape."""

    def blob(owner: SyncedBlob, shape: tuple[int, ...], owned: bool) -> SyncedBlob:
        return owner if owned else SyncedBlob(shape, owner.data_memory, owner.diff_memory)

    slots = workspace.memories.slots
    return [blob(slots[p.owner], p.spec.shape, p.owned) for p in layer.params]


def share_data(mine: Iterable[tuple[str, list[SyncedBlob]]], theirs: Mapping[str, list[SyncedBlob]]) -> None:
    """Have layers of one net use the data of another net's blobs, by the layers' names.

    Raises:
        GraphError: if their blobs differ in number or shape.
    """
    common = [(name, blobs, theirs[name]) for name, blobs in mine if name in theirs]
    shapes = [(name, [b.shape for b in here], [b.shape for b in there]) for name, here, there in common]
    if problems := [
        Problem(f"has blobs of shapes {here} in one net, {there} in the other", layer=name)
        for name, here, there in shapes
        if here != there
    ]:
        raise GraphError(problems)
    for _, here, there in common:
        for blob, shared in zip(here, there, strict=True):
            blob.data_memory = shared.data_memory

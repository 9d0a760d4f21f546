"""Params: multipliers, and blobs that several layers share by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..errors import GraphError
from ..layers import Blob
from ..schema.caffe_pb2 import LayerParameter, ParamSpec
from .model import Layer, Param, Slot


@dataclass
class _Shared:
    owner: Slot
    layer: str
    blob: Blob
    lr_mult: float | None
    decay_mult: float | None


@dataclass
class Sharing:
    """Finds each blob's owner while layers are added in order."""

    _names: dict[str, _Shared] = field(default_factory=dict)

    def add(self, key: str, layer: LayerParameter, blobs: Sequence[Blob]) -> tuple[Param, ...]:
        """The params of a layer with these blobs.

        Raises:
            GraphError: if there are more `param` entries than blobs, or a blob cannot be shared.
        """
        if len(layer.param) > len(blobs):
            raise GraphError(f"too many params specified: {len(layer.param)} for {len(blobs)} blobs")
        specs = [*layer.param, *(ParamSpec() for _ in blobs[len(layer.param) :])]
        return tuple(
            self._param(Slot(key, i), layer.name, spec, blob, given=i < len(layer.param))
            for i, (spec, blob) in enumerate(zip(specs, blobs, strict=True))
        )

    def _param(self, slot: Slot, layer: str, spec: ParamSpec, blob: Blob, given: bool) -> Param:
        lr = spec.lr_mult if spec.HasField("lr_mult") else None
        decay = spec.decay_mult if spec.HasField("decay_mult") else None
        need_backward = lr != 0  # Caffe counts statistics too, unless told otherwise
        if not blob.learnable:
            if given and lr != 0:  # unset means 1
                raise GraphError(f"param {slot.index} holds running statistics: its lr_mult must be 0")
            lr = 0.0
        shared = self._names.get(spec.name) if spec.name else None
        if spec.name and shared is None:
            self._names[spec.name] = _Shared(slot, layer, blob, lr, decay)
        if shared is not None:
            _check_shapes(spec, blob, shared)
            shared.lr_mult = _agreed("lr_mult", spec.name, lr, shared.lr_mult)
            shared.decay_mult = _agreed("decay_mult", spec.name, decay, shared.decay_mult)
        return Param(
            slot=slot,
            owner=shared.owner if shared else slot,
            blob=blob,
            name=spec.name,
            lr_mult=1.0 if lr is None else lr,
            decay_mult=1.0 if decay is None else decay,
            need_backward=need_backward,
        )

    def settle(self, layers: Sequence[Layer]) -> Iterator[Layer]:
        """The layers with the multipliers in effect: a later user may set what the owner left unset."""
        owners = {shared.owner: shared for shared in self._names.values()}

        def settled(param: Param) -> Param:
            shared = owners.get(param.owner)
            if shared is None:
                return param
            return replace(
                param,
                lr_mult=1.0 if shared.lr_mult is None else shared.lr_mult,
                decay_mult=1.0 if shared.decay_mult is None else shared.decay_mult,
            )

        for layer in layers:
            yield replace(layer, params=tuple(settled(p) for p in layer.params))


def carried_params(key: str, n_params: int, blobs: Sequence[Blob]) -> tuple[Param, ...]:
    """The params of a layer's blobs that are not persistent: never shared, in the slots after the others."""
    slots = [Slot(key, n_params + i) for i in range(len(blobs))]
    return tuple(
        Param(slot=s, owner=s, blob=b, name="", lr_mult=0.0, decay_mult=0.0, need_backward=False)
        for s, b in zip(slots, blobs, strict=True)
    )


def _agreed(what: str, name: str, new: float | None, old: float | None) -> float | None:
    if new is not None and old is not None and new != old:
        raise GraphError(f"shared param '{name}' has mismatched {what}: {new:g} here, {old:g} before")
    return old if new is None else new


def _check_shapes(spec: ParamSpec, blob: Blob, shared: _Shared) -> None:
    if spec.share_mode == ParamSpec.PERMISSIVE:
        if math.prod(blob.shape) != math.prod(shared.blob.shape):
            raise GraphError(
                f"cannot share param '{spec.name}' with layer '{shared.layer}': count mismatch, "
                f"shape {blob.shape} here, {shared.blob.shape} there"
            )
    elif blob.shape != shared.blob.shape:
        raise GraphError(
            f"cannot share param '{spec.name}' with layer '{shared.layer}': shape mismatch, "
            f"{blob.shape} here, {shared.blob.shape} there "
            "(share_mode: PERMISSIVE shares blobs of equal count)"
        )

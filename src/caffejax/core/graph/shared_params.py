"""Creation of the params of layers, with multipliers. Layers share params that have the same name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...base.errors import GraphError
from ...base.human_readable import format_count
from ..layers import ParamSpec
from ..schema import caffe_pb2
from ..schema.caffe_pb2 import LayerParameter
from .graph import CARRIED, Layer, Param, Slot


@dataclass
class _SharedParam:
    owner: Slot
    layer: str
    spec: ParamSpec
    lr_mult: float | None
    decay_mult: float | None


@dataclass
class SharedParams:
    """A record of the owners of shared params, filled while layers are added in order."""

    _shared_by_name: dict[str, _SharedParam] = field(default_factory=dict)

    def add(
        self, key: str, layer: LayerParameter, specs: Sequence[ParamSpec], strict: bool = True
    ) -> tuple[Param, ...]:
        """Record a layer, and return its params.

        Args:
            key: the layer's key.
            layer: the layer's definition.
            specs: the params that the layer declares.
            strict: whether to raise an error for surplus `param` entries, and for running statistics with an lr_mult
                other than 0. Forks of Caffe ignore both.

        Raises:
            GraphError: if there are more `param` entries than params, or a param cannot be shared as its name requests.
        """
        if strict and len(layer.param) > len(specs):
            raise GraphError(
                f"too many params specified: {len(layer.param)} for {format_count(len(specs), 'blob')}; remove the "
                "surplus `param` entries"
            )
        messages = [*layer.param, *(caffe_pb2.ParamSpec() for _ in specs[len(layer.param) :])][: len(specs)]
        if layer.freeze_learning:  # a setting of MyCaffe
            messages = [caffe_pb2.ParamSpec(name=message.name, lr_mult=0) for message in messages]
        return tuple(
            self._make_param(
                Slot(key, spec.name or str(i)), i, layer.name, message, spec, explicit=strict and i < len(layer.param)
            )
            for i, (message, spec) in enumerate(zip(messages, specs, strict=True))
        )

    def _make_param(
        self, slot: Slot, index: int, layer: str, message: caffe_pb2.ParamSpec, spec: ParamSpec, explicit: bool
    ) -> Param:
        lr = message.lr_mult if message.HasField("lr_mult") else None
        decay = message.decay_mult if message.HasField("decay_mult") else None
        need_backward = lr != 0  # as in Caffe, also for running statistics
        if not spec.learnable:
            if explicit and lr != 0:  # an unset lr_mult is 1
                value = 1 if lr is None else lr
                raise GraphError(f"param {index} holds running statistics: its lr_mult must be 0, not {value:g}")
            lr = 0.0
        shared = self._shared_by_name.get(message.name) if message.name else None
        if message.name and shared is None:
            self._shared_by_name[message.name] = _SharedParam(slot, layer, spec, lr, decay)
        if shared is not None:
            _check_shapes(message, spec, shared)
            shared.lr_mult = _merge_multiplier("lr_mult", message.name, lr, shared.lr_mult)
            shared.decay_mult = _merge_multiplier("decay_mult", message.name, decay, shared.decay_mult)
        return Param(
            slot=slot,
            index=index,
            owner=shared.owner if shared else slot,
            spec=spec,
            shared_name=message.name,
            lr_mult=1.0 if lr is None else lr,
            decay_mult=1.0 if decay is None else decay,
            need_backward=need_backward,
        )

    def resolve_multipliers(self, layers: Sequence[Layer]) -> Iterator[Layer]:
        """Yield the layers with the multipliers in effect; see `Param`."""
        multipliers: dict[Slot, dict[str, Any]] = {}
        for shared in self._shared_by_name.values():
            given = {"lr_mult": shared.lr_mult, "decay_mult": shared.decay_mult}
            multipliers[shared.owner] = {name: 1.0 if value is None else value for name, value in given.items()}
        for layer in layers:
            yield replace(layer, params=tuple(replace(p, **multipliers.get(p.owner, {})) for p in layer.params))


def make_recurrent_state_params(key: str, num_params: int, specs: Sequence[ParamSpec]) -> tuple[Param, ...]:
    """Return params for a layer's recurrent state, numbered from `num_params` on. They are not shared."""
    slots = [Slot(key, f"{CARRIED}{spec.name or i}") for i, spec in enumerate(specs)]
    return tuple(
        Param(s, num_params + i, s, spec, shared_name="", lr_mult=0.0, decay_mult=0.0, need_backward=False)
        for i, (s, spec) in enumerate(zip(slots, specs, strict=True))
    )


def _merge_multiplier(field: str, name: str, new: float | None, old: float | None) -> float | None:
    if new is not None and old is not None and new != old:
        raise GraphError(
            f"shared param '{name}' has mismatched {field}: it is {new:g} here, but {old:g} in an earlier layer; set "
            "it to one value"
        )
    return old if new is None else new


def _check_shapes(message: caffe_pb2.ParamSpec, spec: ParamSpec, shared: _SharedParam) -> None:
    if message.share_mode == caffe_pb2.ParamSpec.PERMISSIVE:
        is_equal, kind, hint = math.prod(spec.shape) == math.prod(shared.spec.shape), "count", ""
    else:
        hint = " (share_mode: PERMISSIVE shares blobs of equal count)"
        is_equal, kind = spec.shape == shared.spec.shape, "shape"
    if not is_equal:
        raise GraphError(
            f"cannot share param '{message.name}' with layer '{shared.layer}': {kind} mismatch, "
            f"the shape is {spec.shape} here and {shared.spec.shape} there{hint}"
        )

"""Which layers and bottoms take part in the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .model import Layer


def mark_backward(layers: Sequence[Layer], force_backward: bool) -> tuple[Layer, ...]:
    """Set `need_backward` and `bottom_need_backward` of the layers, and `need_backward` of their params.

    Caffe makes three sweeps. Forwards: what lies above a param with a learning rate needs a gradient. Backwards: only
    what leads to a loss does, and nothing across `propagate_down: false`. Last, `force_backward` asks for all.
    """
    swept = _from_loss(_from_params(layers))
    return tuple(_forced(layer) for layer in swept) if force_backward else tuple(swept)


def _from_params(layers: Sequence[Layer]) -> list[Layer]:
    needing: dict[str, bool] = {}
    result = []
    for layer in layers:
        propagate = list(layer.site.layer.propagate_down)
        n = len(layer.bottoms)
        below = [needing[b] and layer.type.takes_gradient(i, n) for i, b in enumerate(layer.bottoms)]
        need = any(below) or any(p.need_backward for p in layer.params)
        needing.update(dict.fromkeys(layer.tops, need))
        bottoms = tuple(propagate or below)
        result.append(replace(layer, need_backward=need, bottom_need_backward=bottoms))
    return result


def _from_loss(layers: Sequence[Layer]) -> list[Layer]:
    under_loss: set[str] = set()
    skipped: set[str] = set()
    result = []
    for layer in reversed(layers):
        contributes = any(
            weight or top in under_loss for top, weight in zip(layer.tops, layer.loss_weights, strict=True)
        )
        unreachable = all(top in skipped for top in layer.tops)
        bottoms = layer.bottom_need_backward
        if not contributes or (layer.need_backward and unreachable):
            bottoms = (False,) * len(bottoms)
        need = layer.need_backward and contributes and not unreachable
        if contributes:
            under_loss.update(layer.bottoms)
        skipped.update(b for b, wanted in zip(layer.bottoms, bottoms, strict=True) if not wanted)
        result.append(replace(layer, need_backward=need, bottom_need_backward=bottoms))
    return result[::-1]


def _forced(layer: Layer) -> Layer:
    n, unforced = len(layer.bottoms), layer.type.gradient.unforced
    exempt = [i in unforced or not layer.type.takes_gradient(i, n) for i in range(n)]
    return replace(
        layer,
        need_backward=True,
        bottom_need_backward=tuple(
            need or not skip for need, skip in zip(layer.bottom_need_backward, exempt, strict=True)
        ),
        params=tuple(replace(p, need_backward=True) for p in layer.params),
    )

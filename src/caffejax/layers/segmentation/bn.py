"""BN: batch normalisation with a factor and a bias for each channel in one layer; of PSPNet, and of SegNet."""

from __future__ import annotations

from typing import Any

from ..registry import register
from ..types import LayerDocs, LayerType, Signature, Variants
from .bn_pspnet import FROZEN, PSPNET
from .bn_segnet import SEGNET, WITH_STATISTICS


def bn_variant(layer: Any) -> str:
    """Return which BN a layer is."""
    p = layer.bn_param
    tells = any(p.HasField(field) for field in ("bn_mode", "scale_filler", "shift_filler"))
    if tells or len(layer.blobs) == 2 or len(layer.top) > 1:
        return "SegNet" if len(layer.top) == 1 else "SegNet, with statistics"
    return "PSPNet, frozen" if p.frozen else "PSPNet"


register(
    LayerType(
        Signature("BN", tops=(1, 3), param="bn_param"),
        Variants(
            bn_variant,
            {"PSPNet": PSPNET, "PSPNet, frozen": FROZEN, "SegNet": SEGNET, "SegNet, with statistics": WITH_STATISTICS},
            "SegNet's has bn_mode, scale_filler or shift_filler, two blobs, or tops for the statistics.",
        ),
        docs=LayerDocs(origin="PSPNet, SegNet"),
    )
)

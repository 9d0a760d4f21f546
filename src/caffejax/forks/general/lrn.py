"""LRN with a setting of the Deep Visualization Toolbox's fork for deconvolution passes."""

from __future__ import annotations

from dataclasses import replace

from ...core.layers.lrn import LRN
from ...core.layers.registry import register_variants
from ...core.layers.types import LayerDocs

# `pycaffe.Net.deconv` reads the setting; nothing else does
LRN_FOR_DECONV = replace(
    LRN,
    signature=replace(LRN.signature, fork_settings=("deconv_ignore",)),
    docs=LayerDocs(origin="Deep Visualization Toolbox"),
)

register_variants(
    "LRN",
    lambda layer: "for deconv" if layer.lrn_param.deconv_ignore else None,
    {"for deconv": LRN_FOR_DECONV},
    "With `deconv_ignore` a deconvolution pass of pycaffe passes the diff unchanged.",
)

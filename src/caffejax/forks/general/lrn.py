"""LRN with a setting of the Deep Visualization Toolbox's fork for deconvolution passes."""

from __future__ import annotations

from ...core.layers.lrn import lrn
from ...core.layers.registry import register_variants

# `pycaffe.Net.deconv` reads the setting; nothing else does


register_variants(
    "LRN",
    lambda layer: "for deconv" if layer.lrn_param.deconv_ignore else None,
    {
        "for deconv": lrn.variant(
            lrn.type.implementation, fork_settings=("deconv_ignore",), origin="Deep Visualization Toolbox"
        ).type
    },
    "With `deconv_ignore` a deconvolution pass of pycaffe passes the diff unchanged.",
)

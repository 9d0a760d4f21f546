"""caffe-windows' variant of Parameter, whose blob is filled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from ...core.layers.context import Params, ParamSpec
from ...core.layers.inputs import parameter, parameter_params
from ...core.layers.registry import register_variants


@parameter.variant(fork_settings=("blob_filler",), origin="caffe-windows")
def filled_parameter(params: Params) -> jax.Array:
    """Return a learnable blob as a top, with the `shape` of parameter_param, initially filled by `blob_filler`."""
    return parameter(params)


@filled_parameter.params
def filled_parameter_params(p: Any) -> list[ParamSpec]:
    return [replace(spec, filler=p.blob_filler) for spec in parameter_params(p)]


register_variants(
    "Parameter",
    lambda layer: "filled" if layer.parameter_param.HasField("blob_filler") else None,
    {"filled": filled_parameter.type},
    "With `blob_filler` the blob is filled.",
)

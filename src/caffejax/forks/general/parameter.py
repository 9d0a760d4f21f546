"""caffe-windows' variant of Parameter, whose blob is filled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from ...core.layers.context import ParamSpec
from ...core.layers.inputs import PARAMETER, parameter, parameter_params
from ...core.layers.registry import register_variants
from ...core.layers.types import LayerDocs, Traced


def filled_parameter(blobs: tuple[jax.Array]) -> jax.Array:
    """Return a learnable blob as a top, with the `shape` of parameter_param, initially filled by `blob_filler`."""
    return parameter(blobs)


def filled_parameter_params(p: Any) -> list[ParamSpec]:
    return [replace(spec, filler=p.blob_filler) for spec in parameter_params(p)]


FILLED_PARAMETER = replace(
    PARAMETER,
    signature=replace(PARAMETER.signature, fork_settings=("blob_filler",)),
    implementation=Traced(filled_parameter, params=filled_parameter_params),
    docs=LayerDocs(origin="caffe-windows"),
)

register_variants(
    "Parameter",
    lambda layer: "filled" if layer.parameter_param.HasField("blob_filler") else None,
    {"filled": FILLED_PARAMETER},
    "With `blob_filler` the blob is filled.",
)

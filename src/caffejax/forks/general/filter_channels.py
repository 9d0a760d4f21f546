"""channel-pruning's variant of Filter, which selects channels by a blob."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.context import Params, ParamSpec
from ...core.layers.declaration import declare
from ...core.layers.helpers import canonical_axis
from ...core.layers.registry import register_variants
from ...core.schema.caffe_pb2 import FillerParameter, FilterParameter


@declare("Filter", bottoms=(1, None), tops=(1, None), param="filter_param", in_place=False, origin="channel-pruning")
def filter_channels(p: FilterParameter, *bottoms: jax.Array, state: Params) -> tuple[jax.Array, ...]:
    """Select the first `num_output` entries of each bottom along `axis` for which the blob, the selector, is not zero.

    Bottoms: (N, C, ...) each. Tops: (N, num_output, ...). Blob: selector (C,), which is not trained.
    """
    channel_indices = jnp.flatnonzero(state["mask"], size=p.num_output, fill_value=0)
    return tuple(jnp.take(x, channel_indices, axis=canonical_axis(p.axis, x.shape)) for x in bottoms)


@filter_channels.params
def filter_channels_params(p: FilterParameter, *bottoms: Any, num_tops: int) -> list[ParamSpec]:
    require(num_tops == len(bottoms), f"needs one top for each of the {len(bottoms)} bottoms, but has {num_tops}")
    sizes = {b.shape[canonical_axis(p.axis, b.shape)] for b in bottoms}
    require(len(sizes) == 1, f"all bottoms must have the same size along axis {p.axis}, not {sorted(sizes)}")
    (size,) = sizes
    require(
        0 < p.num_output <= size,
        f"num_output must be between 1 and {size}, the size along axis {p.axis}, not {p.num_output}",
    )
    return [ParamSpec((size,), FillerParameter(value=1), learnable=False, name="mask")]


register_variants(
    "Filter",
    lambda layer: "channel-pruning" if layer.HasField("filter_param") else None,
    {"channel-pruning": filter_channels.type},
    "With a filter_param it is channel-pruning's.",
)

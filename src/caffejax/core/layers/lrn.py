"""LRN: local response normalization, across channels or within each channel (lrn_layer.cpp)."""

from __future__ import annotations

from typing import Any

from jax import Array

from ...base.errors import require
from ..ops.normalization_op import compute_response, compute_response_diff, normalize_response
from ..ops.window import Window, half_width
from ..schema.caffe_pb2 import LRNParameter
from .declaration import register
from .helpers import pointwise_window


@register(
    "LRN",
    param="lrn_param",
    top_shapes=lambda x: [x.shape] if len(x.shape) == 4 and 0 not in x.shape else None,
    row_wise=True,
    dtype_policy="bottoms",
    spatial_map="same",
)
def lrn(p: LRNParameter, x: Array, *, fast: bool) -> Array:
    """Return x * scale**-beta, where scale = k + alpha / n * (sum of squares over n = local_size neighboring channels).

    Bottom and top: (N, C, H, W). WITHIN_CHANNEL sums over an n x n window of the plane instead, with k = 1, and divides
    by the number of cells of the window in the padded plane, like average pooling. Caffe's rule: lrn_layer.cpp.
    """
    require(x.ndim == 4, f"needs a bottom with 4 axes (num, channels, height, width), not shape {x.shape}")
    return normalize_response(x, **_read_settings(p)) if fast else compute_response(x, **_read_settings(p))[0]


@lrn.backward
def lrn_backward(p: LRNParameter, x: Array, *, y: Array, dy: Array) -> Array:
    return compute_response_diff(x, dy, **_read_settings(p))[0]


@lrn.receptive_window
def lrn_receptive_window(p: LRNParameter, bottom: Any) -> Window:
    if p.norm_region != p.WITHIN_CHANNEL:
        return pointwise_window(bottom)
    half = tuple(half_width(p.local_size, n) for n in bottom.shape[2:])
    return Window.symmetric(tuple(2 * n + 1 for n in half), (1,) * len(half), half)


@lrn.check
def check_lrn(p: LRNParameter) -> None:
    require(p.local_size % 2 == 1, f"local_size must be odd, not {p.local_size}")


def _read_settings(p: LRNParameter) -> dict[str, Any]:
    # the window of the plane ignores k; its padding counts, so it always has n x n cells
    within_channel = p.norm_region == p.WITHIN_CHANNEL
    k, num_cells = (1, p.local_size**2) if within_channel else (p.k, p.local_size)
    settings = {"size": p.local_size, "k": k, "alpha": p.alpha / num_cells, "beta": p.beta}
    return {**settings, "within_channel": within_channel}

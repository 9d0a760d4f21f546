"""BoxOutput: proposals from maps that hold class scores and box deltas."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from ..axes import four_axes
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import OWN_IMAGES, Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .fields import Fields, fields
from .proposals import choice, proposals
from .regression import bounds, normalization


def box_output(ctx: Context, *maps: jax.Array) -> tuple[jax.Array, ...]:
    """Proposals from maps (N, classes + 4, H, W), one for each field: rows [image, x1, y1, x2, y2].

    A box's score is its largest class score less that of background, and `fg_thr` or more. Sides are x2 - x1. The
    best boxes of each image, of all maps, are suppressed by those better. Where nothing is found, there is one row
    0, 1, 1, 10, 10. A second top has rows [image, x1, y1, x2, y2, score]. Rows of padding come last and are -1.
    """
    p = ctx.param
    counts = {name: len(getattr(p, name)) for name in ("field_w", "field_h", "downsample_rate")}
    require(set(counts.values()) == {len(maps)}, f"needs one of each for every bottom, {len(maps)}: {counts}")
    parts = []
    for i, x in enumerate(maps):
        four_axes(x.shape, f"bottom {i}")
        require(
            x.ndim == 4 and x.shape[1] >= 6 and x.shape[0] == maps[0].shape[0],
            f"bottom {i} must be N x (classes + 4) x H x W with two classes or more, N as in bottom 0: {x.shape}",
        )
        field = fields(p.field_w[i : i + 1], p.field_h[i : i + 1], p.downsample_rate[i], "downsample_rate")
        parts.append(_boxes(ctx, lax.stop_gradient(promote(x)), field))
    # of equal scores the last comes first
    boxes, scores, valid = (jnp.flip(jnp.concatenate(part, axis=1), 1) for part in zip(*parts, strict=True))
    return proposals(choice(p, 0.0), boxes, scores, valid, ctx.n_tops, maps[0].dtype)


register(
    LayerType(
        Signature("BoxOutput", bottoms=(1, None), tops=(1, 2), param="box_output_param", in_place=False),
        Traced(box_output),
        Gradient(exists=False),
        LayerTraits(pads_rows=True),
        docs=LayerDocs(
            origin="MS-CNN",
            unsupported={"shard": "the rows of all images are moved together, padding last", "joined": OWN_IMAGES},
        ),
    )
)


def _boxes(ctx: Context, x: jax.Array, field: Fields) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return boxes (N, places, 4), their scores, and which of them are large and likely enough."""
    p, (n, channels, height, width) = ctx.param, x.shape
    scores = jnp.max(x[:, 1:-4], axis=1) - x[:, 0]
    found = field.decoded(x[:, channels - 4 :], normalization(ctx), bounds(p))
    corner = jnp.maximum(found[:, :2], 0)
    image = jnp.asarray([width, height], x.dtype)[:, None, None] * field.stride
    sides = jnp.minimum(found[:, 2:], image - corner)
    valid = (scores >= p.fg_thr) & jnp.all(sides >= p.min_size, axis=1)
    boxes = jnp.concatenate([corner, corner + sides], axis=1).reshape(n, 4, height * width)
    return jnp.moveaxis(boxes, 1, 2), scores.reshape(n, -1), valid.reshape(n, -1)

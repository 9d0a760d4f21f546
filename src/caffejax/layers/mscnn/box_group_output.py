"""BoxGroupOutput: proposals from maps of probabilities and of box deltas, several fields to a place."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import OWN_IMAGES, Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .fields import fields
from .proposals import choice, proposals
from .regression import bounds, normalization
from .shapes import images_of, per_image, require_pair


def box_group_output(ctx: Context, *maps: jax.Array) -> tuple[jax.Array, ...]:
    """Proposals from pairs of maps, probabilities and deltas (images * fields, 4, H, W): rows [image, x1, y1, x2, y2].

    Each pair has a `box_group_param` with its fields, which are items of the batch axis. A box's score is 1 less the
    probability of class 0, and `fg_thr` or more. Sides are x2 - x1 + 1. The best boxes of each image, of all pairs, are
    suppressed by those better. Where nothing is found, there is one row 0, 1, 1, 10, 10. A second top has rows
    [image, x1, y1, x2, y2, score]. Rows of padding come last and are -1.
    """
    p = ctx.param
    require(
        len(maps) == 2 * len(p.box_group_param),
        f"needs two bottoms, probabilities and deltas, for each box_group_param: {len(maps)} bottoms for "
        f"{len(p.box_group_param)}",
    )
    pairs = list(zip(maps[::2], maps[1::2], p.box_group_param, strict=True))
    images = [images_of(deltas.shape[0], len(group.field_w) or 1, "a bottom") for _, deltas, group in pairs]
    require(all(n == images[0] for n in images), f"all bottoms must be of one number of images, not {images}")
    parts = [_boxes(ctx, probabilities, deltas, group) for probabilities, deltas, group in pairs]
    boxes, scores, valid = (jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    return proposals(choice(p, 1.0), boxes, scores, valid, ctx.n_tops, maps[0].dtype)


register(
    LayerType(
        Signature("BoxGroupOutput", bottoms=(2, None), tops=(1, 2), param="box_group_output_param", in_place=False),
        Traced(box_group_output),
        Gradient(exists=False),
        LayerTraits(pads_rows=True),
        docs=LayerDocs(
            origin="Cascade R-CNN",
            unsupported={"shard": "the rows of all images are moved together, padding last", "joined": OWN_IMAGES},
        ),
    )
)


def _boxes(
    ctx: Context, probabilities: jax.Array, deltas: jax.Array, group: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return boxes (images, fields * places, 4), their scores, and which of them are large and likely enough."""
    p, field = ctx.param, fields(group.field_w, group.field_h, group.stride)
    require_pair(probabilities.shape, deltas.shape)
    batch, _, height, width = deltas.shape
    n_fields = len(field.width)
    images = images_of(batch, n_fields)
    scores = 1 - lax.stop_gradient(promote(probabilities))[:, 0]
    found = field.decoded(lax.stop_gradient(promote(deltas)), normalization(ctx), bounds(p))
    image = jnp.asarray([width, height], found.dtype)[:, None, None] * field.stride
    corners = jnp.maximum(found[:, :2], 0), jnp.minimum(found[:, :2] + found[:, 2:] - 1, image)
    sides = corners[1] - corners[0] + 1
    valid = (scores >= p.fg_thr) & jnp.all(sides >= p.min_size, axis=1)
    boxes = jnp.moveaxis(jnp.concatenate(corners, axis=1), 1, -1)
    flat = n_fields * height * width
    return (
        per_image(boxes, images, n_fields).reshape(images, flat, 4),
        per_image(scores, images, n_fields).reshape(images, flat),
        per_image(valid, images, n_fields).reshape(images, flat),
    )

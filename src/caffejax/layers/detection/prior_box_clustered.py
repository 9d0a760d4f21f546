"""PriorBoxClustered: boxes of sizes that were found by clustering, at each cell of a map."""

from __future__ import annotations

from typing import Any

import jax

from ...errors import require
from ..context import Context
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .prior_box import CellBox, priors


def prior_box_clustered(ctx: Context, x: jax.Array, image: jax.Array) -> jax.Array:
    """Boxes around each cell of the first bottom, as parts of the second, and their variances: (1, 2, boxes * 4).

    For each cell, row by row, a box of each `width` and its `height`, in pixels.
    """
    return priors(ctx.param, lambda: clustered_boxes(ctx.param), x, image)


register(
    LayerType(
        Signature(
            "PriorBoxClustered",
            bottoms=2,
            param="prior_box_param",
            in_place=False,
            fork_settings=("width", "height"),
        ),
        Traced(prior_box_clustered, host_forward=prior_box_clustered),
        Gradient(exists=False),
        LayerTraits(depends_only_on_shapes=True, accepts_integers=True),
        docs=LayerDocs(origin="OpenVINO", restrictions="Sizes of PriorBox, such as min_size, are refused."),
    )
)


def clustered_boxes(p: Any) -> list[CellBox]:
    """Return the boxes of a cell.

    Raises:
        LayerError: for sizes that make no sense.
    """
    sizes_of_prior_box = [name for name in ("min_size", "max_size", "aspect_ratio") if len(getattr(p, name))]
    require(not sizes_of_prior_box, f"prior_box_param: {', '.join(sizes_of_prior_box)} is PriorBox's; give width")
    require(len(p.width) > 0, "prior_box_param needs a width and a height for each box")
    require(
        len(p.width) == len(p.height),
        f"prior_box_param needs a height for each width: {len(p.width)} widths, {len(p.height)} heights",
    )
    boxes = [CellBox(*size) for size in zip(p.width, p.height, strict=True)]
    require(min(*p.width, *p.height) > 0, f"width and height must be positive: {list(p.width)}, {list(p.height)}")
    return boxes

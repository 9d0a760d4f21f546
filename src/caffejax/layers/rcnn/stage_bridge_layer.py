"""MNC's StageBridgeLayer as it is in the TEST phase, a Python layer that is built in."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..no_gradient import no_gradient
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .anchors import clipped, decoded
from .proposing import require_image
from .rois import are_rows_of_five


def stage_bridge_layer(
    ctx: Context, rois: jax.Array, deltas: jax.Array, scores: jax.Array, im_info: jax.Array
) -> jax.Array:
    """Regions of one image, each moved by the deltas of the class that it scores best in, and cut to the image.

    Bottoms: rows 0, x1, y1, x2, y2; deltas (rows, 4 * classes); scores (rows, classes); height and width of the image.
    """
    require(are_rows_of_five(rois), f"the ROIs, bottom 0, must have five numbers in each row, not {rois.shape}")
    require(
        len(scores.shape) >= 2
        and scores.shape[0] == rois.shape[0]
        and scores.size == scores.shape[0] * scores.shape[1],
        f"the scores, bottom 2, must be rows, one for each of {rois.shape[0]} ROIs, not of shape {scores.shape}",
    )
    rows, classes = scores.shape[:2]
    require(classes > 0, "the scores, bottom 2, are of no class")
    require(
        deltas.shape[:2] == (rows, 4 * classes) and deltas.size == rows * 4 * classes,
        f"bottom 1 must hold 4 deltas for each of {classes} classes, {(rows, 4 * classes)}, not shape {deltas.shape}",
    )
    require_image(im_info, 2)
    regions, image = promote(rois).reshape(rows, 5), promote(im_info).reshape(im_info.shape[:2])[0]
    best = jnp.argmax(scores.reshape(rows, classes), axis=1)
    own = jnp.take_along_axis(promote(deltas).reshape(rows, classes, 4), best[:, None, None], axis=1)[:, 0]
    boxes = clipped(decoded(regions[:, 1:], own), image[0], image[1])
    padding = jnp.minimum(regions[:, :1], 0)  # these rows stay what they are
    return jnp.concatenate([padding, jnp.where(padding < 0, regions[:, 1:], boxes)], axis=1).astype(rois.dtype)


STAGE_BRIDGE_LAYER = LayerType(
    Signature("Python", bottoms=4, param="python_param", in_place=False),
    Traced(stage_bridge_layer),
    Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True),
    LayerTraits(pads_rows=True),
    docs=LayerDocs(origin="MNC", restrictions="As in the TEST phase."),
)

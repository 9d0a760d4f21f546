"""VoxelSoftmax and VoxelSoftmaxLoss: a class for each voxel."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..loss import own_classes, require_one_batch
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .windows import volume_size


def voxel_softmax(ctx: Context, x: jax.Array) -> jax.Array:
    """exp(x) normalised to sum 1 over the channels of every voxel of (N, C, length, height, width)."""
    volume_size(x)
    return jax.nn.softmax(promote(x), 1).astype(x.dtype)


def voxel_softmax_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return y * (dy - jnp.sum(dy * y, axis=1, keepdims=True))


register(
    LayerType(
        Signature("VoxelSoftmax"),
        Traced(voxel_softmax),
        Gradient(voxel_softmax_backward),
        LayerTraits(row_wise=True),
        docs=LayerDocs(origin="C3D"),
    )
)


def voxel_softmax_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Sum of -log of the labels' probabilities over the number of voxels, labels (N, 1, length, height, width).

    A label from the number of classes on counts for nothing in the sum, but for a voxel; a negative one gives NaN.
    Gradients of such voxels are their probabilities: that of the softmax, less 1 at a label that there is.
    """
    own, known, voxels = _parts(scores, labels)
    picked = jnp.sum(jnp.where(own, jax.nn.log_softmax(promote(scores), 1), 0))
    return jnp.where(known, -picked / voxels, jnp.nan)


def voxel_softmax_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    own, _, voxels = _parts(scores, labels)
    return dy / voxels * (jax.nn.softmax(promote(scores), 1) - own), None


register(
    LayerType(
        Signature("VoxelSoftmaxLoss", bottoms=2, loss=True),
        Traced(voxel_softmax_loss),
        Gradient(
            voxel_softmax_loss_backward, overrides_autodiff=True, indices=Indices((1,)), exempt_from_force_backward=(1,)
        ),
        docs=LayerDocs(origin="C3D"),
    )
)


def _parts(scores: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array, int]:
    """Return where the labels' own scores are, whether no label is negative, the number of voxels."""
    volume_size(scores)
    require_one_batch(scores.shape, labels.shape)
    wanted = (scores.shape[0], 1, *scores.shape[2:])
    require(labels.shape == wanted, f"needs a label for each voxel, of shape {wanted}, not {labels.shape}")
    own = own_classes(labels, scores.shape)
    return own, jnp.all(labels.astype(jnp.int32) >= 0), max(math.prod(labels.shape), 1)

"""CenterLoss: distances to learned centres of classes."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from .. import across
from ..axes import canonical_axis
from ..context import Context, ParamSpec
from ..dtypes import promote
from ..loss import class_numbers, nan_if_unlabelled, own_classes
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced, Transform

Arrays = tuple[jax.Array, ...]


def center_loss(ctx: Context, blobs: tuple[jax.Array], x: jax.Array, labels: jax.Array) -> jax.Array:
    """Half the mean, over items, of the squared distance to the centre of the item's class.

    It has no weight in the net's loss unless given a loss_weight. Centres (num_output, numbers) move by the sum of
    (c - x) / (n + 1) over the n items of their class, whatever the loss weight.
    """
    difference, own = _differences(ctx, blobs, x, labels)
    return nan_if_unlabelled(own, jnp.sum(jnp.square(difference)) / (2 * x.shape[0])).astype(x.dtype)


def center_loss_params(ctx: Context, x: Any, labels: Any) -> list[ParamSpec]:
    p = ctx.param
    axis = canonical_axis(p.axis, x.shape)
    require(axis == 1, f"has a label for each item along axis 0; axis must be 1, not {p.axis}")
    require(p.num_output > 0, "num_output must be positive")
    require(p.distance_type == "L2", f'distance_type "{p.distance_type}" is not supported; use "L2"')
    require(
        math.prod(labels.shape[1:]) == 1 and labels.shape[:1] == x.shape[:1],
        f"needs one label per item: data {x.shape}, labels {labels.shape}",
    )
    return [ParamSpec((p.num_output, math.prod(x.shape[1:])), p.center_filler)]


def center_loss_backward(
    ctx: Context, blobs: tuple[jax.Array], x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Any, ...]:
    difference, own = _differences(ctx, blobs, x, labels)
    members = own.astype(difference.dtype)
    d_centers = -(members.T @ difference) / (1 + across.total(ctx, jnp.sum(members, axis=0))[:, None])
    dx = dy / x.shape[0] * difference
    return (jnp.where(dy == 0, 0, d_centers),), dx.reshape(x.shape), None


def _classes(ctx: Context, x: Any, labels: Any) -> int:
    return int(ctx.param.num_output)


_CANNOT: dict[Transform, str] = {
    "jvp": "the centres' gradient is not linear in the top's, of which it takes no notice",
    "shard_map": "the centres' gradient divides by the items that a class has in all of the batch",
}

register(
    LayerType(
        Signature("CenterLoss", bottoms=2, param="center_loss_param", in_place=False),
        Traced(center_loss, params=center_loss_params),
        Gradient(
            center_loss_backward,
            overrides_autodiff=True,
            indices=Indices((1,), _classes),
            exempt_from_force_backward=(1,),
            not_derivative="The centres' gradient is a mean over their class, independent of the loss weight.",
        ),
        LayerTraits(weight_axes=2),
        docs=LayerDocs(origin="caffe-face", unsupported=_CANNOT),
    )
)


def _differences(ctx: Context, blobs: tuple[jax.Array], x: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return items less their centres, and where the items' own classes are, (items, classes)."""
    (centers,) = blobs
    numbers = class_numbers(labels, centers.shape[0]).reshape(-1)
    own = own_classes(numbers, (x.shape[0], centers.shape[0]))
    nearest = jnp.take(promote(centers), numbers, axis=0, mode="clip")
    return promote(x).reshape(x.shape[0], -1) - nearest, own

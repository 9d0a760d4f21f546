"""CosinAddm: ArcFace's margin, which is added to the angle of an example's own class."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..loss import class_numbers, classes_of_rows, own_classes
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced


def cosin_addm(ctx: Context, x: jax.Array, labels: jax.Array) -> jax.Array:
    """Cosines (N, classes), of which own ones become cos(angle + m); those up to cos(pi - m) become x - m sin(m).

    A cosine from 1 on is taken for 1, where the gradient is the top's. It is the same in TEST.
    """
    own, rows, wide = _parts(ctx, x, labels)
    m = ctx.param.m
    cosine = jnp.minimum(rows, 1)
    sine = _sine(cosine)
    near = jnp.where(wide, cosine * math.cos(m) - sine * math.sin(m), rows - m * math.sin(m))
    return jnp.where(own, near, rows).reshape(x.shape).astype(x.dtype)


def cosin_addm_backward(
    ctx: Context, x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    own, rows, wide = _parts(ctx, x, labels)
    m, sine = ctx.param.m, _sine(jnp.minimum(rows, 1))
    slope = math.cos(m) + math.sin(m) * rows / jnp.where(sine > 0, sine, 1)
    factor = jnp.where(own & wide & (sine > 0), slope, 1)
    return (factor * promote(dy).reshape(rows.shape)).reshape(x.shape).astype(x.dtype), None


register(
    LayerType(
        Signature("CosinAddm", bottoms=2, param="cosin_add_m_param", in_place=False),
        Traced(cosin_addm),
        Gradient(
            cosin_addm_backward,
            overrides_autodiff=True,
            indices=Indices((1,), classes_of_rows),
            not_derivative="At a cosine of 1 and beyond the gradient is the top's.",
        ),
        LayerTraits(row_wise=True),
        docs=LayerDocs(
            origin="arcface-caffe", restrictions="`transform_test` does nothing, as in the fork. No recorded case."
        ),
    )
)


def _parts(ctx: Context, x: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return which classes are own, the cosines as (N, classes), and where the angle and m are less than pi."""
    require(len(x.shape) > 1, f"needs a bottom of cosines (examples, classes), not shape {x.shape}")
    require(
        labels.shape[:1] == x.shape[:1] and labels.size == x.shape[0],
        f"bottom 1 must hold a label for each of the {x.shape[0]} examples, not have shape {labels.shape}",
    )
    require(0 <= ctx.param.m <= math.pi, f"m must be an angle from 0 to pi, not {ctx.param.m:g}")
    rows = promote(x).reshape(x.shape[0], math.prod(x.shape[1:]))
    own = own_classes(class_numbers(labels, rows.shape[1]), rows.shape)
    return own, rows, rows > math.cos(math.pi - ctx.param.m)


def _sine(cosine: jax.Array) -> jax.Array:
    """Return the sine of an angle by its cosine, with a slope of 0 where that is none."""
    squared = 1 - jnp.square(cosine)
    return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1)), 0)

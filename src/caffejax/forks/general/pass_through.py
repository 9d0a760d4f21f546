"""Gather, Debug and GradientScaler, whose tops equal their bottoms, and MemoryLoss, which is 0."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...base.glog import warn_once
from ...core.layers.context import Context, Params, ParamSpec, Phase
from ...core.layers.declaration import register
from ...core.layers.helpers import as_tuple, no_gradient
from ...core.layers.types import SAME_AS_BOTTOMS
from ...core.schema.caffe_pb2 import GradientScalerParameter
from ..metric_learning.margins import increment_pass_count, make_pass_count_spec

Arrays = tuple[jax.Array, ...]


def gather(*xs: jax.Array, ctx: Context) -> Arrays:
    """Return the bottoms unchanged. The fork gathers the batches of all MPI processes, which is not needed here."""
    require(
        not ctx.layer.HasField("gather_param"),
        "gather_param is not supported: this Gather is yjxiong/caffe's, which collects the batches of processes",
    )
    return xs


def debug(*xs: jax.Array, ctx: Context) -> Arrays:
    """Return the bottoms unchanged, for MyCaffe's debugger. The last bottoms, such as labels, may have no tops."""
    require(ctx.num_tops <= len(xs), f"must not have more tops than bottoms: {ctx.num_tops} tops, {len(xs)} bottoms")
    return xs[: ctx.num_tops]


@register(
    "MemoryLoss",
    bottoms=(1, 2),
    loss=True,
    backward=no_gradient,
    counts_rows=True,
    origin="MyCaffe",
    restrictions="It is 0, with a warning.",
)
def memory_loss(*xs: jax.Array) -> jax.Array:
    """Return 0, a scalar, instead of the loss that MyCaffe's reinforcement learning trainer computes."""
    warn_once("MemoryLoss is 0, because MyCaffe's trainer computes it; replace it with the loss that you train with")
    return jnp.zeros((), jnp.float32)


def pass_through_backward(*xs: jax.Array, y: Any, dy: Any) -> tuple[jax.Array | None, ...]:
    diffs = as_tuple(dy)
    return (*diffs, *(None for _ in xs[len(diffs) :]))


for _name, _forward, _origin, _tops in (
    ("Gather", gather, "yjxiong/caffe", SAME_AS_BOTTOMS),
    ("Debug", debug, "MyCaffe", (1, None)),
):
    register(
        _name,
        bottoms=(1, None),
        tops=_tops,
        backward=pass_through_backward,
        elementwise=True,
        data_movement="all",
        dtype_policy="bottoms",
        accepts_integers=True,
        origin=_origin,
    )(_forward)


@register(
    "GradientScaler",
    param="gradient_scaler_param",
    stateful=True,
    overrides_autodiff=True,
    deviation="It is the gradient of the top, negated and scaled.",
    row_wise=True,
    dtype_policy="bottoms",
    data_movement="all",
    spatial_map="same",
    origin="ddtm/caffe (DANN)",
    restrictions="Forward passes are counted, while the fork uses the iteration of the solver: with iter_size "
    "set, multiply max_iter by it. No recorded case.",
    unsupported={"second_order": "second derivatives have the wrong sign, because the gradient is negated again"},
)
def gradient_scaler(
    p: GradientScalerParameter, x: jax.Array, *, state: Params, phase: Phase
) -> tuple[jax.Array, Arrays]:
    """Return the bottom unchanged; multiply the gradient by a negative factor that depends on the number of passes.

    The factor after t forward passes in TRAIN is -(lower_bound + (upper_bound - lower_bound) * (2 / (1 + exp(-alpha *
    progress)) - 1)), where progress is min(t / max_iter, 1). The blob, (1,), counts the passes.
    """
    num_passes = state["count"]
    return _with_negative_gradient(x, _gradient_factor(p, num_passes)), (
        increment_pass_count(num_passes) if phase == "TRAIN" else num_passes,
    )


@gradient_scaler.params
def gradient_scaler_params(p: GradientScalerParameter, x: Any) -> list[ParamSpec]:
    require(p.max_iter >= 1, f"max_iter must be 1 or more, not {p.max_iter:g}")
    require(p.alpha >= 0, f"alpha must not be negative: {p.alpha:g}")
    require(
        p.lower_bound <= p.upper_bound, f"lower_bound {p.lower_bound:g} must be at most upper_bound {p.upper_bound:g}"
    )
    return [make_pass_count_spec(0)]


@gradient_scaler.backward
def gradient_scaler_backward(
    p: GradientScalerParameter, x: jax.Array, *, state: Params, y: Any, dy: jax.Array
) -> jax.Array:
    return (-_gradient_factor(p, state["count"]) * dy).astype(x.dtype)


def _gradient_factor(p: GradientScalerParameter, num_passes: jax.Array) -> jax.Array:
    progress = jnp.minimum(num_passes[0] / p.max_iter, 1)
    return p.lower_bound + (p.upper_bound - p.lower_bound) * (2 / (1 + jnp.exp(-p.alpha * progress)) - 1)


def _with_negative_gradient(x: jax.Array, factor: jax.Array) -> jax.Array:
    finite_x = jnp.where(jnp.isfinite(x), x, 0)
    zero = finite_x - jax.lax.stop_gradient(finite_x)
    return jax.lax.stop_gradient(x) - (jax.lax.stop_gradient(factor) * zero).astype(x.dtype)

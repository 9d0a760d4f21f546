"""Lstm: junhyukoh's LSTM, whose rows are those of all time steps, one after another."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ...kernels.varying import vary_as
from ..context import Context, ParamSpec
from ..lstm import gate_diffs, run_lstm
from ..recurrent import Arrays, Sequence
from ..registry import register
from ..types import Facts, Gradient, Indices, LayerType, Signature, Traced


def lstm(ctx: Context, blobs: Arrays, x: jax.Array, *clip: jax.Array) -> tuple[jax.Array, Arrays]:
    """LSTM over rows time * batch_size + sequence: (rows, ...) to (rows, num_output), gates in the order i, f, o, g.

    Where the second bottom, one number for each row, is 0 a sequence begins anew; it goes on, also from the last
    forward pass, where it is 1. Without one every pass begins anew. clipping_threshold cuts the gates' gradients of
    every step. As on caffe-lstm's CPU, the hidden state that the gates of all sequences see is the first sequence's,
    which gradients ignore. Blobs: W_x (4 num_output, numbers), W_h (4 num_output, num_output), b (4 num_output).
    """
    s = _sequence(ctx, blobs, x, *clip)
    (top,), carried = run_lstm(s)
    return top.reshape(x.shape[0], -1), carried if clip else ()


def lstm_params(ctx: Context, x: Any, *clip: Any) -> list[ParamSpec]:
    p = ctx.param
    _check(p, x, *clip)
    weights = [ParamSpec((4 * p.num_output, n), p.weight_filler) for n in (math.prod(x.shape[1:]), p.num_output)]
    state = ParamSpec((1, p.batch_size, p.num_output), learnable=False, persistent=False)
    return [*weights, ParamSpec((4 * p.num_output,), p.bias_filler), *([state] * 2 if clip else [])]


def lstm_backward(ctx: Context, blobs: Arrays, x: jax.Array, *clip: jax.Array, y: Any, dy: Any) -> tuple[Any, ...]:
    s = _sequence(ctx, blobs, x, *clip)
    steps = (*s.x.shape[:2], -1)
    most = ctx.param.clipping_threshold or math.inf
    d, (d_recurrent,) = gate_diffs(s, y.reshape(steps), dy.reshape(steps), most)
    (d_weight, d_bias), dx, _ = s.drive_diffs(d)
    return (d_weight, d_recurrent, d_bias, *(None for _ in blobs[3:])), dx.reshape(x.shape), *(None for _ in clip)


class OneState(Sequence):
    """A sequence whose gates see the hidden state of the first of the sequences: caffe-lstm's, as its CPU has it.

    Diffs take no notice of it.
    """

    def recurrent(self, h: jax.Array, cont: jax.Array, weight: jax.Array) -> jax.Array:
        """Return what the state before adds to the gates."""
        return cont * self.times(h[..., :1, :], weight)


register(
    LayerType(
        Signature("Lstm", bottoms=(1, 2), param="lstm_param", in_place=False),
        Traced(lstm, params=lstm_params, stateful=True),
        Gradient(
            lstm_backward,
            preferred=True,
            indices=Indices((1,)),
            unforced=(1,),
            not_derivative="clipping_threshold cuts gradients, and each sequence's hidden state gets its own.",
        ),
        Facts(weight_axes=2, origin="caffe-lstm"),
    )
)


def _check(p: Any, x: Any, *clip: Any) -> None:
    require(p.num_output > 0, "num_output must be positive")
    require(p.batch_size > 0, "batch_size must be positive")
    require(p.clipping_threshold >= 0, f"clipping_threshold must not be negative: {p.clipping_threshold}")
    require(
        len(x.shape) > 1 and x.shape[0] % p.batch_size == 0,
        f"needs a bottom of batch_size {p.batch_size} rows for each time step, not shape {x.shape}",
    )
    for other in clip:
        require(
            math.prod(other.shape) == x.shape[0],
            f"bottom 1 must hold a number for each of the {x.shape[0]} rows, not have shape {other.shape}",
        )


def _sequence(ctx: Context, blobs: Arrays, x: jax.Array, *clip: jax.Array) -> OneState:
    p = ctx.param
    _check(p, x, *clip)
    weight, recurrent, bias, *carried = blobs
    steps = x.shape[0] // p.batch_size
    rows = x.reshape(steps, p.batch_size, -1)
    if clip:
        cont = jax.lax.stop_gradient(clip[0]).reshape(steps, p.batch_size, 1).astype(rows.dtype)
        start = tuple(jax.lax.stop_gradient(s)[0] for s in carried)
    else:
        cont = jnp.ones((steps, p.batch_size, 1), rows.dtype)
        start = (jnp.zeros((p.batch_size, p.num_output), bias.dtype),) * 2
    return OneState(
        x=rows,
        cont=cont,
        static=None,
        start=tuple(vary_as(s, x, *clip, *blobs) for s in start),
        into=(weight, bias),
        own=(recurrent,),
        exposed=False,
        products=jnp.bfloat16 if ctx.run.precision == "bfloat16" else None,
    )

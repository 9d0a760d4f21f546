"""LSTM and its single step, LSTMUnit. Gates lie side by side in the order i, f, o, g."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import require
from .context import Context, ParamSpec
from .dtypes import promote
from .recurrent import CARRIES, NO_DIFFS_OF_STATES, Arrays, Pair, Sequence, declare, diffs, sequence
from .registry import register
from .types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced


def lstm_unit(ctx: Context, c: jax.Array, gates: jax.Array, cont: jax.Array) -> Arrays:
    """From the cell (1, N, D), the gates before their nonlinearity (1, N, 4D) and cont (1, N): new cell, hidden.

    c = cont f c + i g and h = o tanh(c). f's gradient is taken as f (1 - f) with f times cont already, which
    makes no difference where cont is 0 or 1.
    """
    _check_unit(c.shape, gates.shape, cont.shape)
    new_c, h = _unit(promote(c), promote(gates), promote(cont)[..., None])
    return new_c.astype(c.dtype), h.astype(c.dtype)


def lstm_unit_backward(
    ctx: Context, c: jax.Array, gates: jax.Array, cont: jax.Array, *, y: Arrays, dy: Arrays
) -> tuple[jax.Array, jax.Array, None]:
    dc, dh = (promote(d) for d in dy)
    dc_prev, d_gates = _unit_diffs(_activated(promote(gates), promote(cont)[..., None]), promote(c), dc, dh)
    return dc_prev, d_gates, None


register(
    LayerType(
        Signature("LSTMUnit", bottoms=3, tops=2),
        Traced(lstm_unit),
        Gradient(lstm_unit_backward, indices=Indices((2,)), exempt_from_force_backward=(2,)),
    )
)


def _check_unit(c: tuple[int, ...], gates: tuple[int, ...], cont: tuple[int, ...]) -> None:
    require(len(c) == 3 and c[0] == 1, f"bottom 0, the cell, must have shape (1, streams, numbers), not {c}")
    wanted = (1, c[1], 4 * c[2])
    require(gates == wanted, f"bottom 1, the gates, must have shape {wanted} to go with {c}, not {gates}")
    require(cont == (1, c[1]), f"bottom 2, cont, must have shape {(1, c[1])} to go with {c}, not {cont}")


def _unit(c: jax.Array, gates: jax.Array, cont: jax.Array) -> tuple[jax.Array, jax.Array]:
    i, f, o, g = jnp.split(gates, 4, axis=-1)
    new = _forget(cont, f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return new, jax.nn.sigmoid(o) * jnp.tanh(new)


@jax.custom_jvp
def _forget(cont: jax.Array, x: jax.Array) -> jax.Array:
    return cont * jax.nn.sigmoid(x)


@_forget.defjvp
def _forget_jvp(primals: Arrays, tangents: Arrays) -> tuple[jax.Array, jax.Array]:
    f = _forget(*primals)
    return f, f * (1 - f) * tangents[1]


def _activated(gates: jax.Array, cont: jax.Array) -> Arrays:
    i, f, o, g = jnp.split(gates, 4, axis=-1)
    return jax.nn.sigmoid(i), cont * jax.nn.sigmoid(f), jax.nn.sigmoid(o), jnp.tanh(g)


def _unit_diffs(gates: Arrays, c_prev: jax.Array, dc: jax.Array, dh: jax.Array) -> Pair:
    """Return the diffs of the cell before and of the gates, from those of the new cell and of the hidden state."""
    i, f, o, g = gates
    tanh_c = jnp.tanh(f * c_prev + i * g)
    dc = dc + dh * o * (1 - tanh_c * tanh_c)
    d_gates = [dc * g * i * (1 - i), dc * c_prev * f * (1 - f), dh * tanh_c * o * (1 - o), dc * i * (1 - g * g)]
    return dc * f, jnp.concatenate(d_gates, axis=-1)


def lstm(ctx: Context, blobs: Arrays, *bottoms: jax.Array) -> tuple[Arrays, Arrays]:
    """LSTMUnit step by step, on the gates W_hc cont_t h_{t-1} + W_xc x_t + b_c; the top is h_t.

    Bottoms: x, cont, [x_static], [h_0, c_0]. Tops: h, [h_T, c_T]. Blobs: W_xc, b_c, [W_xc_static], W_hc.
    """
    return run_lstm(sequence(ctx, 2, blobs, bottoms))


def run_lstm(s: Sequence) -> tuple[Arrays, Arrays]:
    """Return tops and carried state of a sequence."""
    (w_h,) = s.own
    # of what lies between the gates and the state nothing is kept for the backward pass where memory is to be halved
    unit = _unit if s.products is None else jax.checkpoint(_unit, prevent_cse=False)

    def step(state: Pair, now: Any) -> tuple[Pair, jax.Array]:
        (h, c), (drive, cont) = state, now
        c, hidden = unit(c, drive + s.recurrent(h, cont, w_h), promote(cont))
        h = hidden.astype(h.dtype)
        return (h, c), h

    h_0, c_0 = s.start
    end, top = lax.scan(step, (h_0.astype(s.x.dtype), promote(c_0)), (s.drive, s.cont))
    return s.tops(top, end)


def lstm_params(ctx: Context, *bottoms: Any) -> list[ParamSpec]:
    p = ctx.param
    return declare(ctx, 2, 4 * p.num_output, bottoms, [ParamSpec((4 * p.num_output, p.num_output), p.weight_filler)])


def lstm_backward(ctx: Context, blobs: Arrays, *bottoms: jax.Array, y: Any, dy: Any) -> tuple[Any, ...]:
    s = sequence(ctx, 2, blobs, bottoms)
    top, d_top = (v[0] if s.exposed else v for v in (y, dy))
    d = gate_diffs(s, top, d_top)
    return diffs(s, blobs, bottoms, d, [jnp.einsum("tng,tnd->gd", d, promote(s.cont * _before(s, top)))])


def gate_diffs(s: Sequence, top: jax.Array, d_top: jax.Array, most: float = math.inf) -> jax.Array:
    """Return the diffs of the gates before their nonlinearity, (T, N, 4D); each is cut to `most` before it goes on."""
    (w_h,) = s.own
    # the hidden states are known, so all gates are too; only the cells need a pass forward, the diffs one backward
    gates = _activated(s.drive + s.recurrent(_before(s, top), s.cont, w_h), promote(s.cont))

    def cell(c: jax.Array, now: Any) -> Pair:
        i, f, _, g = now
        return f * c + i * g, c

    c_before = lax.scan(cell, promote(s.start[1]), gates)[1]

    def step(diff: Pair, now: Any) -> tuple[Pair, jax.Array]:
        (dh, dc), (gates, c_prev, dh_now, cont) = diff, now
        dc, d_gates = _unit_diffs(gates, c_prev, dc, dh + dh_now)
        d_gates = d_gates if math.isinf(most) else jnp.clip(d_gates, -most, most)
        return (s.recurrent_diff(d_gates, cont, promote(w_h)), dc), d_gates

    none = jnp.zeros_like(c_before[0])
    return lax.scan(step, (none, none), (gates, c_before, promote(d_top), promote(s.cont)), reverse=True)[1]


def _before(s: Sequence, top: jax.Array) -> jax.Array:
    """Return the hidden state before each step."""
    return jnp.concatenate([s.start[0][None].astype(top.dtype), top[:-1]])


register(
    LayerType(
        Signature("LSTM", bottoms=(2, 5), tops=(1, 3), param="recurrent_param"),
        Traced(lstm, params=lstm_params, stateful=True),
        Gradient(
            lstm_backward, indices=Indices((1,)), exempt_from_force_backward=(1,), not_derivative=NO_DIFFS_OF_STATES
        ),
        docs=LayerDocs(unsupported=CARRIES),
    )
)

"""Lstm and LstmSimple of caffe-lstm (junhyukoh) and MyCaffe, and ContinuationIndicator of warpctc-caffe."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.context import Arrays, Context, Params, ParamSpec
from ...core.layers.declaration import Declaration, declare, register
from ...core.layers.dtype_policy import promote
from ...core.layers.recurrent import RecurrentOperands, gate_diffs, run_lstm
from ...core.layers.registry import add_type, layer_type
from ...core.layers.types import Indices, Traced, Variants
from ...core.ops.vma import vary_as
from ...core.schema.caffe_pb2 import ContinuationIndicatorParameter


def lstm(
    p: Any, params: Params, x: jax.Array, *clip: jax.Array, state: Params, ctx: Context
) -> tuple[jax.Array, Arrays]:
    """Apply an LSTM to rows ordered by time, then by sequence: (rows, ...) to (rows, num_output).

    There are time * batch_size rows. All axes after the first are one vector of features, which has one number if the
    bottom has one axis. An optional second bottom (time, batch_size) is 0 where a sequence starts and 1
    where it continues, also from the previous forward pass. Without this bottom, all sequences start in every pass.
    clipping_threshold clips the gradients of the gates at every step. Blobs: W_x (4 num_output, features), W_h (4
    num_output, num_output) and b (4 num_output,), with the gates in the order i, f, o, g.

    If batch_size is not set, a bottom (time, sequences, features) gives a top (time, sequences, num_output), as in
    CTPN.

    Otherwise, two rules reproduce caffe-lstm's CPU code. The gates of all sequences are computed from the hidden state
    of the first sequence. If the second bottom has shape (rows,), its value at index time + sequence is used.
    """
    s = _read_operands(ctx, params, state, x, *clip)
    (top,), new_state = run_lstm(s)
    return top if _has_sequence_axis(p, x) else top.reshape(x.shape[0], -1), new_state if clip else ()


def lstm_params(p: Any, x: Any, *clip: Any) -> list[ParamSpec]:
    _check_bottoms(p, x, *clip)
    num_steps, num_sequences = _count_steps_and_sequences(p, x)
    num_features = math.prod(x.shape) // max(num_steps * num_sequences, 1)
    width, state_shape = 4 * p.num_output, (1, num_sequences, p.num_output)
    state_specs = [ParamSpec(state_shape, learnable=False, persistent=False, name=name) for name in ("hidden", "cell")]
    return [
        ParamSpec((width, num_features), p.weight_filler, name="weight_input"),
        ParamSpec((width, p.num_output), p.weight_filler, name="weight_hidden"),
        ParamSpec((width,), p.bias_filler, name="bias"),
        *(state_specs if clip else []),
    ]


def lstm_backward(
    p: Any, params: Params, x: jax.Array, *clip: jax.Array, state: Params, y: Any, dy: Any, ctx: Context
) -> tuple[Any, ...]:
    s = _read_operands(ctx, params, state, x, *clip)
    step_shape = (*s.x.shape[:2], -1)
    clip_limit = p.clipping_threshold or math.inf
    h = promote(y.reshape(step_shape))
    d = gate_diffs(s, h, dy.reshape(step_shape), clip_limit)
    initial_h = promote(s.initial_state[0])[: None if _has_sequence_axis(p, x) else 1]
    d_recurrent_weight = jnp.einsum("tng,tnd->gd", d[1:], h[:-1]) + d[0, : len(initial_h)].T @ initial_h
    (d_weight, d_bias), dx, _ = s.input_diffs(d)
    return (d_weight, d_recurrent_weight, d_bias), dx.reshape(x.shape), *(None for _ in clip)


class SharedStateOperands(RecurrentOperands):
    """Operands of an LSTM that computes the gates of all sequences from the hidden state of the first sequence.

    This reproduces caffe-lstm's CPU code.
    """

    def project_state(self, h: jax.Array, cont: jax.Array, weight: jax.Array) -> jax.Array:
        """Return the contribution of the first sequence's hidden state in `h` to the gates of all sequences."""
        return cont * self.multiply_by_weight(h[..., :1, :], weight)

    def state_diff(self, d: jax.Array, cont: jax.Array, weight: jax.Array) -> jax.Array:
        """Return the gradient of the previous hidden states, given the gradient `d` of the gates.

        The gradient is 0 for all sequences except the first.
        """
        first_diff = jnp.sum(cont * (d @ weight), axis=-2, keepdims=True)
        return jnp.where(jnp.arange(d.shape[-2])[:, None] == 0, first_diff, 0)


def _declare_lstm(name: str, param: str, origin: str) -> Declaration[..., Any]:
    return declare(
        name,
        Traced(lstm, params=lstm_params, stateful=True),
        bottoms=(1, 2),
        param=param,
        in_place=False,
        backward=lstm_backward,
        overrides_autodiff=True,
        indices=Indices((1,)),
        deviation="The gradient of W_h uses the state of each sequence; clipping_threshold clips gradients.",
        weight_axes=2,
        blob_names=("weight_input", "weight_hidden", "bias"),
        origin=origin,
    )


def select_lstm_variant(layer: Any) -> str:
    """Return the fork that an Lstm layer belongs to, "MyCaffe" or "caffe-lstm"."""
    return "MyCaffe" if layer.HasField("recurrent_param") and not layer.HasField("lstm_param") else "caffe-lstm"


_BVLC_LSTM = layer_type("LSTM")

register(
    "Lstm",
    Variants(
        select_lstm_variant,
        {
            "caffe-lstm": _declare_lstm("Lstm", "lstm_param", "caffe-lstm").type,
            "MyCaffe": replace(
                _BVLC_LSTM,
                signature=replace(_BVLC_LSTM.signature, name="Lstm"),
                docs=replace(_BVLC_LSTM.docs, origin="MyCaffe"),
            ),
        },
        selection_doc="A layer with recurrent_param is MyCaffe's, which is BVLC's LSTM.",
    ),
    bottoms=(1, 5),
    tops=(1, 3),
    origin="caffe-lstm, MyCaffe",
)
add_type(_declare_lstm("LstmSimple", "lstm_simple_param", "MyCaffe").type, __name__)


def _check_bottoms(p: Any, x: Any, *clip: Any) -> None:
    require(p.num_output > 0, f"num_output must be positive, not {p.num_output}")
    require(p.batch_size > 0, f"batch_size must be positive, not {p.batch_size}")
    require(p.clipping_threshold >= 0, f"clipping_threshold must not be negative, but is {p.clipping_threshold}")
    require(
        len(x.shape) > 0 and x.shape[0] % p.batch_size == 0,
        f"needs a bottom with batch_size {p.batch_size} rows for each time step, not shape {x.shape}",
    )
    shape = _count_steps_and_sequences(p, x)
    for indicators in clip:
        require(
            tuple(indicators.shape) in (shape, (math.prod(shape),)),
            f"bottom 1 must have shape {shape} (time, sequences), or {(math.prod(shape),)}, not {indicators.shape}",
        )


def _has_sequence_axis(p: Any, x: Any) -> bool:
    """Return whether the bottom has separate axes for time and sequences, as in CTPN."""
    return len(x.shape) == 3 and not p.HasField("batch_size")


def _count_steps_and_sequences(p: Any, x: Any) -> tuple[int, int]:
    return tuple(x.shape[:2]) if _has_sequence_axis(p, x) else (x.shape[0] // p.batch_size, p.batch_size)


def _read_operands(ctx: Context, params: Params, state: Params, x: jax.Array, *clip: jax.Array) -> RecurrentOperands:
    p = ctx.param
    _check_bottoms(p, x, *clip)
    weight, recurrent_weight, bias = params.values()
    num_steps, num_sequences = _count_steps_and_sequences(p, x)
    step_rows = x.reshape(num_steps, num_sequences, -1)
    if clip:
        cont = jax.lax.stop_gradient(clip[0]).astype(step_rows.dtype)
        if cont.ndim == 1:
            cont = cont[jnp.arange(num_steps)[:, None] + jnp.arange(num_sequences)]
        cont = cont[:, :, None]
        initial_state = tuple(jax.lax.stop_gradient(s)[0] for s in state.values())
    else:
        cont = jnp.ones((num_steps, num_sequences, 1), step_rows.dtype)
        initial_state = (jnp.zeros((num_sequences, p.num_output), bias.dtype),) * 2
    return (RecurrentOperands if _has_sequence_axis(p, x) else SharedStateOperands)(
        x=step_rows,
        cont=cont,
        static=None,
        initial_state=tuple(vary_as(s, x, *clip, *params.values()) for s in initial_state),
        input_blobs=(weight, bias),
        state_blobs=(recurrent_weight,),
        exposes_states=False,
        product_dtype=jnp.bfloat16 if ctx.config.precision == "bfloat16" else None,
    )


@register(
    "ContinuationIndicator",
    bottoms=0,
    param="continuation_indicator_param",
    differentiable=False,
    origin="warpctc-caffe",
)
def continuation_indicator(p: ContinuationIndicatorParameter) -> jax.Array:
    """Return an array (time_step, batch_size) that is 0 in the first row and 1 in all other rows.

    The layer has no bottoms. Recurrent layers read the top as continuation indicators, so that new sequences start in
    each pass.
    """
    require(
        p.time_step > 0 and p.batch_size > 0,
        f"time_step and batch_size must be positive, not {p.time_step} and {p.batch_size}",
    )
    return jnp.ones((p.time_step, p.batch_size), jnp.float32).at[0].set(0)

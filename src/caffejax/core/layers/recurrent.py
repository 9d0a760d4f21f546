"""RNN and LSTM over a sequence, and LSTMUnit, one step of an LSTM (recurrent_layer.cpp, lstm_layer.cpp).

Bottoms are x (T, N, ...), cont (T, N) and, depending on the settings, x_static (N, ...) and the initial states. The
state of the previous step is multiplied by cont, which is 0 where a sequence begins. With `expose_hidden` the states
are bottoms and tops, without a gradient. Otherwise they are carried from one forward pass to the next. An LSTM's gates
are stored next to each other in the order i, f, o, g. Only one step is compiled, for sequences of any length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ...base.errors import require
from ...base.human_readable import format_count
from ..ops.vma import vary_as
from ..schema.caffe_pb2 import RecurrentParameter
from .context import Arrays, Context, Params, ParamSpec
from .declaration import register
from .dtype_policy import promote
from .types import Indices, Transform

Pair = tuple[Array, Array]

UNSUPPORTED_TRANSFORMS: dict[Transform, str] = {
    "symbolic_batch": "the state carried from pass to pass has the batch size of the net"
}

STATES_WITHOUT_GRADIENT = (
    "With expose_hidden the gradients of the last states are ignored, and the first states have no gradient."
)


@dataclass(frozen=True)
class RecurrentOperands:
    """The bottoms and blobs of a recurrent layer, named by their roles.

    Attributes:
        x: the inputs (T, N, features).
        cont: (T, N, 1), 0 where a sequence begins.
        static: the inputs of all steps (N, static features), or None.
        initial_state: the arrays of the state before the first step, (N, num_output) each.
        input_blobs: the blobs that are applied to x and static: weight, bias, and the weight of static if there is one.
        state_blobs: the blobs that are applied to the state.
        exposes_states: whether the states are bottoms and tops.
        product_dtype: the dtype to which the factors of products are rounded, or None to keep their dtype.
    """

    x: Array
    cont: Array
    static: Array | None
    initial_state: Arrays
    input_blobs: Arrays
    state_blobs: Arrays
    exposes_states: bool
    product_dtype: Any = None

    @property
    def input_projection(self) -> Array:
        """The terms of the gates that depend on the inputs only, for all steps: (T, N, outputs of the weight)."""
        weight, bias, *static_weight = self.input_blobs
        projection = self.multiply_by_weight(self.x, weight) + bias
        return (
            projection + self.multiply_by_weight(self.static, *static_weight) if self.static is not None else projection
        )

    def multiply_by_weight(self, x: Array, weight: Array) -> Array:
        """Return `x @ weight.T`, summed in at least float32.

        If `product_dtype` is set, `x` and `weight` are first rounded to it.
        """
        # cast here, in every step, so that the gradients of the steps are summed in float32
        x, weight = (a if self.product_dtype is None else a.astype(self.product_dtype) for a in (x, weight))
        return jnp.matmul(x, weight.T, preferred_element_type=jnp.promote_types(x.dtype, jnp.float32))

    def project_state(self, h: Array, cont: Array, weight: Array) -> Array:
        """Return the terms of the gates that depend on the previous hidden state `h`, (N, outputs of the weight)."""
        return self.multiply_by_weight(cont * h, weight)

    def state_diff(self, d: Array, cont: Array, weight: Array) -> Array:
        """Return the gradient of the previous hidden state, given the gradient `d` of the gates."""
        return cont * (d @ weight)

    def input_diffs(self, d: Array) -> tuple[list[Array], Array, Array | None]:
        """Return the gradients of `input_blobs`, x and static, given the gradient `d` of `input_projection`."""
        weight, _, *static_weight = self.input_blobs
        blobs = [jnp.einsum("tng,tnf->gf", d, promote(self.x)), d.sum((0, 1))]
        dx = d @ promote(weight)
        if self.static is None:
            return blobs, dx, None
        d_sum = d.sum(0)
        return [*blobs, d_sum.T @ promote(self.static)], dx, d_sum @ promote(static_weight[0])

    def make_tops(self, top: Array, last_state: Arrays) -> tuple[Arrays, Arrays]:
        """Return the tops and the state to carry, given the first top and the state after the last step."""
        final_states = [lax.stop_gradient(e)[None] for e in last_state]
        if self.exposes_states:
            return (top, *(f.astype(top.dtype) for f in final_states)), ()
        return (top,), tuple(f.astype(s.dtype) for f, s in zip(final_states, self.initial_state, strict=True))


def read_operands(ctx: Context, n_states: int, params: Params, state: Params, bottoms: Arrays) -> RecurrentOperands:
    """Return the operands of a layer whose state has `n_states` arrays, after validating its bottoms and state."""
    has_static = _check_bottoms(ctx, n_states, bottoms)
    (x, cont, *other_bottoms), exposes_states = bottoms, ctx.param.expose_hidden
    static = other_bottoms.pop(0) if has_static else None
    initial_state = tuple(other_bottoms if exposes_states else state.values())
    require(
        initial_state[0].shape[1] == cont.shape[1],
        f"the bottoms have {cont.shape[1]} streams, but the recurrent state has {initial_state[0].shape[1]}",
    )
    blobs, n_input_blobs = tuple(params.values()), 2 if static is None else 3
    return RecurrentOperands(
        x=x.reshape(*x.shape[:2], -1),
        cont=lax.stop_gradient(cont)[:, :, None].astype(x.dtype),
        static=None if static is None else static.reshape(len(static), -1),
        initial_state=tuple(vary_as(lax.stop_gradient(s)[0], *bottoms, *blobs) for s in initial_state),
        input_blobs=blobs[:n_input_blobs],
        state_blobs=blobs[n_input_blobs:],
        exposes_states=exposes_states,
        product_dtype=jnp.bfloat16 if ctx.config.precision == "bfloat16" else None,
    )


def declare_params(
    ctx: Context, n_states: int, width: int, bottoms: Any, state_specs: list[ParamSpec]
) -> list[ParamSpec]:
    """Return the specs of the blobs in Caffe's order: weight and bias of x, weight of static, `state_specs`, state.

    Args:
        ctx: the context of the layer.
        n_states: the number of arrays in the state.
        width: the number of outputs of the weights of x and static.
        bottoms: the bottoms, or values with their shapes.
        state_specs: the specs of the blobs that are applied to the state.
    """
    has_static, p, x = _check_bottoms(ctx, n_states, bottoms), ctx.param, bottoms[0]
    input_specs = [
        ParamSpec((width, math.prod(x.shape[2:])), p.weight_filler, name="weight_x"),
        ParamSpec((width,), p.bias_filler, name="bias"),
    ]
    if has_static:
        width_and_size = (width, math.prod(bottoms[2].shape[1:]))
        input_specs.append(ParamSpec(width_and_size, p.weight_filler, name="weight_static"))
    state_shape = (1, x.shape[1], p.num_output)
    carried_specs = [
        ParamSpec(state_shape, learnable=False, persistent=False, name=name) for name in ("hidden", "cell")[:n_states]
    ]
    return [*input_specs, *state_specs, *([] if p.expose_hidden else carried_specs)]


def _check_bottoms(ctx: Context, n_states: int, bottoms: Any) -> bool:
    """Check the bottoms and the number of tops; return whether there is a bottom `x_static`."""
    p, n = ctx.param, n_states if ctx.param.expose_hidden else 0
    require(p.num_output > 0, f"num_output must be positive, not {p.num_output}")
    setting = f"expose_hidden is {'true' if p.expose_hidden else 'false'}"
    require(
        len(bottoms) in (2 + n, 3 + n),
        f"needs {2 + n} bottoms, or {3 + n} with x_static, not {len(bottoms)}, because {setting}",
    )
    require(ctx.num_tops == 1 + n, f"needs {format_count(1 + n, 'top')}, not {ctx.num_tops}, because {setting}")
    x, cont, *other_shapes = (tuple(b.shape) for b in bottoms)
    require(len(x) >= 3, f"bottom 0 must have at least 3 axes (time steps, streams, features), not shape {x}")
    require(cont == x[:2], f"bottom 1 must have shape {x[:2]} (time steps, streams), not {cont}")
    has_static = len(bottoms) == 3 + n
    if has_static:
        static = other_shapes.pop(0)
        require(
            len(static) >= 2 and static[0] == x[1],
            f"bottom 2, x_static, must have shape ({x[1]}, ...) (streams, features), not {static}",
        )
    for k, shape in enumerate(other_shapes, len(bottoms) - n):
        state_shape = (1, x[1], p.num_output)
        require(shape == state_shape, f"bottom {k} must have the shape of the state, {state_shape}, not {shape}")
    return has_static


class Nonlinearity(NamedTuple):
    """A function, and its derivative as a function of its result: for y = tanh(x) it is 1 - y**2."""

    function: Callable[[Array], Array]
    slope: Callable[[Array], Array]


TANH = Nonlinearity(jnp.tanh, lambda y: 1 - y * y)


@register(
    "RNN",
    bottoms=(2, 4),
    tops=(1, 2),
    param="recurrent_param",
    stateful=True,
    indices=Indices((1,)),
    deviation=STATES_WITHOUT_GRADIENT,
    blob_names=("weight_x", "bias", "weight_static", "weight_h", "weight_out", "bias_out"),
    unsupported=UNSUPPORTED_TRANSFORMS,
)
def rnn(params: Params, *bottoms: Array, state: Params, ctx: Context) -> tuple[Arrays, Arrays]:
    """Return o_t = tanh(W_ho h_t + b_o) for every step, where h_t = tanh(W_hh cont_t h_{t-1} + W_xh x_t + b_h).

    Bottoms: x (T, N, ...), cont (T, N), [x_static (N, ...)], [h_0 (1, N, num_output)]. Tops: o (T, N, num_output), [h_T
    (1, N, num_output)]. Blobs: W_xh, b_h, [W_xh_static], W_hh, W_ho, b_o. Caffe's rule: rnn_layer.cpp.
    """
    return run_rnn(read_operands(ctx, 1, params, state, bottoms), TANH, TANH)


def run_rnn(s: RecurrentOperands, for_state: Nonlinearity, for_output: Nonlinearity) -> tuple[Arrays, Arrays]:
    """Run a recurrent network with these nonlinearities of the state and of the output; see `rnn`."""
    _, w_out, b_out = s.state_blobs
    h = _compute_hidden_states(s, for_state)
    top = for_output.function(s.multiply_by_weight(h, w_out) + b_out).astype(s.x.dtype)
    return s.make_tops(top, (h[-1],))


@rnn.params
def rnn_params(p: RecurrentParameter, *bottoms: Any, ctx: Context) -> list[ParamSpec]:
    n = p.num_output
    state_specs = [
        ParamSpec((n, n), p.weight_filler, name="weight_h"),
        ParamSpec((n, n), p.weight_filler, name="weight_out"),
        ParamSpec((n,), p.bias_filler, name="bias_out"),
    ]
    return declare_params(ctx, 1, n, bottoms, state_specs)


def _compute_hidden_states(s: RecurrentOperands, nonlinearity: Nonlinearity) -> Array:
    """Return the state after every step, (T, N, num_output)."""
    w_h = s.state_blobs[0]

    def step(h: Array, inputs: Any) -> Pair:
        projection, cont = inputs
        h = nonlinearity.function(projection + s.multiply_by_weight(cont * h, w_h)).astype(h.dtype)
        return h, h

    return lax.scan(step, s.initial_state[0].astype(s.x.dtype), (s.input_projection, s.cont))[1]


@rnn.backward
def rnn_backward(params: Params, *bottoms: Array, state: Params, y: Any, dy: Any, ctx: Context) -> tuple[Any, ...]:
    return rnn_diffs(read_operands(ctx, 1, params, state, bottoms), bottoms, TANH, TANH, y=y, dy=dy)


def rnn_diffs(
    s: RecurrentOperands, bottoms: Arrays, for_state: Nonlinearity, for_output: Nonlinearity, *, y: Any, dy: Any
) -> tuple[Any, ...]:
    """Return the gradients of `run_rnn` as a backward rule does."""
    top, d_top = (promote(v[0] if s.exposes_states else v) for v in (y, dy))
    w_h, w_out, _ = (promote(b) for b in s.state_blobs)
    h = _compute_hidden_states(s, for_state)
    previous_h = s.cont * _previous_hidden(s, h)
    d_out = d_top * for_output.slope(top)

    def step(dh: Array, inputs: Any) -> Pair:
        h, dh_top, cont = inputs
        d = (dh + dh_top) * for_state.slope(h)
        return cont * (d @ w_h), d

    steps = (promote(h), d_out @ w_out, promote(s.cont))
    d = lax.scan(step, jnp.zeros_like(steps[0][0]), steps, reverse=True)[1]
    state_diffs = [
        jnp.einsum("tng,tnd->gd", d, promote(previous_h)),
        jnp.einsum("tng,tnd->gd", d_out, promote(h)),
        d_out.sum((0, 1)),
    ]
    return collect_diffs(s, bottoms, d, state_diffs)


def collect_diffs(
    s: RecurrentOperands, bottoms: Arrays, d_projection: Array, state_diffs: list[Array]
) -> tuple[Any, ...]:
    """Return the gradients of the params, then of each bottom, as a backward rule does.

    The gradient is None for `cont` and for the states.

    Args:
        s: the operands of the layer.
        bottoms: all bottoms of the layer.
        d_projection: the gradient of `s.input_projection`.
        state_diffs: the gradients of `s.state_blobs`.
    """
    input_diffs, dx, d_static = s.input_diffs(d_projection)
    bottom_diffs = [dx.reshape(bottoms[0].shape), None]
    if d_static is not None:
        bottom_diffs.append(d_static.reshape(bottoms[2].shape))
    return (*input_diffs, *state_diffs), *bottom_diffs, *(None for _ in bottoms[len(bottom_diffs) :])


@register("LSTMUnit", bottoms=3, tops=2, indices=Indices((2,)))
def lstm_unit(c: Array, gates: Array, cont: Array) -> Arrays:
    """Compute one LSTM step: c' = cont * f * c + i * g and h = o * tanh(c'). The tops are c' and h, (1, N, D) each.

    Bottoms: cell c (1, N, D), gates i, f, o, g before their nonlinearities (1, N, 4D), and cont (1, N). As in Caffe
    (lstm_unit_layer.cpp), the derivative of f is computed as f (1 - f) after f was multiplied by cont. This is exact if
    cont is 0 or 1.
    """
    _check_lstm_unit(c.shape, gates.shape, cont.shape)
    new_c, h = _run_lstm_unit(promote(c), promote(gates), promote(cont)[..., None])
    return new_c.astype(c.dtype), h.astype(c.dtype)


@lstm_unit.backward
def lstm_unit_backward(c: Array, gates: Array, cont: Array, *, y: Arrays, dy: Arrays) -> tuple[Array, Array, None]:
    dc, dh = (promote(d) for d in dy)
    dc_prev, d_gates = _lstm_unit_diffs(_activate_gates(promote(gates), promote(cont)[..., None]), promote(c), dc, dh)
    return dc_prev, d_gates, None


def _check_lstm_unit(c: tuple[int, ...], gates: tuple[int, ...], cont: tuple[int, ...]) -> None:
    require(len(c) == 3 and c[0] == 1, f"bottom 0, the cell, must have shape (1, streams, cells), not {c}")
    expected = (1, c[1], 4 * c[2])
    require(gates == expected, f"bottom 1, the gates, must have shape {expected} to match {c}, not {gates}")
    require(cont == (1, c[1]), f"bottom 2, cont, must have shape {(1, c[1])} to match {c}, not {cont}")


def _run_lstm_unit(c: Array, gates: Array, cont: Array) -> tuple[Array, Array]:
    i, f, o, g = jnp.split(gates, 4, axis=-1)
    new_c = _forget_factor(cont, f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return new_c, jax.nn.sigmoid(o) * jnp.tanh(new_c)


@jax.custom_jvp
def _forget_factor(cont: Array, x: Array) -> Array:
    return cont * jax.nn.sigmoid(x)


@_forget_factor.defjvp
def _forget_factor_jvp(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    f = _forget_factor(*primals)
    return f, f * (1 - f) * tangents[1]


def _activate_gates(gates: Array, cont: Array) -> Arrays:
    i, f, o, g = jnp.split(gates, 4, axis=-1)
    return jax.nn.sigmoid(i), cont * jax.nn.sigmoid(f), jax.nn.sigmoid(o), jnp.tanh(g)


def _lstm_unit_diffs(gates: Arrays, c_prev: Array, dc: Array, dh: Array) -> Pair:
    """Return the gradients of the previous cell and of the gates, given the gradients of the new cell and of h."""
    i, f, o, g = gates
    tanh_c = jnp.tanh(f * c_prev + i * g)
    dc = dc + dh * o * (1 - tanh_c * tanh_c)
    d_gates = [dc * g * i * (1 - i), dc * c_prev * f * (1 - f), dh * tanh_c * o * (1 - o), dc * i * (1 - g * g)]
    return dc * f, jnp.concatenate(d_gates, axis=-1)


@register(
    "LSTM",
    bottoms=(2, 5),
    tops=(1, 3),
    param="recurrent_param",
    stateful=True,
    indices=Indices((1,)),
    deviation=STATES_WITHOUT_GRADIENT,
    blob_names=("weight_x", "bias", "weight_static", "weight_h"),
    unsupported=UNSUPPORTED_TRANSFORMS,
)
def lstm(params: Params, *bottoms: Array, state: Params, ctx: Context) -> tuple[Arrays, Arrays]:
    """Apply an LSTMUnit in each step. The first top is h, (T, N, num_output).

    The gates are W_hc cont_t h_{t-1} + W_xc x_t + b_c. Bottoms: x (T, N, ...), cont (T, N), [x_static (N, ...)], [h_0,
    c_0 (1, N, num_output)]. Tops: h, [h_T, c_T (1, N, num_output)]. Blobs: W_xc, b_c, [W_xc_static], W_hc. Caffe's
    rule: lstm_layer.cpp.
    """
    return run_lstm(read_operands(ctx, 2, params, state, bottoms))


def run_lstm(s: RecurrentOperands) -> tuple[Arrays, Arrays]:
    """Run an LSTM over a sequence; return the tops and the state to carry to the next forward pass."""
    (w_h,) = s.state_blobs
    # in bfloat16 the values between gates and state are recomputed in the backward pass to save memory
    unit = _run_lstm_unit if s.product_dtype is None else jax.checkpoint(_run_lstm_unit, prevent_cse=False)

    def step(state: Pair, inputs: Any) -> tuple[Pair, Array]:
        (h, c), (projection, cont) = state, inputs
        c, hidden = unit(c, projection + s.project_state(h, cont, w_h), promote(cont))
        h = hidden.astype(h.dtype)
        return (h, c), h

    h_0, c_0 = s.initial_state
    last_state, top = lax.scan(step, (h_0.astype(s.x.dtype), promote(c_0)), (s.input_projection, s.cont))
    return s.make_tops(top, last_state)


@lstm.params
def lstm_params(p: RecurrentParameter, *bottoms: Any, ctx: Context) -> list[ParamSpec]:
    weight_spec = ParamSpec((4 * p.num_output, p.num_output), p.weight_filler, name="weight_h")
    return declare_params(ctx, 2, 4 * p.num_output, bottoms, [weight_spec])


@lstm.backward
def lstm_backward(params: Params, *bottoms: Array, state: Params, y: Any, dy: Any, ctx: Context) -> tuple[Any, ...]:
    s = read_operands(ctx, 2, params, state, bottoms)
    top, d_top = (v[0] if s.exposes_states else v for v in (y, dy))
    d = gate_diffs(s, top, d_top)
    d_weight = jnp.einsum("tng,tnd->gd", d, promote(s.cont * _previous_hidden(s, top)))
    return collect_diffs(s, bottoms, d, [d_weight])


def gate_diffs(s: RecurrentOperands, top: Array, d_top: Array, limit: float = math.inf) -> Array:
    """Return the gradients of the gates before their nonlinearities, (T, N, 4D), each clipped to [-limit, limit].

    `top` is the hidden state after every step, (T, N, D), and `d_top` its gradient.
    """
    (w_h,) = s.state_blobs
    # all gates are computed at once from the hidden states; cells need a forward scan, gradients need a backward scan
    state_projection = s.project_state(_previous_hidden(s, top), s.cont, w_h)
    gates = _activate_gates(s.input_projection + state_projection, promote(s.cont))

    def cell(c: Array, inputs: Any) -> Pair:
        i, f, _, g = inputs
        return f * c + i * g, c

    previous_cells = lax.scan(cell, promote(s.initial_state[1]), gates)[1]

    def step(diff: Pair, inputs: Any) -> tuple[Pair, Array]:
        (dh, dc), (gates, c_prev, dh_top, cont) = diff, inputs
        dc, d_gates = _lstm_unit_diffs(gates, c_prev, dc, dh + dh_top)
        d_gates = d_gates if math.isinf(limit) else jnp.clip(d_gates, -limit, limit)
        return (s.state_diff(d_gates, cont, promote(w_h)), dc), d_gates

    zeros = jnp.zeros_like(previous_cells[0])
    return lax.scan(step, (zeros, zeros), (gates, previous_cells, promote(d_top), promote(s.cont)), reverse=True)[1]


def _previous_hidden(s: RecurrentOperands, top: Array) -> Array:
    """Return the hidden state before each step, (T, N, D), given the state `top` after each step."""
    return jnp.concatenate([s.initial_state[0][None].astype(top.dtype), top[:-1]])

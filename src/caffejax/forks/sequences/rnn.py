"""cbfinn's variant of RNN, with other nonlinearities than tanh."""

from __future__ import annotations

from typing import Any

import jax

from ...base.errors import require
from ...core.layers.context import Context, Params, ParamSpec
from ...core.layers.recurrent import TANH, Nonlinearity, read_operands, rnn, rnn_diffs, rnn_params, run_rnn
from ...core.layers.registry import register_variants

Arrays = tuple[jax.Array, ...]

_NONLINEARITIES = {
    "TanH": TANH,
    "ReLU": Nonlinearity(jax.nn.relu, lambda y: (y > 0).astype(y.dtype)),
    "Sigmoid": Nonlinearity(jax.nn.sigmoid, lambda y: y * (1 - y)),
}


@rnn.variant(further_params=("rnn_param",), stateful=True, origin="cbfinn/caffe", unsupported=rnn.type.docs.unsupported)
def rnn_of_nonlinearities(params: Params, *bottoms: jax.Array, state: Params, ctx: Context) -> tuple[Arrays, Arrays]:
    """Apply RNN with rnn_param's `recurrent_nonlinearity` for h and `output_nonlinearity` for o, instead of tanh."""
    return run_rnn(read_operands(ctx, 1, params, state, bottoms), *_select_nonlinearities(ctx))


@rnn_of_nonlinearities.params
def rnn_of_nonlinearities_params(p: Any, *bottoms: Any, ctx: Context) -> list[ParamSpec]:
    n, num_hidden = p.num_output, ctx.layer.rnn_param.num_hidden
    require(
        num_hidden in (0, n), f"rnn_param.num_hidden must equal num_output, {n}, not {num_hidden}; remove num_hidden"
    )
    _select_nonlinearities(ctx)
    return rnn_params(p, *bottoms, ctx=ctx)


@rnn_of_nonlinearities.backward
def rnn_of_nonlinearities_backward(
    params: Params, *bottoms: jax.Array, state: Params, y: Any, dy: Any, ctx: Context
) -> tuple[Any, ...]:
    s = read_operands(ctx, 1, params, state, bottoms)
    return rnn_diffs(s, bottoms, *_select_nonlinearities(ctx), y=y, dy=dy)


def _select_nonlinearities(ctx: Context) -> tuple[Nonlinearity, Nonlinearity]:
    p = ctx.layer.rnn_param
    names = p.recurrent_nonlinearity, p.output_nonlinearity
    choices = ", ".join(_NONLINEARITIES)
    require(
        all(n in _NONLINEARITIES for n in names),
        f"the nonlinearities in rnn_param must be among {choices}, but are {' and '.join(names)}",
    )
    return _NONLINEARITIES[names[0]], _NONLINEARITIES[names[1]]


register_variants(
    "RNN",
    lambda layer: "of nonlinearities" if layer.HasField("rnn_param") else None,
    {"of nonlinearities": rnn_of_nonlinearities.type},
    "With an rnn_param it is the variant of nonlinearities.",
)

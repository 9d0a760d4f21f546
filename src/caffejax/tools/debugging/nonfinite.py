"""Search for NaN and infinity in a pass of a net, in any training loop."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from ...base.variables import Params, Variables
from ...core.program.net import Net
from ...core.solver.find_nonfinite import find_nonfinite_in_pass, find_nonfinite_variable


def find_nonfinite(
    net: Net, params: Params, state: Params, inputs: Mapping[str, jax.Array], key: jax.Array | None = None
) -> str | None:
    """Return where NaN or infinity first occurs in a pass of a net, or None if all numbers are finite.

    The layers run one by one, forward and then backward, on the device of the arrays, so it is slow, and an overflow
    within the compiled net may not occur again.

        message = caffejax.find_nonfinite(net, params, state, inputs, key)

    Args:
        net: the net.
        params, state, inputs, key: the arguments of `Net.loss` in the pass. Take those from before the update that made
            params NaN; the result otherwise names a param.

    Returns:
        The layer, the array, its numbers of NaN and infinite elements, and the ranges of the layer's bottoms, as text.
    """
    variables = Variables(params, state)
    found = find_nonfinite_variable(variables, net)
    if found is None:
        batch = {name: jnp.asarray(array) for name, array in inputs.items()}
        found = find_nonfinite_in_pass(net, variables, batch, jax.random.key(0) if key is None else key)
    if found is None:
        return None
    message = found.message + (f". {found.advice}" if found.advice else "")
    return str(found.layer.make_problem(message)) if found.layer else message

"""Run a net on what a dump was made of: its inputs, and its params."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...checkpoints.blobs import fit
from ...errors import DataError, Problem, WeightsError
from ...net import Net, Variables
from .collect import collect
from .dump import Dump


def replay(dump: Dump, net: Net, variables: Variables | None = None, *, seed: int = 0) -> Dump:
    """Run a net on a dump's inputs, backward too if the dump has gradients; return the net's own dump.

    Args:
        dump: the dump.
        net: the net.
        variables: its params and state; the dump's params unless given.
        seed: for layers that are random.

    Raises:
        CaffejaxError: for inputs and params that do not fit the net, naming all of them.
    """
    found = dump.group("input")
    absent = [name for name in net.fed if name not in found]
    if absent:
        raise DataError(
            Problem(f"the net is fed '{name}', but the dump has no 'input/{name}'", dump.file) for name in absent
        )
    inputs = {name: found[name] for name in net.fed}
    own = variables_of(dump, net) if variables is None else variables
    return collect(net, own, inputs, backward=dump.has_backward, seed=seed)


def variables_of(dump: Dump, net: Net) -> Variables:
    """Return a dump's params as a net's variables; what layers carry from pass to pass begins anew.

    Raises:
        WeightsError: naming every layer whose params the dump does not have, or in other shapes.
    """
    problems: list[Problem] = []
    new: dict[Any, Any] = {}
    for layer in net.graph.layers:
        stored = dump.blobs_of("param", layer.key)
        blobs = [stored.get(i) for i in range(max(stored, default=-1) + 1)]
        if layer.params and not blobs:
            problems.append(Problem("the dump has no params for it; give the weights", dump.file, layer=layer.name))
            continue
        try:
            arrays = fit(layer.name, blobs, [p.spec.shape for p in layer.params])
        except WeightsError as error:
            problems += [Problem(p.message, dump.file, layer=p.layer) for p in error.problems]
            continue
        new |= {p.owner: array for p, array in zip(layer.params, arrays, strict=True) if p.owned}
    if problems:
        raise WeightsError(problems)

    def replaced(tree: Any) -> Any:
        return {
            key: tuple(
                None if old is None else jnp.asarray(new[key, i], old.dtype) if (key, i) in new else old
                for i, old in enumerate(blobs)
            )
            for key, blobs in tree.items()
        }

    params, state = net.init(jax.random.key(0))
    return Variables(replaced(params), replaced(state))

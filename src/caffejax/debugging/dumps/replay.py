"""Run a net on what a dump was made of: its inputs, and its params."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...checkpoints.blobs import fit
from ...errors import DataError, Problem, WeightsError
from ...execution.schedule import padded_blobs
from ...net import Net, Variables
from ...schema.blob_proto import Array
from ..apart import Apart
from .collect import collect
from .dump import Dump
from .pairs import strangers


def replay(
    dump: Dump, net: Net, variables: Variables | None = None, *, seed: int = 0, each_layer: bool = False
) -> Dump:
    """Run a net on a dump's inputs, backward too if the dump has gradients; return the net's own dump.

    Args:
        dump: the dump.
        net: the net.
        variables: its params and state; the dump's params unless given.
        seed: for layers that are random.
        each_layer: whether to run each layer on the dump's own bottoms and top diffs, not on what the layers before and
            after it made: then no layer's error reaches another one's numbers.

    Raises:
        CaffejaxError: for inputs and params that do not fit the net, naming all of them.
    """
    types = {layer.key: layer.type.name for layer in net.graph.layers}
    dumped = {layer.name: layer.type for layer in dump.layers}
    if other := strangers(f"the dump is of net '{dump.net}'", dumped, f"the model is '{net.graph.name}'", types):
        raise DataError(Problem(other, dump.file))
    found = dump.group("input")
    absent = [name for name in net.fed if name not in found]
    if absent:
        raise DataError(
            Problem(f"the net is fed '{name}', but the dump has no 'input/{name}'", dump.file) for name in absent
        )
    inputs = {name: found[name] for name in net.fed}
    own = variables_of(dump, net) if variables is None else variables
    apart = _apart(dump, net, own, inputs) if each_layer else None
    return collect(net, own, inputs, backward=dump.has_backward, seed=seed, apart=apart)


def _apart(dump: Dump, net: Net, variables: Variables, inputs: Mapping[str, Array]) -> Apart:
    """Return what the dump says of each layer's bottoms and top diffs, but for what has other shapes in the net."""
    blobs, padded = _blobs(net, variables, inputs), padded_blobs(net.graph.layers)
    places = {layer.name: place for place, layer in enumerate(dump.layers)}
    bottoms: dict[str, dict[str, Any]] = {}
    diffs: dict[str, dict[str, Any]] = {}

    def fitting(found: Mapping[str, Array | None]) -> dict[str, jax.Array]:
        return {
            name: jnp.asarray(x, blobs[name].dtype)
            for name, x in found.items()
            if x is not None and _fits(x, blobs[name], few=name in padded or net.has_host_layers)
        }

    for layer in net.graph.layers:
        if layer.type.is_fed or (place := places.get(layer.key)) is None:
            continue
        bottoms[layer.key] = fitting({name: dump.value_read(place, name) for name in layer.bottoms})
        if dump.has_backward and layer.need_backward:
            weights = dict(zip(layer.tops, layer.loss_weights, strict=True))
            of_losses = {name: np.full(blobs[name].shape, weight) for name, weight in weights.items() if weight}
            made = {name: dump.diff(place, name) for name in layer.tops if name in dump.layers[place].tops}
            diffs[layer.key] = fitting(of_losses) | fitting(made)
    return Apart(bottoms, diffs)


def _blobs(net: Net, variables: Variables, inputs: Mapping[str, Array]) -> Mapping[str, jax.ShapeDtypeStruct]:
    """Return the shapes of a net's blobs when it is fed these inputs; with layers on the host, those it was built for.

    These have at least as many rows as there will be.
    """
    if net.has_host_layers:
        return net.graph.blobs
    names, key = tuple(net.graph.blobs), jax.random.key(0)
    shapes: Mapping[str, jax.ShapeDtypeStruct] = jax.eval_shape(
        lambda *given: net.apply(*given, key=key, blobs=names)[0], *variables, dict(inputs)
    )
    return shapes


def _fits(array: Array, blob: jax.ShapeDtypeStruct, *, few: bool) -> bool:
    """Return whether an array can be a blob; `few` if the data says how many rows it has."""
    return array.shape == blob.shape or (few and array.ndim == blob.ndim and array.size <= blob.size)


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

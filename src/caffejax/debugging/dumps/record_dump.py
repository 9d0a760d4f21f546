"""Collect a dump: run a net once, and keep every blob, diff and gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._version import __version__
from ...checkpoints.blobs import fit
from ...data.synthetic_inputs import complete_inputs
from ...errors import DataError, GraphError, Problem, WeightsError
from ...execution.schedule import padded_blobs
from ...graph import Graph, Layer, Slot, is_random
from ...net import Net, Variables
from ...schema.blob_proto import Array
from ..apart import Apart, ApartTaps
from ..taps import Diffs, Taps, Tops
from .compare_dumps import strangers
from .dump import Dump, DumpedLayer


class Repeatable(np.random.RandomState):
    """NumPy's old generator, whose numbers every version of NumPy makes, those that old Caffes run with included."""

    def integers(self, high: int, size: tuple[int, ...]) -> Any:
        """Draw whole numbers below `high`."""
        return self.randint(high, size=size)


def collect(
    net: Net,
    variables: Variables,
    inputs: Mapping[str, Any] | None = None,
    *,
    backward: bool = False,
    seed: int = 0,
    apart: Apart | None = None,
) -> Dump:
    """Run a net once; return every blob, and with `backward` every diff and gradient.

    Args:
        net: the net.
        variables: its params and state.
        inputs: what to feed it, by blob. What is not given comes from the net's data layers, the first batch of each;
            for Input layers `RandomState(seed)` of NumPy draws it, in their order, from the normal distribution, or
            whole numbers where it is read as labels, boxes where it is read as MultiBoxLoss's ground truth.
        backward: whether to run backward as well.
        seed: for these inputs, and for layers that are random.
        apart: what each layer reads, in place of what the layers before it made.

    Raises:
        GraphError: for inputs that do not fit, and with `backward` if there is no loss or no gradient.
        DataError: if the net's data cannot be read.
    """
    if backward:
        _check_loss(net.graph)
    random: Any = Repeatable(seed)
    with np.errstate(over="ignore"):  # of float64 numbers that are infinite in float32
        fed = {name: np.float32(x) for name, x in complete_inputs(net.graph, inputs or {}, random).items()}
    key = jax.random.key(seed)

    shapes: dict[str, list[jax.ShapeDtypeStruct]] = {}  # of all bottoms, whose numbers would be as much memory again

    def numbers(params: Any, state: Any, batch: Any, key: Any, apart: Apart | None) -> tuple[Tops, Tops, Diffs | None]:
        given = net, params, state, batch, key
        taps = Taps(*given) if apart is None else ApartTaps(*given, apart)
        on_host: Tops = {}
        tops: Tops = {}
        for layer, read, made in taps.layers():
            shapes[layer.key], tops[layer.key] = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in read], made
            if layer.type.on_host:
                on_host[layer.key] = read
        return on_host, tops, taps.diffs(tops) if backward else None

    on_host, tops, diffs = jax.device_get(net.jit(numbers)(*variables, fed, key, apart))
    arrays: dict[str, Any] = {f"input/{name}": x for name, x in fed.items()}
    arrays |= _params(net.graph, variables) | _blobs(net, tops, apart)
    arrays["loss"] = np.float32(_loss(net.graph, tops))
    if diffs is not None:
        arrays |= _diffs(net.graph, tops, diffs)
    bottoms = shapes | on_host
    layers = tuple(
        DumpedLayer(layer.key, layer.type.name, layer.bottoms, layer.tops, is_random(layer, bottoms[layer.key]))
        for layer in net.graph.layers
    )
    # of a net of bfloat16, which .npz files do not know, as float32
    found = {
        name: np.asarray(x, None if np.asarray(x).dtype.kind in "biuf" else np.float32) for name, x in arrays.items()
    }
    return Dump(f"caffejax {__version__}", net.graph.name, net.graph.phase, layers, found, apart=apart is not None)


def _check_loss(graph: Graph) -> None:
    if not any(graph.losses.values()):
        message = f"has no loss in phase {graph.phase}, so that there is nothing to run backward from"
        raise GraphError(Problem(f"{message}; leave --backward out, or collect from the train net", graph.file))
    graph.check_backward()


def _params(graph: Graph, variables: Variables) -> dict[str, Any]:
    """Return every layer's params, shared ones with every layer that uses them."""
    return {
        f"param/{layer.key}/{i}": np.float32(
            (variables.params if p.spec.learnable else variables.state)[p.owner.layer][p.owner.index]
        ).reshape(p.spec.shape)
        for layer in graph.layers
        for i, p in enumerate(layer.params)
    }


def _blobs(net: Net, tops: Tops, apart: Apart | None) -> dict[str, Any]:
    """Return every blob, and what layers made that others wrote over."""
    made: dict[str, tuple[str, Any]] = {}  # by blob: the layer, and what it made
    over: list[tuple[str, str, Any]] = []
    for layer in net.graph.layers:
        for name, value in zip(layer.tops, tops[layer.key], strict=True):
            if name in made:
                over.append((name, *made[name]))
            made[name] = layer.key, value
    final = {name: value for name, (_, value) in made.items()}
    trimmed = net.trimmed(final)
    if apart is not None:  # as many rows as each layer was given
        read = {name: x for blobs in apart.bottoms.values() for name, x in blobs.items()}
        trimmed = {name: net.trimmed({**read, name: value})[name] for name, value in final.items()}
    found = {f"blob/{name}": value for name, value in trimmed.items()}
    return found | {f"top/{key}/{name}": net.trimmed({**final, name: value})[name] for name, key, value in over}


def _loss(graph: Graph, tops: Tops) -> float:
    weighted = ((w, top) for x in graph.layers for w, top in zip(x.loss_weights, tops[x.key], strict=True))
    return sum(float(weight * np.sum(top, dtype=np.float64)) for weight, top in weighted if weight)


def _diffs(graph: Graph, tops: Tops, diffs: Diffs) -> dict[str, Any]:
    """Return what Caffe's backward pass computes: not the diffs that no layer needs, which autodiff has as well."""
    found: dict[str, Any] = {}
    made: dict[str, Layer] = {}
    grads: dict[Slot, Any] = {}
    for layer in graph.layers:
        read = zip(layer.bottoms, diffs.bottoms[layer.key], layer.bottom_need_backward, strict=True)
        for name, diff, need in read:
            if need and layer.need_backward and diff is not None:
                found[_diff_name(made[name], name)] = diff
        for name, weight, top in zip(layer.tops, layer.loss_weights, tops[layer.key], strict=True):
            made[name] = layer
            if weight:
                found[_diff_name(layer, name)] = np.full_like(top, weight)
        for param, share in zip(layer.params, diffs.params[layer.key], strict=True):
            if share is not None and layer.need_backward:
                grads[param.owner] = grads.get(param.owner, 0) + share
    return found | {
        f"grad/{layer.key}/{i}": grads[p.owner].reshape(p.spec.shape)
        for layer in graph.layers
        for i, p in enumerate(layer.params)
        if p.owner in grads
    }


def _diff_name(maker: Layer, blob: str) -> str:
    return f"top_diff/{maker.key}/{blob}" if blob in maker.bottoms else f"diff/{blob}"


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
    blobs, padded = _blob_shapes(net, variables, inputs), padded_blobs(net.graph.layers)
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


def _blob_shapes(net: Net, variables: Variables, inputs: Mapping[str, Array]) -> Mapping[str, jax.ShapeDtypeStruct]:
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

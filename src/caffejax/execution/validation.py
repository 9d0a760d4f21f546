"""Validation of the arguments that users pass to nets: params and state, inputs, names, keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from ..config import quote
from ..errors import (
    CaffejaxError,
    GraphError,
    LayerError,
    Problem,
    WeightsError,
    describe_type,
    did_you_mean,
    is_integer,
    raise_all,
    shorten_list,
)
from ..graph import Graph, Layer
from ..layers.context import Phase, Shape
from ..layers.validation import shape_remedy
from ..variables import Variables, index_blobs
from . import PassInputs


def check_selection(*, phase: Any, level: Any, stages: Any) -> None:
    """Check the types of the arguments that select a net's layers.

    Raises:
        CaffejaxError: naming every argument with an invalid value.
    """
    problems = []
    if phase not in get_args(Phase):
        problems.append(f"phase must be {' or '.join(map(quote, get_args(Phase)))}, not {quote(phase)}")
    if not is_integer(level):
        problems.append(f"level must be an integer, not {quote(level)}")
    if not isinstance(stages, Sequence) or isinstance(stages, str) or not all(isinstance(s, str) for s in stages):
        problems.append(f"stages must be a list of names, not {quote(stages)}")
    if problems:
        raise CaffejaxError(problems)


def check_key(key: Any) -> None:
    """Check that a key is a random key of JAX, in the typed or the old uint32 form.

    Raises:
        CaffejaxError: if it is not.
    """
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == np.uint32):
        raise CaffejaxError(f"a random key must be one of JAX's, such as jax.random.key(0), not {describe_type(key)}")


def check_inputs_and_variables(graph: Graph, inputs: PassInputs) -> PassInputs:
    """Check the arguments of a forward pass; return them with params and state as `{layer: {index: array}}`.

    Raises:
        GraphError: for invalid inputs and taps.
        WeightsError: for invalid params and state.
        CaffejaxError: for an invalid key.
    """
    check_inputs(graph, graph.input_names, inputs.blobs)
    check_blob_names(graph, "taps", inputs.taps)
    wrong = {name: describe_type(value) for name, value in inputs.taps.items() if not hasattr(value, "dtype")}
    raise_all(
        GraphError,
        [f"the tap of blob '{name}' must be an array of zeros, not {kind}" for name, kind in wrong.items()],
        graph.file,
    )
    params, state = check_variables(graph, inputs.params, inputs.state)
    if inputs.key is not None:
        check_key(inputs.key)
    return inputs._replace(params=params, state=state)


def check_inputs(graph: Graph, names: Sequence[str], inputs: Any) -> None:
    """Check that `inputs` has an array of numbers for each blob in `names`. Further blobs are allowed.

    Raises:
        GraphError: naming all blobs that are missing or not numeric.
    """
    if not isinstance(inputs, Mapping):
        raise GraphError(Problem(f"inputs must be {{blob: array}}, not {describe_type(inputs)}", graph.file))
    missing = [name for name in names if name not in inputs]
    problems = [f"no input given for blob '{name}'" for name in missing]
    for name, value in inputs.items():
        if name not in names and missing:
            takes = ", ".join(f"'{f}'" for f in names) or "none"
            problems.append(
                f"the net has no input '{name}' in phase {graph.phase}, it takes {takes}{did_you_mean(name, missing)}"
            )
        elif name in names and not _is_numeric(value):
            kind = getattr(value, "dtype", None)
            instead = describe_type(value) if kind is None else f"of dtype {kind}"
            problems.append(f"the input for blob '{name}' must be an array of numbers, not {instead}")
    raise_all(GraphError, problems, graph.file)


def check_blob_names(graph: Graph, argument: str, names: Any) -> tuple[str, ...]:
    """Return the blob names in an argument as a tuple.

    Raises:
        GraphError: if the argument is not an iterable of names, or naming the blobs that the net does not have.
    """
    if isinstance(names, str):
        raise_all(GraphError, [f'{argument} must be several names, ("{names}",), not one'], graph.file)
    if not isinstance(names, Iterable):
        raise_all(GraphError, [f"{argument} must be a tuple of blob names, not {describe_type(names)}"], graph.file)
    blobs = tuple(names)
    raise_all(
        GraphError,
        [f"{argument} must be a tuple of blob names, not {describe_type(n)}" for n in blobs if not isinstance(n, str)],
        graph.file,
    )
    unknown = [name for name in blobs if name not in graph.blobs]
    raise_all(GraphError, [f"{argument}: no blob '{n}' in the net{_nearest(n, graph)}" for n in unknown], graph.file)
    return blobs


def _nearest(name: str, graph: Graph) -> str:
    """Return a hint with the most similar blob name, or a list of the net's blobs, shortened to 20."""
    tops = dict.fromkeys(top for layer in graph.layers if not layer.inserted_split for top in layer.tops)
    return did_you_mean(name, graph.blobs) or f"; it has {', '.join(shorten_list([*tops], 20))}"


def as_variables(variables: Any) -> Variables:
    """Return a pair of params and state as `Variables`.

    Raises:
        WeightsError: if the value is no such pair, such as params alone.
    """
    if not isinstance(variables, tuple | list) or len(variables) != 2:
        raise WeightsError("params and state must be one argument, such as net.freeze((params, state))")
    return Variables(*variables)


def check_variables(graph: Graph, params: Any, state: Any) -> Variables:
    """Return params and state as `{layer: {index: array}}`. A layer may also have a sequence in Caffe's order.

    Raises:
        WeightsError: naming all arrays that are missing, or have a wrong shape or type.
    """
    trees = {"params": params, "state": state}
    problems = []
    for name, tree in trees.items():
        if not isinstance(tree, Mapping):
            both = "; pass its fields .params and .state" if hasattr(tree, "params") else ""
            problems.append(Problem(f"{name} must be {{layer: blobs}}, not {describe_type(tree)}{both}"))
    if not problems:
        trees = {name: index_blobs(tree) for name, tree in trees.items()}
        problems = [problem for layer in graph.layers for problem in _layer_problems(layer, trees)]
    if problems:
        raise WeightsError(replace(p, file=graph.file) for p in problems)
    return Variables(**trees)


def _layer_problems(layer: Layer, trees: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    for param in layer.all_params:
        if not param.is_owner:
            continue
        tree = "params" if param.spec.learnable else "state"
        wrong = _wrong(trees[tree].get(layer.key, {}), param.slot.index, param.spec.shape)
        if wrong is not None:
            message = f"blob {param.slot.index} in {tree} {wrong}"
            yield layer.problem(message)


def _wrong(blobs: Mapping[int, Any], index: int, shape: Shape) -> str | None:
    """Return the problem of one of a layer's arrays as text, or None."""
    if blobs.get(index) is None:
        if str(index) in map(str, blobs):
            return (
                f"has the text '{index}' as its key, not the number {index}; orbax restores numbers if the params of "
                "Net.init are its template"
            )
        return f"is missing; it must be of shape {shape}, as returned by Net.init and load_weights"
    blob = blobs[index]
    if not isinstance(getattr(blob, "dtype", None), np.dtype):
        return f"must be an array, not {describe_type(blob)}"
    if tuple(blob.shape) != shape:
        return f"must be of shape {shape}, not {tuple(blob.shape)}"
    return None if jnp.issubdtype(blob.dtype, jnp.floating) else f"must be floating point, not {blob.dtype}"


@contextmanager
def shape_hints(graph: Graph, inputs: Mapping[str, Any]) -> Iterator[None]:
    """Add to layers' errors in a `with` block the inputs whose shapes differ from the net's beyond the first axis."""
    try:
        yield
    except (LayerError, GraphError) as error:
        # user inputs only: batches of a source may differ from the blob until `SourceSpec.device_transform` is applied
        shapes = {name: (np.shape(inputs[name]), graph.blobs[name].shape) for name in graph.user_inputs}
        others = [
            Problem(f"the input '{name}' has shape {shape}, but the net was built for {built}{remedy}", graph.file)
            for name, (shape, built) in shapes.items()
            if (remedy := shape_remedy(shape, built)) or shape[1:] != built[1:]
        ]
        raise type(error)([*others, *error.problems]) from error.__cause__


def _is_numeric(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype):
        try:
            dtype = np.asarray(value).dtype
        except Exception:  # the object may raise any exception
            return False
    return jnp.issubdtype(dtype, np.number) or dtype == np.bool_

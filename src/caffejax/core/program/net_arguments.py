"""Validation of the arguments of nets: params and state, inputs, blob names and random keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from ...base.config import quote
from ...base.errors import (
    CaffejaxError,
    GraphError,
    LayerError,
    Problem,
    WeightsError,
    describe_type,
    did_you_mean,
    is_integer,
    raise_if_any,
    shorten_list,
)
from ...base.variables import Variables, as_params
from ..graph import Graph, Layer
from ..graph.graph import CARRIED
from ..graph.index_ranges import find_index_ranges
from ..layers.blob_checks import shape_remedy
from ..layers.context import Phase, Shape
from .interpreter import PassInputs


def check_selection(*, phase: Any, level: Any, stages: Any) -> None:
    """Check the types of the arguments that select a net's layers.

    Raises:
        CaffejaxError: if arguments are invalid. The message names each of them.
    """
    problems = []
    if phase not in get_args(Phase):
        problems.append(f"phase must be {' or '.join(map(quote, get_args(Phase)))}, not {quote(phase)}")
    if not is_integer(level):
        problems.append(f"level must be an integer, not {quote(level)}")
    if not isinstance(stages, Sequence) or isinstance(stages, str) or not all(isinstance(s, str) for s in stages):
        problems.append(f"stages must be a list of names, not {quote(stages)}")
    raise_if_any(CaffejaxError, problems)


def check_key(key: Any) -> None:
    """Check that `key` is a random key of JAX: a typed key, or an old key of dtype uint32.

    Raises:
        CaffejaxError: if it is not a key.
    """
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == np.uint32):
        raise CaffejaxError(f"a random key must be a JAX key, such as jax.random.key(0), not {describe_type(key)}")
    if key.ndim != (0 if jnp.issubdtype(dtype, jax.dtypes.prng_key) else 1):
        raise CaffejaxError(
            f"one random key is needed, not an array of keys of shape {key.shape}; take one of them, or map over them: "
            "jax.vmap(net.init)(keys)"
        )


def check_inputs_and_variables(graph: Graph, inputs: PassInputs) -> PassInputs:
    """Check the arguments of a forward pass; return them with params and state as `{layer: {name: array}}`.

    Raises:
        GraphError: if inputs or perturbations are invalid.
        WeightsError: if params or state are invalid.
        CaffejaxError: if the key is invalid.
    """
    check_inputs(graph, graph.input_names, inputs.blobs, _UNNEEDED_INPUTS)
    _check_pixels(graph, inputs.blobs)
    check_blob_names(graph, "perturbations", inputs.perturbations)
    raise_if_any(
        GraphError,
        [
            f"the perturbation of blob '{name}' must be an array of zeros, not {describe_type(value)}"
            for name, value in inputs.perturbations.items()
            if not hasattr(value, "dtype")
        ],
        graph.file,
    )
    params, state = check_variables(graph, inputs.params, inputs.state)
    if inputs.key is not None:
        check_key(inputs.key)
    return inputs._replace(params=params, state=state)


def _check_pixels(graph: Graph, inputs: Mapping[str, Any]) -> None:
    """Raise `GraphError` if pixels are integers other than uint8, which a transform_param would not be applied to."""
    problems = []
    for layer in graph.layers:
        if layer.device_transform is None or not layer.definition.layer.HasField("transform_param"):
            continue
        dtype = inputs[layer.tops[0]].dtype if hasattr(inputs[layer.tops[0]], "dtype") else np.dtype(np.uint8)
        if jnp.issubdtype(dtype, jnp.integer) and dtype != np.uint8:
            problems.append(
                layer.make_problem(
                    f"the input for blob '{layer.tops[0]}' has dtype {dtype}, but transform_param (mean, scale) is "
                    "applied to uint8 alone, and floats are used as they are: pass pixels as uint8, or the result of "
                    "net.preprocess(pixels), which takes any dtype"
                )
            )
    raise_if_any(GraphError, problems)


_UNNEEDED_INPUTS = (
    "; pass it, or if the requested blobs do not need it, use net.for_inference(blobs) or net.freeze(variables, blobs)"
)


def check_inputs(graph: Graph, names: Sequence[str], inputs: Any, remedy: str = "") -> None:
    """Check that `inputs` has an array of numbers for each blob in `names`.

    It may also contain inputs that other phases of the net have, or that the net had before `Net.for_inference`.

    Args:
        graph: the net's graph.
        names: the blobs.
        inputs: the inputs of a pass.
        remedy: text to append to the message if some inputs are missing and all other inputs are named correctly.

    Raises:
        GraphError: if blobs are missing, unknown or not numeric. The message names each of them.
    """
    if not isinstance(inputs, Mapping):
        raise GraphError(Problem(f"inputs must be a dict {{blob: array}}, not {describe_type(inputs)}", graph.file))
    missing = [name for name in names if name not in inputs]
    if not inputs or not set(inputs) <= set(names):
        remedy = ""
    problems = [f"the input for blob '{name}' is missing{remedy}" for name in missing]
    for name, value in inputs.items():
        if name not in names and (missing or name not in graph.defined.inputs):
            valid_names = ", ".join(f"'{n}'" for n in names) or "none"
            hint = did_you_mean(str(name), missing or names)
            problems.append(f"the net has no input '{name}' in phase {graph.phase}; its inputs are {valid_names}{hint}")
        elif name in names and not is_numeric(value):
            dtype = getattr(value, "dtype", None)
            actual = describe_type(value) if dtype is None else f"of dtype {dtype}"
            problems.append(f"the input for blob '{name}' must be an array of numbers, not {actual}")
    raise_if_any(GraphError, problems, graph.file)


def check_blob_names(graph: Graph, argument: str, names: Any) -> tuple[str, ...]:
    """Return the blob names in an argument as a tuple.

    Raises:
        GraphError: if the argument is not an iterable of names, or names blobs that the net does not have. The message
            names these blobs.
    """
    blobs = tuple(names) if isinstance(names, Iterable) else (names,)
    if isinstance(names, str):
        problems = [f'{argument} must be a tuple of blob names, such as ("{names}",), not a string']
    elif others := [name for name in blobs if not isinstance(name, str)]:
        problems = [f"{argument} must be a tuple of blob names, not {describe_type(name)}" for name in others]
    else:
        unknown = [name for name in blobs if name not in graph.blobs]
        problems = [f"{argument}: no blob '{name}' in the net{_suggest_blob(name, graph)}" for name in unknown]
    raise_if_any(GraphError, problems, graph.file)
    return blobs


def _suggest_blob(name: str, graph: Graph) -> str:
    tops = dict.fromkeys(top for layer in graph.layers if not layer.is_inserted_split for top in layer.tops)
    if name in graph.defined.other_tops:
        return f"; in phase {graph.defined.other_phase} it has: build it with phase='{graph.defined.other_phase}'"
    return did_you_mean(name, graph.blobs) or f"; it has {', '.join(shorten_list([*tops], 20))}"


def as_variables(variables: Any) -> Variables:
    """Return a pair of params and state as `Variables`.

    Raises:
        WeightsError: if the value is not a pair, for example params without state.
    """
    if not isinstance(variables, tuple | list) or len(variables) != 2:
        raise WeightsError(
            "params and state must be passed as one argument, a pair, such as net.freeze((params, state)), "
            f"not {describe_type(variables)}"
        )
    return Variables(*variables)


def check_variables(graph: Graph, params: Any, state: Any) -> Variables:
    """Check params and state, and return them as `{layer: {name: array}}`.

    Raises:
        WeightsError: if arrays are missing or unknown, have a wrong shape or type, or were donated. The message names
            them.
    """
    trees = {"params": params, "state": state}
    problems = []
    for name, tree in trees.items():
        if not isinstance(tree, Mapping):
            hint = "; pass its fields .params and .state" if hasattr(tree, "params") else ""
            problems.append(Problem(f"{name} must be a dict {{layer: blobs}}, not {describe_type(tree)}{hint}"))
    if not problems:
        trees = {name: as_params(tree) for name, tree in trees.items()}
        problems = _find_array_problems(graph, trees)
        if problems and not _find_array_problems(graph, {"params": trees["state"], "state": trees["params"]}):
            problems = [Problem("params and state are swapped: params, which are learned, come first")]
    if not problems and (deleted_trees := [name for name, tree in trees.items() if _has_deleted_arrays(tree)]):
        problems.append(
            Problem(
                f"arrays of {' and '.join(deleted_trees)} were deleted, because a compiled function reused their "
                "memory (donate_argnums); read solver.variables again after each step of a solver, or keep a copy: "
                "jax.tree.map(jnp.copy, variables)"
            )
        )
    raise_if_any(WeightsError, (replace(p, file=graph.file) for p in problems))
    return Variables(**trees)


def _find_array_problems(graph: Graph, trees: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    problems = [
        problem
        for layer in graph.param_layers
        for problem in _list_array_problems(layer, trees) or _find_unknown_arrays(graph, layer, trees)
    ]
    keys = {layer.key for layer in graph.param_layers} | graph.defined.layers
    for tree, layers in trees.items():
        for key in layers:
            if key not in keys and str(key).rpartition("#")[0] not in graph.defined.layers:
                message = f"{tree}: the net has no layer '{key}'{did_you_mean(str(key), keys)}; remove this key"
                problems.append(Problem(message))
    return problems


def _find_unknown_arrays(graph: Graph, layer: Layer, trees: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield a problem for each array that a layer with this name has in no phase.

    Caffe's phases have the same blobs, unless each defines the layer for itself, but may carry other state.
    """
    for tree, layers in trees.items():
        blobs = layers.get(layer.key)
        if not blobs or layer.name in graph.defined.repeated_layers:
            continue
        names = [p.slot.name for p in layer.all_params if p.spec.learnable == (tree == "params")]
        for name in blobs:
            if name not in names and not str(name).startswith(CARRIED):
                hint = did_you_mean(str(name), names) or f"; the layer has {', '.join(map(repr, names)) or 'none'}"
                yield layer.make_problem(f"'{name}' in {tree} is unknown{hint}; remove this array")


def _has_deleted_arrays(tree: Any) -> bool:
    arrays = (x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer))
    return any(x.is_deleted() for x in arrays)


def _list_array_problems(layer: Layer, trees: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    problems = []
    for param in layer.all_params:
        if not param.is_owner:
            continue
        tree = "params" if param.spec.learnable else "state"
        problem = _array_problem(trees[tree].get(layer.key, {}), param.slot.name, param.spec.shape)
        if problem is not None:
            problems.append(layer.make_problem(f"'{param.slot.name}' in {tree} {problem}"))
    return problems


def _array_problem(blobs: Mapping[str, Any], name: str, shape: Shape) -> str | None:
    if blobs.get(name) is None:
        others = f", which has {', '.join(map(repr, blobs))}" if blobs else ""
        return f"is missing{others}; pass the arrays that Net.init or load_weights returns, where its shape is {shape}"
    blob = blobs[name]
    if not isinstance(getattr(blob, "dtype", None), np.dtype):
        return f"must be an array, not {describe_type(blob)}"
    if tuple(blob.shape) != shape:
        return f"must be of shape {shape}, not {tuple(blob.shape)}"
    return None if jnp.issubdtype(blob.dtype, jnp.floating) else f"must be floating point, not {blob.dtype}"


@contextmanager
def add_shape_hints(graph: Graph, inputs: Mapping[str, Any]) -> Iterator[None]:
    """Return a context manager that adds hints to layer errors: the inputs whose shapes differ from the net's.

    The first axis, the batch, may differ.
    """
    try:
        yield
    except (LayerError, GraphError) as error:
        # user inputs only: batches of a source may differ from the blob until `SourceSpec.device_transform` is applied
        labels, is_recurrent = find_index_ranges(graph), any(layer.recurrent_state for layer in graph.layers)
        hints = []
        for name in graph.caller_inputs:
            shape, old_shape = np.shape(inputs[name]), graph.blobs[name].shape
            remedy = shape_remedy(shape, old_shape)
            if not remedy and shape[1:] == old_shape[1:]:
                continue
            if name in labels and len(shape) == len(old_shape) + 1:
                remedy = "; labels are class numbers: for one-hot labels pass jnp.argmax(labels, axis=-1)"
            remedy = remedy or f"; pass an array of shape ({', '.join(['N', *map(str, old_shape[1:])])})"
            has_same_ends = len(shape) == len(old_shape) and shape[2:] == old_shape[2:]
            if is_recurrent and has_same_ends and shape[1] != old_shape[1]:  # axis 1 is the sequences
                remedy += f", or change the number of sequences by net.with_batch({shape[1]}, axis=1)"
                remedy += ", and take the state of its init"
            message = f"the input '{name}' has shape {shape}, but the net was built for {old_shape}{remedy}"
            hints.append(Problem(message, graph.file))
        raise type(error)([*hints, *error.problems]) from error.__cause__


def is_numeric(value: Any) -> bool:
    """Return whether a value is an array of numbers or of truth values, or can be converted to one."""
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype):
        try:
            dtype = np.asarray(value).dtype
        except Exception:  # the object may raise any exception
            return False
    return jnp.issubdtype(dtype, np.number) or dtype == np.bool_

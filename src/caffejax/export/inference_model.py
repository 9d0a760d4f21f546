"""The net to export, in phase TEST, with its weights and only the layers on which the outputs depend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import jax
import numpy as np
from jax import export

from ..base.errors import CaffejaxError, GraphError, Problem
from ..base.variables import Blobs, Variables
from ..core.graph import Layer, is_random
from ..core.graph.build import infer_top_shapes
from ..core.layers.blob_checks import declared_params
from ..core.program.net import Net
from ..core.program.net_arguments import as_variables, check_variables


@dataclass(frozen=True, eq=False)
class InferenceModel:
    """A net to export, with its weights. Exactly one layer computes each blob.

    Attributes:
        net: the net, which `Net.for_inference` returned.
        variables: its parameters and state, which may also contain arrays of layers that are not in the net.
    """

    net: Net
    variables: Variables

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers in the order of execution, without Input and data layers."""
        return tuple(layer for layer in self.net.graph.layers if not layer.type.is_input)

    @property
    def inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and dtype of each input."""
        return {name: self.net.graph.blobs[name] for name in self.net.input_names}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the output blobs."""
        return self.net.outputs

    def arrays(self, layer: Layer) -> tuple[np.ndarray, ...]:
        """Return a layer's parameters and state as float32, including shared parameters, in Caffe's order of blobs."""
        return tuple(np.asarray(array, np.float32) for array in layer.arrays(*self.variables))

    @contextmanager
    def report_random_layers(self) -> Iterator[None]:
        """Return a context manager that reports all random layers if one of them raises an error in the `with` block.

        An exported net has no random key, so layers that sample random numbers raise an error.

        Raises:
            GraphError: if a random layer raised an error. The message names all random layers and all other problems.
        """
        try:
            yield
        except CaffejaxError as error:
            blobs = self.net.graph.blobs
            problems_of_random_layers = {
                layer.name: layer.make_problem(
                    "cannot be exported: it samples random numbers; export outputs that do not depend on it (--outputs)"
                )
                for layer in self.layers
                if not layer.type.on_host and is_random(layer, [blobs[name] for name in layer.bottoms])
            }
            if not problems_of_random_layers:
                raise
            other_problems = [problem for problem in error.problems if problem.layer not in problems_of_random_layers]
            raise GraphError([*problems_of_random_layers.values(), *other_problems]) from None

    def run(self, inputs: Mapping[str, jax.Array]) -> Blobs:
        """Run the net on the input arrays, which are given by name; return the output arrays by name."""
        return self.net.apply(*self.variables, inputs)[0]


def make_inference_model(net: Net, variables: Variables, outputs: Iterable[str] | None = None) -> InferenceModel:
    """Return the model to export for a net.

    Args:
        net: the full net, in either phase.
        variables: its parameters and state.
        outputs: names of the output blobs. By default, the outputs are the net's predictions.

    Raises:
        GraphError: if the net does not have a blob in `outputs`. The message names each missing blob.
        WeightsError: if arrays of params or state are missing or have a wrong shape or type. The message names each
            such array.
    """
    params, state = as_variables(variables)
    inference_net = net.for_inference(outputs)
    return InferenceModel(inference_net, check_variables(inference_net.graph, params, state))


class BatchError(GraphError):
    """Raised if layers do not support a symbolic batch size, which is chosen at run time. The message names them."""


def symbolic_batch_shapes(model: InferenceModel, axis: int = 0) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes and dtypes of all blobs with a symbolic batch size, which is chosen at run time.

    A single input gets the symbol `batch`. For several inputs, these choices are tried in order, and the first choice
    that all layers support is returned:

    - a different symbol `batch_0`, `batch_1`, ... for each input, for example for images and regions
    - the same symbol for inputs that have equal sizes in the net
    - the symbol `batch` for all inputs

    Args:
        model: the net.
        axis: the batch axis. Inputs without this axis keep their shapes.

    Raises:
        BatchError: if layers do not support a symbolic size. The message names each of them and the reason.
    """
    scope = export.SymbolicScope()
    symbol_choices: list[Callable[[str], str]] = [lambda name: "batch"]
    if len(model.inputs) > 1:
        names = list(model.inputs)
        lengths = [blob.shape[axis : axis + 1] for blob in model.inputs.values()]
        symbol_choices.insert(0, lambda name: f"batch_{lengths.index(lengths[names.index(name)])}")
        symbol_choices.insert(0, lambda name: f"batch_{names.index(name)}")
    problems: list[Problem] = []
    for symbol_of in symbol_choices:
        shapes = {
            name: _replace_axis(blob, axis, symbol_of(name), scope) if axis < blob.ndim else blob
            for name, blob in model.inputs.items()
        }
        blobs, problems = _infer_blobs(model, shapes)
        if not problems:
            return blobs
    raise BatchError(problems)


def _replace_axis(
    blob: jax.ShapeDtypeStruct, axis: int, symbol: str, scope: export.SymbolicScope
) -> jax.ShapeDtypeStruct:
    (length,) = export.symbolic_shape(symbol, scope=scope)
    return jax.ShapeDtypeStruct((*blob.shape[:axis], length, *blob.shape[axis + 1 :]), blob.dtype)


def _infer_blobs(
    model: InferenceModel, inputs: Mapping[str, jax.ShapeDtypeStruct]
) -> tuple[dict[str, jax.ShapeDtypeStruct], list[Problem]]:
    """Return the shapes and dtypes of all blobs for these inputs, and the problems of layers.

    Layers that depend on a layer with a problem are passed over.
    """
    blobs, problems = dict(inputs), list[Problem]()
    for layer in model.layers:
        if any(bottom not in blobs for bottom in layer.bottoms):
            continue
        if reason := layer.type.unsupported.get("symbolic_batch"):
            problems.append(layer.make_problem(reason))
            continue
        try:
            with layer.locate_errors():
                bottoms = [blobs[name] for name in layer.bottoms]
                declared_params(layer.context, bottoms)
                tops = infer_top_shapes(layer.context, layer.all_params, bottoms)
        except CaffejaxError as error:
            problems += error.problems
        else:
            blobs.update(zip(layer.tops, tops, strict=True))
    return blobs, problems

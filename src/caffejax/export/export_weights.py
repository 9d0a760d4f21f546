"""Weights for an exported net, from weight files or, if requested, from random fillers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import jax
import numpy as np

from ..base.errors import CaffejaxError, Problem, WeightsError
from ..base.human_readable import format_count, format_list
from ..base.variables import Variables
from ..core.checkpoints.load_save import load_weights
from ..core.checkpoints.match_by_name import has_own_values
from ..core.graph import Layer
from ..core.program.net import Net
from .inference_model import InferenceModel


def load_export_weights(
    net: Net, inference_net: Net, files: Iterable[str | Path], *, random_weights: bool = False
) -> Variables:
    """Read weight files, and return the parameters and state of the part of a net that is exported.

    Args:
        net: the full net.
        inference_net: the part to export, which `Net.for_inference` returned. Its batch size may differ from the
            batch size of `net`.
        files: paths of .caffemodel or .caffemodel.h5 files. If several files contain a blob, the last file is used.
        random_weights: True to initialise the blobs that no file contains with their fillers.

    Raises:
        WeightsError: if layers have no weights, or blobs have a wrong shape; the message names each of them.
    """
    files = list(files)
    key = jax.random.key(0)
    variables = jax.eval_shape(inference_net.init, key)
    problems: list[Problem] = []
    for file in files:
        try:
            variables = load_weights(file, net.graph, variables)
        except CaffejaxError as error:
            problems += error.problems
    if problems:
        raise WeightsError(problems)
    missing_layers = [layer for layer in inference_net.graph.layers if any(_missing_flags(layer, variables))]
    if missing_layers and not random_weights:
        raise WeightsError(_missing_weight_problems(missing_layers, files, net.graph.file))
    if not any(map(_is_shape, jax.tree.leaves(variables))):
        return variables
    return jax.tree.map(
        lambda loaded, initial: initial if _is_shape(loaded) else loaded, variables, inference_net.init(key)
    )


def find_zero_weights(model: InferenceModel) -> Iterator[Problem]:
    """Yield one warning if there are layers whose weights are all 0, the value of Caffe's default filler."""
    names = [
        f"'{layer.name}'"
        for layer in model.layers
        if layer.type.traits.weight_axes > 1 and layer.all_params and not any(map(np.any, model.arrays(layer)[:1]))
    ]
    if names:
        message = "all weights are 0 (the default filler), so the outputs are meaningless; set --weights"
        yield Problem(f"layer {format_list(names, 1)}: {message}", model.net.graph.file)


def _missing_flags(layer: Layer, variables: Variables) -> Iterator[bool]:
    """Yield a bool for each blob of a layer: True if neither a file nor the net's definition provides its values."""
    for param in layer.params:
        array = variables[not param.spec.learnable][param.owner.layer][param.owner.name]
        yield _is_shape(array) and not has_own_values(layer, param)


def _is_shape(leaf: object) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _missing_weight_problems(
    missing_layers: list[Layer], files: list[str | Path], net_path: str | None
) -> Iterator[Problem]:
    hint = "--random_weights exports random weights from the fillers"
    if not files:
        need = f"{format_count(len(missing_layers), 'layer')} {'needs' if len(missing_layers) == 1 else 'need'} weights"
        yield Problem(f"{need}: name a file with --weights; {hint}", net_path)
        return
    for layer in missing_layers:
        yield layer.make_problem(f"the weight files have no blobs for this layer: layers match by name; {hint}")

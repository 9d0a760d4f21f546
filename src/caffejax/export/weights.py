"""The weights that a net is exported with: nothing random that nobody asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import jax
import numpy as np

from ..checkpoints.loading import load_weights
from ..checkpoints.matching import has_own_values
from ..errors import CaffejaxError, Problem, WeightsError
from ..graph import Layer
from ..human_readable import counted
from ..net import Net, Variables
from .inference_model import Subject


def weights_of(net: Net, part: Net, files: Iterable[str | Path], *, random: bool = False) -> Variables:
    """Return the variables of a part of a net, with the weights in some files, one after the other.

    Args:
        net: the whole net.
        part: what is to be exported of it, see `Net.for_inference`; perhaps for another batch size.
        files: .caffemodel or .caffemodel.h5.
        random: whether fillers may make what the files lack.

    Raises:
        WeightsError: naming every layer without weights, and every blob that does not fit.
    """
    files = list(files)
    key = jax.random.key(0)

    def initial(key: jax.Array) -> Variables:
        whole, own = net.init(key), part.init(key)  # the part's layers may use params of others
        return Variables(whole.params | own.params, whole.state | own.state)

    variables = jax.eval_shape(initial, key)
    problems: list[Problem] = []
    for file in files:
        try:
            variables = load_weights(file, net.graph, variables)
        except CaffejaxError as error:
            problems += error.problems
    if problems:
        raise WeightsError(problems)
    lacking = [layer for layer in part.graph.layers if any(_lacking(layer, variables))]
    if lacking and not random:
        raise WeightsError(_explained(lacking, files, net.graph.file))
    if not any(map(_is_shape, jax.tree.leaves(variables))):
        return variables
    return jax.tree.map(lambda found, made: made if _is_shape(found) else found, variables, initial(key))


def zeros(subject: Subject) -> Iterator[Problem]:
    """Yield a warning for layers whose weights are 0: Caffe's filler where none is named, as in nets for deployment."""
    names = [
        layer.name
        for layer in subject.layers
        if layer.type.traits.weight_axes > 1 and layer.all_params and not any(map(np.any, subject.arrays(layer)[:1]))
    ]
    if names:
        first, more = f"'{names[0]}'", f" and {len(names) - 1} more" if len(names) > 1 else ""
        message = "the weights are 0, as Caffe's filler makes them where a layer names none; so outputs say nothing"
        yield Problem(f"layer {first}{more}: {message}", subject.net.graph.file)


def _lacking(layer: Layer, variables: Variables) -> Iterator[bool]:
    """Yield for each of a layer's blobs whether there is none in a file, nor in the net's definition."""
    for param in layer.params:
        array = variables[not param.spec.learnable][param.owner.layer][param.owner.index]
        yield _is_shape(array) and not has_own_values(layer, param)


def _is_shape(leaf: object) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _explained(lacking: list[Layer], files: list[str | Path], net: str | None) -> Iterator[Problem]:
    remedy = "--random_weights exports what fillers make"
    if not files:
        need = f"{counted(len(lacking), 'layer')} {'needs' if len(lacking) == 1 else 'need'} weights"
        yield Problem(f"{need}: name a file with --weights; {remedy}", net)
        return
    for layer in lacking:
        yield layer.problem(f"the weights have no blobs for it: layers match by name; {remedy}")

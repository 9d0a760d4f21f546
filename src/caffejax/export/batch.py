"""Inputs of symbolic size: any number of rows where the layers take that."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
from jax import export

from ..errors import CaffejaxError, GraphError, Problem
from ..graph.build import top_shapes
from ..layers.checking import declared_params
from .subject import Subject

Shapes = Mapping[str, jax.ShapeDtypeStruct]


class BatchError(GraphError):
    """A net that cannot take any number of rows; its problems name the layers."""


def any_batch(subject: Subject, axis: int = 0) -> dict[str, jax.ShapeDtypeStruct]:
    """Return shapes of the inputs in which an axis may be of any length.

    Each of several inputs has a length of its own, `batch_0`, `batch_1`, ..., where the layers allow that: of images
    and regions, say. Else those that are of one length in the net share one, or all have the same, `batch`.

    Args:
        subject: the net.
        axis: the axis; inputs that have none of that number keep their shapes.

    Raises:
        BatchError: naming every layer that takes no symbolic length, with the reason.
    """
    scope = export.SymbolicScope()
    ways: list[Callable[[str], str]] = [lambda name: "batch"]
    if len(subject.inputs) > 1:
        names = list(subject.inputs)
        lengths = [blob.shape[axis : axis + 1] for blob in subject.inputs.values()]
        ways.insert(0, lambda name: f"batch_{lengths.index(lengths[names.index(name)])}")
        ways.insert(0, lambda name: f"batch_{names.index(name)}")
    problems: list[Problem] = []
    for called in ways:
        shapes = {
            name: _with_symbol(blob, axis, called(name), scope) if axis < blob.ndim else blob
            for name, blob in subject.inputs.items()
        }
        if not (problems := _problems(subject, shapes)):
            return shapes
    raise BatchError(problems)


def _with_symbol(
    blob: jax.ShapeDtypeStruct, axis: int, symbol: str, scope: export.SymbolicScope
) -> jax.ShapeDtypeStruct:
    (length,) = export.symbolic_shape(symbol, scope=scope)
    return jax.ShapeDtypeStruct((*blob.shape[:axis], length, *blob.shape[axis + 1 :]), blob.dtype)


def _problems(subject: Subject, inputs: Shapes) -> list[Problem]:
    """Return what keeps layers from taking these shapes, those apart that follow one that cannot."""
    blobs, problems = dict(inputs), list[Problem]()
    for layer in subject.layers:
        if any(bottom not in blobs for bottom in layer.bottoms):
            continue
        if reason := layer.type.cannot.get("symbolic_batch"):
            problems.append(layer.problem(reason))
            continue
        try:
            with layer.located():
                bottoms = [blobs[name] for name in layer.bottoms]
                declared_params(layer.context, bottoms)
                tops = top_shapes(layer.context, layer.owned, bottoms)
        except CaffejaxError as error:
            problems += error.problems
        else:
            blobs.update(zip(layer.tops, tops, strict=True))
    return problems

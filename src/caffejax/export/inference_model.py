"""What is exported: a net in phase TEST, cut to the layers that its outputs need, with its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import jax
from jax import export

from ..errors import CaffejaxError, GraphError, Problem
from ..graph import Layer, is_random
from ..graph.build import top_shapes
from ..layers.validation import declared_params
from ..net import Blobs, Net, Variables


@dataclass(frozen=True, eq=False)
class Subject:
    """A net to be exported, each of its blobs made once.

    Attributes:
        net: the net, see `Net.for_inference`.
        variables: its params and state; there may be more than it needs.
    """

    net: Net
    variables: Variables

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that compute, in the order of execution; not those that the net is fed by."""
        return tuple(layer for layer in self.net.graph.layers if not layer.type.is_fed)

    @property
    def inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and dtype of each blob that the net is fed."""
        return {name: self.net.graph.blobs[name] for name in self.net.input_names}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The blobs that are wanted."""
        return self.net.outputs

    def arrays(self, layer: Layer) -> tuple[jax.Array, ...]:
        """Return a layer's params and state, in Caffe's order, whoever owns them."""
        return layer.arrays(*self.variables)

    @contextmanager
    def naming_random_layers(self) -> Iterator[None]:
        """Name the layers that draw random numbers, where one fails for want of a key: nobody could pass it one.

        Raises:
            GraphError: naming them, with what else is wrong.
        """
        try:
            yield
        except CaffejaxError as error:
            blobs = self.net.graph.blobs
            random = {
                layer.name: layer.problem(
                    "cannot be exported: it draws random numbers; ask for outputs that do not need it"
                )
                for layer in self.layers
                if not layer.type.on_host and is_random(layer, [blobs[name] for name in layer.bottoms])
            }
            if not random:
                raise
            rest = [problem for problem in error.problems if problem.layer not in random]
            raise GraphError([*random.values(), *rest]) from None

    def run(self, inputs: Mapping[str, jax.Array]) -> Blobs:
        """Return the outputs by name."""
        return self.net.apply(*self.variables, inputs)[0]


def subject_of(net: Net, variables: Variables, outputs: Iterable[str] | None = None) -> Subject:
    """Return what is to be exported of a net.

    Args:
        net: the whole net, of either phase.
        variables: its params and state.
        outputs: the blobs that are wanted; what the net predicts unless given.

    Raises:
        GraphError: naming the blobs that the net does not have.
    """
    return Subject(net.for_inference(outputs), variables)


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
        if reason := layer.type.unsupported.get("symbolic_batch"):
            problems.append(layer.problem(reason))
            continue
        try:
            with layer.located():
                bottoms = [blobs[name] for name in layer.bottoms]
                declared_params(layer.context, bottoms)
                tops = top_shapes(layer.context, layer.all_params, bottoms)
        except CaffejaxError as error:
            problems += error.problems
        else:
            blobs.update(zip(layer.tops, tops, strict=True))
    return problems

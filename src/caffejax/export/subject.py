"""What is exported: a net in phase TEST, cut to the layers that its outputs need, with its weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import jax

from ..errors import CaffejaxError, GraphError
from ..graph import Layer, is_random
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
        return {name: self.net.graph.blobs[name] for name in self.net.fed}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The blobs that are wanted."""
        return self.net.outputs

    def arrays(self, layer: Layer) -> tuple[jax.Array, ...]:
        """Return a layer's params and state, in Caffe's order, whoever owns them."""
        found = []
        for param in layer.owned:
            tree = self.variables.params if param.spec.learnable else self.variables.state
            array = tree[param.owner.layer][param.owner.index]
            assert array is not None, param
            found.append(array.reshape(param.spec.shape))
        return tuple(found)

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

"""A case: a net of any batch size, and functions that draw its inputs."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from caffejax.core.layers import LayerType, type_of
from caffejax.core.schema import read_net
from caffejax.core.schema.caffe_pb2 import LossParameter, NetParameter

BATCH = "batch"  # stands in shapes for the batch size
Shape = tuple[int | str, ...]
IMAGE: Shape = (BATCH, 3, 5, 6)
MATRIX: Shape = (BATCH, 5)
LABELS: Shape = (BATCH,)
Distribution = Literal["any", "positive", "probabilities"]


@dataclass(frozen=True)
class Case:
    """A net and how to draw its inputs. Cases are equal if their names are, also in other processes.

    Attributes:
        name: the test id.
        layers: the prototxt of all layers except the inputs, or a function of the batch size that returns it.
        input_shapes: the shape of each input.
        phase: the phase of the net.
        distribution: the distribution of float inputs.
        classes: labels and indices are less than this.
        random: whether a pass draws random numbers, so that parts of a batch differ from the whole batch.
        is_net: whether the case is a net rather than a single layer.
        samplers: `draw(random, shape)` for blobs with structure, such as boxes.
        constants: inputs that tops depend on, but to which the layer passes no gradient.
    """

    name: str
    layers: str | Callable[[int], str] = field(compare=False)
    input_shapes: Mapping[str, Shape] = field(compare=False)
    phase: Literal["TRAIN", "TEST"] = field(default="TRAIN", compare=False)
    distribution: Distribution = field(default="any", compare=False)
    classes: int = field(default=2, compare=False)
    random: bool = field(default=False, compare=False)
    is_net: bool = field(default=False, compare=False)
    samplers: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = field(
        default_factory=dict, compare=False
    )
    constants: frozenset[str] = field(default=frozenset(), compare=False)

    @functools.cached_property
    def types(self) -> set[str]:
        """The types of all layers except the inputs."""
        return {layer.type for layer in read_net(self.prototxt(3)).layer} - {"Input"}

    @functools.cached_property
    def layer_type(self) -> LayerType:
        """The type, or of a type with variants the variant, of the last layer."""
        return type_of(read_net(self.prototxt(2)).layer[-1])

    def prototxt(self, rows: int) -> str:
        """Return the prototxt for this batch size."""
        dims = {
            name: " ".join(f"dim: {rows if n == BATCH else n}" for n in shape)
            for name, shape in self.input_shapes.items()
        }
        inputs = [
            f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {text} }} }} }}'
            for name, text in dims.items()
        ]
        return "\n".join([*inputs, self.layers if isinstance(self.layers, str) else self.layers(rows)])

    def row_axis(self, blob: str) -> int | None:
        """Return the batch axis of an input, or None if it has none."""
        shape = self.input_shapes.get(blob, (BATCH,))  # a data layer's tops are named by itself
        return shape.index(BATCH) if BATCH in shape else None


def layer_case(layer_type: str, param: str, *bottoms: Shape, tops: int = 1, name: str = "", **options: Any) -> Case:
    """Return the case of a single layer with the inputs b0, b1, ..."""
    blobs = [*(f'bottom: "b{i}"' for i in range(len(bottoms))), *(f'top: "t{i}"' for i in range(tops))]
    prototxt = f'layer {{ name: "layer" type: "{layer_type}" {" ".join(blobs)} {param} }}'
    return Case(
        "_".join(filter(None, [layer_type, name])), prototxt, {f"b{i}": s for i, s in enumerate(bottoms)}, **options
    )


def normalizations_case(loss: Case, **fields: Any) -> Case:
    """Return one net with a loss layer for each normalization, with these fields of `loss_param`, too."""
    layers = []
    for mode, _ in LossParameter.NormalizationMode.items():
        layer = read_net(loss.prototxt(1)).layer[-1]
        layer.name = f"layer_{mode}"
        layer.top[:] = [f"t_{mode}"]
        layer.loss_param.MergeFrom(LossParameter(normalization=mode, pre_fixed_normalizer=7, **fields))
        layers.append(layer)
    name = "_".join([loss.name, "normalised", *fields])
    return replace(loss, name=name, layers=str(NetParameter(layer=layers)), is_net=True)

"""A test case: a net and functions that draw its inputs; in shapes, BATCH is a placeholder for the batch size."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

BATCH = "ROWS"  # its text in prototxts, which must not be a part of BATCH_SIZE
Shape = tuple[int | str, ...]
Distribution = Literal["any", "positive", "probabilities"]


@dataclass(frozen=True, eq=False)
class Case:
    """A net and how to draw its inputs.

    Attributes:
        name: the test id.
        layers: the prototxt of all layers except the inputs.
        input_shapes: the shape of each input.
        phase: the phase of the net.
        distribution: the distribution of float inputs.
        classes: labels and indices are less than this.
        random: whether a pass draws random numbers, so that parts of a batch differ from the whole batch.
        is_net: whether the case is a net rather than a single layer.
        samplers: `draw(random, shape)` for blobs with structure, such as boxes.
    """

    name: str
    layers: str
    input_shapes: Mapping[str, Shape]
    phase: Literal["TRAIN", "TEST"] = "TRAIN"
    distribution: Distribution = "any"
    classes: int = 2
    random: bool = False
    is_net: bool = False
    samplers: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = field(default_factory=dict)

    def prototxt(self, rows: int) -> str:
        """Return the prototxt for this batch size."""
        dims = {name: " ".join(f"dim: {n}" for n in shape) for name, shape in self.input_shapes.items()}
        inputs = [
            f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {text} }} }} }}'
            for name, text in dims.items()
        ]
        return "\n".join([*inputs, self.layers]).replace(BATCH, str(rows))

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

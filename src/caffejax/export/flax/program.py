"""A net as steps of flax source: what is read, what is written, the line between them, and the module it calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Order = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """An array in the written source.

    Attributes:
        number: which one; each is made once.
        blob: the blob's name.
        shape: its shape as Caffe has it.
        order: how its axes are stored: axis k is Caffe's axis `order[k]`.
        flat: of a blob (rows, features) that was flattened as it was stored: the shape of the features as Caffe has
            them, and the order that they are stored in. Caffe's order of the features is another.
    """

    number: int
    blob: str
    shape: Shape
    order: Order
    flat: tuple[Shape, Order] | None = None

    @property
    def stored(self) -> Shape:
        """Return the shape as it is stored."""
        return tuple(self.shape[axis] for axis in self.order)

    def axis(self, caffe: int) -> int:
        """Return where one of Caffe's axes is stored; the last axis is -1."""
        found = self.order.index(caffe % len(self.shape))
        return -1 if found == len(self.shape) - 1 else found


@dataclass(frozen=True)
class Part:
    """A module that the net's constructor makes.

    Attributes:
        maker: what is called: `nnx.Conv`.
        arguments: the names of its arguments and their values, in order.
        kind: a short word for it, to make names of.
        positional: how many of the arguments are given without their names.
        weights: arrays by their path in the module: `kernel`.
        random: whether it takes `rngs`.
        owners: whose params it has, if they are Caffe's: modules with the same owners are one.
        count: how many there are of it in a list, one after the other.
        steps: of such a list, by how much each argument grows from one to the next.
    """

    maker: str
    arguments: tuple[tuple[str, Any], ...] = ()
    kind: str = "layer"
    positional: int = 0
    weights: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    random: bool = True
    owners: tuple[Any, ...] = field(default=(), compare=False)
    count: int = 0
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Step:
    """One line of the forward pass.

    Attributes:
        layer: the layer that it comes from.
        text: the expression: `{0}`, `{1}` are what it reads, `{part}` is its module.
        reads: numbers of the values that it reads.
        writes: of those that it makes.
        part: its module, if it has one.
        name: the module's attribute, once it is settled.
        after: whether it is at home on the line of the step before it, around that one's expression.
    """

    layer: str
    text: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    part: Part | None = None
    name: str = ""
    after: bool = False


@dataclass(frozen=True)
class Block:
    """A class of modules that a net repeats.

    Attributes:
        name: the class.
        title: what it says of itself.
        parameters: what its constructor takes: names and types.
        steps: its forward pass; arguments of modules that are `Parameter` differ from one to the next.
        input: the value that it is called with.
        output: the value that it returns.
        names: what to call its values, by number.
    """

    name: str
    title: str
    parameters: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    input: int
    output: int
    names: Mapping[int, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Parameter:
    """An argument that stands for what a block's constructor was given."""

    name: str


@dataclass(frozen=True)
class Program:
    """A net's steps, and what is called by name in the source.

    Attributes:
        steps: the forward pass.
        values: each value by its number.
        inputs: the blobs that are fed.
        outputs: the values that are wanted.
        title: the net's name.
        labels: of the outputs, their blobs.
        blocks: the classes that steps use.
        helpers: names of helper functions and modules that steps use.
    """

    steps: tuple[Step, ...]
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    title: str
    labels: tuple[str, ...]
    blocks: tuple[Block, ...] = ()
    helpers: frozenset[str] = frozenset()

    @property
    def named_outputs(self) -> tuple[tuple[int, str], ...]:
        """The outputs with their blobs."""
        return tuple(zip(self.outputs, self.labels, strict=True))

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """All arrays by their path in the net's module, once the modules have names."""
        return {
            f"{step.name}.{path}".rstrip("."): array
            for step in self.steps
            if step.part is not None
            for path, array in step.part.weights.items()
        }

    def with_steps(self, steps: tuple[Step, ...], *blocks: Block) -> Program:
        """Return the program with other steps, and further blocks."""
        return replace(self, steps=steps, blocks=(*self.blocks, *blocks))

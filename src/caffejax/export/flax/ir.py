"""A net as steps of flax source: what is read, what is written, the line between them, and the module it calls."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import numpy as np
from flax import nnx

from .runtime_helpers import HELPERS

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


# what modules have, and what written sources import
_OF_MODULES = {name for name in dir(nnx.Module) if not name.startswith("_")}
_IMPORTED = {"jax", "jnp", "nnx", "np", "rngs", "self", "Path", "WEIGHTS", "load", "load_file", "ocp"}
TAKEN = frozenset({*_OF_MODULES, *_IMPORTED, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)})
# what no variable may be called besides: it would hide a function that a line calls, or be lost in a loop over blocks
USED_IN_LINES = frozenset({*TAKEN, *HELPERS, "x", "block"})


def words(name: str) -> list[str]:
    """Return the runs of ASCII letters and digits in a name."""
    return re.findall(r"[A-Za-z0-9]+", name)


def identifier(name: str, kind: str = "layer") -> str:
    """Return a name for an attribute or a variable: lower case with underscores, never a keyword or a builtin.

    Args:
        name: any text.
        kind: what to begin with where the text begins with a digit, and what to say where nothing is left of it.
    """
    found = "_".join(words(name)).lower()[:60].strip("_")
    if not found or found[0].isdigit():
        found = f"{kind}_{found}".strip("_")
    return f"{found}_" if found in TAKEN else found


def class_name(name: str, otherwise: str) -> str:
    """Return a name for a class: the words of a name, each with a capital first."""
    found = "".join(word[0].upper() + word[1:] for word in words(name))[:60]
    if not found or found[0].isdigit():
        found = otherwise + found
    return f"{found}Net" if found in TAKEN else found


def unique(name: str, taken: Collection[str], between: str = "_") -> str:
    """Return the name, with a number behind it if it is taken."""
    found, n = name, 2
    while found in taken:
        found, n = f"{name}{between}{n}", n + 1
    return found


def comment(text: str) -> str:
    """Return text for a docstring: what can be printed in ASCII, without quotes and backslashes, in one short line."""
    kept = re.sub(r"[^ -~]|[\"'\\]", " ", text)
    return " ".join(kept.split())[:70].strip()


def shared_start(names: Sequence[str]) -> str:
    """Return the letters that all names begin with."""
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike)


def common(names: Sequence[str]) -> list[str]:
    """Return the words that all names have at the same places; none if they have different numbers of words."""
    split = [words(name) for name in names]
    if len({len(ws) for ws in split}) != 1:
        return []
    return [ws[0] for ws in zip(*split, strict=True) if len(set(ws)) == 1]


def common_prefix(names: Iterable[str]) -> list[str]:
    """Return the words that all names begin with."""
    found: list[str] = []
    for ws in zip(*map(words, names), strict=False):
        if len(set(ws)) > 1:
            break
        found.append(ws[0])
    return found

"""Intermediate representation of the flax source: a program of steps, values, modules and repeated blocks."""

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
    """An array in the generated source.

    Attributes:
        number: the number that identifies the value. One step computes it, or none if it is an input.
        blob: the blob's name.
        shape: the shape in Caffe's axis order.
        order: the stored axis order. Stored axis k is Caffe's axis `order[k]`.
        flattened_from: for a blob (N, features) that was flattened in its stored axis order: the previous shape without
            N, in Caffe's axis order, and the order in which these axes were stored. None for other blobs.
    """

    number: int
    blob: str
    shape: Shape
    order: Order
    flattened_from: tuple[Shape, Order] | None = None

    @property
    def stored_shape(self) -> Shape:
        """The shape in the stored axis order."""
        return tuple(self.shape[axis] for axis in self.order)

    def stored_axis(self, caffe_axis: int) -> int:
        """Return the position at which Caffe's axis `caffe_axis` is stored, with -1 for the last position."""
        position = self.order.index(caffe_axis % len(self.shape))
        return -1 if position == len(self.shape) - 1 else position


@dataclass(frozen=True)
class ModuleSpec:
    """A module that the net's constructor creates.

    Attributes:
        constructor: the class or function to call, such as `nnx.Conv`.
        arguments: names and values of the arguments, in order.
        short_name: a short word for the module, such as "conv", from which names are made.
        num_positional: the number of arguments that are passed by position.
        weights: arrays by their path in the module, such as `kernel`.
        needs_rngs: True if the constructor has the argument `rngs`.
        owners: for each parameter, the key of the layer that stores it and its index in that layer. Layers with equal
            owners share one module.
        list_length: the length of the list if the net creates a list of these modules, or 0 for a single module.
        increments: for a list, the increment of each argument from one module to the next.
    """

    constructor: str
    arguments: tuple[tuple[str, Any], ...] = ()
    short_name: str = "layer"
    num_positional: int = 0
    weights: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    needs_rngs: bool = True
    owners: tuple[Any, ...] = field(default=(), compare=False)
    list_length: int = 0
    increments: tuple[int, ...] = ()


@dataclass(frozen=True)
class ExpressionStep:
    """One line of the forward pass.

    Attributes:
        layer: the name of the layer.
        text: the expression, in which `{0}`, `{1}` stand for the values that it reads, and `{module}` for its module.
        reads: numbers of the values that the step reads.
        writes: numbers of the values that the step computes.
        module: the module that the step calls, or None.
        module_name: the name of the attribute that holds the module; "" until `name_modules` sets it.
        can_nest: True if the expression may be nested with the previous step's expression in one statement.
    """

    layer: str
    text: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    module: ModuleSpec | None = None
    module_name: str = ""
    can_nest: bool = False


@dataclass(frozen=True)
class Block:
    """A module class for a group of steps that a net repeats.

    Attributes:
        name: the name of the class.
        docstring: the docstring of the class.
        parameters: names and types of the constructor's parameters.
        steps: the forward pass. Module arguments that differ between instances are `Parameter` objects.
        input: the number of the value with which the block is called.
        output: the number of the value that the block returns.
        value_names: names of the block's values, by number.
    """

    name: str
    docstring: str
    parameters: tuple[tuple[str, str], ...]
    steps: tuple[ExpressionStep, ...]
    input: int
    output: int
    value_names: Mapping[int, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Parameter:
    """A module argument that is a parameter of the block's constructor."""

    name: str


@dataclass(frozen=True)
class Program:
    """The steps of a net and the definitions that they use.

    Attributes:
        steps: the forward pass.
        values: the values, indexed by number.
        inputs: numbers of the input values.
        outputs: numbers of the output values.
        net_name: the net's name.
        output_names: blob names of the outputs.
        blocks: the block classes that the steps use.
        helpers: names of the helper functions and modules that the steps use.
    """

    steps: tuple[ExpressionStep, ...]
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    net_name: str
    output_names: tuple[str, ...]
    blocks: tuple[Block, ...] = ()
    helpers: frozenset[str] = frozenset()

    @property
    def named_outputs(self) -> tuple[tuple[int, str], ...]:
        """`(number, blob name)` for each output."""
        return tuple(zip(self.outputs, self.output_names, strict=True))

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """All arrays by their path in the net's module. The modules must have names, see `name_modules`."""
        return {
            f"{step.module_name}.{path}".rstrip("."): array
            for step in self.steps
            if step.module is not None
            for path, array in step.module.weights.items()
        }

    def with_steps(self, steps: tuple[ExpressionStep, ...], *blocks: Block) -> Program:
        """Return a copy of the program with the steps `steps`, and with `blocks` added to its blocks."""
        return replace(self, steps=steps, blocks=(*self.blocks, *blocks))


# attributes of modules, and names that generated sources import
_MODULE_ATTRIBUTES = {name for name in dir(nnx.Module) if not name.startswith("_")}
_IMPORTED_NAMES = {"jax", "jnp", "nnx", "np", "rngs", "self", "Path", "WEIGHTS", "load", "load_file", "ocp"}
RESERVED_NAMES = frozenset(
    {*_MODULE_ATTRIBUTES, *_IMPORTED_NAMES, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)}
)
# variables must not have these names either: helpers that statements call, the main variable, the loop variable
RESERVED_VARIABLES = frozenset({*RESERVED_NAMES, *HELPERS, "x", "block"})


def split_words(name: str) -> list[str]:
    """Return the words of a name. A word is a sequence of ASCII letters and digits."""
    return re.findall(r"[A-Za-z0-9]+", name)


def to_identifier(name: str, prefix: str = "layer") -> str:
    """Return a lower-case identifier for an attribute or variable, which is not a keyword or a builtin.

    Args:
        name: any text.
        prefix: the prefix if `name` begins with a digit, and the identifier if it has no letters or digits.
    """
    result = "_".join(split_words(name)).lower()[:60].strip("_")
    if not result or result[0].isdigit():
        result = f"{prefix}_{result}".strip("_")
    return f"{result}_" if result in RESERVED_NAMES else result


def to_class_name(name: str, default: str) -> str:
    """Return a class name that consists of the capitalised words of `name`.

    If it would begin with a digit, `default` is put before it. If `name` has no words, the class name is `default`.
    """
    result = "".join(word[0].upper() + word[1:] for word in split_words(name))[:60]
    if not result or result[0].isdigit():
        result = default + result
    return f"{result}Net" if result in RESERVED_NAMES else result


def make_unique(name: str, used_names: Collection[str], separator: str = "_") -> str:
    """Return the name, with a number appended if the name is in `used_names`."""
    candidate, n = name, 2
    while candidate in used_names:
        candidate, n = f"{name}{separator}{n}", n + 1
    return candidate


def sanitize_docstring(text: str) -> str:
    """Return `text` for use in a docstring: printable ASCII without quotes and backslashes, at most 70 characters."""
    printable = re.sub(r"[^ -~]|[\"'\\]", " ", text)
    return " ".join(printable.split())[:70].strip()


def common_string_prefix(names: Sequence[str]) -> str:
    """Return the longest common prefix of the names, in characters."""
    equal_letters = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in equal_letters)


def common_words(names: Sequence[str]) -> list[str]:
    """Return the words that are equal in all names at the same position; [] if the numbers of words differ."""
    word_lists = [split_words(name) for name in names]
    if len({len(ws) for ws in word_lists}) != 1:
        return []
    return [ws[0] for ws in zip(*word_lists, strict=True) if len(set(ws)) == 1]


def common_leading_words(names: Iterable[str]) -> list[str]:
    """Return the words with which all names begin."""
    prefix: list[str] = []
    for ws in zip(*map(split_words, names), strict=False):
        if len(set(ws)) > 1:
            break
        prefix.append(ws[0])
    return prefix

"""Targets: other forms of a net than a JAX program, such as ONNX, flax source and oneDNN's programs.

A graph's layers are named calls with settings. A `Target` is a table of rules by layer type. A rule translates a layer
as a whole, or declines; then the target traces the layer's JAX function by itself, leaves it to XLA, or refuses it.
`translate` is the walk over the layers of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import jax

from ...base.errors import CaffejaxError, Problem
from ..graph import Layer
from ..layers import Context

V = TypeVar("V")  # what a target has for a blob
C = TypeVar("C", bound="LayerCall[Any]")
Shape = tuple[Any, ...]


@dataclass
class LayerCall(Generic[V]):
    """A layer to translate, the argument of a rule.

    Attributes:
        layer: the layer.
        arrays: its params and state, in Caffe's order.
        bottoms: the target's values of its bottoms.
        blobs: the shape and dtype of each blob of the graph, by name. Sizes may be symbolic.
    """

    layer: Layer
    arrays: tuple[Any, ...]
    bottoms: tuple[V, ...]
    blobs: Mapping[str, jax.ShapeDtypeStruct]

    @property
    def context(self) -> Context:
        """The layer's settings, type and phase."""
        return self.layer.context

    @property
    def param(self) -> Any:
        """The settings message of the layer's type, such as `convolution_param`."""
        return self.layer.context.param

    @property
    def x(self) -> V:
        """The target's value of the first bottom."""
        return self.bottoms[0]

    @property
    def bottom_spec(self) -> jax.ShapeDtypeStruct:
        """The shape and dtype of the first bottom."""
        return self.blobs[self.layer.bottoms[0]]

    @property
    def top_shapes(self) -> tuple[Shape, ...]:
        """The shape of each top."""
        return tuple(tuple(self.blobs[top].shape) for top in self.layer.tops)

    @property
    def top_shape(self) -> Shape:
        """The shape of the first top."""
        return self.top_shapes[0]


class Target(Generic[C, V]):
    """A table of rules by layer type.

    Attributes:
        rules: the rules. A rule takes a `LayerCall`, and returns the value of the layer's top, or a sequence of a value
            for each top. It returns None for settings that it does not translate.
    """

    def __init__(self) -> None:
        self.rules: dict[str, Callable[[C], V | Sequence[V] | None]] = {}

    def rule(self, *types: str) -> Callable[[Callable[[C], Any]], Callable[[C], Any]]:
        """Return a decorator that adds a function to the table as the rule of layer types, by their names."""

        def add(rule: Callable[[C], Any]) -> Callable[[C], Any]:
            self.rules.update(dict.fromkeys(types, rule))
            return rule

        return add

    def match(self, call: C) -> dict[str, V] | None:
        """Return the values of a layer's tops by name, or None if no rule translates the layer, or not each top."""
        rule = self.rules.get(call.layer.type.name)
        tops: Any = None if rule is None else rule(call)
        if tops is not None and not isinstance(tops, list | tuple):
            tops = (tops,)
        names = call.layer.tops
        return dict(zip(names, tops, strict=True)) if tops is not None and len(tops) == len(names) else None


def translate(
    layers: Iterable[Layer],
    values: dict[str, V],
    add: Callable[[Layer, tuple[V, ...]], Mapping[str, V]],
    placeholder: Callable[[str], V],
) -> dict[str, tuple[Problem, ...]]:
    """Translate layers in the order of execution.

    Args:
        layers: the layers. Exactly one of them computes each top.
        values: the target's values of the blobs that the layers read from outside, by name. The values of the tops are
            added.
        add: `add(layer, bottoms)` adds a layer to the target, and returns its values of the layer's tops by name. They
            may include the tops of a later layer that it has added too; this layer is then passed over.
        placeholder: `placeholder(blob)` returns a value for a top of a layer that raised an error, with which later
            layers are translated, so that all their problems are found.

    Returns:
        The problems of each layer that raised a `CaffejaxError`, by the layer's key.
    """
    problems: dict[str, tuple[Problem, ...]] = {}
    for layer in layers:
        if values.keys() >= set(layer.tops):
            continue
        try:
            with layer.locate_errors():
                values.update(add(layer, tuple([values[name] for name in layer.bottoms])))
        except CaffejaxError as error:
            problems[layer.key] = tuple(error.problems)
            values.update({top: placeholder(top) for top in layer.tops})
    return problems


def find_readers(layers: Iterable[Layer], outputs: Iterable[str]) -> dict[str, list[Layer | None]]:
    """Return the readers of each blob that is read: a layer as often as it reads it, and None for an output."""
    readers: dict[str, list[Layer | None]] = {}
    for layer in layers:
        for bottom in layer.bottoms:
            readers.setdefault(bottom, []).append(layer)
    for name in outputs:
        readers.setdefault(name, []).append(None)
    return readers

"""A layer with its arrays, and its gradients by autodiff, by the hand-written rule and by the net's default method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ..layers import Context
from ..layers.context import Arrays
from ..layers.dispatch import backward, call, forward


class Argument(NamedTuple):
    """A bottom or blob of a layer with respect to which a gradient is computed."""

    kind: Literal["blob", "bottom"]
    position: int
    name: str


@dataclass(frozen=True)
class Case:
    """A layer, its float64 arrays, and the diffs of its tops.

    Attributes:
        context: the layer, with the key of its forward pass.
        blobs, bottoms: the inputs of the forward pass.
        tops: the results of the forward pass.
        top_diffs: a diff for each top, with the top's shape.
        arguments: the blobs and bottoms with respect to which gradients are computed.
        compiled: the compiled functions of the layer by function and context, so that the copies of a case with other
            arrays do not compile them again.
    """

    context: Context
    blobs: Arrays
    bottoms: Arrays
    tops: Arrays
    top_diffs: Arrays
    arguments: tuple[Argument, ...]
    compiled: dict[tuple[Any, Context], Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def values(self) -> Arrays:
        """The arrays of the arguments."""
        return self.pick(self.blobs, self.bottoms)

    @property
    def on_host(self) -> bool:
        """True if the layer runs on the host, outside compiled code."""
        return self.context.type.on_host

    def pick(self, blobs: Sequence[Any], bottoms: Sequence[Any]) -> tuple[Any, ...]:
        """Return the items of `blobs` and `bottoms` that belong to the arguments, in the order of the arguments."""
        return tuple((blobs if a.kind == "blob" else bottoms)[a.position] for a in self.arguments)

    def move(self, values: Sequence[np.ndarray], bottoms: Arrays | None = None) -> Case:
        """Return the case at other arrays of the arguments, and at other `bottoms`; its tops are computed."""
        arrays = {"blob": list(self.blobs), "bottom": list(self.bottoms if bottoms is None else bottoms)}
        for argument, value in zip(self.arguments, values, strict=True):
            arrays[argument.kind][argument.position] = jnp.asarray(value, jnp.float64)
        case = replace(self, blobs=tuple(arrays["blob"]), bottoms=tuple(arrays["bottom"]))
        return replace(case, tops=case.compute_tops())

    def compute_tops(self, context: Context | None = None, **arrays: Arrays) -> Arrays:
        """Return the tops. `context`, `blobs=` and `bottoms=` replace those of the case."""
        blobs, bottoms = arrays.get("blobs", self.blobs), arrays.get("bottoms", self.bottoms)
        return tuple(self.run(compute_tops, blobs, bottoms, context=context))

    def run(self, function: Callable[..., Any], *arrays: Any, context: Context | None = None) -> Any:
        """Return `function(context, *arrays)`, compiled once for each context, except for a layer on the host."""
        layer_context = self.context if context is None else context

        def call_with_key(key: Any, *arrays: Any) -> Any:
            return function(layer_context.replace(fold_in_args=key), *arrays)

        if self.on_host:
            return function(layer_context, *arrays)
        compiled = self.compiled.setdefault((function, layer_context), jax.jit(call_with_key))
        return compiled(layer_context.fold_in_args, *arrays)


def compute_tops(context: Context, blobs: Arrays, bottoms: Arrays) -> Arrays:
    """Run the forward pass of a layer, and return its tops."""
    if context.type.on_host:
        return tuple(map(jnp.asarray, forward(context, *jax.tree.map(np.asarray, (blobs, bottoms)))[0]))
    return forward(context, blobs, bottoms)[0]


def sample_diffs(tops: Arrays, random: np.random.Generator) -> Arrays:
    """Sample a diff for each top. Magnitudes are in [0.5, 1.5), so that no element is too small to show an error."""
    diffs = (random.choice([-1.0, 1.0], top.shape) * random.uniform(0.5, 1.5, top.shape) for top in tops)
    return tuple(jnp.asarray(diff, top.dtype) for diff, top in zip(diffs, tops, strict=True))


def autodiff_gradients(case: Case) -> list[np.ndarray] | None:
    """Compute the gradients by autodiff of the forward pass, or return None for a layer on the host."""
    return None if case.on_host else _run_gradients(case, _pull_back_tops)


def net_gradients(case: Case) -> list[np.ndarray]:
    """Compute the gradients by the method that nets use by default for the layer's type."""
    return _run_gradients(case, _pull_back_default_tops)


def _run_gradients(case: Case, pull_back: Callable[..., Any]) -> list[np.ndarray]:
    diffs = case.run(pull_back, case.blobs, case.bottoms, case.top_diffs)
    return [np.asarray(g) for g in case.pick(*diffs)]


def _pull_back_tops(context: Context, blobs: Arrays, bottoms: Arrays, top_diffs: Arrays) -> Any:
    return jax.vjp(partial(compute_tops, context), blobs, bottoms)[1](top_diffs)


def _pull_back_default_tops(context: Context, blobs: Arrays, bottoms: Arrays, top_diffs: Arrays) -> Any:
    context = replace(context, config=replace(context.config, backward="autodiff"))
    return jax.vjp(lambda *arrays: call(context, *arrays)[0], blobs, bottoms)[1](top_diffs)


def rule_gradients(case: Case) -> list[np.ndarray]:
    """Compute the gradients by the type's hand-written rule.

    Raises:
        LayerError: if the number of gradients or the shape of a gradient is wrong.
    """
    arrays = (case.blobs, case.bottoms, case.tops, case.top_diffs)
    results = case.pick(*case.run(backward, *(jax.tree.map(np.asarray, arrays) if case.on_host else arrays)))
    for argument, value, gradient in zip(case.arguments, case.values, results, strict=True):
        require(
            gradient.shape == value.shape,
            f"the backward rule's gradient of {argument.name} has shape {gradient.shape}, not {value.shape}",
        )
    return [np.asarray(g) for g in results]

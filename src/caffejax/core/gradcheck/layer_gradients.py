"""A layer with its arrays, and its gradients by autodiff, by the hand-written rule and by the net's default method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import LayerError, require
from ...base.variables import Variables
from ..layers import Context, Declaration, LayerType
from ..layers.context import Phase
from ..layers.dispatch import Arrays, backward, call, forward
from ..layers.registry import is_builtin
from ..program.layer_function import make_layer_net, name_blobs, parse_layer
from ..program.net import Net
from ..schema.caffe_pb2 import LayerParameter


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
        compiled: the compiled functions of the layer by name and context, so that the copies of a case with other
            arrays do not compile them again.
    """

    context: Context
    blobs: Arrays
    bottoms: Arrays
    tops: Arrays
    top_diffs: Arrays
    arguments: tuple[Argument, ...]
    compiled: dict[tuple[str, Context], Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def values(self) -> Arrays:
        """The arrays of the arguments."""
        return tuple(getattr(self, f"{a.kind}s")[a.position] for a in self.arguments)

    @property
    def on_host(self) -> bool:
        """True if the layer runs on the host, outside compiled code."""
        return self.context.type.on_host

    def pick(self, blobs: Sequence[Any], bottoms: Sequence[Any]) -> tuple[Any, ...]:
        """Return the items of `blobs` and `bottoms` that belong to the arguments, in the order of the arguments."""
        return tuple((blobs if a.kind == "blob" else bottoms)[a.position] for a in self.arguments)

    def replace(self, values: Sequence[jax.Array], blobs: Arrays, bottoms: Arrays) -> tuple[Arrays, Arrays]:
        """Return blobs and bottoms with the arrays of the arguments replaced by `values`."""
        new_arrays: dict[str, list[jax.Array]] = {"blob": list(blobs), "bottom": list(bottoms)}
        for argument, value in zip(self.arguments, values, strict=True):
            new_arrays[argument.kind][argument.position] = value
        return tuple(new_arrays["blob"]), tuple(new_arrays["bottom"])

    def move(self, values: Sequence[np.ndarray], bottoms: Arrays | None = None) -> Case:
        """Return the case at other arrays of the arguments, and at other `bottoms`; its tops are computed."""
        arrays = [jnp.asarray(value, jnp.float64) for value in values]
        blobs, moved_bottoms = self.replace(arrays, self.blobs, self.bottoms if bottoms is None else bottoms)
        case = replace(self, blobs=blobs, bottoms=moved_bottoms)
        return replace(case, tops=case.compute_tops())

    def compute_tops(self, context: Context | None = None, **arrays: Arrays) -> Arrays:
        """Return the tops. `context`, `blobs=` and `bottoms=` replace those of the case."""
        context = self.context if context is None else context
        blobs, bottoms = arrays.get("blobs", self.blobs), arrays.get("bottoms", self.bottoms)

        def run(key: Any, blobs: Arrays, bottoms: Arrays) -> Arrays:
            return compute_tops(context.with_fold_in_args(key), blobs, bottoms)

        return tuple(self.compile("tops", run, context)(context.fold_in_args, blobs, bottoms))

    def compile(self, name: str, function: Callable[..., Any], context: Context | None = None) -> Callable[..., Any]:
        """Return a function of the layer compiled, or unchanged if the layer runs on the host.

        Functions of one name must be equal for equal contexts.
        """
        if self.on_host:
            return function
        return self.compiled.setdefault((name, self.context if context is None else context), jax.jit(function))


def compute_tops(context: Context, blobs: Arrays, bottoms: Arrays) -> Arrays:
    """Run the forward pass of a layer, and return its tops."""
    if context.type.on_host:
        return tuple(map(jnp.asarray, forward(context, *jax.tree.map(np.asarray, (blobs, bottoms)))[0]))
    return forward(context, blobs, bottoms)[0]


def sample_diffs(tops: Arrays, random: np.random.Generator) -> Arrays:
    """Sample a diff for each top. Magnitudes are in [0.5, 1.5), so that no element is too small to show an error."""

    def sample_diff(top: jax.Array) -> jax.Array:
        sign = random.choice([-1.0, 1.0], top.shape)
        return jnp.asarray(sign * random.uniform(0.5, 1.5, top.shape), top.dtype)

    return tuple(sample_diff(top) for top in tops)


def autodiff_gradients(case: Case) -> list[np.ndarray] | None:
    """Compute the gradients by autodiff of the forward pass, or return None for a layer on the host."""
    return None if case.on_host else _vjp_gradients(case, compute_tops)


def net_gradients(case: Case) -> list[np.ndarray]:
    """Compute the gradients by the method that nets use by default for the layer's type."""

    def compute_default_tops(context: Context, blobs: Arrays, bottoms: Arrays) -> Arrays:
        return call(replace(context, config=replace(context.config, backward="autodiff")), blobs, bottoms)[0]

    return _vjp_gradients(case, compute_default_tops)


def _vjp_gradients(case: Case, function: Callable[..., Arrays]) -> list[np.ndarray]:
    def gradients(key: Any, blobs: Arrays, bottoms: Arrays, top_diffs: Arrays) -> Any:
        def tops(blobs: Arrays, bottoms: Arrays) -> Arrays:
            return function(case.context.with_fold_in_args(key), blobs, bottoms)

        return case.pick(*jax.vjp(tops, blobs, bottoms)[1](top_diffs))

    compute = case.compile(function.__name__, gradients)
    return [np.asarray(g) for g in compute(case.context.fold_in_args, case.blobs, case.bottoms, case.top_diffs)]


def rule_gradients(case: Case) -> list[np.ndarray]:
    """Compute the gradients by the type's hand-written rule.

    Raises:
        LayerError: if the number of gradients or the shape of a gradient is wrong.
    """

    def gradients(key: Any, blobs: Arrays, bottoms: Arrays, tops: Arrays, top_diffs: Arrays) -> Any:
        diffs = backward(case.context.with_fold_in_args(key), blobs, bottoms, tops, top_diffs)
        return case.pick(*diffs)

    arrays = (case.blobs, case.bottoms, case.tops, case.top_diffs)
    if case.on_host:
        results = gradients(case.context.fold_in_args, *jax.tree.map(np.asarray, arrays))
    else:
        results = case.compile("rule", gradients)(case.context.fold_in_args, *arrays)
    for argument, value, gradient in zip(case.arguments, case.values, results, strict=True):
        require(
            gradient.shape == value.shape,
            f"the backward rule's gradient of {argument.name} has shape {gradient.shape}, not {value.shape}",
        )
    return [np.asarray(g) for g in results]


def single_layer_net(
    type_or_name: LayerType | Declaration[..., Any] | str | Callable[..., Any],
    param: str | LayerParameter,
    bottoms: Sequence[Any],
    blobs: Sequence[Any] | None,
    phase: Phase,
    random: np.random.Generator,
) -> tuple[Net, dict[str, np.ndarray], Variables]:
    """Build a net with a single layer, and return the net, its inputs by name and its variables.

    The arguments are the same as in `check_gradients`.

    Raises:
        CaffejaxError: if the type is unknown, the text cannot be parsed, or shapes do not fit.
    """
    definition = name_blobs(parse_layer(type_or_name, param), len(bottoms))
    definition.propagate_down[:] = definition.propagate_down or [True] * len(bottoms)
    definition.loss_weight[:] = definition.loss_weight or [1.0] * len(definition.top)  # else nets have no gradients
    named = dict(zip(definition.bottom, bottoms, strict=True))
    arrays = {name: np.asarray(bottom) for name, bottom in named.items() if not _is_shape(bottom)}
    shapes = tuple(arrays[name].shape if name in arrays else tuple(bottom) for name, bottom in named.items())
    net = make_layer_net(definition, shapes, phase)
    return net, arrays, _make_variables(net, blobs, random)


def _is_shape(bottom: Any) -> bool:
    return isinstance(bottom, tuple | list) and all(isinstance(n, int) for n in bottom)


def _make_variables(net: Net, blobs: Sequence[Any] | None, random: np.random.Generator) -> Variables:
    """Return the net's variables from `blobs`, or random variables if it is None.

    Random parameters are normally distributed, and random statistics are uniform in [0.5, 1.5). But they are near the
    initial values that a user's type declares, if not all are zero, because its function may need such numbers.
    """
    initial = net.init(jax.random.key(0), jnp.float64)
    params = jax.tree.map(lambda a: jnp.asarray(random.normal(size=a.shape)), initial.params)
    state = jax.tree.map(lambda a: jnp.asarray(random.uniform(0.5, 1.5, a.shape)), initial.state)
    if not is_builtin(net.graph.layers[-1].type):
        params, state = jax.tree.map(partial(_draw_near, random), initial, Variables(params, state))
    if blobs is not None:
        shapes, expected = [np.shape(b) for b in blobs], [p.spec.shape for p in net.graph.params]
        if shapes != expected:
            raise LayerError(f"the blobs have shapes {shapes}, but the layer needs {expected}")
        for param, blob in zip(net.graph.params, blobs, strict=True):
            tree = params if param.spec.learnable else state
            tree[param.slot.layer][param.slot.name] = jnp.asarray(blob, jnp.float64)
    return Variables(params, state)


def _draw_near(random: np.random.Generator, initial: jax.Array, drawn: jax.Array) -> jax.Array:
    """Return initial values times random factors, because a rule that omits a factor 1 is right at ones.

    Zeros among other numbers become small numbers. If all are zero, return `drawn`.
    """
    nonzero = jnp.where(initial == 0, 0.1 * jnp.abs(initial).max(initial=0), initial)
    return nonzero * random.uniform(0.8, 1.0, initial.shape) if jnp.any(initial) else drawn

"""Compare the gradients of layers by autodiff, by the hand-written rule and by finite differences, in float64.

The relative error of a and b is |a - b| / max(|a|, |b|, floor). The floor is a hundredth of the array's largest
gradient (an element that is small next to its neighbours is a rounded difference of larger terms), and at least the
rounding of a finite difference divided by the tolerance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..checkpoints.loading import load_weights
from ..data.synthetic_inputs import complete_inputs
from ..errors import GraphError, Problem, did_you_mean
from ..execution import Part, PassInputs, PassOutputs, Values, one_by_one, run, schedule_of
from ..graph import Graph, Layer
from ..layers import LayerType
from ..layers.context import Phase
from ..layers.dispatch import Arrays
from ..net import Net, Variables
from ..schema.caffe_pb2 import LayerParameter
from ..text_table import aligned
from .finite_differences import Differences, by_differences
from .layer_gradients import Argument, Case, by_autodiff, by_net, by_rule, compute_tops, draw_diffs, lone_layer

OK = "ok"
DECLARED = "ok: not the derivative, as declared"


class Worst(NamedTuple):
    """The largest relative error (see `gradcheck.verdict`), and its index; None if nothing was compared."""

    error: float
    at: tuple[int, ...] | None

    def __str__(self) -> str:
        return f"{self.error:.1e}" + (f" at {list(self.at)}" if self.at else "")


@dataclass(frozen=True)
class Row:
    """One bottom or blob of one layer.

    Attributes:
        layer: the layer's key in its graph.
        type: its type.
        argument: `bottom 0 (data)` or `blob 1`.
        rule_autodiff: hand-written rule against autodiff, over all elements; None if one of them is missing.
        rule_differences: the rule against finite differences, over the checked elements; None without a rule. For a
            layer on the host without a rule, zeros replace the rule's gradient.
        autodiff_differences: autodiff against finite differences, over the checked elements; None on the host.
        size: number of elements.
        checked: number of elements with a finite difference.
        skipped: number of tried elements that are too near a kink for a finite difference.
        zero: whether all gradients are zero everywhere, so that the comparison proves little.
        verdict: "ok", or a description of the problem.
    """

    layer: str
    type: str
    argument: str
    rule_autodiff: Worst | None
    rule_differences: Worst | None
    autodiff_differences: Worst | None
    size: int
    checked: int
    skipped: int
    zero: bool
    verdict: str

    @property
    def ok(self) -> bool:
        """True if the derivations agree."""
        return self.verdict in (OK, DECLARED)

    @property
    def _compared(self) -> list[Worst]:
        """The comparisons that decide the verdict: with the rule, if there is one."""
        with_rule = [w for w in (self.rule_autodiff, self.rule_differences) if w is not None]
        return with_rule or [w for w in (self.autodiff_differences,) if w is not None]

    def __str__(self) -> str:
        worst = max(self._compared, key=lambda w: w.error)
        return f"gradient of {self.argument}: {self.verdict}; worst relative error {worst}"


@dataclass(frozen=True)
class Report:
    """The rows of all checked layers, in the order of execution. `str(report)` is a table."""

    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """True if every row is ok; False without rows."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows that are not ok."""
        return tuple(row for row in self.rows if not row.ok)

    def to_json(self) -> str:
        """Write `{"ok": ..., "rows": [{...}]}`; rows have the attributes of `Row`, infinite errors are "inf"."""
        return json.dumps({"ok": self.ok, "rows": [_plain(row) for row in self.rows]}, indent=1)

    def __str__(self) -> str:
        titles = ("layer", "type", "argument", "rule/autodiff", "rule/differences", "checked", "verdict")
        return "\n".join(aligned([titles, *(_cells(row) for row in self.rows)], len(titles)))


def _cells(row: Row) -> tuple[str, ...]:
    # without a rule, what can be compared is autodiff
    against = row.rule_differences or f"{row.autodiff_differences} (autodiff)"
    skipped = f", {row.skipped} skipped" if row.skipped else ""
    return (
        row.layer,
        row.type,
        row.argument,
        str(row.rule_autodiff or ("no rule" if row.rule_differences is None else "no autodiff")),
        str(against),
        f"{row.checked}/{row.size}{skipped}",
        row.verdict + (" (zero)" if row.zero else ""),
    )


def _plain(row: Row) -> dict[str, Any]:
    """Return a row as plain values; JSON has no infinite numbers."""
    return {
        "ok": row.ok,
        **{key: _worst_as_json(value) if isinstance(value, Worst) else value for key, value in vars(row).items()},
    }


def _worst_as_json(worst: Worst) -> dict[str, Any]:
    return {"error": worst.error if isfinite(worst.error) else "inf", "at": worst.at}


RULE_TOLERANCE = 1e-6  # rule against autodiff: both are exact except for rounding
MOST_SKIPPED = 0.9  # of the elements tried: beyond that, too little was compared


@dataclass(frozen=True)
class Derivations:
    """The gradients of a case by each method, one per argument.

    Attributes:
        differences: by finite differences.
        autodiff: by autodiff of forward; None on the host.
        rule: by the hand-written rule, or None; on the host zeros without one.
        net: by the net's choice of method, for types that prefer their rule.
    """

    differences: Sequence[Differences]
    autodiff: Sequence[np.ndarray] | None
    rule: Sequence[np.ndarray] | None
    net: Sequence[np.ndarray] | None


def derive(case: Case, samples: int | None, random: np.random.Generator) -> Derivations:
    """Compute the gradients of one layer by all available methods."""
    gradient = case.context.type.gradient
    return Derivations(
        differences=by_differences(case, samples, random),
        autodiff=by_autodiff(case),
        rule=by_rule(case) if gradient.backward else list(map(np.zeros_like, case.values)) if case.on_host else None,
        net=by_net(case) if gradient.backward and gradient.overrides_autodiff else None,
    )


def compare(layer: str, case: Case, derivations: Derivations) -> list[Row]:
    """Compare the derivations for each argument of the case, which belongs to the layer of that key."""
    nothing = [None] * len(case.arguments)
    ways = (
        derivations.differences,
        derivations.autodiff or nothing,
        derivations.rule or nothing,
        derivations.net or nothing,
    )
    return [_row(layer, case.context.type, *one) for one in zip(case.arguments, *ways, strict=True)]


def _row(
    layer: str,
    kind: LayerType,
    argument: Argument,
    difference: Differences,
    autodiff: np.ndarray | None,
    rule: np.ndarray | None,
    net: np.ndarray | None,
) -> Row:
    gradients = [gradient for gradient in (autodiff, rule) if gradient is not None]
    both = _worst(rule, autodiff) if rule is not None and autodiff is not None else None
    rule_differences, autodiff_differences = (None if g is None else _against(difference, g) for g in (rule, autodiff))
    fits = [None if w is None else w.error <= difference.tolerance for w in (rule_differences, autodiff_differences)]
    zero = not any(gradient.any() for gradient in gradients)
    if autodiff is None:
        verdict = _of_host(bool(fits[0]), kind.gradient.backward is not None)
    elif rule is None or both is None:
        verdict = _of_two(bool(fits[1]), bool(kind.gradient.not_derivative))
    elif net is None:
        same = both.error <= RULE_TOLERANCE
        verdict = _of_three(same, bool(fits[0]), bool(fits[1]), bool(kind.gradient.not_derivative))
    else:
        derivative = bool(fits[1]) or bool(kind.gradient.not_derivative)
        verdict = _of_preferred(rule, autodiff, net, both, derivative)
    checked, tried = int(difference.resolved.sum()), len(difference.at)
    # a single gradient of zero is right if the tops are constant except for jumps
    enough = zero and len(gradients) == 1
    if not enough and checked < max((1 - MOST_SKIPPED) * tried, 1):
        verdict = f"nothing to compare: {tried - checked} of {tried} elements lie on kinks"
    return Row(
        layer=layer,
        type=kind.name,
        argument=argument.name,
        rule_autodiff=both,
        rule_differences=rule_differences,
        autodiff_differences=autodiff_differences,
        size=gradients[0].size,
        checked=checked,
        skipped=tried - checked,
        zero=zero,
        verdict=verdict,
    )


def _of_host(rule: bool, has_rule: bool) -> str:
    if rule:
        return OK
    return "backward is wrong" if has_rule else "has no backward, but a gradient"


def _of_two(autodiff: bool, not_derivative: bool) -> str:
    if autodiff:
        return OK
    return DECLARED if not_derivative else "autodiff differs from finite differences"


def _of_three(same: bool, rule: bool, autodiff: bool, not_derivative: bool) -> str:
    match same, rule, autodiff:
        case True, True, True:
            return OK
        case True, _, _:
            return DECLARED if not_derivative else "rule and autodiff agree, but not with finite differences"
        case _, True, True:
            return "rule and autodiff differ where no finite difference was taken"
        case _, False, True:
            return "rule is wrong: autodiff and finite differences agree"
        case _, True, False:
            return "autodiff is wrong: rule and finite differences agree"
        case _:
            return "rule, autodiff and finite differences all differ"


def _of_preferred(
    rule: np.ndarray, autodiff: np.ndarray, net: np.ndarray, rule_autodiff: Worst, autodiff_fits: bool
) -> str:
    """Judge a type that prefers its rule to the derivative: the rule must only point in the derivative's direction."""
    if not autodiff_fits:
        return "autodiff differs from finite differences"
    if _worst(rule, net).error > RULE_TOLERANCE:
        return "the net does not use the rule that it should prefer"
    if rule_autodiff.error <= RULE_TOLERANCE:
        return OK
    if autodiff.any() and not np.vdot(rule, autodiff) > 0:
        return "rule is wrong: it does not point the way of the derivative"
    return DECLARED


def _against(difference: Differences, gradient: np.ndarray) -> Worst:
    """Return the worst of the resolved differences against a whole gradient."""
    resolved = difference.resolved
    at, values, noise = difference.at[resolved], difference.values[resolved], difference.noise[resolved]
    worst = _worst(gradient.ravel()[at], values, noise / difference.tolerance)
    return worst if worst.at is None else Worst(worst.error, _unravel(at[worst.at[0]], gradient.shape))


def _worst(a: np.ndarray, b: np.ndarray, floor: np.ndarray | float = 0.0) -> Worst:
    if a.size == 0:
        return Worst(0.0, None)
    size = np.maximum(np.abs(a), np.abs(b))
    large = size[np.isfinite(size)].max(initial=0.0)
    with np.errstate(invalid="ignore"):
        error = np.abs(a - b) / np.maximum.reduce([size, np.full(a.shape, 0.01 * large + 1e-10), floor + 0 * size])
    error = np.where(np.isfinite(a) & np.isfinite(b), error, np.inf)
    at = int(error.argmax())
    return Worst(float(error.flat[at]), _unravel(at, a.shape))


def _unravel(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(at, shape))


def check_gradients(
    net_or_layer: Net | LayerType | str | Callable[..., Any],
    param: str | LayerParameter = "",
    *,
    bottoms: Sequence[Any] = (),
    blobs: Sequence[Any] | None = None,
    layers: Sequence[str] | None = None,
    weights: Variables | str | os.PathLike[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    phase: Phase = "TRAIN",
    samples: int | None = None,
    seed: int = 0,
) -> Report:
    """Compare autodiff, the hand-written Backward and central finite differences, in float64.

    Each layer is checked separately, at the bottoms of a forward pass and for random diffs of its tops, with respect to
    each bottom (except labels and indices) and each learnable param. Rule and autodiff must agree to 1e-6, and both
    with finite differences to 1e-6. Elements on a kink are compared between rule and autodiff only. Layers on the host
    have no autodiff; their rule is compared with finite differences. Types that prefer their rule have a gradient that
    is not the derivative: autodiff must agree with finite differences, the net's gradient with the rule, and the rule
    must point in the derivative's direction.

        check_gradients(Net("train_val.prototxt", "TRAIN"), layers=["conv1", "norm1"])
        check_gradients("InnerProduct", "inner_product_param { num_output: 3 }", bottoms=[(2, 5)])
        check_gradients(MyLossLayer, bottoms=[(4, 3), (4, 3)])

    Args:
        net_or_layer: a net; a registered layer type or its name; or a Python layer, a class or function at the top
            level of a module. Python layers with Caffe's interface compute in float32 and are compared to 1e-3.
        param: the LayerParameter of a single layer; name, bottoms and tops may be omitted.
        bottoms: the bottoms of a single layer: each a shape, to be filled at random, or an array.
        blobs: the blobs of a single layer; default: random.
        layers: names of the net's layers to check; default: all except automatically inserted Splits.
        weights: the net's variables or a .caffemodel; default: drawn by the fillers.
        inputs: arrays by name for input blobs. Others come from the data layers' sources, or are random: standard
            normal, with valid class indices for labels.
        phase: the phase of a single layer; a net has a phase already.
        samples: number of elements of each array to check by finite differences; default: 64, fewer for large arrays.
        seed: seed of all random numbers. Random layers use one fixed key.

    Raises:
        CaffejaxError: for layers that do not exist, shapes that do not fit, files that cannot be read.
    """
    if samples is not None and samples < 1:
        raise GraphError(f"samples must be at least 1, not {samples}")
    random = np.random.default_rng(seed)
    with jax.enable_x64(True):
        if isinstance(net_or_layer, Net):
            net, given = net_or_layer, dict(inputs or {})
            variables = _variables(net, weights, seed)
        else:
            net, given, variables = lone_layer(net_or_layer, param, bottoms, blobs, phase, random)
            layers = [net.graph.layers[-1].key]
        rows: list[Row] = []
        for layer, case in cases(
            net, layers, variables, complete_inputs(net.graph, given, random), random, jax.random.key(seed)
        ):
            with layer.located():
                rows += compare(layer.key, case, derive(case, samples, random))
    return Report(tuple(rows))


def cases(
    net: Net,
    layers: Sequence[str] | None,
    variables: Variables,
    inputs: Mapping[str, np.ndarray],
    random: np.random.Generator,
    key: jax.Array,
) -> list[tuple[Layer, Case]]:
    """Return the layers (default: all) with their arrays of one forward pass, without layers that have no arguments."""
    chosen = [layer for layer in _chosen(net.graph, layers) if _arguments(layer)]
    points = _points(net, chosen, variables, inputs, key)
    pairs = []
    for layer in chosen:
        blobs, bottoms, tops = points[layer.key]
        context = replace(layer.context, base_key=layer.base_key(key), propagate_down=layer.bottom_need_backward)
        diffs = draw_diffs(tops, random)
        pairs.append((layer, Case(context, blobs, bottoms, tops, diffs, _arguments(layer))))
    return pairs


def _variables(net: Net, weights: Variables | str | os.PathLike[str] | None, seed: int) -> Variables:
    if isinstance(weights, tuple):
        return Variables(*weights)
    variables = net.init(jax.random.key(seed), jnp.float64)
    return variables if weights is None else load_weights(weights, net.graph, variables)


def _chosen(graph: Graph, names: Sequence[str] | None) -> list[Layer]:
    if names is None:
        return [layer for layer in graph.layers if not layer.inserted_split]
    keys = {layer.key for layer in graph.layers}
    if unknown := [name for name in names if name not in keys]:
        raise GraphError(
            Problem(f"the net has no layer '{name}' in phase {graph.phase}{did_you_mean(name, keys)}", file=graph.file)
            for name in unknown
        )
    return [layer for layer in graph.layers if layer.key in names]


def _arguments(layer: Layer) -> tuple[Argument, ...]:
    if layer.type.is_fed:
        return ()
    bottoms = [
        Argument("bottom", i, f"bottom {i} ({name})")
        for i, name in enumerate(layer.bottoms)
        if i not in layer.index_bottoms and _gradient_exists(layer, i)
    ]
    blobs = [Argument("blob", i, f"blob {i}") for i, p in enumerate(layer.params) if p.spec.learnable]
    return (*bottoms, *blobs)


def _gradient_exists(layer: Layer, bottom: int) -> bool:
    """Return whether there is a gradient to check: a user's backward computes only the gradients that the net needs."""
    return layer.type.instance is None or not layer.type.on_host or layer.bottom_need_backward[bottom]


def _points(
    net: Net, layers: Sequence[Layer], variables: Variables, inputs: Mapping[str, np.ndarray], key: jax.Array
) -> dict[str, tuple[Arrays, Arrays, Arrays]]:
    """Return blobs, bottoms and tops of each of the layers in one forward pass."""
    keys = {layer.key for layer in layers}
    schedule = one_by_one(schedule_of(net.graph))

    def walk(variables: Variables, inputs: Mapping[str, jax.Array], key: jax.Array) -> Any:
        points = {}

        def run_plain(part: Part, given: PassInputs, before: Values, keep: frozenset[str] | None) -> PassOutputs:
            (layer,) = part.layers
            if layer.type.is_fed:
                return PassOutputs({top: inputs[top] for top in layer.tops}, {}, jnp.zeros(()))
            with layer.located():
                blobs = layer.arrays(*variables)
                bottoms = tuple(before[name] for name in layer.bottoms)
                tops = compute_tops(layer.context.with_key(layer.base_key(key)), blobs, bottoms)
            if layer.key in keys:
                points[layer.key] = (blobs, bottoms, tops)
            return PassOutputs(dict(zip(layer.tops, map(_to_float64, tops), strict=True)), {}, jnp.zeros(()))

        run(schedule, PassInputs(*variables, inputs, key, {}), runner=run_plain)
        return points

    compiled = walk if net.has_host_layers else jax.jit(walk)
    return compiled(jax.tree.map(_to_float64, variables), jax.tree.map(_to_float64, dict(inputs)), key)


def _to_float64(array: Any) -> jax.Array:
    return jnp.asarray(array, jnp.float64)

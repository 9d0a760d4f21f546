"""Comparison of the gradients of layers by autodiff, by the hand-written rule and by finite differences, in float64.

The relative error of a and b is |a - b| / max(|a|, |b|, floor). The floor is the larger of two numbers. The first is a
hundredth of the array's largest gradient, because much smaller elements are differences of larger terms and contain
their rounding errors. The second is the rounding error of a finite difference divided by the tolerance.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import GraphError, shorten_list
from ...base.variables import Variables
from ..data.synthetic_inputs import complete_inputs
from ..graph import Layer
from ..layers import Declaration, LayerType
from ..layers.context import Arrays, Phase
from ..program.backward import is_users_host_layer
from ..program.net import Net
from ..schema.caffe_pb2 import LayerParameter
from .cases import is_unused, make_cases, make_net_variables, name_bottom, single_layer_net
from .finite_differences import (
    FLOAT32,
    Differences,
    DirectionalDifference,
    directional_differences,
    finite_difference_gradients,
    select_tolerances,
)
from .layer_gradients import Argument, Case, autodiff_gradients, compute_tops, net_gradients, rule_gradients
from .report import OK, OK_DECLARED, OK_INDICES, OK_STOPPED, Report, Row, WorstError, make_row
from .traits import find_untrue_traits

NOT_CHECKED = (
    "not checked: all gradients are zero; give other weights (--weights) or inputs (--inputs), or set a filler"
)
NOTHING_TO_COMPARE = "nothing to compare"
UNUSED_PARAM = "never used in phase {}: its gradient is zero everywhere"
BACKWARD_WRONG = "backward is wrong"
AUTODIFF_WRONG = "autodiff differs from finite differences"
ZERO_NOTE = (
    "The backward of layer '{}' gives zeros. If it is to stop the gradient, declare so: stops_gradient=True for a "
    "registered type, `stops_gradient = True` in the class of a Python layer."
)
ONE_ROW_NOTE = (
    "The bottoms of {} have one row: a gradient that is wrong by a factor of the number of rows, or in some rows only, "
    "does not show. Give a batch > 1."
)
NOT_RESOLVED = "not resolved: rounding errors of float32 hide the gradient; give smaller bottoms or a smaller batch"
MOVE = 0.1  # of an argument to leave its kinks and ties, relative to its root mean square
RULE_TOLERANCE = 1e-6  # of the rule against autodiff, which are both exact except for rounding
MAX_UNCERTAINTY = 0.1  # of a finite difference that is to show an error, relative to the gradient
MAX_SKIPPED_FRACTION = 0.9  # maximum fraction of skipped elements for a valid comparison


class LayerGradients(NamedTuple):
    """The gradients of one layer by each method, as lists with one item per argument.

    Attributes:
        differences: the gradients by finite differences.
        directions: derivatives along directions for a layer that computes in float32 or has no rule. For other layers,
            the items are empty.
        autodiff: the gradients by autodiff of the forward pass. For a layer on the host, the items are None.
        rule: the gradients by the hand-written rule. If there is no rule, they are zeros for a layer on the host, and
            None for other layers.
        net: for types that prefer their rule to the derivative, the gradients that the net computes. For other types,
            the items are None.
    """

    differences: Sequence[Differences]
    directions: Sequence[Sequence[DirectionalDifference]]
    autodiff: Sequence[np.ndarray | None]
    rule: Sequence[np.ndarray | None]
    net: Sequence[np.ndarray | None]


def compute_gradients(case: Case, samples: int | None, random: np.random.Generator) -> LayerGradients:
    """Compute the gradients of one layer by all available methods."""
    gradient, absent = case.context.type.gradient, [None] * len(case.arguments)
    rule: Sequence[np.ndarray] | None = None
    if gradient.backward:
        rule = rule_gradients(case)
    elif case.on_host:
        rule = list(map(np.zeros_like, case.values))
    autodiff = autodiff_gradients(case)
    checked = rule if rule is not None and select_tolerances(case) is FLOAT32 else autodiff if rule is None else None
    suspects = None
    if rule is not None and autodiff is not None:  # the element at which they differ most shows which one is wrong
        suspects = [_find_worst_index(a, b) for a, b in zip(rule, autodiff, strict=True)]
    return LayerGradients(
        differences=finite_difference_gradients(case, samples, random, suspects),
        directions=[()] * len(absent) if checked is None else directional_differences(case, checked, random),
        autodiff=autodiff or absent,
        rule=rule or absent,
        net=net_gradients(case) if gradient.backward and gradient.overrides_autodiff else absent,
    )


def compare_gradients(layer: str, case: Case, gradients: LayerGradients) -> list[Row]:
    """Compare the gradients by all methods, and return one row per argument.

    Args:
        layer: the key of the layer.
        case: the layer and its arrays.
        gradients: the gradients.
    """
    arguments = zip(case.arguments, *gradients, strict=True)
    return [_compare_argument(layer, case.context.type, *argument) for argument in arguments]


def check_layer(layer: Layer, case: Case, samples: int | None, random: np.random.Generator) -> list[Row]:
    """Compare the gradients of one layer at its arrays, and where these do not show errors, at other arrays."""
    if problem := _find_problem_of_tops(case):
        return _make_problem_rows(layer, case, problem)
    try:
        gradients = compute_gradients(case, samples, random)
    except Exception as error:
        if not is_unused(layer):
            raise
        reason = f"not checked: the net needs no gradient of it, and backward raises {type(error).__name__}: {error}"
        return _make_problem_rows(layer, case, reason)
    rows = compare_gradients(layer.key, case, gradients)
    rows = _compare_elsewhere(rows, layer, case, samples, random)
    rows = [_reject_unused_param(row, layer, case, a) for row, a in zip(rows, case.arguments, strict=True)]
    if case.on_host or case.context.type.gradient.backward is None:
        rows = _compare_at_second_point(rows, case, random)
    return rows


def _find_problem_of_tops(case: Case) -> str | None:
    """Return why a layer cannot be checked: its tops are not finite, or not the same each time."""
    for i, top in enumerate(map(np.asarray, case.tops)):
        for name, is_bad in (("NaN", np.isnan(top)), ("inf", np.isinf(top))):
            if is_bad.any():
                position = list(_unravel(int(is_bad.argmax()), top.shape))
                return f"not checked: top {i} has {name}, the first at {position}"
    if case.on_host:
        again = compute_tops(case.context, case.blobs, case.bottoms)
        if any(not np.array_equal(a, b) for a, b in zip(again, case.tops, strict=True)):
            return "not deterministic: two forward passes with the same arrays give different tops"
    return None


def _make_problem_rows(layer: Layer, case: Case, verdict: str) -> list[Row]:
    arguments = zip(case.arguments, case.values, strict=True)
    return [make_row(layer, argument.name, verdict, value.size) for argument, value in arguments]


def _compare_elsewhere(
    rows: list[Row], layer: Layer, case: Case, samples: int | None, random: np.random.Generator
) -> list[Row]:
    """Return the rows; those in which all gradients are zero, or at kinks, are compared at other arrays, if possible.

    Labels, masks and weights in bottoms are drawn again, and other bottoms are moved a little, so that ties and whole
    numbers leave their kinks; blobs stay as they are. A comparison of zeros is not ok if the gradient is not zero at
    random arguments.
    """
    if not any(_is_undecided(row) for row in rows):
        return rows
    with _allow_refusal(case):
        arguments = zip(case.arguments, case.values, strict=True)
        values = [_move(value, random) if a.kind == "bottom" else np.asarray(value) for a, value in arguments]
        moved_case = case.move(values, _draw_index_bottoms(layer, case, random))
        if _find_problem_of_tops(moved_case):
            return rows
        moved_rows = compare_gradients(layer.key, moved_case, compute_gradients(moved_case, samples, random))
        rows = [
            moved if _is_undecided(row) and (not _is_undecided(moved) or (moved.ok and not row.ok)) else row
            for row, moved in zip(rows, moved_rows, strict=True)
        ]
        return _reject_zeros(rows, moved_case, random)
    return rows


def _allow_refusal(case: Case) -> AbstractContextManager[None]:
    """Return a context manager that ends the block at an error of a layer on the host.

    A user's layer may refuse other arrays than those of its net. An error of another layer is a fault.
    """
    return suppress(Exception) if case.on_host else nullcontext()


def _is_undecided(row: Row) -> bool:
    has_equal_methods = row.rule_autodiff is None or row.rule_autodiff.error <= RULE_TOLERANCE
    return has_equal_methods and (row.verdict.startswith(NOTHING_TO_COMPARE) or (row.zero and row.ok))


def _move(value: Any, random: np.random.Generator) -> np.ndarray:
    array = np.asarray(value, np.float64)
    scale = float(np.sqrt(np.mean(array**2))) if array.size else 0.0
    return array + MOVE * (scale or 1.0) * random.normal(size=array.shape)


def _draw_index_bottoms(layer: Layer, case: Case, random: np.random.Generator) -> Arrays:
    """Return the bottoms with new labels, indices, masks and weights, which are not all zero."""
    indices, bottoms = case.context.type.gradient.indices, list(case.bottoms)
    positions = sorted(layer.index_bottoms)
    for i in positions:
        shape = bottoms[i].shape
        is_last, is_first = i == positions[-1], i == indices.bottoms[0] % len(bottoms)
        if indices.sample is not None and is_last:
            drawn = case.context.call(indices.sample, random, *case.bottoms)
        elif indices.num_classes is not None and is_first:
            limit = case.context.call(indices.num_classes, *case.bottoms)
            drawn = random.integers(2 if limit is None else max(limit, 1), size=shape)
        elif indices.ignores_gradient:
            drawn = random.uniform(0.5, 1.5, shape)
        else:
            drawn = random.integers(2, size=shape)
            drawn = drawn if drawn.any() else np.ones(shape)
        bottoms[i] = jnp.asarray(drawn, jnp.float64).reshape(shape)
    return tuple(bottoms)


def _reject_zeros(rows: list[Row], case: Case, random: np.random.Generator) -> list[Row]:
    """Return rows in which no comparison of zeros is ok if the gradient is not zero at random arguments."""
    if not any(row.zero and row.ok for row in rows):
        return rows
    values = [random.normal(size=value.shape) for value in case.values]
    is_nonzero = [False] * len(rows)
    with _allow_refusal(case):  # of random numbers; a layer on the host may have no rule, either
        for sign in (1, -1):  # both, so that a small array does not miss the slope of a ReLU
            random_case = case.move([sign * value for value in values])
            gradients = (rule_gradients if case.on_host else autodiff_gradients)(random_case) or []
            is_nonzero = [was_nonzero or bool(g.any()) for was_nonzero, g in zip(is_nonzero, gradients, strict=True)]
        return [
            replace(row, verdict=NOT_CHECKED) if row.zero and row.ok and nonzero else row
            for row, nonzero in zip(rows, is_nonzero, strict=True)
        ]
    return rows


def _reject_unused_param(row: Row, layer: Layer, case: Case, argument: Argument) -> Row:
    """Return the row of an argument, which is not ok if it is a param on which no top depends.

    Caffe's Python layers are excepted, because their blobs may store numbers between passes.
    """
    if not (row.zero and row.ok and argument.kind == "blob") or is_users_host_layer(layer):
        return row
    blobs = [1.5 * blob + 1 if i == argument.position else blob for i, blob in enumerate(case.blobs)]
    try:
        tops = case.compute_tops(blobs=tuple(blobs))
    except Exception:
        return row  # a user's layer may refuse other arrays
    is_used = not all(map(np.array_equal, tops, case.tops))
    return row if is_used else replace(row, verdict=UNUSED_PARAM.format(case.context.phase))


def _compare_at_second_point(rows: list[Row], case: Case, random: np.random.Generator) -> list[Row]:
    """Return the rows; those that are ok are compared along directions at other arrays, too.

    A layer on the host may use data of an earlier pass, and it may refuse arrays that are very different. Others are
    checked at larger numbers, which reach further branches. Arrays of whole numbers, such as labels, stay as they are.
    """
    values = [np.asarray(value, np.float64) for value in case.values]
    moved_values = [
        v if np.array_equal(v, np.trunc(v)) else v * (random.uniform(0.8, 1.0, v.shape) if case.on_host else 3)
        for v in values
    ]
    gradients = None
    with _allow_refusal(case):
        moved_case = case.move(moved_values)
        if not _find_problem_of_tops(moved_case):
            compute = rule_gradients if case.context.type.gradient.backward else autodiff_gradients
            gradients = compute(moved_case)
    if gradients is None:
        return rows
    directions, tolerance = directional_differences(moved_case, gradients, random), select_tolerances(case).tolerance
    errors = (_find_direction_error(d, g, tolerance) for d, g in zip(directions, gradients, strict=True))
    result = []
    for row, error in zip(rows, errors, strict=True):
        if row.verdict == OK and error > 0:
            worst = WorstError(error, None)
            if case.on_host:
                row = replace(row, rule_differences=worst, verdict=BACKWARD_WRONG)
            else:
                row = replace(row, autodiff_differences=worst, verdict=AUTODIFF_WRONG)
        result.append(row)
    return result


def _compare_argument(
    layer: str,
    layer_type: LayerType,
    argument: Argument,
    differences: Differences,
    directions: Sequence[DirectionalDifference],
    autodiff: np.ndarray | None,
    rule: np.ndarray | None,
    net: np.ndarray | None,
) -> Row:
    gradients = [gradient for gradient in (autodiff, rule) if gradient is not None]
    rule_autodiff = _find_worst_error(rule, autodiff) if rule is not None and autodiff is not None else None
    rule_differences, autodiff_differences = (
        None if g is None else _find_worst_difference(differences, g) for g in (rule, autodiff)
    )
    if error := _find_direction_error(directions, gradients[0], differences.tolerance):  # above the tolerance
        rule_differences = None if rule is None else WorstError(error, None)
        autodiff_differences = None if autodiff is None else WorstError(error, None)
    rule_matches, autodiff_matches = (
        w is not None and w.error <= differences.tolerance for w in (rule_differences, autodiff_differences)
    )
    is_zero = not any(gradient.any() for gradient in gradients)
    is_declared = bool(layer_type.gradient.deviation)
    if autodiff is None:
        verdict = BACKWARD_WRONG if layer_type.gradient.backward else "has no backward, but a gradient"
        if rule_matches:
            is_visible = is_zero or _is_visible(gradients[0], differences, directions)
            verdict = OK if is_visible else NOT_RESOLVED
    elif rule is None or rule_autodiff is None:
        verdict = OK if autodiff_matches else OK_DECLARED if is_declared else AUTODIFF_WRONG
    elif net is None:
        are_equal = rule_autodiff.error <= RULE_TOLERANCE
        verdict = _full_verdict(are_equal, rule_matches, autodiff_matches, is_declared)
    else:
        verdict = _preferred_rule_verdict(rule, autodiff, net, rule_autodiff, autodiff_matches or is_declared)
    num_checked, num_sampled = int(differences.is_resolved.sum()), len(differences.flat_indices)
    # a gradient of zero needs no comparison if it is the only one, because tops may be constant except for jumps
    needs_no_differences = is_zero and (len(gradients) == 1 or num_sampled == 0)
    if not needs_no_differences and num_checked < max((1 - MAX_SKIPPED_FRACTION) * num_sampled, 1):
        verdict = f"{NOTHING_TO_COMPARE}: {num_sampled - num_checked} of {num_sampled} elements are at kinks"
    return Row(
        layer=layer,
        type=layer_type.name,
        argument=argument.name,
        rule_autodiff=rule_autodiff,
        rule_differences=rule_differences,
        autodiff_differences=autodiff_differences,
        size=gradients[0].size,
        checked=num_checked,
        skipped=num_sampled - num_checked,
        zero=is_zero,
        verdict=verdict,
    )


def _find_direction_error(directions: Sequence[DirectionalDifference], gradient: np.ndarray, tolerance: float) -> float:
    """Return the largest relative error of a gradient along directions; errors within their uncertainty count as 0."""
    errors = [0.0]
    for direction in directions:
        product = float(np.vdot(gradient, direction.direction))
        error, magnitude = abs(product - direction.value), max(abs(product), abs(direction.value))
        if error > tolerance * magnitude + 2 * direction.uncertainty:
            errors.append(error / magnitude)
    return max(errors)


def _is_visible(gradient: np.ndarray, differences: Differences, directions: Sequence[DirectionalDifference]) -> bool:
    """Return whether a wrong gradient would show: one finite difference or direction is known to 10 percent."""
    largest = np.abs(gradient).max(initial=0.0)
    if (differences.noise[differences.is_resolved] <= MAX_UNCERTAINTY * largest).any():
        return True
    return any(2 * d.uncertainty <= MAX_UNCERTAINTY * abs(np.vdot(gradient, d.direction)) for d in directions)


def _full_verdict(are_equal: bool, rule_matches: bool, autodiff_matches: bool, not_derivative: bool) -> str:
    match are_equal, rule_matches, autodiff_matches:
        case True, True, True:
            return OK
        case True, _, _:
            return OK_DECLARED if not_derivative else "rule and autodiff agree, but not with finite differences"
        case _, True, True:
            return "rule and autodiff differ where there are no finite differences"
        case _, False, True:
            return "rule is wrong: autodiff and finite differences agree"
        case _, True, False:
            return "autodiff is wrong: rule and finite differences agree"
        case _:
            return "rule, autodiff and finite differences all differ"


def _preferred_rule_verdict(
    rule: np.ndarray, autodiff: np.ndarray, net: np.ndarray, rule_autodiff: WorstError, autodiff_matches: bool
) -> str:
    """Return the verdict for a type that prefers its rule to the derivative.

    The rule must only have a positive dot product with the derivative.
    """
    if not autodiff_matches:
        return AUTODIFF_WRONG
    if _find_worst_error(rule, net).error > RULE_TOLERANCE:
        return "the net does not use the rule, although the type sets overrides_autodiff"
    if rule_autodiff.error <= RULE_TOLERANCE:
        return OK
    if autodiff.any() and not np.vdot(rule, autodiff) > 0:
        return "rule is wrong: it does not point in the direction of the derivative"
    return OK_DECLARED


def _find_worst_difference(differences: Differences, gradient: np.ndarray) -> WorstError:
    is_resolved = differences.is_resolved
    indices, values = differences.flat_indices[is_resolved], differences.values[is_resolved]
    noise = differences.noise[is_resolved]
    worst = _find_worst_error(gradient.ravel()[indices], values, noise / differences.tolerance)
    if worst.indices is None:
        return worst
    return WorstError(worst.error, _unravel(indices[worst.indices[0]], gradient.shape))


def _find_worst_index(a: np.ndarray, b: np.ndarray) -> tuple[int, ...]:
    """Return the flat index of the largest error between two gradients, or an empty tuple if they agree."""
    worst = _find_worst_error(a, b)
    is_equal = worst.error <= RULE_TOLERANCE or worst.indices is None
    return () if is_equal else (int(np.ravel_multi_index(worst.indices or (), a.shape)),)


def _find_worst_error(a: np.ndarray, b: np.ndarray, floor: np.ndarray | float = 0.0) -> WorstError:
    if a.size == 0:
        return WorstError(0.0, None)
    magnitude = np.maximum(np.abs(a), np.abs(b))
    largest = magnitude[np.isfinite(magnitude)].max(initial=0.0)
    with np.errstate(invalid="ignore"):
        error = np.abs(a - b) / np.maximum(magnitude, np.maximum(0.01 * largest + 1e-10, floor))
    error = np.where(np.isfinite(a) & np.isfinite(b), error, np.inf)
    flat_index = int(error.argmax())
    return WorstError(float(error.flat[flat_index]), _unravel(flat_index, a.shape))


def _unravel(flat_index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat_index, shape))


def check_gradients(
    net_or_layer: Net | LayerType | Declaration[..., Any] | str | Callable[..., Any],
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
    """Compare the gradients of layers by autodiff, by the hand-written rule and by finite differences, in float64.

    The rule is the layer's Backward. Each layer is checked separately, with the bottoms of a forward pass and random
    diffs of its tops. Gradients are computed with respect to each bottom, except labels and indices, and each learnable
    parameter. The rule and autodiff must agree to a relative error of 1e-6, and both must agree with central finite
    differences to 1e-6. There are two exceptions:

    - Elements near a kink have no finite difference; only rule and autodiff are compared.
    - Layers on the host have no autodiff; only the rule and finite differences are compared.

    Some layer types prefer their rule: their gradient is intentionally not the derivative. For these types, autodiff
    must agree with finite differences, the net's gradient must agree with the rule, and the rule must point in the
    derivative's direction.

    Layers without a second gradient are also compared along directions in which all elements change, at two points.
    Where all gradients are zero or at kinks, labels, masks and weights are drawn again, and bottoms are moved a little.
    Bottoms of types that stop the gradient have a row that says so. The traits that a type declares are tested, too,
    and have a row if they are untrue.

        check_gradients(Net("train_val.prototxt", "TRAIN"), layers=["conv1", "norm1"])
        check_gradients("InnerProduct", "num_output: 3", bottoms=[(2, 5)])
        check_gradients(MyLossLayer, bottoms=[(4, 3), (4, 3)])

    Args:
        net_or_layer: a net, a registered layer type or its name, or a Python layer, which is a class or function at the
            top level of a module. Python layers with Caffe's interface compute in float32, and their tolerance is 1e-3.
        param: the settings of a single layer, as `caffejax.layer` takes them.
        bottoms: the bottoms of a single layer. Each is an array, or a shape to fill with random numbers.
        blobs: the blobs of a single layer, or None for random blobs, which are near the initial values that a user's
            type declares if these are not all zero.
        layers: names of the net's layers to check, or None for all except automatically inserted Splits.
        weights: the net's variables or a .caffemodel, or None to initialize the variables with the fillers. Params that
            start at zero, and are not in the .caffemodel, are random.
        inputs: arrays for the net's inputs by name. Other inputs are read from the sources of data layers, or are
            random: standard normal numbers, or valid class indices for labels.
        phase: the phase of a single layer. It is ignored for a net, because a net already has a phase.
        samples: the number of elements of each array to check by finite differences. The default is 64, and fewer for
            large arrays.
        seed: the seed of all random numbers. Random layers use one fixed key.

    Raises:
        CaffejaxError: if a layer does not exist, shapes do not fit, or a file cannot be read.
    """
    if samples is not None and samples < 1:
        raise GraphError(f"samples must be at least 1, not {samples}")
    random = np.random.default_rng(seed)
    with jax.enable_x64(True):
        if isinstance(net_or_layer, Net):
            net, arrays = net_or_layer, dict(inputs or {})
            variables = make_net_variables(net, weights, random, seed)
        else:
            net, arrays, variables = single_layer_net(net_or_layer, param, bottoms, blobs, phase, random)
            layers = [net.graph.layers[-1].key]
        rows: list[Row] = []
        tested_contexts: set[Any] = set()
        inputs = complete_inputs(net.graph, arrays, random)
        cases = make_cases(net, layers, variables, inputs, random, jax.random.key(seed))
        for layer, case in cases:
            with layer.locate_errors():
                rows += check_layer(layer, case, samples, random) if case.arguments else []
                rows += _make_rows_without_gradient(layer, case)
                if case.context not in tested_contexts:  # traits are the same for equal layers
                    tested_contexts.add(case.context)
                    rows += [
                        make_row(layer, f"trait {name}", f"trait is untrue: {problem}")
                        for name, problem in find_untrue_traits(case)
                    ]
    return Report(tuple(rows), tuple(_iterate_notes(rows, cases)))


def _make_rows_without_gradient(layer: Layer, case: Case) -> list[Row]:
    """Return a row for each bottom of a layer that stops the gradient, or has labels and indices only."""
    if not layer.type.stops_gradients and case.arguments:
        return []
    verdict = OK_STOPPED if layer.type.stops_gradients else OK_INDICES
    return [
        make_row(layer, name_bottom(i, name), verdict, case.bottoms[i].size) for i, name in enumerate(layer.bottoms)
    ]


def _iterate_notes(rows: Sequence[Row], cases: Sequence[tuple[Layer, Case]]) -> Iterator[str]:
    for key in dict.fromkeys(row.layer for row in rows if row.zero and row.verdict == BACKWARD_WRONG):
        yield ZERO_NOTE.format(key)
    one_row = [
        f"'{layer.key}'"
        for layer, case in cases
        if case.arguments and {bottom.shape[0] for bottom in case.bottoms if bottom.ndim} == {1}
    ]
    if one_row:
        yield ONE_ROW_NOTE.format(", ".join(shorten_list(one_row)))

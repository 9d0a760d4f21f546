"""Gradient checks of single layers pass for every type, fail for every wrong rule, and support a user's own types."""

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import LayerError, LayerType, Net, ParamSpec, check_gradients, declare, layer_types
from caffejax.base.variables import Variables
from caffejax.core.data.synthetic_inputs import complete_inputs
from caffejax.core.gradcheck.cases import make_cases
from caffejax.core.gradcheck.check_gradients import OK, LayerGradients, compare_gradients, compute_gradients
from caffejax.core.gradcheck.layer_gradients import Case, net_gradients, rule_gradients
from caffejax.core.layers import register_temporarily
from caffejax.core.schema.caffe_pb2 import FillerParameter
from golden_cases import ACCEPTED_CASES, format_case_id, get_layer_type_of_case, make_case_params


def group_recorded_cases() -> dict[str, list[dict[str, Any]]]:
    """Return the first and last recorded case, without kinks, of each type that has a rule."""
    result: dict[str, list[dict[str, Any]]] = {}
    for case in ACCEPTED_CASES:
        layer_type = get_layer_type_of_case(case)
        if layer_type.gradient.backward and case["has_backward"] and not case["case"].startswith("ties_"):
            result.setdefault(layer_type.name, []).append(case)
    return {name: [all_cases[0], *all_cases[1:][-1:]] for name, all_cases in result.items()}


# the first ones of all first, so that both tests below number them alike, and pytest has them follow each other
GROUPS = group_recorded_cases().values()
FIRST_NAMES = [format_case_id(group[0]) for group in GROUPS]
CASES = {
    format_case_id(c): c for group_slice in (slice(1), slice(1, None)) for group in GROUPS for c in group[group_slice]
}


@functools.cache
def compute_case_gradients(name: str) -> tuple[Case, LayerGradients]:
    """Return the layer of a recorded case with its recorded arrays, and its gradients."""
    path = CASES[name]["path"]
    recorded = dict(np.load(path.with_suffix(".npz")))
    net = Net(path.with_suffix(".prototxt"), CASES[name]["phase"])
    random = np.random.default_rng(0)
    with jax.enable_x64(True):
        params, state = net.init(jax.random.key(0), jnp.float64)
        # a Parameter layer is named like its top, whose value is recorded as a bottom
        params = {
            layer: {i: recorded.get(f"bottom/{layer}", b) for i, b in blobs.items()} for layer, blobs in params.items()
        }
        for param in net.graph.layer("layer").params:
            tree = params if param.spec.learnable else state
            tree["layer"][param.slot.name] = recorded[f"param/{param.index}"]
        inputs = complete_inputs(net.graph, {name: recorded[f"bottom/{name}"] for name in net.input_names}, random)
        ((_, case),) = make_cases(net, ["layer"], Variables(params, state), inputs, random, jax.random.key(1))
        return case, compute_gradients(case, 24, random)


@pytest.mark.parametrize("name", make_case_params(CASES), scope="module")
def test_all_gradients_agree(name: str) -> None:
    """All three gradients agree; a layer on the host has only two, because it has no autodiff."""
    case, result = compute_case_gradients(name)
    rows = compare_gradients("layer", case, result)
    layer_type = case.context.type
    is_declared = layer_type.gradient.overrides_autodiff or (layer_type.gradient.deviation and name not in FIRST_NAMES)
    assert len(rows) == len(case.arguments) > 0
    for row in rows:
        assert row.ok if is_declared else row.verdict == OK, row
        assert row.checked > 0
        assert row.rule_differences is not None
        assert (row.rule_autodiff is None, row.autodiff_differences is None) == (case.on_host,) * 2


MUTATIONS: dict[str, Callable[[Any], Any]] = {
    "sign flipped": lambda d: -d,
    "dropped": lambda d: 0 * d,
    "a little off": lambda d: 1.001 * d,
    "stray term": lambda d: d + 1,  # for gradients that are zero: all else leaves those alone
}


@pytest.mark.parametrize("name", make_case_params({name: CASES[name] for name in FIRST_NAMES}), scope="module")
def test_a_wrong_rule_is_reported(name: str) -> None:
    case, right_gradients = compute_case_gradients(name)
    layer_type, right_rows = case.context.type, compare_gradients("layer", case, right_gradients)
    for mutation, mutate in MUTATIONS.items():
        is_zero = mutation == "stray term"
        if not any(row.zero is is_zero for row in right_rows):
            continue
        with jax.enable_x64(True):
            changed_case = replace_rule(case, make_constant_rule(case, [mutate(g) for g in right_gradients.rule]))
            wrong_gradients = right_gradients._replace(rule=rule_gradients(changed_case))
            if layer_type.gradient.overrides_autodiff:
                wrong_gradients = wrong_gradients._replace(net=net_gradients(changed_case))
        for row in (
            r
            for r, b in zip(compare_gradients("layer", case, wrong_gradients), right_rows, strict=True)
            if b.zero is is_zero
        ):
            if row.type == "ROIWarping" and "rois" in row.argument:  # a gradient through corners that are rounded
                continue
            worst = row.rule_differences if case.on_host else row.rule_autodiff
            assert worst, mutation
            assert worst.error > 5e-4, mutation
            # a gradient that need not be the derivative may be a little off, but not point elsewhere
            if not layer_type.gradient.overrides_autodiff or mutation != "a little off":
                assert ("backward is wrong" if case.on_host else "rule is wrong") in row.verdict, mutation


def replace_rule(case: Case, rule: Callable[..., Any]) -> Case:
    """Return the case with another rule."""
    layer_type = case.context.type
    gradient = dataclasses.replace(layer_type.gradient, backward=rule)
    return dataclasses.replace(
        case, context=dataclasses.replace(case.context, type=dataclasses.replace(layer_type, gradient=gradient))
    )


def make_constant_rule(case: Case, gradients: list[Any]) -> Callable[..., Any]:
    """Return a rule that always returns these gradients of the case's arguments."""
    result = {(a.kind, a.position): g for a, g in zip(case.arguments, gradients, strict=True)}

    blob_diffs, bottom_diffs = (
        tuple(None if (kind, i) not in result else jnp.asarray(result[kind, i]) for i in range(n))
        for kind, n in (("blob", len(case.blobs)), ("bottom", len(case.bottoms)))
    )
    if not case.blobs:
        return lambda *bottoms, y, dy: bottom_diffs
    return lambda blobs, *bottoms, y, dy: (blob_diffs, *bottom_diffs)


RegisterCube = Callable[..., LayerType]


@pytest.fixture
def register_cube() -> Iterator[RegisterCube]:
    """Yield a function that registers a custom type, scale * x**3, with a given rule and forward function."""

    with contextlib.ExitStack() as exit_stack:

        def register(
            rule: Any = None, preferred: bool = False, forward: Any = lambda params, x: params["0"] * x**3
        ) -> LayerType:
            specs = [ParamSpec((1,))]
            cube = declare("Cube", params=lambda x: specs, backward=rule, overrides_autodiff=preferred)(forward)
            return exit_stack.enter_context(register_temporarily(cube))

        yield register


def test_a_custom_type_without_a_rule_is_ok(register_cube: RegisterCube) -> None:
    report = check_gradients(register_cube(), bottoms=[(3, 4)])
    assert report.ok
    assert [row.argument for row in report.rows] == ["bottom 0 (bottom0)", "blob 0"]
    assert report.rows[0].rule_autodiff is None
    assert "no rule" in str(report)


def test_rows_name_the_params() -> None:
    report = check_gradients("InnerProduct", "num_output: 3", bottoms=[(2, 5)])
    assert [row.argument for row in report.rows] == ["bottom 0 (bottom0)", "weight", "bias"]
    assert str(report.rows[1]).startswith("gradient of weight: ok")


def test_a_wrong_rule_of_a_custom_type_is_reported(register_cube: RegisterCube) -> None:
    def rule(params: Any, x: Any, *, y: Any, dy: Any, factor: float = 3.0) -> Any:
        return (jnp.sum(dy * x**3)[None],), factor * params["0"] * x**2 * dy

    register_cube(rule)
    assert check_gradients("Cube", bottoms=[np.linspace(-1, 1, 6)], blobs=[[2.0]]).ok
    register_cube(functools.partial(rule, factor=2.0))
    report = check_gradients("Cube", bottoms=[(3, 4)])
    bottom, blob = report.rows
    assert not report.ok
    assert blob.ok
    assert "rule is wrong" in bottom.verdict
    assert bottom.rule_autodiff is not None
    np.testing.assert_allclose(bottom.rule_autodiff.error, 1 / 3)


def test_wrong_autodiff_of_a_custom_type_is_reported(register_cube: RegisterCube) -> None:
    """Forward has a custom derivative that is wrong; the rule is right."""
    register_cube(
        lambda params, x, *, y, dy: ((jnp.sum(dy * x**3)[None],), 3 * params["0"] * x**2 * dy),
        forward=lambda params, x: params["0"] * x**2 * jax.lax.stop_gradient(x),
    )
    (row, _) = check_gradients("Cube", bottoms=[(3, 4)]).rows
    assert "autodiff is wrong" in row.verdict


def test_a_net_that_ignores_its_preferred_rule_is_reported(
    register_cube: RegisterCube, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_cube(
        lambda params, x, *, y, dy: ((jnp.sum(dy * x**3)[None],), 2 * params["0"] * x**2 * dy), preferred=True
    )
    report = check_gradients("Cube", bottoms=[(3, 4)])
    assert report.ok
    assert "not the derivative, as declared" in str(report)
    module = sys.modules["caffejax.core.gradcheck.check_gradients"]  # the package has a function of the same name
    monkeypatch.setattr(module, "net_gradients", lambda case: [2 * g for g in net_gradients(case)])
    assert "the net does not use the rule" in str(check_gradients("Cube", bottoms=[(3, 4)]))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            lambda params, x, *, y, dy: ((None,), dy[:1]),
            r"gradient of bottom 0 .* has shape \(1, 4\), not \(3, 4\)",
        ),
        (lambda params, x, *, y, dy: ((None, None), dy), "a gradient for each param: 1 in all, not 2"),
        (lambda params, x, *, y, dy: ((None,), dy, dy), "for each bottom: 2 in all, not 3"),
        (lambda params, x, *, y, dy: dy, "the gradients of the params, then .*: 2 in all, not 1"),
    ],
)
def test_a_rule_with_the_wrong_results_is_refused(register_cube: RegisterCube, rule: Any, message: str) -> None:
    register_cube(rule)
    with pytest.raises(LayerError, match=message):
        check_gradients("Cube", bottoms=[(3, 4)])


def test_kinks_are_skipped_and_counted() -> None:
    x = np.array([-1.0, 0.0, 1e-9, 2.0, -0.01])
    (row,) = check_gradients("ReLU", bottoms=[x]).rows
    assert (row.checked, row.skipped, row.verdict) == (3, 2, OK)  # 0.01 is further than the smaller steps
    (row,) = check_gradients("ReLU", bottoms=[np.zeros(5)]).rows  # moved off the kink
    assert (row.checked, row.skipped, row.verdict) == (5, 0, OK)


def test_x64_mode_is_restored() -> None:
    dtype_before = jnp.ones(1).dtype
    check_gradients("Sigmoid" if "Sigmoid" in layer_types() else "Softmax", bottoms=[(2, 3)])
    assert jnp.ones(1).dtype == dtype_before == jnp.float32


DECLARED = {
    "value": ParamSpec((4,), value=np.ones(4)),
    "filler": ParamSpec((4,), FillerParameter(type="uniform", min=1, max=3)),
    "constant": ParamSpec((4,), FillerParameter(type="constant", value=3)),
    "function": ParamSpec((4,), lambda key, shape: 2 + jax.random.uniform(key, shape)),
    "zeros among others": ParamSpec((4,), value=np.array([1.0, 0, 0, 2])),
}


@pytest.mark.parametrize("name", DECLARED)
def test_params_of_a_users_type_are_near_their_initial_values(name: str) -> None:
    """The function is NaN elsewhere. A factor 1 that the rule omits shows, because it is no longer 1."""

    def forward(params: Any, x: Any) -> Any:
        return jnp.log(params["0"]) * x

    def rule(params: Any, x: Any, *, y: Any, dy: Any) -> Any:
        return {"0": jnp.sum(dy * x, 0) / params["0"]}, jnp.log(params["0"]) * dy

    def wrong_rule(params: Any, x: Any, *, y: Any, dy: Any) -> Any:
        return {"0": jnp.sum(dy * x, 0)}, jnp.log(params["0"]) * dy

    for seed in range(3):
        for backward, is_right in ((rule, True), (wrong_rule, False)):
            own = declare("Own", params=lambda x: [DECLARED[name]], backward=backward)(forward)
            with register_temporarily(own):
                report = check_gradients("Own", bottoms=[(3, 4)], seed=seed)
                assert report.ok is is_right, report
                assert not check_gradients("Own", bottoms=[(3, 4)], blobs=[-np.ones(4)]).ok, "blobs= has precedence"


def test_a_param_that_the_function_never_uses_is_reported() -> None:
    def scale(params: Any, x: Any) -> Any:
        return params["scale"] * x + params["steps"] // 1

    specs = [ParamSpec((1,), name=name) for name in ("scale", "bias", "steps")]
    for on_host in (False, True):
        fields = {"params": lambda x: specs, "top_shapes": lambda x: [x.shape], "on_host": on_host}
        with register_temporarily(declare("Own", **fields)(scale)):
            rows = {row.argument: row for row in check_gradients("Own", bottoms=[(2, 3)]).rows}
        assert rows["bias"].verdict == "never used in phase TRAIN: its gradient is zero everywhere"
        assert not rows["bias"].ok
        assert rows["steps"].ok, "used, although its gradient is zero"
        assert rows["scale"].ok is not on_host


@pytest.mark.parametrize(
    ("type_name", "bottom", "verdict"),
    [
        ("Threshold", np.linspace(-1, 1, 6), "ok (always zero)"),  # piecewise constant
        ("ReLU", np.linspace(-2, -1, 6), "not checked: all gradients are zero; give other weights"),
    ],
)
def test_zeros_are_ok_only_if_the_gradient_is_always_zero(type_name: str, bottom: np.ndarray, verdict: str) -> None:
    report = check_gradients(type_name, bottoms=[bottom])
    (row,) = report.rows
    assert row.zero
    assert verdict in str(report)
    assert report.ok is row.ok is verdict.startswith("ok")


def test_a_small_kink_within_the_steps_is_no_error() -> None:
    """A mean of clipped powers: near its bound, an element's slope is lost in the rounding errors of the mean."""

    def forward(x: Any) -> Any:
        return jnp.mean(jnp.maximum(x, 1e-3) ** 3, axis=(2, 3)) ** (1 / 3)

    layer_type = declare("GeM", param="power_param")(forward)
    with register_temporarily(layer_type):
        for seed in range(8):
            x = np.maximum(1.7 * np.random.default_rng(seed).standard_normal((8, 16, 24, 24)), 0)
            report = check_gradients("GeM", bottoms=[x], samples=64, seed=seed)
            assert report.ok, report

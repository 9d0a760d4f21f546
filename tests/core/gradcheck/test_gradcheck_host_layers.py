"""Gradient checks of host layers compare the rule with finite differences, because host layers have no autodiff."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from caffejax import Net, check_gradients
from caffejax.core.gradcheck import Report, layer_gradients
from caffejax.core.layers import register_temporarily
from caffejax.core.layers.registry import plain_type

SELECTOR = np.array([1.0, 0.0, 1.0, 1.0])


def check_filter() -> Report:
    return check_gradients("Filter", bottoms=[(4, 3), SELECTOR])


def test_a_host_layer_is_compared_with_finite_differences_only() -> None:
    result = check_filter()
    (row,) = result.rows  # none for the selector
    assert (row.layer, row.type, row.argument) == ("layer", "Filter", "bottom 0 (bottom0)")
    assert result.ok
    assert row.verdict == "ok"
    assert row.rule_autodiff is None
    assert row.autodiff_differences is None
    assert row.rule_differences is not None
    assert row.rule_differences.error <= 1e-6
    assert (row.checked, row.size, row.zero) == (12, 12, False)


def test_the_table_says_that_there_is_no_autodiff() -> None:
    titles, line = str(check_filter()).splitlines()
    column = titles.index("rule/autodiff")
    assert line[column:].startswith("no autodiff  ")
    assert "no rule" not in line
    row = json.loads(check_filter().to_json())["rows"][0]
    assert row["rule_autodiff"] is None
    assert row["autodiff_differences"] is None
    assert row["rule_differences"]["error"] <= 1e-6


def test_a_host_layer_has_no_autodiff_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autodiff of a host layer calls its rule, so it would always agree with the rule."""
    vjp_calls: list[str] = []
    run_gradients = layer_gradients._run_gradients
    monkeypatch.setattr(
        layer_gradients, "_run_gradients", lambda *args: vjp_calls.append("vjp") or run_gradients(*args)
    )
    assert check_filter().ok
    assert vjp_calls == []
    assert check_gradients("ReLU", bottoms=[(4, 3)]).ok
    assert vjp_calls == ["vjp"]


def test_a_wrong_rule_of_a_host_layer_is_reported() -> None:
    layer_type = plain_type("Filter")
    rule = layer_type.gradient.backward
    assert rule is not None

    def wrong_rule(*args: Any, **kwargs: Any) -> Any:
        first, *other_gradients = rule(*args, **kwargs)
        return (1.01 * first, *other_gradients)

    gradient = dataclasses.replace(layer_type.gradient, backward=wrong_rule)
    with register_temporarily(dataclasses.replace(layer_type, gradient=gradient)):
        (row,) = check_filter().rows
    assert plain_type("Filter") is layer_type
    assert row.verdict == "backward is wrong"
    assert not row.ok
    np.testing.assert_allclose(row.rule_differences.error, 0.01 / 1.01, rtol=1e-3)


def test_other_layers_of_a_net_are_compared_with_autodiff() -> None:
    net = Net(
        """layer { name: "in" type: "Input" top: "x" top: "s" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
        layer { name: "filter" type: "Filter" bottom: "x" bottom: "s" top: "f" }
        layer { name: "sigmoid" type: "Sigmoid" bottom: "f" top: "y" }""",
        "TRAIN",
    )
    host_row, traced_row = check_gradients(net, inputs={"s": SELECTOR}).rows
    assert (host_row.rule_autodiff, host_row.autodiff_differences, host_row.ok) == (None, None, True)
    assert traced_row.ok
    assert None not in (traced_row.rule_autodiff, traced_row.rule_differences, traced_row.autodiff_differences)


def test_a_host_layer_without_a_rule_must_not_have_a_gradient() -> None:
    layer_type = plain_type("Filter")
    gradient = dataclasses.replace(layer_type.gradient, backward=None)
    with register_temporarily(dataclasses.replace(layer_type, gradient=gradient)):
        (row,) = check_filter().rows
    assert row.verdict == "has no backward, but a gradient"
    assert (row.rule_autodiff, row.autodiff_differences) == (None, None)


class Charbonnier:
    """A loss that sums so many elements that rounding errors of float32 hide the change by one element."""

    factor: Any = 1.0
    scale = 1.0

    def setup(self, bottom: Any, top: Any) -> None:
        pass

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(1)

    def forward(self, bottom: Any, top: Any) -> None:
        self.difference = bottom[0].data - bottom[1].data
        self.root = np.sqrt(self.difference**2 + 0.01)
        top[0].data[...] = self.scale * self.root.sum()

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        gradient = self.factor * self.scale * top[0].diff[0] * self.difference / self.root
        bottom[0].diff[...], bottom[1].diff[...] = gradient, -gradient


@pytest.mark.parametrize("scale", [1.0, 1 / 32768], ids=["sum", "mean"])
@pytest.mark.parametrize(
    "factor",
    [-1.0, 2.0, 0.5, 1.02, 0.0, np.where(np.arange(16) < 8, 1, 1.2).reshape(16, 1, 1, 1)],
    ids=["sign", "double", "half", "two percent", "zero", "half of the images"],
)
def test_a_wrong_backward_of_a_large_sum_in_float32_is_reported(
    monkeypatch: pytest.MonkeyPatch, factor: Any, scale: float
) -> None:
    monkeypatch.setattr(Charbonnier, "scale", scale)
    shape = (16, 2, 32, 32)
    assert check_gradients(Charbonnier, bottoms=[shape, shape], samples=4).ok
    monkeypatch.setattr(Charbonnier, "factor", factor)
    rows = check_gradients(Charbonnier, bottoms=[shape, shape], samples=4).rows
    assert [row.verdict for row in rows] == ["backward is wrong"] * 2


class Kinks(Charbonnier):
    """A sum of ReLUs and of maxima of pairs."""

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = np.maximum(bottom[0].data, 0).sum() + bottom[0].data.max(axis=0).sum()

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        x = bottom[0].data
        bottom[0].diff[...] = top[0].diff[0] * ((x > 0) + 1.0 * (x == x.max(axis=0)))


@pytest.mark.parametrize("has_zeros", [False, True])
def test_kinks_of_a_large_sum_in_float32_are_no_errors(has_zeros: bool) -> None:
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((2, 64, 64))
        report = check_gradients(Kinks, bottoms=[np.maximum(x, 0) if has_zeros else x], samples=4, seed=seed)
        assert "wrong" not in str(report)


class Noise(Charbonnier):
    """A loss whose gradient is too small beside its value for any finite difference in float32."""

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = 1e6 + 1e-3 * bottom[0].data.sum()

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        bottom[0].diff[...] = -1e-3 * top[0].diff[0]


def test_a_gradient_that_rounding_errors_hide_is_not_ok() -> None:
    (row,) = check_gradients(Noise, bottoms=[(2, 3)]).rows
    assert row.verdict.startswith("not resolved")
    assert not row.ok

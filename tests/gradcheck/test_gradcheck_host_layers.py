"""Layers on the host: checked in two ways, rule against finite differences, since they have no autodiff."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from caffejax import Net, check_gradients, layer_types
from caffejax.gradcheck import Report
from caffejax.gradcheck import layer_gradients as cases
from caffejax.layers import register_temporarily

SELECTOR = np.array([1.0, 0.0, 1.0, 1.0])


def report() -> Report:
    return check_gradients("Filter", bottoms=[(4, 3), SELECTOR])


def test_a_host_layer_is_compared_with_finite_differences_only() -> None:
    result = report()
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
    titles, line = str(report()).splitlines()
    column = titles.index("rule/autodiff")
    assert line[column:].startswith("no autodiff  ")
    assert "no rule" not in line
    row = json.loads(report().to_json())["rows"][0]
    assert row["rule_autodiff"] is None
    assert row["autodiff_differences"] is None
    assert row["rule_differences"]["error"] <= 1e-6


def test_only_the_rule_of_a_host_layer_is_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autodiff of it would be its rule again: agreeing with itself."""
    derived: list[str] = []
    by_vjp = cases._vjp_gradients
    monkeypatch.setattr(cases, "_vjp_gradients", lambda *args: derived.append("vjp") or by_vjp(*args))
    assert report().ok
    assert derived == []
    assert check_gradients("ReLU", bottoms=[(4, 3)]).ok
    assert derived == ["vjp"]


def test_a_wrong_rule_of_a_host_layer_is_caught() -> None:
    kind = layer_types()["Filter"].implementation.types["BVLC"]
    rule = kind.gradient.backward
    assert rule is not None

    def wrong(*args: Any, **kwargs: Any) -> Any:
        first, *other_gradients = rule(*args, **kwargs)
        return (1.01 * first, *other_gradients)

    gradient = dataclasses.replace(kind.gradient, backward=wrong)
    with register_temporarily(dataclasses.replace(kind, gradient=gradient)):
        (row,) = report().rows
    assert layer_types()["Filter"].implementation.types["BVLC"] is kind
    assert row.verdict == "backward is wrong"
    assert not row.ok
    np.testing.assert_allclose(row.rule_differences.error, 0.01 / 1.01, rtol=1e-3)


def test_in_a_net_other_layers_are_compared_in_all_ways() -> None:
    net = Net(
        """layer { name: "in" type: "Input" top: "x" top: "s" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
        layer { name: "filter" type: "Filter" bottom: "x" bottom: "s" top: "f" }
        layer { name: "sigmoid" type: "Sigmoid" bottom: "f" top: "y" }""",
        "TRAIN",
    )
    host, traced = check_gradients(net, inputs={"s": SELECTOR}).rows
    assert (host.rule_autodiff, host.autodiff_differences, host.ok) == (None, None, True)
    assert traced.ok
    assert None not in (traced.rule_autodiff, traced.rule_differences, traced.autodiff_differences)


def test_a_host_layer_without_a_rule_must_not_have_a_gradient() -> None:
    kind = layer_types()["Filter"].implementation.types["BVLC"]
    gradient = dataclasses.replace(kind.gradient, backward=None)
    with register_temporarily(dataclasses.replace(kind, gradient=gradient)):
        (row,) = report().rows
    assert row.verdict == "has no backward, but a gradient"
    assert (row.rule_autodiff, row.autodiff_differences) == (None, None)

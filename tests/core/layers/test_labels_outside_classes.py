"""Losses are NaN if labels are not classes, with autodiff and with hand-written rules."""

from typing import Any

import jax.numpy as jnp
import pytest

from caffejax import Net


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("label", [-1, 3, 1e9])
@pytest.mark.parametrize("layer_type", ["SoftmaxWithLoss", "MultinomialLogisticLoss", "HingeLoss", "InfogainLoss"])
def test_losses_of_labels_out_of_range_are_nan(layer_type: str, label: float, backward: Any) -> None:
    bottoms = ["p", "label", *(["h"] if layer_type == "InfogainLoss" else [])]
    net = Net(
        f"""layer {{ name: "in" type: "Input" top: "p" top: "label" top: "h"
        input_param {{ shape {{ dim: 2 dim: 3 }} shape {{ dim: 2 }} shape {{ dim: 3 dim: 3 }} }} }}
        layer {{ name: "loss" type: "{layer_type}" top: "loss" {" ".join(f'bottom: "{b}"' for b in bottoms)} }}""",
        backward=backward,
    )
    inputs = {"p": jnp.full((2, 3), 1 / 3), "label": jnp.array([1.0, label]), "h": jnp.eye(3)}
    assert jnp.isnan(net.forward({}, {}, inputs)[0]["loss"])
    inputs["label"] = jnp.array([1.0, 2.0])
    assert jnp.isfinite(net.forward({}, {}, inputs)[0]["loss"])

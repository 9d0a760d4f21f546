"""`find_nonfinite` names the layer where NaN or infinity begins, from the arguments of a pass alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from caffejax import Net, find_nonfinite

TEXT = """
layer {{ name: "x" type: "Input" top: "x" top: "t" input_param {{ shape {{ dim: 4 dim: 1 }} }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param {{ num_output: 1 weight_filler {{ type: "constant" value: 1 }} }} }}
layer {{ name: "f" type: "{type}" bottom: "ip" top: "f" {settings} }}
layer {{ name: "in_place" type: "ReLU" bottom: "f" top: "f" }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "f" bottom: "t" top: "loss" }}
"""


@pytest.mark.parametrize(
    ("layer", "settings", "x", "message"),
    [
        (
            "Log",
            "",
            -3.0,
            "layer 'f' (Log): its output 'f' has 1 NaN of 4 values (first at [2, 0]); ranges of its "
            "bottoms: 'ip' from -3 to 1. ",
        ),
        ("Log", "", 2.0, None),
        ("Power", "power_param { power: 0.5 }", 0.0, "layer 'f' (Power): the gradient of its bottom 'ip' has 1 "),
        ("Exp", "", 1e30, "layer 'f' (Exp): its output 'f' has 1 infinite of 4 values (first at [2, 0])"),
        (
            "Log",
            "",
            jnp.nan,
            "layer 'x' (Input): its output 'x' has 1 NaN of 4 values (first at [2, 0]). Correct the data",
        ),
    ],
)
def test_the_first_layer_is_named(layer: str, settings: str, x: float, message: str | None) -> None:
    net = Net(TEXT.format(type=layer, settings=settings), "TRAIN")
    inputs = {"x": jnp.ones((4, 1)).at[2].set(x), "t": jnp.zeros((4, 1))}
    found = find_nonfinite(net, *net.init(jax.random.key(0)), inputs)
    assert found is None if message is None else found is not None and found.startswith(message)
    assert "cannot take" in (found or "cannot take") or layer != "Log" or x != -3


def test_params_are_named() -> None:
    net = Net(TEXT.format(type="TanH", settings=""), "TRAIN")
    params, state = net.init(jax.random.key(0))
    params["ip"]["bias"] = jnp.full(1, jnp.inf)
    found = find_nonfinite(net, params, state, {"x": jnp.ones((4, 1)), "t": jnp.zeros((4, 1))})
    assert found == "layer 'ip' (InnerProduct): parameter bias has 1 infinite of 1 values"

"""Every type in a bfloat16 net: close to the recorded float32 results, with inputs and outputs in float32."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.core.layers import layer_types
from caffejax.core.layers.row_padding import strip_padding
from caffejax.core.program.net import Net
from golden_cases import (
    ACCEPTED_CASES,
    COORDINATES,
    find_first_cases,
    format_case_id,
    get_layer_type_of_case,
    is_fork_case,
)
from layer_nets import Replay, net_text, run_together

CASES = [
    c
    for c in ACCEPTED_CASES
    if "stochastic" not in c and c["type"] != "Python" and not get_layer_type_of_case(c).on_host
]
FIRST_CASES = find_first_cases(CASES)
# of these, whose float32 blobs meet bfloat16 bottoms, every case
TYPES_WITH_FLOAT32_BLOBS = {"BN", "BatchNorm", "Bias", "Convolution", "Deconvolution", "InnerProduct", "PReLU", "Scale"}
SELECTED_CASES = [c for c in CASES if c["type"] in TYPES_WITH_FLOAT32_BLOBS or c in FIRST_CASES.values()]

# sums of large terms of both signs, of which rounding the bottoms changes much
CANCELLING_TYPES = {"WeightedEuclideanLoss"}

# error allowed, relative to the largest number of an array
TOP_TOLERANCE, DIFF_TOLERANCE = 0.01, 0.05


def list_backward_modes(case: dict[str, Any]) -> tuple[str, ...]:
    """Return the `backward` modes to test: also "rules" for the first case of a type without `overrides_autodiff`."""
    rules = case["has_backward"] and not get_layer_type_of_case(case).gradient.overrides_autodiff
    return ("autodiff", "rules") if rules and case in FIRST_CASES.values() else ("autodiff",)


def assert_near(actual: Any, expected: np.ndarray, tolerance: float, name: str) -> None:
    scale = max(np.abs(expected).max(initial=0), 1e-3)
    np.testing.assert_allclose(np.asarray(actual) / scale, expected / scale, rtol=0, atol=tolerance, err_msg=name)


def compute_float32_tops(case: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the tops of a case in a float32 net with these inputs."""
    replay = Replay(case)
    arguments = {name: jnp.asarray(a, jnp.float32) for name, a in inputs.items()}
    tops, _ = replay.net.jit(replay.compute_tops)(replay.params, arguments)
    return dict(zip(replay.layer.tops, tops, strict=True))


@pytest.mark.parametrize(
    ("case", "backward_modes"),
    [
        pytest.param(
            c,
            backward_modes,
            id="-".join([format_case_id(c), *backward_modes]),
            marks=[pytest.mark.long] if is_fork_case(c) else [],
        )
        for c, backward_modes in ((c, list_backward_modes(c)) for c in SELECTED_CASES)
    ],
)
def test_recorded_case_in_bfloat16_is_near_float32(case: dict[str, Any], backward_modes: tuple[str, ...]) -> None:
    replays = [Replay(case, backward_mode, precision="bfloat16") for backward_mode in backward_modes]
    for replay in replays:
        layer_type = replay.layer.type
        indices = {replay.layer.bottoms[i] for i in layer_type.gradient.indices.bottoms if replay.layer.bottoms[i:]}
        for name in replay.inputs.keys() - indices - COORDINATES:  # as a layer before it would leave them
            replay.inputs[name] = jnp.asarray(replay.inputs[name], jnp.bfloat16)
    for replay, results in zip(replays, run_together(replays, case["has_backward"]), strict=True):
        assert_near_recorded(case, replay, results)


def assert_near_recorded(case: dict[str, Any], replay: Replay, results: tuple[Any, ...]) -> None:
    layer_type = replay.layer.type
    tops, state, param_diffs, bottom_diffs = results
    for name, top in zip(replay.layer.tops, tops, strict=True):
        assert top.dtype == jnp.float32
        expected = replay.recorded[f"top/{name}"]
        if layer_type.name in CANCELLING_TYPES:
            expected = np.asarray(compute_float32_tops(case, replay.inputs)[name])
        if layer_type.traits.pads_rows:  # rows found by decisions and exponentials: those in the bottoms as rounded
            top, expected = (
                strip_padding(top),
                strip_padding(np.asarray(compute_float32_tops(case, replay.inputs)[name])),
            )
        assert_near(top, expected, TOP_TOLERANCE, name)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(state))
    if not case["has_backward"]:
        return
    assert all(diff.dtype == jnp.float32 for diff in jax.tree.leaves(param_diffs))
    for name, diff in bottom_diffs.items():
        if f"bottom_diff/{name}" in replay.recorded:
            assert_near(diff, replay.recorded[f"bottom_diff/{name}"], DIFF_TOLERANCE, name)


def test_dtype_policy_of_each_type() -> None:
    """Losses, metrics, and types without a policy are computed in float32."""
    types = layer_types()
    bvlc_types = [t for t in types.values() if t.docs.origin == "BVLC"]
    product_types = {t.name for t in bvlc_types if t.traits.dtype_policy == "products"}
    assert product_types == {"Convolution", "Deconvolution", "InnerProduct"}
    float32_types = {"Accuracy", "ArgMax", "Embed", "Softmax", "Reduction", "Python"}
    for name, layer_type in types.items():
        if layer_type.signature.loss or layer_type.on_host or name in float32_types:
            assert layer_type.traits.dtype_policy == "float32", name


def test_indices_of_maxima_are_exact() -> None:
    """bfloat16 cannot represent every integer above 256."""
    text = net_text("Pooling", "pooling_param { kernel_size: 2 stride: 2 }", [(1, 1, 40, 40)], tops=2)
    x = jnp.arange(1600.0).reshape(1, 1, 40, 40) % 7
    nets = [Net(text, precision=p) for p in ("float32", "bfloat16")]
    (expected, _), (actual, _) = (n.apply({}, {}, {"b0": x.astype(d)}) for n, d in zip(nets, (x.dtype, jnp.bfloat16)))  # noqa: B905
    np.testing.assert_array_equal(actual["t1"], expected["t1"])
    assert expected["t1"].max() > 1000

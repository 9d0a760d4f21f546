"""Every type in float64 and bfloat16: close to the float32 result, with tops in the bottom's dtype."""

from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.core.layers import layer_type, layer_types
from caffejax.core.layers.row_padding import strip_padding
from golden_cases import ACCEPTED_CASES, COORDINATES, find_first_cases, get_layer_type_of_case, make_case_params
from layer_nets import Replay

# the first recorded case of each type that reads a bottom and is not random
RECORDED_CASES = [c for c in ACCEPTED_CASES if "stochastic" not in c and c["type"] != "Python"]
FIRST_CASES = find_first_cases([c for c in RECORDED_CASES if layer_type(c["type"]).signature.bottoms != 0])

# figures about a net rather than blobs of it, and labels: never in less than float32
LOSS_AND_METRIC_TYPES = {
    name for name, t in layer_types().items() if t.signature.loss or name.endswith(("Accuracy", "Evaluate", "Decoder"))
}

# sums of large terms of both signs, of which rounding the bottoms changes much
CANCELLING_TYPES = {"WeightedEuclideanLoss"}

# error allowed, relative to the largest number of the top
FLOAT64_TOLERANCE, BFLOAT16_TOLERANCE = 1e-5, 1e-2


def compute_cast_tops(replay: Replay, dtype: Any) -> tuple[jax.Array, ...]:
    def cast(tree: Any) -> Any:
        return jax.tree.map(lambda a: jnp.asarray(np.asarray(a).astype(dtype)), tree)

    replay.state = cast(replay.state)
    blobs = replay.net.jit(replay.compute_tops)(cast(replay.params), cast_inputs(replay, dtype))[0]
    return tuple(map(strip_padding, blobs)) if replay.layer.type.traits.pads_rows else blobs


def has_discontinuous_rows(replay: Replay) -> bool:
    """Return whether the data determines the number of rows, or the result is a difference of large numbers."""
    replay_type = replay.layer.type
    return (
        replay_type.traits.pads_rows
        or getattr(replay_type.implementation, "ragged_axis", None) is not None
        or replay_type.name in CANCELLING_TYPES
    )


def cast_inputs(replay: Replay, dtype: Any) -> dict[str, Any]:
    """Return the bottoms in this dtype; coordinates stay float32 instead of bfloat16."""
    float32_names = COORDINATES if dtype == jnp.bfloat16 else set()
    return {
        name: jnp.asarray(np.asarray(a).astype(jnp.float32 if name in float32_names else dtype))
        for name, a in replay.inputs.items()
    }


def compute_expected_rows(replay: Replay, dtype: Any) -> dict[str, np.ndarray]:
    """Return the rows that a float32 net finds in bottoms rounded to `dtype`."""
    float32_names = COORDINATES if dtype == jnp.bfloat16 else set()
    rounded_inputs = {
        n: a if n in float32_names else a.astype(dtype).astype(np.float32) for n, a in replay.inputs.items()
    }
    result = replay.net.jit(replay.compute_tops)(replay.params, rounded_inputs)[0]
    rows = map(strip_padding, result) if replay.layer.type.traits.pads_rows else result
    return dict(zip(replay.layer.tops, map(np.asarray, rows), strict=True))


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.bfloat16], ids=["float64", "bfloat16"])
@pytest.mark.parametrize("name", make_case_params(FIRST_CASES))
def test_tops_in_float64_and_bfloat16_are_near_float32(name: str, dtype: Any) -> None:
    replay = Replay(FIRST_CASES[name])
    with jax.enable_x64(True) if dtype == jnp.float64 else nullcontext():
        actual = [(top.dtype, np.asarray(top, np.float64)) for top in compute_cast_tops(replay, dtype)]
    allowed_dtypes = (jnp.float32, jnp.float64) if name.partition(" ")[0] in LOSS_AND_METRIC_TYPES else (dtype,)
    if COORDINATES & replay.inputs.keys() and dtype == jnp.bfloat16:
        allowed_dtypes += (jnp.float32,)  # which coordinates, and what is made of them, stay
    tolerance = FLOAT64_TOLERANCE if dtype == jnp.float64 else BFLOAT16_TOLERANCE
    for blob, (top_dtype, top) in zip(replay.layer.tops, actual, strict=True):
        expected = (
            compute_expected_rows(replay, dtype)[blob]
            if has_discontinuous_rows(replay)
            else replay.recorded[f"top/{blob}"]
        )
        assert top_dtype in allowed_dtypes
        np.testing.assert_allclose(top, expected, rtol=0, atol=tolerance * np.abs(expected).max(), err_msg=blob)


@pytest.mark.parametrize(
    "name",
    make_case_params(
        {n: c for n, c in FIRST_CASES.items() if c["has_backward"] and not get_layer_type_of_case(c).on_host}
    ),
)
def test_gradients_in_bfloat16_are_near_recorded_gradients(name: str) -> None:
    """Gradients have the bottom's dtype and are close to the recorded ones."""
    replay = Replay(FIRST_CASES[name])

    def cast(tree: Any) -> Any:
        return jax.tree.map(lambda a: jnp.asarray(a, jnp.bfloat16), tree)

    replay.state, replay.params = cast(replay.state), cast(replay.params)
    replay.inputs = cast_inputs(replay, jnp.bfloat16)
    _, _, param_diffs, bottom_diffs = replay.run(backward=True)
    for blob, diff in bottom_diffs.items():
        assert diff.dtype == replay.inputs[blob].dtype
        expected = replay.recorded.get(f"bottom_diff/{blob}")
        if expected is not None:
            scale = max(np.abs(expected).max(), 1e-3)
            np.testing.assert_allclose(np.asarray(diff, np.float32) / scale, expected / scale, atol=0.05, err_msg=blob)
    assert all(diff.dtype == jnp.bfloat16 for diff in jax.tree.leaves(param_diffs))

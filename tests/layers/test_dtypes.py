"""Every type in float64 and in bfloat16: close to the float32 result, tops in the bottom's type."""

from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import Replay

from caffejax.layers import layer_type, layer_types
from recorded import MANIFEST, first_of_each, recorded_type

# the first recorded case of each type that reads a bottom and is not random
FIRST = first_of_each([c for c in MANIFEST if "stochastic" not in c and layer_type(c["type"]).signature.bottoms != 0])

# figures about a net rather than blobs of it: never in less than float32
FIGURES = {name for name, kind in layer_types().items() if kind.signature.loss} | {"Accuracy"}

# error allowed, relative to the largest number of the top
FLOAT64, BFLOAT16 = 1e-5, 1e-2


def tops(replay: Replay, dtype: Any) -> tuple[jax.Array, ...]:
    def cast(tree: Any) -> Any:
        return jax.tree.map(lambda a: jnp.asarray(a, dtype), tree)

    replay.state = cast(replay.state)
    return replay.tops(cast(replay.params), cast(replay.inputs))[0]


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.bfloat16], ids=["float64", "bfloat16"])
@pytest.mark.parametrize("name", FIRST)
def test_other_floats(name: str, dtype: Any) -> None:
    replay = Replay(FIRST[name])
    with jax.enable_x64(True) if dtype == jnp.float64 else nullcontext():
        actual = [(top.dtype, np.asarray(top, np.float64)) for top in tops(replay, dtype)]
    allowed = (jnp.float32, jnp.float64) if name.partition(" ")[0] in FIGURES else (dtype,)
    tolerance = FLOAT64 if dtype == jnp.float64 else BFLOAT16
    for blob, (kept, top) in zip(replay.layer.tops, actual, strict=True):
        expected = replay.recorded[f"top/{blob}"]
        assert kept in allowed
        np.testing.assert_allclose(top, expected, rtol=0, atol=tolerance * np.abs(expected).max(), err_msg=blob)


@pytest.mark.parametrize("name", [n for n, c in FIRST.items() if c["has_backward"] and not recorded_type(c).on_host])
def test_gradients_in_bfloat16(name: str) -> None:
    """Gradients come in the bottom's type, near the recorded ones."""
    replay = Replay(FIRST[name])

    def cast(tree: Any) -> Any:
        return jax.tree.map(lambda a: jnp.asarray(a, jnp.bfloat16), tree)

    replay.state, replay.params, replay.inputs = cast(replay.state), cast(replay.params), cast(replay.inputs)
    _, _, param_diffs, bottom_diffs = replay.run(backward=True)
    for blob, diff in bottom_diffs.items():
        assert diff.dtype == jnp.bfloat16
        expected = replay.recorded.get(f"bottom_diff/{blob}")
        if expected is not None:
            scale = max(np.abs(expected).max(), 1e-3)
            np.testing.assert_allclose(np.asarray(diff, np.float32) / scale, expected / scale, atol=0.05, err_msg=blob)
    assert all(diff.dtype == jnp.bfloat16 for diff in jax.tree.leaves(param_diffs))

"""Every recorded case of every layer: forward, and the gradients by autodiff and by the hand-written rule."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.layers import layer_types
from caffejax.net import Net

GOLDEN = Path(__file__).parents[1] / "golden" / "layers"
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())


def case_id(case: dict[str, Any]) -> str:
    return f"{case['type']}-{case['case']}"


class Replay:
    """A recorded case in a net of ours: the layer under test as a function of its blobs and bottoms."""

    def __init__(self, case: dict[str, Any], backward: Any = "autodiff") -> None:
        path = GOLDEN / case["type"] / case["case"]
        self.recorded = dict(np.load(path.with_suffix(".npz")))
        self.net = Net(path.with_suffix(".prototxt"), case["phase"], backward=backward)
        self.layer = self.net.graph.layer("layer")
        params, self.state = self.net.init(jax.random.key(0))
        # a Parameter layer is named like its top, whose value is recorded as a bottom
        self.params = {name: tuple(self.recorded.get(f"bottom/{name}", b) for b in params[name]) for name in params}
        blobs = [(value, p.blob.learnable) for value, p in zip(self.group("param"), self.layer.params, strict=True)]
        self.params["layer"] = tuple(value if learnable else None for value, learnable in blobs)
        carried = self.state.get("layer", ())[len(blobs) :]
        self.state["layer"] = (*(None if learnable else value for value, learnable in blobs), *carried)
        self.inputs = {name: self.recorded[f"bottom/{name}"] for name in self.net.fed}

    def group(self, prefix: str) -> list[np.ndarray]:
        n = sum(key.startswith(f"{prefix}/") for key in self.recorded)
        return [self.recorded[f"{prefix}/{i}"] for i in range(n)]

    def tops(self, params: Any, inputs: Any) -> tuple[tuple[jax.Array, ...], Any]:
        """The tops, and the new state."""
        state = self.state
        for _ in range(int(self.recorded.get("forwards", 1))):
            values, state = self.net.apply(params, state, inputs, key=jax.random.key(1), blobs=self.layer.tops)
        return tuple(values[top] for top in self.layer.tops), state

    def run(self, backward: bool) -> tuple[Any, ...]:
        """Tops, new state, and diffs of params and inputs for the recorded top diffs."""

        def both(params: Any, inputs: Any) -> tuple[Any, ...]:
            if not backward:
                return *self.tops(params, inputs), None, None
            tops, vjp, state = jax.vjp(self.tops, params, inputs, has_aux=True)
            recorded = [self.recorded.get(f"top_diff/{name}") for name in self.layer.tops]
            diffs = [jnp.zeros_like(t) if d is None else d for t, d in zip(tops, recorded, strict=True)]
            return tops, state, *vjp(tuple(diffs))

        return tuple(self.net.jit(both)(self.params, self.inputs))


def overwrites(replay: Replay, i: int) -> bool:
    """Whether Caffe forgets the diff that a param had before: some of Scale's factors do not accumulate."""
    if replay.layer.type.name != "Scale" or len(replay.layer.bottoms) == 2 or i > 0:
        return False
    bottom = replay.net.graph.blobs[replay.layer.bottoms[0]].shape
    factor = replay.layer.params[0].blob.shape
    nothing_precedes = replay.layer.context.param.axis in (0, -len(bottom))
    return math.prod(factor) == math.prod(bottom) or (nothing_precedes and math.prod(factor) > 1)


def test_every_recorded_type_is_there() -> None:
    assert {c["type"] for c in MANIFEST} <= set(layer_types())


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("case", [c for c in MANIFEST if "stochastic" not in c], ids=case_id)
def test_recorded_case(case: dict[str, Any], backward: str) -> None:
    if not case["has_backward"] and backward == "rules":
        pytest.skip("no backward pass to choose a way for")
    replay = Replay(case, backward)
    tops, state, param_diffs, bottom_diffs = replay.run(case["has_backward"])
    for name, top in zip(replay.layer.tops, tops, strict=True):
        expected = replay.recorded[f"top/{name}"]
        assert top.shape == expected.shape
        np.testing.assert_allclose(top, expected, atol=case["atol"], rtol=case["rtol"], err_msg=name)
    for i, expected in enumerate(replay.group("param_after")):
        np.testing.assert_allclose(state["layer"][i], expected, atol=case["atol"], rtol=case["rtol"], err_msg=str(i))
    if not case["has_backward"]:
        return
    close = {"atol": max(case["atol"], 1e-7), "rtol": case["rtol"]}
    compared = 0
    parameters = {name: diffs[0] for name, diffs in param_diffs.items() if name != "layer"}
    for name, diff in {**bottom_diffs, **parameters}.items():
        if f"bottom_diff/{name}" in replay.recorded:
            np.testing.assert_allclose(diff, replay.recorded[f"bottom_diff/{name}"], **close, err_msg=name)
            compared += 1
    for i, expected in enumerate(replay.group("param_diff")):
        before = 0 if overwrites(replay, i) else replay.recorded.get(f"param_diff_before/{i}", 0)
        diff = param_diffs["layer"][i]  # None for statistics: they never get one
        np.testing.assert_allclose((0 if diff is None else diff) + before, expected, **close, err_msg=f"param {i}")
        compared += 1
    assert compared, "the case compares nothing"


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("case", [c for c in MANIFEST if "stochastic" in c], ids=case_id)
def test_random_layers_by_their_statistics(case: dict[str, Any], backward: str) -> None:
    replay, expected = Replay(case, backward), case["stochastic"]
    x = replay.inputs["data"]
    (top,), vjp, _ = jax.vjp(replay.tops, replay.params, replay.inputs, has_aux=True)
    kept = np.asarray(top) != 0
    np.testing.assert_allclose(np.asarray(top)[kept], (x * expected["scale"])[kept], rtol=1e-6)
    assert abs(kept.mean() - expected["keep_probability"]) < expected["tolerance"]
    (diff,) = vjp((jnp.ones_like(top),))[1].values()
    np.testing.assert_allclose(diff, kept * np.float32(expected["scale"]), rtol=1e-6)

"""Every recorded case of every layer: forward, and the gradients by autodiff and by the hand-written rule."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import MANIFEST, Replay, case_id

from caffejax.layers import layer_types


def overwrites(replay: Replay, i: int) -> bool:
    """Whether Caffe forgets the diff that a param had before: some of Scale's factors do not accumulate."""
    if replay.layer.type.name != "Scale" or len(replay.layer.bottoms) == 2 or i > 0:
        return False
    bottom = replay.net.graph.blobs[replay.layer.bottoms[0]].shape
    factor = replay.layer.params[0].spec.shape
    nothing_precedes = replay.layer.context.param.axis in (0, -len(bottom))
    return math.prod(factor) == math.prod(bottom) or (nothing_precedes and math.prod(factor) > 1)


def test_every_recorded_type_is_there() -> None:
    assert {c["type"] for c in MANIFEST} <= set(layer_types())


FIRST = {case["type"]: case for case in reversed(MANIFEST) if "stochastic" not in case}


def marks(case: dict[str, Any], backward: str, kernels: str) -> list[pytest.MarkDecorator]:
    """The first case of each type is quick; that reference kernels repeat all others takes long."""
    first = case is FIRST[case["type"]]
    if kernels == "reference":
        return [] if first else [pytest.mark.long]
    return [pytest.mark.quick] if first and backward == "autodiff" else []


@pytest.mark.parametrize(
    ("case", "backward", "kernels"),
    [
        pytest.param(
            case,
            backward,
            kernels,
            id=f"{case_id(case)}-{backward}-{kernels}",
            marks=marks(case, backward, kernels),
        )
        for case in MANIFEST
        if "stochastic" not in case
        for backward, kernels in [("autodiff", "fast"), ("autodiff", "reference"), ("rules", "fast")]
        if case["has_backward"] or backward == "autodiff"
    ],
)
def test_recorded_case(case: dict[str, Any], backward: str, kernels: str) -> None:
    replay = Replay(case, backward, kernels)
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

"""Normalize, Permute and their like: what recorded cases cannot show."""

from typing import Any

import jax
import numpy as np
import pytest
from layer_nets import net_text

from caffejax import CaffejaxError, Net


@pytest.mark.parametrize(
    ("text", "shape", "blobs"),
    [
        ("", (2, 3, 4, 5), 1),
        ("", (2, 3, 1, 1), 0),
        ("", (2, 3), 0),
        ('top: "length"', (2, 3, 4, 5), 0),
        ("normalize_param { }", (2, 3, 4, 5), 0),
        ("norm_param { }", (2, 3), 1),
        ("param { lr_mult: 0 }", (2, 3), 1),
        ("blobs { data: 2 }", (2, 3), 1),
    ],
)
def test_settings_select_the_fork(text: str, shape: tuple[int, ...], blobs: int) -> None:
    assert len(Net(net_text("Normalize", text, [shape]), "TRAIN").graph.layer("layer").params) == blobs


@pytest.mark.parametrize("text", ["norm_param { across_spatial: false }", "normalize_param { }"])
def test_places_are_of_length_1(text: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    run = Net(net_text("Normalize", text, [x.shape]), "TEST")
    y = run.apply(*run.init(jax.random.key(0)), {"b0": x})[0]["t0"]
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("backward", ["rules", "autodiff"])
@pytest.mark.parametrize(("kind", "bp_norm"), [("L1", False), ("L1", True), ("L2", True)])
def test_gradient_of_places_and_lengths(kind: str, bp_norm: bool, backward: Any) -> None:
    random = np.random.default_rng(0)
    x, dy, dlength = (
        random.normal(size=(2, 3, 4, 5)),
        random.normal(size=(2, 3, 4, 5)),
        random.normal(size=(2, 1, 4, 5)),
    )
    x[0, 1] = 0
    text = f'normalize_param {{ normalize_type: "{kind}" bp_norm: {str(bp_norm).lower()} }}'
    built = Net(net_text("Normalize", text, [x.shape], tops=2), "TRAIN", backward=backward)

    def tops(x: Any) -> Any:
        result = built.apply({}, {}, {"b0": x})[0]
        return result["t0"], result["t1"]

    (top, length), pull = jax.vjp(tops, np.float32(x))
    total = (np.abs(x) if kind == "L1" else x**2).sum(1, keepdims=True) + 1e-6
    total = total if kind == "L1" else np.sqrt(total)
    np.testing.assert_allclose(top, x / total, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(length, total, rtol=1e-5)
    slope = np.sign(x) if kind == "L1" else x / total
    expected = (dy - slope * (dy * x / total).sum(1, keepdims=True)) / total + bp_norm * dlength * slope
    np.testing.assert_allclose(pull((np.float32(dy), np.float32(dlength)))[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "weight"),
    [("", 1), ("smooth_l1_loss_param { sigma: 2 }", 0), ("loss_weight: 3 smooth_l1_loss_param { sigma: 2 }", 3)],
)
def test_default_weight_of_smooth_l1_losses(text: str, weight: float) -> None:
    layer = Net(net_text("SmoothL1Loss", text, [(2, 3), (2, 3)]), "TRAIN").graph.layer("layer")
    assert sum(layer.loss_weights) == weight


@pytest.mark.parametrize(
    ("kind", "text", "shapes", "words"),
    [
        ("Permute", "permute_param { order: 0 order: 0 }", [(2, 3)], "each at most once"),
        ("Permute", "permute_param { order: 2 }", [(2, 3)], "must list axes of the bottom"),
        ("Transpose", "transpose_param { dim: 1 }", [(2, 3)], "each axis of the bottom"),
        ("Reverse", "reverse_param { axis: 1 axis: -1 }", [(2, 3)], "must list each axis at most once"),
        ("Flip", "", [(2, 3)], "4 axes"),
        ("Normalize", "norm_param { eps: -1 }", [(2, 3)], "eps must not be negative"),
        ("Normalize", 'normalize_param { normalize_type: "L3" }', [(2, 3)], 'must be "L1" or "L2", not "L3"'),
        ("SmoothL1Loss", "smooth_l1_loss_param { sigma: 0 }", [(2, 3), (2, 3)], "sigma must be positive"),
        ("SmoothL1Loss", "", [(2, 3), (3, 2)], "bottom 1 must have the shape of bottom 0"),
        ("SmoothL1Loss", "", [(2, 3)] * 3, "set loss_weight"),
    ],
)
def test_refused(kind: str, text: str, shapes: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(CaffejaxError, match=f"layer 'layer'.*{words}"):
        Net(net_text(kind, text, shapes), "TRAIN")

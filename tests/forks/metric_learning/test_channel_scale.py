"""Tests of ChannelScale."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from layer_nets import net_text
from layer_suite import BATCH, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("ChannelScale", family="metric_learning")
test_properties = fork_properties(
    layer_case("ChannelScale", "", MAPS, (BATCH, 1, 5, 6)),
    layer_case("ChannelScale", "channel_scale_param { global_scale: true }", MAPS, (BATCH, 1, 5, 6), name="global"),
)


IMAGE_SHAPE = (2, 4, 5, 6)

CHANNEL_SCALE_PARAM = "channel_scale_param { global_scale: true %s }"


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize(
    ("text", "factor", "dx", "d_scale"),
    [
        ("do_forward: false", False, True, True),
        ("do_backward_feature: false", True, False, True),
        ("do_backward_scale: false", True, True, False),
    ],
)
def test_channel_scale_without_forward_or_backward_products(
    text: str, factor: bool, dx: bool, d_scale: bool, backward: Any
) -> None:
    random = np.random.default_rng(0)
    x, s, d_top = (random.normal(size=shape).astype("f") for shape in ((2, 3, 2, 2), (2, 1, 2, 2), (2, 3, 2, 2)))
    net = Net(net_text("ChannelScale", f"channel_scale_param {{ {text} }}", [x.shape, s.shape]), backward=backward)

    def compute_loss(x: Any, s: Any) -> Any:
        return jnp.sum(d_top * net.apply({}, {}, {"b0": x, "b1": s})[0]["t0"])

    np.testing.assert_allclose(compute_loss(x, s), np.sum(d_top * (x * s if factor else x)), rtol=1e-5)
    diffs = jax.grad(compute_loss, (0, 1))(x, s)
    np.testing.assert_allclose(diffs[0], d_top * s if dx else d_top, rtol=1e-5)
    np.testing.assert_allclose(diffs[1], (d_top * x).sum(1, keepdims=True) * d_scale, rtol=1e-4, atol=1e-5)


def test_global_scale_is_the_moving_mean_of_the_scales() -> None:
    x, s = np.ones((1, 2, 1, 2), np.float32), np.float32([[[[-3, 5]]]])
    text = net_text("ChannelScale", CHANNEL_SCALE_PARAM % "max_global_scale: 5.5", [x.shape, s.shape], tops=2)
    params, state = Net(text).init(jax.random.key(0))
    for phase, scales, expected in [("TRAIN", s, 4), ("TRAIN", 50 * s, 5.5), ("TRAIN", s, 5.485), ("TEST", s, 5.485)]:
        tops, state = Net(text, phase).apply(params, state, {"b0": x, "b1": scales}, blobs=["t0", "t1"])
        np.testing.assert_allclose(tops["t1"], [expected], rtol=1e-6)
        np.testing.assert_allclose(tops["t0"], x * expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("ChannelScale", "", [IMAGE_SHAPE, IMAGE_SHAPE], "bottom 1 must have shape"),
        (
            "ChannelScale",
            CHANNEL_SCALE_PARAM % "min_global_scale: 2 max_global_scale: 1",
            [IMAGE_SHAPE, (2, 1, 5, 6)],
            "must be at most",
        ),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")

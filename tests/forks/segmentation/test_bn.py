"""Tests of BN."""

from typing import Any

import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from layer_nets import draw_normal, net_text
from layer_suite import BATCH, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)
CONSTANT_FILLER = '{ type: "constant" value: 1 }'

test_recorded = recorded("BN", family="segmentation")
test_properties = fork_properties(
    layer_case(
        "BN", f"bn_param {{ slope_filler {CONSTANT_FILLER} bias_filler {CONSTANT_FILLER} }}", MAPS, name="pspnet_train"
    ),
    layer_case("BN", f"bn_param {{ slope_filler {CONSTANT_FILLER} }}", MAPS, name="pspnet_test", phase="TEST"),
    layer_case("BN", f"bn_param {{ slope_filler {CONSTANT_FILLER} frozen: true }}", MAPS, name="pspnet_frozen"),
    layer_case(
        "BN", f"bn_param {{ scale_filler {CONSTANT_FILLER} shift_filler {CONSTANT_FILLER} }}", MAPS, name="segnet"
    ),
    layer_case(
        "BN", f"bn_param {{ scale_filler {CONSTANT_FILLER} bn_mode: INFERENCE }}", MAPS, name="segnet_inference"
    ),
    layer_case("BN", f"bn_param {{ scale_filler {CONSTANT_FILLER} }}", MAPS, tops=3, name="segnet_three_tops"),
)


IMAGE_SHAPE = (2, 4, 5, 6)

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_bn_equals_batch_norm_and_scale(phase: Any) -> None:
    """PSPNet's BN, with batch statistics and with stored statistics."""
    x, (slope, bias, mean), variance = draw_normal(*IMAGE_SHAPE), draw_normal(3, 4), np.square(draw_normal(4))
    bn_net = Net(net_text("BN", "bn_param { }", [IMAGE_SHAPE]), phase)
    blobs = [b.reshape(1, 4, 1, 1) for b in (slope, bias, mean, variance)]
    params, state = (
        dict(zip(("weight", "bias"), blobs[:2], strict=True)),
        dict(zip(("mean", "variance"), blobs[2:], strict=True)),
    )
    result = bn_net.apply({"layer": params}, {"layer": state}, {"b0": x})[0]["t0"]
    if phase == "TRAIN":
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    normal = (x - mean[:, None, None]) / np.sqrt(variance + 1e-5)[:, None, None]
    np.testing.assert_allclose(result, normal * slope[:, None, None] + bias[:, None, None], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("BN", "", [(3,)], "needs a bottom with a channel axis"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")

"""Tests of Dropout, SeLu, SeLuDropout and SpatialDropout."""

from typing import Any

import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from layer_nets import draw_normal, first_top, net_text
from layer_suite import BATCH, IMAGE, Shape, fork_properties, layer_case

MAPS: Shape = (BATCH, 4, 5, 6)

test_properties = fork_properties(
    layer_case("Dropout", "dropout_param { scale_train: false }", IMAGE, name="unscaled", random=True),
    layer_case("Dropout", "dropout_param { scale_train: false }", IMAGE, name="unscaled_test", phase="TEST"),
    layer_case(
        "Dropout", "dropout_param { sample_weights_test: true }", IMAGE, name="sampled", phase="TEST", random=True
    ),
    layer_case(
        "Python",
        "python_param { module: 'spatial_dropout' layer: 'SpatialDropoutLayer' "
        "param_str: \"{'phase': 'TRAIN', 'p': '0.4'}\" }",
        (BATCH, 4, 3, 2),
        name="SpatialDropoutLayer",
        random=True,
    ),
    layer_case("SeLu", "", MAPS),
    layer_case("SeLuDropout", "", MAPS, name="train", random=True),
    layer_case("SeLuDropout", "", MAPS, name="test", phase="TEST"),
    layer_case("SpatialDropout", "", MAPS, name="train", random=True),
    layer_case("SpatialDropout", "", MAPS, name="test", phase="TEST"),
)


IMAGE_SHAPE = (2, 4, 5, 6)

RANDOM = np.random.default_rng(0)


def test_spatial_dropout_drops_channels() -> None:
    result = np.asarray(first_top("SpatialDropout", "", np.ones((50, 20, 3, 3), np.float32), phase="TRAIN"))
    assert set(np.unique(result)) == {0, 2}
    assert np.ptp(result, axis=(2, 3)).max() == 0
    assert abs(result.mean() - 1) < 0.1


def test_spatial_dropout_layer_of_python_drops_channels() -> None:
    name = "module: 'spatial_dropout' layer: 'SpatialDropoutLayer'"
    fields = f"python_param {{ {name} param_str: \"{{'phase': '%s', 'p': '0.2'}}\" }}"
    x = np.ones((8, 40, 3, 3), np.float32)
    top = first_top("Python", fields % "TRAIN", x)
    assert ((top == top[:, :, :1, :1]).all(axis=(2, 3))).all()
    assert set(np.unique(top)) == {np.float32(0), np.float32(1.25)}
    assert abs((top > 0).mean() - 0.8) < 0.1
    np.testing.assert_array_equal(first_top("Python", fields % "TEST", x), np.float32(1.25) * x)


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    x = draw_normal(400, 200)
    result = first_top("SeLuDropout", "", x, phase="TRAIN")
    assert abs(result.mean()) < 0.02
    assert abs(result.std() - 1) < 0.02
    np.testing.assert_array_equal(first_top("SeLuDropout", "", x), x)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("SpatialDropout", "spatial_dropout_param { dropout_ratio: 1 }", [IMAGE_SHAPE], "dropout_ratio must be"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")

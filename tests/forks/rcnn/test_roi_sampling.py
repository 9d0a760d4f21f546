"""Tests of ROIAlign and ROIWarping."""

import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from layer_suite import fork_properties, layer_case, recorded
from rcnn.cases import MAP_SHAPE, MAPS, POOL, ROI_SHAPE, ROIS, draw_rois, make_net, run_net


def draw_rois_within_image(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw regions whose bilinear samples are far from the centers of cells, where interpolation has kinks."""
    result = draw_rois(random, shape)
    return result + np.asarray([0, 0.23, 0.31, 0.37, 0.29])


test_recorded = recorded("ROIAlign", "ROIWarping", family="rcnn")
test_properties = fork_properties(
    layer_case("ROIAlign", f"roi_pooling_param {{ {POOL} }}", MAPS, ROIS, samplers={"b1": draw_rois_within_image}),
    layer_case("ROIWarping", f"roi_warping_param {{ {POOL} }}", MAPS, ROIS, samplers={"b1": draw_rois}),
)


def test_samples_on_the_border_of_the_map_count_as_in_c() -> None:
    """If boxes end at the border, float32 rounding decides which samples are inside; it must equal the C code's."""
    random = np.random.default_rng(0)
    size, scale = np.float32([41, 25]), np.float32(1 / 32)
    low = np.float32(random.uniform(0, size * 32, (4000, 2)))
    rois = np.concatenate([np.zeros((4000, 1)), low, np.broadcast_to(size * 32, low.shape)], 1)
    text = "roi_pooling_param { pooled_h: 7 pooled_w: 7 spatial_scale: 0.03125 }"
    (top,) = run_net(make_net("ROIAlign", text, [(1, 1, 25, 41), rois.shape]), np.ones((1, 1, 25, 41)), rois)

    step = (size - low * scale) / np.float32(7)
    last = low * scale + np.float32(7) * step - np.float32(0.5)
    is_outside = last > size - 0.5
    assert 0 < is_outside.sum() < is_outside.size
    np.testing.assert_array_equal(top[:, 0, 0, -1] == 0, is_outside[:, 0])
    np.testing.assert_array_equal(top[:, 0, -1, 0] == 0, is_outside[:, 1])


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "words"),
    [
        (
            "ROIAlign",
            "roi_pooling_param { pooled_h: 2 pooled_w: 2 }",
            [MAP_SHAPE[:3], ROI_SHAPE],
            "must be N x C x H x W",
        ),
    ],
)
def test_invalid_settings_and_bottoms_are_rejected(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], words: str
) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{words}"):
        make_net(layer_type, text, shapes, 2 if layer_type == "BoxAnnotatorOHEM" else 1)

"""Tests of ROIAlign and ROIWarping."""

import numpy as np

from layer_suite import fork_properties, layer_case, recorded
from rcnn.cases import MAPS, POOL, ROIS, draw_rois


def draw_rois_within_image(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw regions whose bilinear samples are far from the centers of cells, where interpolation has kinks."""
    result = draw_rois(random, shape)
    return result + np.asarray([0, 0.23, 0.31, 0.37, 0.29])


test_recorded = recorded("ROIAlign", "ROIWarping", family="rcnn")
test_properties = fork_properties(
    layer_case("ROIAlign", f"roi_pooling_param {{ {POOL} }}", MAPS, ROIS, samplers={"b1": draw_rois_within_image}),
    layer_case("ROIWarping", f"roi_warping_param {{ {POOL} }}", MAPS, ROIS, samplers={"b1": draw_rois}),
)

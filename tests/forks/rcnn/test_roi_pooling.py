"""Tests of PSROIPooling and ROIPooling."""

from layer_suite import fork_properties, layer_case, recorded
from rcnn.cases import MAPS, POOL, ROIS, draw_rois

test_recorded = recorded("PSROIPooling", "ROIPooling", family="rcnn")
test_properties = fork_properties(
    layer_case("ROIPooling", f"roi_pooling_param {{ {POOL} }}", MAPS, ROIS, samplers={"b1": draw_rois}),
    layer_case(
        "PSROIPooling",
        "psroi_pooling_param { output_dim: 2 group_size: 3 spatial_scale: 0.5 }",
        (2, 18, 6, 7),
        ROIS,
        samplers={"b1": draw_rois},
    ),
)

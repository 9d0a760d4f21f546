"""Tests of PriorBox and PriorBoxClustered."""

from layer_suite import BATCH, IMAGE, Shape, fork_properties, layer_case, recorded

FULL_IMAGE: Shape = (BATCH, 3, 40, 50)

test_recorded = recorded("PriorBox", family="detection")
test_properties = fork_properties(
    layer_case(
        "PriorBoxClustered",
        "prior_box_param { width: 9.4 width: 25.1 height: 15 height: 39.6 step: 16 variance: 0.1 }",
        (BATCH, 3, 5, 6),
        (BATCH, 3, 40, 50),
    ),
    layer_case("PriorBox", "prior_box_param { min_size: 8 max_size: 13 aspect_ratio: 2 }", IMAGE, FULL_IMAGE),
    layer_case(
        "PriorBox", "prior_box_param { min_size: 8 denser_prior_boxes: true }", IMAGE, FULL_IMAGE, name="textboxes"
    ),
    layer_case("PriorBox", "prior_box_param { min_size: 32 faceboxes: true }", IMAGE, FULL_IMAGE, name="faceboxes"),
)

"""Tests of Proposal and Python."""

from layer_suite import Shape, fork_properties, layer_case, recorded
from rcnn.cases import SCORES, draw_image_info, python_case

DELTAS: Shape = (1, 36, 4, 4)

test_recorded = recorded("Proposal", "Python", family="rcnn")
test_properties = fork_properties(
    layer_case(
        "Proposal",
        "proposal_param { ratio: 0.5 ratio: 1 ratio: 2 scale: 1 scale: 2 scale: 3 post_nms_topn: 7 min_size: 4 }",
        SCORES,
        DELTAS,
        (1, 4),
        tops=2,
        samplers={"b2": draw_image_info},
    ),
    python_case(
        "rpn.proposal_layer",
        "ProposalLayer",
        "{'feat_stride': 16, 'scales': [1, 2, 3], 'rpn_post_nms_top_n': 7}",
        SCORES,
        DELTAS,
        (1, 3),
        samplers={"b2": draw_image_info},
    ),
)

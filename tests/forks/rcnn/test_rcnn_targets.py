"""Tests of rcnn_targets."""

import numpy as np

from layer_suite import fork_properties
from rcnn.cases import ROIS, SCORES, draw_image_info, draw_rois_of_one_image, python_case


def draw_truth(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw boxes [x1, y1, x2, y2, class] in an image of 64 x 64."""
    corner = random.uniform(0, 30, (shape[0], 2))
    end_corner = corner + random.uniform(15, 30, (shape[0], 2))
    return np.concatenate([corner, end_corner, random.integers(1, 3, (shape[0], 1))], axis=1)


test_properties = fork_properties(
    python_case(
        "rpn.anchor_target_layer",
        "AnchorTargetLayer",
        "{'feat_stride': 16, 'scales': [1, 2, 3], 'rpn_batchsize': 8}",
        SCORES,
        (2, 5),
        (1, 3),
        tops=4,
        random=True,
        samplers={"b1": draw_truth, "b2": draw_image_info},
    ),
    python_case(
        "rpn.proposal_target_layer",
        "ProposalTargetLayer",
        "{'num_classes': 3, 'batch_size': 4, 'bg_thresh_lo': 0}",
        ROIS,
        (2, 5),
        tops=5,
        random=True,
        samplers={"b0": draw_rois_of_one_image, "b1": draw_truth},
    ),
)

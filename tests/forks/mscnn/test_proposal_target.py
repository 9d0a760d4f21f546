"""Tests of ProposalTarget."""

import numpy as np

from layer_suite import BATCH, fork_properties, layer_case, recorded
from mscnn.cases import BBOX_REG_PARAM, Random, Shape, draw_rois_of_two_images


def draw_truth(random: Random, shape: Shape) -> np.ndarray:
    """Draw rows [image, box, label, ignored, difficult]."""
    label_columns = np.zeros((shape[0], 3))
    label_columns[:, 0] = random.integers(1, 3, shape[0])
    return np.concatenate([draw_rois_of_two_images(random, shape), label_columns], axis=1)


test_recorded = recorded("ProposalTarget", family="mscnn")
test_properties = fork_properties(
    layer_case(
        "ProposalTarget",
        "proposal_target_param { cls_num: 3 batch_size: 4 num_img_per_batch: 2 img_width: 90 img_height: 90 } "
        f"{BBOX_REG_PARAM % ''}",
        (BATCH, 5),
        (2, 8),
        tops=7,
        samplers={"b0": draw_rois_of_two_images, "b1": draw_truth},
        random=True,
    ),
)

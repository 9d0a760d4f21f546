"""Tests of MultiBoxLoss."""

from dataclasses import replace

from detection.cases import NUM_CLASSES, NUM_PRIORS, draw_priors, draw_truth
from layer_suite import BATCH, Case, fork_properties, joint_batches, layer_case, normalizations_case, recorded


def multibox_loss_case(param: str, name: str, groups: int = 1) -> Case:
    shapes = ((BATCH, NUM_PRIORS * groups * 4), (BATCH, NUM_PRIORS * NUM_CLASSES), (1, 2, NUM_PRIORS * 4), (1, 1, 9, 8))
    text = f"multibox_loss_param {{ num_classes: {NUM_CLASSES} overlap_threshold: 0.4 {param} }}"
    if "NONE" in param:  # many terms, over as many
        text += " loss_param { normalization: FULL }"
    return layer_case("MultiBoxLoss", text, *shapes, name=name, samplers={"b2": draw_priors, "b3": draw_truth})


test_recorded = recorded("MultiBoxLoss", family="detection")
CASES = [
    multibox_loss_case("code_type: CENTER_SIZE", "ssd"),
    multibox_loss_case("mining_type: HARD_EXAMPLE sample_size: 6 loc_loss_type: L2 bp_inside: true", "hard"),
    multibox_loss_case("mining_type: NONE conf_loss_type: LOGISTIC encode_variance_in_target: true", "logistic"),
    multibox_loss_case(
        "mining_type: NONE share_location: false use_prior_for_matching: false", "predictions", NUM_CLASSES
    ),
    multibox_loss_case("mining_type: NONE share_location: false match_type: BIPARTITE", "classes", NUM_CLASSES),
]
test_properties = fork_properties(*CASES)
# with ground truth of each device's images
SPLIT_CASES = [replace(case, input_shapes={**case.input_shapes, "b3": (1, 1, BATCH, 8)}) for case in CASES]
test_joint_batches = joint_batches(*SPLIT_CASES, normalizations_case(SPLIT_CASES[0]))

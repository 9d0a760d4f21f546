"""Tests of rcnn_targets."""

import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.forks.rcnn.rpn_proposals import encode_boxes
from layer_suite import fork_properties
from rcnn.cases import (
    ROIS,
    SCORES,
    draw_image_info,
    draw_overhanging_rois,
    draw_rois_of_one_image,
    draw_truth,
    make_net,
    python_case,
    run_net,
)

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


PROPOSAL_TARGET_PARAM = (
    "python_param { module: 'rpn.proposal_target_layer' layer: 'ProposalTargetLayer' param_str: \"%s\" }"
)

ANCHOR_TARGET_PARAM = "python_param { module: 'rpn.anchor_target_layer' layer: 'AnchorTargetLayer' param_str: \"%s\" }"


def test_proposal_targets_belong_to_the_matched_ground_truth() -> None:
    random = np.random.default_rng(1)
    truth = np.asarray([[10, 10, 40, 50, 2], [60, 20, 90, 45, 1], [0, 0, 0, 0, 0]], np.float32)
    near_boxes = truth[random.integers(0, 2, 40), :4] + random.uniform(-8, 8, (40, 4))
    rois = np.concatenate(
        [np.zeros((60, 1)), np.concatenate([near_boxes, draw_overhanging_rois(random, 20, 1, 90)[:, 1:]])], 1
    )
    rois = np.concatenate([rois, np.tile([-1, 0, 0, 0, 0], (5, 1))]).astype(np.float32)
    target_net = make_net(
        "Python", PROPOSAL_TARGET_PARAM % "{'num_classes': 3, 'batch_size': 16}", [rois.shape, truth.shape], 5, "TRAIN"
    )
    sampled_rois, labels, targets, inside_weights, outside_weights = run_net(target_net, rois, truth)
    positive = labels > 0
    assert 0 < positive.sum() <= 4
    assert len(sampled_rois) <= 16
    assert (sampled_rois[:, 0] == 0).all()
    np.testing.assert_array_equal(inside_weights, outside_weights)
    assert inside_weights.sum() == 4 * positive.sum()
    for row in np.flatnonzero(positive):
        k = int(labels[row])
        truth_box = truth[truth[:, 4] == k][0, :4]
        np.testing.assert_allclose(
            targets[row, 4 * k : 4 * k + 4], encode_boxes(sampled_rois[row, 1:], truth_box, np), rtol=1e-5
        )
        assert (inside_weights[row, 4 * k : 4 * k + 4] == 1).all()
    repeated_tops, other_key_tops = run_net(target_net, rois, truth), run_net(target_net, rois, truth, key=7)
    np.testing.assert_array_equal(sampled_rois, repeated_tops[0])
    assert not np.array_equal(sampled_rois, other_key_tops[0])


def test_anchor_targets_are_sampled_by_the_key() -> None:
    text = ANCHOR_TARGET_PARAM % "'feat_stride': 8, 'scales': [1, 2], 'rpn_batchsize': 10"
    shapes = [(1, 12, 12, 12), (2, 5), (1, 3)]
    target_net = make_net("Python", text, shapes, 4, "TRAIN")
    truth = np.asarray([[20, 20, 45, 45, 1], [0, 0, 95, 95, 0]], np.float32)  # the second does not count
    bottoms = np.zeros(shapes[0]), truth, [[96, 96, 1]]
    labels, _, inside_weights, outside_weights = run_net(target_net, *bottoms)
    assert 0 < (labels == 1).sum() <= 5
    assert (labels >= 0).sum() == 10
    np.testing.assert_allclose(outside_weights[outside_weights > 0], 0.1)
    assert inside_weights.sum() == 4 * (labels == 1).sum()
    assert not np.array_equal(labels, run_net(target_net, *bottoms, key=1)[0])


@pytest.mark.parametrize("settings", ["'num_classes': 2", "'num_classes': 2, 'agnostic': True, 'batch_size': -1"])
def test_class_agnostic_targets_keep_the_labels(settings: str) -> None:
    """The numbers are those of py-R-FCN's proposal_target_layer.py with TRAIN.AGNOSTIC."""
    rois = np.asarray([[0, 12, 8, 62, 58], [0, 100, 100, 180, 160], [0, 60, 60, 110, 110]], np.float32)
    truth = np.asarray([[10, 10, 61, 61, 7], [100, 98, 181, 161, 15]], np.float32)
    net = make_net("Python", PROPOSAL_TARGET_PARAM % settings, [rois.shape, truth.shape], 5, "TRAIN")
    sampled, labels, targets, inside_weights, outside_weights = run_net(net, rois, truth)
    expected = {
        (12, 8): (7, -0.0294, 0.0490, 0.0194, 0.0194),
        (100, 100): (15, 0.0062, -0.0082, 0.0123, 0.0480),
        (10, 10): (7, 0, 0, 0, 0),
        (100, 98): (15, 0, 0, 0, 0),
    }
    assert {tuple(box[1:3]) for box in sampled} == set(expected)
    assert targets.shape == inside_weights.shape == (4, 8)
    for box, label, row in zip(sampled, labels, targets, strict=True):
        np.testing.assert_allclose([label, *row[4:]], expected[tuple(box[1:3])], atol=1e-4)
    for weights in (inside_weights, outside_weights):
        np.testing.assert_array_equal(weights, np.tile([0, 0, 0, 0, 1, 1, 1, 1], (4, 1)))
    np.testing.assert_array_equal(targets[:, :4], 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("'num_classes': 2, 'agnostic': False", "the class of a ground-truth box must be below num_classes 2, not 15"),
        ("'num_classes': 2, 'agnostic': 1", "agnostic must be True or False, not 1"),
        ("'batch_size': -2", "batch_size must be > 0, or -1, not -2"),
        ("'batch_size': -1, 'fg_fraction': 0.0", "with batch_size -1, fg_fraction must be > 0"),
    ],
)
def test_invalid_settings_raise(settings: str, message: str) -> None:
    truth = np.asarray([[10, 10, 61, 61, 7], [100, 98, 181, 161, 15]], np.float32)

    def run() -> None:
        net = make_net("Python", PROPOSAL_TARGET_PARAM % settings, [(3, 5), (2, 5)], 5, "TRAIN")
        run_net(net, np.zeros((3, 5)), truth)

    with pytest.raises(CaffejaxError, match=message):
        run()

"""Tests of ProposalTarget."""

from typing import Any

import numpy as np
import pytest

from caffejax import LayerError, Net
from caffejax.base.errors import CaffejaxError
from layer_nets import net_text, run_layer
from layer_suite import BATCH, fork_properties, layer_case, recorded
from mscnn.cases import (
    BBOX_REG_PARAM,
    TARGET_SETTINGS,
    Random,
    Shape,
    compute_overlap,
    draw_rois_of_two_images,
    draw_wide_rois,
)


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


def test_proposal_target_samples_batch_size_rows_by_the_key() -> None:
    random = np.random.default_rng(7)
    truth = np.concatenate([draw_wide_rois(random, 4, 2), [[1, 0], [2, 0], [1, 1], [2, 0]]], axis=1)
    object_rois = truth[np.arange(40) % 4, :5] + np.concatenate(
        [np.zeros((40, 1)), random.normal(0, 2, (40, 4))], axis=1
    )
    rois = np.concatenate([object_rois, draw_wide_rois(random, 60, 2)])
    settings = f"{TARGET_SETTINGS} batch_size: 32 fg_fraction: 0.25 bg_thr_lw: 0.1"
    text = f"proposal_target_param {{ {settings} }} {BBOX_REG_PARAM % ''}"
    rows, labels, targets, inside, outside, matched, weights = (
        top[:, :, 0, 0] for top in run_layer("ProposalTarget", text, rois, truth, tops=7, phase="TRAIN")
    )
    objects = labels[:, 0] > 0
    assert (len(rows), objects.sum()) == (32, 8)
    assert np.all(objects[:8])
    np.testing.assert_allclose(weights[objects].sum(), 8, rtol=1e-5)
    np.testing.assert_allclose(weights.sum(), 32, rtol=1e-5)
    np.testing.assert_array_equal(inside, outside)
    assert inside.sum() == 4 * 8
    for i in range(8):  # targets lead from the ROI to the ground truth of its image
        d = targets[i].reshape(3, 4)[int(labels[i, 0])] * [0.1, 0.1, 0.2, 0.2]
        sides = rows[i, 3:] - rows[i, 1:3] + 1
        center, new_sides = (rows[i, 3:] + rows[i, 1:3]) / 2 + d[:2] * sides, np.exp(d[2:]) * sides
        result = [rows[i, 0], *(center - (new_sides - 1) / 2), *(center + (new_sides - 1) / 2), labels[i, 0], 0]
        assert np.min(np.max(np.abs(truth - result), axis=1)) < 1e-3
        np.testing.assert_allclose(matched[i, 5], compute_overlap(rows[i, 1:], matched[i, 1:5], 1.0), rtol=1e-4)
    same_key_tops, other_key_tops = (
        run_layer("ProposalTarget", text, rois, truth, tops=7, phase="TRAIN", seed=k) for k in (1, 2)
    )
    np.testing.assert_array_equal(same_key_tops[0][:, :, 0, 0], rows)
    assert np.any(other_key_tops[0][:, :, 0, 0] != rows)


def test_proposal_target_samples_background_boxes_if_there_are_none() -> None:
    truth = [[0, 10, 10, 80, 80, 1, 1]]  # ignored
    rows, labels, *_ = run_layer(
        "ProposalTarget",
        f"proposal_target_param {{ {TARGET_SETTINGS} }}",
        [[0, 10, 10, 80, 80]],
        truth,
        tops=6,
        phase="TRAIN",
    )
    assert rows.shape == (1, 5, 1, 1)
    assert labels[0, 0, 0, 0] == 0
    text = f"proposal_target_param {{ {TARGET_SETTINGS} }}"
    with pytest.raises(LayerError, match="random in this phase and needs a random key"):
        run_layer("ProposalTarget", text, [[0, 10, 10, 80, 80]], truth, tops=6, phase="TRAIN", seed=None)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "tops", "message"),
    [
        ("ProposalTarget", "", [(3, 5), (3, 8)], 6, "cls_num, background included, must be 2 or more, not 0"),
        (
            "ProposalTarget",
            "proposal_target_param { cls_num: 3 fg_thr: 0.3 }",
            [(3, 5), (3, 8)],
            6,
            "must not be below bg_thr_hg 0.5",
        ),
    ],
)
def test_contradictory_settings_are_refused(layer_type: str, text: str, shapes: Any, tops: int, message: str) -> None:
    with pytest.raises(CaffejaxError) as exc_info:
        Net(net_text(layer_type, text, shapes, tops), "TRAIN")
    assert message in str(exc_info.value)


def test_ground_truth_of_missing_images_and_classes_is_refused() -> None:
    text = f"proposal_target_param {{ {TARGET_SETTINGS} }}"
    for row, message in ([2, 0, 0, 9, 9, 1, 0], "in images 0 to 1"), ([0, 0, 0, 9, 9, 3, 0], "must not be above 2"):
        with pytest.raises(LayerError, match=message):
            run_layer("ProposalTarget", text, [[0, 0, 0, 9, 9]], [row], tops=6, phase="TRAIN")
    with pytest.raises(LayerError, match=r"in images 0 to 0 \(num_image 1\), not 1"):
        run_layer("HardMining", "hard_mining_param { num_image: 1 }", [[1.0]], [[1, 0, 0, 9, 9]], phase="TRAIN")

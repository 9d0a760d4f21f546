"""The layers of MS-CNN and Cascade R-CNN: NumPy references, invariants of samples, padding, errors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import LayerError, Net
from caffejax.base.errors import CaffejaxError, GraphError
from caffejax.forks.mscnn.box_output import make_overlap_measure
from caffejax.forks.mscnn.detection_loss import masked_sample, masked_topk
from layer_nets import net_text

BBOX_REG_PARAM = "bbox_reg_param { bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 " + (
    "bbox_std: 0.1 bbox_std: 0.1 bbox_std: 0.2 bbox_std: 0.2 %s }"
)


def run(
    layer_type: str, text: str, *bottoms: Any, tops: int = 1, phase: Any = "TEST", key: int | None = 1
) -> list[Any]:
    arrays = [np.asarray(b, np.float32) for b in bottoms]
    net = Net(net_text(layer_type, text, [a.shape for a in arrays], tops), phase)
    inputs = {f"b{i}": a for i, a in enumerate(arrays)}
    random_key = None if key is None else jax.random.key(key)
    names = [f"t{i}" for i in range(tops)]
    result = net.strip_padding(
        net.jit(lambda inputs: net.apply({}, {}, inputs, key=random_key, blobs=names)[0])(inputs)
    )
    return [np.asarray(result[name]) for name in names]


def draw_rois(random: np.random.Generator, n: int, num_images: int = 1) -> np.ndarray:
    corner, sides = random.uniform(0, 150, (n, 2)), random.uniform(5, 100, (n, 2))
    return np.concatenate([random.integers(0, num_images, (n, 1)), corner, corner + sides], axis=1).astype(np.float32)


def compute_overlap(a: Any, b: Any, plus: float, measure: str = "IOU") -> float:
    sides = [min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1)]
    intersection = 0.0 if min(sides) < 0 else (sides[0] + plus) * (sides[1] + plus)
    area_a, area_b = ((x[2] - x[0] + plus) * (x[3] - x[1] + plus) for x in (a, b))
    denominator = {"IOU": area_a + area_b - intersection, "IOMU": min(area_a, area_b), "IOFU": area_a}[measure]
    return float(intersection / denominator)


def suppress_by_loops(rows: list[Any], threshold: float, plus: float, measure: str = "IOU") -> list[Any]:
    selected_rows: list[Any] = []
    for row in rows:
        if all(compute_overlap(k[:4], row[:4], plus, measure) <= threshold for k in selected_rows):
            selected_rows.append(row)
    return selected_rows


@pytest.mark.parametrize("measure", ["IOU", "IOMU", "IOFU"])
@pytest.mark.parametrize("plus", [0.0, 1.0])
def test_overlap_measures_equal_loops(measure: str, plus: float) -> None:
    boxes = draw_rois(np.random.default_rng(0), 12)[:, 1:]
    boxes[1] = boxes[0]
    boxes[2] = [0, 0, 9.5, 9]
    boxes[3] = [10, 0, 20, 9]  # half a pixel away: not one that meets
    expected = [[compute_overlap(a, b, plus, measure) for b in boxes] for a in boxes]
    for module in (jnp, np):
        result = make_overlap_measure(measure, plus)(module.asarray(boxes)[:, None], module.asarray(boxes)[None])
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert expected[2][3] == 0


@pytest.mark.parametrize("measure", ["IOU", "IOFU"])
def test_box_group_output_equals_loops(measure: str) -> None:
    random = np.random.default_rng(3)
    widths, heights, stride = (30, 50), (60, 40), 16
    scores, deltas = random.uniform(0, 1, (4, 2, 3, 4)), random.normal(size=(4, 4, 3, 4))
    text = f"""box_group_output_param {{ fg_thr: 0.3 iou_thr: 0.5 nms_type: "{measure}" max_nms_num: 15
        max_post_nms_num: 7 min_size: 20 field_whr: 4 field_xyr: 1
        box_group_param {{ field_w: 30 field_w: 50 field_h: 60 field_h: 40 stride: 16 }} }} {BBOX_REG_PARAM % ""}"""
    rois, scored_rois = run("BoxGroupOutput", text, scores, deltas, tops=2)
    expected = []
    for image in range(2):
        rows = []
        for field in range(2):
            for y in range(3):
                for x in range(4):
                    d = deltas[2 * image + field, :, y, x] * [0.1, 0.1, 0.2, 0.2]
                    d = np.clip(d, [-1, -1, -np.log(4), -np.log(4)], [1, 1, np.log(4), np.log(4)])
                    sides = np.exp(d[2:]) * (widths[field], heights[field])
                    center = d[:2] * (widths[field], heights[field]) + (np.array([x, y]) + 0.5) * stride
                    low, high = center - sides / 2, center + sides / 2 - 1
                    low, high = np.maximum(low, 0), np.minimum(high, [4 * stride, 3 * stride])
                    score = 1 - scores[2 * image + field, 0, y, x]
                    if score >= 0.3 and min(high - low + 1) >= 20:
                        rows.append([*low, *high, score])
        best = sorted(rows, key=lambda row: -row[4])[:15]
        expected += [[image, *row] for row in suppress_by_loops(best, 0.5, 1.0, measure)[:7]]
    np.testing.assert_allclose(scored_rois[:, :, 0, 0], expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(rois, scored_rois[:, :5])


def test_frcnn_output_equals_loops_and_ignores_padding_rows() -> None:
    random = np.random.default_rng(4)
    rois, n = draw_rois(random, 20), 20
    rois[[3, 11, 19], 0] = -1  # as a Concat of padded tops has them
    prob, deltas = random.dirichlet(np.ones(4), n), random.normal(size=(n, 16))
    text = f"frcnn_output_param {{ conf_thr: 0.1 iou_thr: 0.3 max_det_num: 12 }} {BBOX_REG_PARAM % ''}"
    (result,) = run("FrcnnOutput", text, prob, deltas, rois, [[140.0, 160.0]])
    selected_rows = []
    for c in (1, 2, 3):
        rows = []
        for i in np.flatnonzero((rois[:, 0] >= 0) & (prob[:, c] >= 0.1)):
            d = deltas[i, 4 * c : 4 * c + 4] * [0.1, 0.1, 0.2, 0.2]
            sides = rois[i, 3:] - rois[i, 1:3] + 1
            center, new_sides = (rois[i, 3:] + rois[i, 1:3]) / 2 + d[:2] * sides, np.exp(d[2:]) * sides
            low, high = (
                np.maximum(center - (new_sides - 1) / 2, 0),
                np.minimum(center + (new_sides - 1) / 2, [160, 140]),
            )
            rows.append([*low, *high, c, prob[i, c]])
        selected_rows += suppress_by_loops(sorted(rows, key=lambda row: -row[5]), 0.3, 1.0)
    limit = sorted((row[5] for row in selected_rows), reverse=True)[11]
    expected = [[0, *[-1] * 6], *([0, *row] for row in selected_rows if row[5] >= limit)]
    assert len(selected_rows) > 12
    np.testing.assert_allclose(result[:, :, 0, 0], expected, rtol=1e-4, atol=1e-3)


def test_scale_route_sends_each_roi_to_one_level() -> None:
    rois = draw_rois(np.random.default_rng(5), 40, num_images=3)
    rois[::7, 0] = -1
    bounds = "high_scale: 30", "low_scale: 30 high_scale: 60", "low_scale: 60"
    for phase in ("TRAIN", "TEST"):
        parts = [run("ScaleRoute", f"scale_route_param {{ {b} }}", rois, phase=phase)[0] for b in bounds]
        assert all(len(part) > 1 for part in parts)
        result = np.concatenate(parts)[:, :, 0, 0]
        valid_rois = rois[rois[:, 0] >= 0]
        np.testing.assert_array_equal(result[np.lexsort(result.T)], valid_rois[np.lexsort(valid_rois.T)])


def test_scale_route_selects_the_nearest_roi_if_none_is_in_range() -> None:
    rois = [[-1, 0, 0, 99, 99], [0, 0, 0, 9, 9], [0, 0, 0, 49, 49]]
    for phase in ("TRAIN", "TEST"):
        (result,) = run("ScaleRoute", "scale_route_param { low_scale: 200 }", rois, phase=phase)
        np.testing.assert_array_equal(result[:, :, 0, 0], rois[2:])


def test_decode_bbox_with_zero_deltas_returns_the_rois() -> None:
    rois = draw_rois(np.random.default_rng(6), 9, num_images=2)
    rois[4, 0] = -1
    zero_deltas = np.zeros((9, 8))
    np.testing.assert_allclose(
        run("DecodeBBox", BBOX_REG_PARAM % "", zero_deltas, rois)[0][:, :, 0, 0], rois, rtol=1e-5
    )
    (train_top,) = run("DecodeBBox", BBOX_REG_PARAM % "", zero_deltas, rois, phase="TRAIN")
    np.testing.assert_allclose(train_top[:, :, 0, 0], rois[rois[:, 0] >= 0], rtol=1e-5)


TARGET_SETTINGS = "cls_num: 3 num_img_per_batch: 2 img_width: 300 img_height: 300"


def test_proposal_target_samples_batch_size_rows_by_the_key() -> None:
    random = np.random.default_rng(7)
    truth = np.concatenate([draw_rois(random, 4, 2), [[1, 0], [2, 0], [1, 1], [2, 0]]], axis=1)
    object_rois = truth[np.arange(40) % 4, :5] + np.concatenate(
        [np.zeros((40, 1)), random.normal(0, 2, (40, 4))], axis=1
    )
    rois = np.concatenate([object_rois, draw_rois(random, 60, 2)])
    settings = f"{TARGET_SETTINGS} batch_size: 32 fg_fraction: 0.25 bg_thr_lw: 0.1"
    text = f"proposal_target_param {{ {settings} }} {BBOX_REG_PARAM % ''}"
    rows, labels, targets, inside, outside, matched, weights = (
        top[:, :, 0, 0] for top in run("ProposalTarget", text, rois, truth, tops=7, phase="TRAIN")
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
        run("ProposalTarget", text, rois, truth, tops=7, phase="TRAIN", key=k) for k in (1, 2)
    )
    np.testing.assert_array_equal(same_key_tops[0][:, :, 0, 0], rows)
    assert np.any(other_key_tops[0][:, :, 0, 0] != rows)


def test_proposal_target_samples_background_boxes_if_there_are_none() -> None:
    truth = [[0, 10, 10, 80, 80, 1, 1]]  # ignored
    rows, labels, *_ = run(
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
        run("ProposalTarget", text, [[0, 10, 10, 80, 80]], truth, tops=6, phase="TRAIN", key=None)


def test_hard_mining_fills_up_from_images_with_more_rows() -> None:
    rois = np.zeros((9, 5))
    rois[5:, 0] = 1
    scores = np.array([5, 1, 7, 7, 2, 0, 9, 3, 4.0])[:, None]
    text = "hard_mining_param { num_image: 3 num_roi_per_image: 2 }"
    _, result = run("HardMining", text, scores, rois, np.arange(9)[:, None], tops=2, phase="TRAIN")
    assert result.ravel().tolist() == [0, 2, 3, 6, 7, 8]


@pytest.mark.parametrize("count", [0, 3, 30])
def test_masked_topk_and_sample_stay_within_the_mask(count: int) -> None:
    random = np.random.default_rng(8)
    scores, mask = random.integers(0, 4, (5, 12)), random.uniform(size=(5, 12)) < 0.7
    result = masked_topk(jnp.asarray(scores), jnp.asarray(mask), jnp.full(5, count))
    for row in range(5):
        expected_indices = sorted(np.flatnonzero(mask[row]), key=lambda i, row=row: (-scores[row, i], -i))[:count]
        assert np.flatnonzero(result[row]).tolist() == sorted(expected_indices)
    sampled_mask = np.asarray(masked_sample(jax.random.key(0), jnp.asarray(mask), jnp.full(5, count)))
    np.testing.assert_array_equal(sampled_mask.sum(1), np.minimum(count, mask.sum(1)))
    assert not np.any(sampled_mask & ~mask)


BOX_GROUP_FIELDS = "field_w: 30 field_w: 50 field_h: 60 field_h: 40 stride: 16"


def draw_label_maps(random: np.random.Generator, batch_size: int, max_label: int = 1) -> np.ndarray:
    label = random.integers(0, max_label + 1, (batch_size, 1, 6, 7)) * random.integers(0, 2, (batch_size, 1, 6, 7))
    box = random.uniform(20, 90, (batch_size, 4, 6, 7))
    return np.concatenate([label, box, random.uniform(0, 0.2, label.shape)], axis=1)


def test_detection_group_loss_has_gradients_for_a_sample_of_each_image() -> None:
    random = np.random.default_rng(9)
    scores, deltas, truth = (
        random.normal(size=(4, 2, 6, 7)),
        random.normal(size=(4, 4, 6, 7)),
        draw_label_maps(random, 4),
    )
    text = f"""detection_group_loss_param {{ cls_num: 2 {BOX_GROUP_FIELDS} batch_size: 16 bg_multiple: 3
        neg_mining_type: "mixture" objectness: true }} {BBOX_REG_PARAM % ""}"""
    net = Net(net_text("DetectionGroupLoss", text, [scores.shape, deltas.shape, truth.shape]), "TRAIN")

    def loss(scores: Any, deltas: Any) -> Any:
        inputs = {"b0": scores, "b1": deltas, "b2": truth}
        return net.apply({}, {}, inputs, key=jax.random.key(3), blobs=["t0"])[0]["t0"][0, 0, 0, 0]

    d_scores, d_deltas = map(np.asarray, jax.jit(jax.grad(loss, (0, 1)))(scores.astype("f4"), deltas.astype("f4")))
    has_gradient = np.any(d_scores != 0, axis=1).reshape(2, 2, 6, 7)
    objects = truth[:, 0].reshape(has_gradient.shape) > 0
    assert (has_gradient & objects).sum((1, 2, 3)).tolist() == [4, 4]
    assert has_gradient.sum((1, 2, 3)).tolist() == [16, 16]
    assert not np.any(d_deltas[~np.broadcast_to((has_gradient & objects).reshape(4, 1, 6, 7), d_deltas.shape)])


def test_detection_loss_has_gradients_for_all_objects_and_some_background() -> None:
    random = np.random.default_rng(10)
    x, truth = random.normal(size=(2, 7, 6, 7)).astype("f4"), draw_label_maps(random, 2, 2)
    truth[:, 0, 3:] = 0
    text = """detection_loss_param { cls_num: 3 field_w: 30 field_h: 60 downsample_rate: 16 bb_smooth: true
        bg_multiple: 1 sample_mode: "mixture" }"""
    net = Net(net_text("DetectionLoss", text, [x.shape, truth.shape]), "TRAIN")

    def loss(x: Any) -> Any:
        return net.apply({}, {}, {"b0": x, "b1": truth}, key=jax.random.key(3), blobs=["t0"])[0]["t0"][0, 0, 0, 0]

    has_gradient = np.any(np.asarray(jax.jit(jax.grad(loss))(x))[:, :3] != 0, axis=1)
    objects = truth[:, 0] > 0
    assert np.all(has_gradient[objects])
    assert 0 < (has_gradient & ~objects).sum() < 0.8 * (~objects).sum()


def test_label_out_of_range_makes_the_detection_loss_nan() -> None:
    x, truth = np.zeros((1, 6, 2, 2)), np.zeros((1, 6, 2, 2))
    truth[:, 1:5] = 10
    text = "detection_loss_param { cls_num: 2 field_w: 30 field_h: 60 downsample_rate: 16 }"
    assert np.all(np.isfinite(run("DetectionLoss", text, x, truth, phase="TRAIN")[0]))
    truth[0, 0, 0, 0] = 2
    assert np.isnan(run("DetectionLoss", text, x, truth, phase="TRAIN")[0].flat[0])


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "tops", "message"),
    [
        ("BoxOutput", "", [(1, 6, 2, 2)], 1, "one value of each setting for each of 1 bottoms, not {'field_w': 0"),
        ("BoxGroupOutput", "", [(1, 2, 2, 2), (1, 4, 2, 2)], 1, "2 bottoms for 0"),
        (
            "BoxGroupOutput",
            f"box_group_output_param {{ box_group_param {{ {BOX_GROUP_FIELDS} }} }}",
            [(3, 2, 2, 2), (3, 4, 2, 2)],
            1,
            "3 items, which is not a multiple of 2 box shapes",
        ),
        (
            "BoxGroupOutput",
            f'box_group_output_param {{ nms_type: "SOFT" box_group_param {{ {BOX_GROUP_FIELDS} }} }}',
            [(2, 2, 2, 2), (2, 4, 2, 2)],
            1,
            "nms_type must be one of IOU, IOMU, IOFU, not 'SOFT'",
        ),
        (
            "BoxGroupOutput",
            "box_group_output_param { box_group_param { field_w: 9 field_h: 9 } }",
            [(2, 2, 2, 2), (2, 4, 2, 2)],
            1,
            "stride must be above 0, not 0",
        ),
        ("DecodeBBox", "bbox_reg_param { bbox_mean: 0 bbox_std: 1 }", [(3, 8), (3, 5)], 1, "four values of bbox_mean"),
        ("DecodeBBox", "", [(3, 8), (4, 5)], 1, "equal numbers of rows, not {'deltas': 3, 'rois': 4}"),
        ("DecodeBBox", "", [(3, 12), (3, 5)], 1, "bottom 0 (deltas) must have rows of 8 values, not shape (3, 12)"),
        ("FrcnnOutput", "", [(3, 4), (3, 8), (3, 5), (1, 2)], 1, "bottom 1 (deltas) must have rows of 16 values"),
        ("FrcnnOutput", "", [(3, 4), (3, 16), (3, 5), (2, 2)], 1, "takes one image"),
        ("ScaleRoute", "scale_route_param { low_scale: 9 high_scale: 3 }", [(3, 5)], 1, "low_scale 9.0 must not be"),
        ("ScaleRoute", "", [(3, 5), (4, 2)], 2, "bottom 1 must have one row per ROI"),
        ("HardMining", "hard_mining_param { num_image: 0 }", [(3, 1), (3, 5)], 1, "must be above 0"),
        ("ProposalTarget", "", [(3, 5), (3, 8)], 6, "cls_num, background included, must be 2 or more, not 0"),
        (
            "ProposalTarget",
            "proposal_target_param { cls_num: 3 fg_thr: 0.3 }",
            [(3, 5), (3, 8)],
            6,
            "must not be below bg_thr_hg 0.5",
        ),
        (
            "DetectionLoss",
            "detection_loss_param { cls_num: 3 field_w: 9 field_h: 9 downsample_rate: 8 }",
            [(1, 6, 2, 2), (1, 6, 2, 2)],
            1,
            "cls_num + coord_num channels, 3 + 4, not 6",
        ),
        (
            "DetectionGroupLoss",
            f'detection_group_loss_param {{ cls_num: 2 {BOX_GROUP_FIELDS} neg_mining_type: "easy" }}',
            [(2, 2, 3, 3), (2, 4, 3, 3), (2, 6, 3, 3)],
            1,
            "neg_mining_type must be random, bootstrap or mixture, not 'easy'",
        ),
        (
            "DetectionAccuracy",
            "detection_accuracy_param { cls_num: 2 field_w: 9 field_h: 9 downsample_rate: 8 top_k: 3 }",
            [(1, 6, 2, 2), (1, 6, 2, 2)],
            1,
            "top_k must be between 1 and cls_num 2, not 3",
        ),
    ],
)
def test_contradictory_settings_are_refused(layer_type: str, text: str, shapes: Any, tops: int, message: str) -> None:
    with pytest.raises(CaffejaxError) as exc_info:
        Net(net_text(layer_type, text, shapes, tops), "TRAIN")
    assert message in str(exc_info.value)


def test_computed_labels_must_have_the_shape_of_the_cells() -> None:
    """Labels from Input layers are reshaped instead."""
    tops = {"scores": (2, 2, 3, 3), "deltas": (2, 4, 3, 3), "fed": (2, 5, 3, 3)}
    inputs = "\n".join(
        f'layer {{ name: "{top}" type: "Input" top: "{top}" input_param {{ shape {{ '
        f"{' '.join(f'dim: {n}' for n in shape)} }} }} }}"
        for top, shape in tops.items()
    )
    text = f"""layer {{ name: "made" type: "Power" bottom: "fed" top: "truth" }}
      layer {{ name: "loss" type: "DetectionGroupLoss" bottom: "scores" bottom: "deltas" bottom: "truth" top: "y"
        detection_group_loss_param {{ cls_num: 2 {BOX_GROUP_FIELDS} }} }}"""
    with pytest.raises(CaffejaxError, match=r"for each cell, \(2, 6, 3, 3\), not \(2, 5, 3, 3\)"):
        Net(inputs + text, "TRAIN")


def test_ground_truth_of_missing_images_and_classes_is_refused() -> None:
    text = f"proposal_target_param {{ {TARGET_SETTINGS} }}"
    for row, message in ([2, 0, 0, 9, 9, 1, 0], "in images 0 to 1"), ([0, 0, 0, 9, 9, 3, 0], "must not be above 2"):
        with pytest.raises(LayerError, match=message):
            run("ProposalTarget", text, [[0, 0, 0, 9, 9]], [row], tops=6, phase="TRAIN")
    with pytest.raises(LayerError, match=r"in images 0 to 0 \(num_image 1\), not 1"):
        run("HardMining", "hard_mining_param { num_image: 1 }", [[1.0]], [[1, 0, 0, 9, 9]], phase="TRAIN")


def test_gradients_of_a_cascade() -> None:
    """Proposals are padded while compiled, sampled on the host, refined, and sampled again."""
    text = f"""
    layer {{ name: "in" type: "Input" top: "data" top: "prob" top: "deltas" top: "gt" input_param {{
      shape {{ dim: 1 dim: 2 dim: 6 dim: 7 }} shape {{ dim: 2 dim: 2 dim: 6 dim: 7 }}
      shape {{ dim: 2 dim: 4 dim: 6 dim: 7 }} shape {{ dim: 2 dim: 8 }} }} }}
    layer {{ name: "box" type: "BoxGroupOutput" bottom: "prob" bottom: "deltas" top: "proposals"
      box_group_output_param {{ fg_thr: 0.2 iou_thr: 0.7 field_whr: 4 field_xyr: 1 max_nms_num: 40 min_size: 5
        box_group_param {{ {BOX_GROUP_FIELDS} }} }} {BBOX_REG_PARAM % ""} }}
    layer {{ name: "target" type: "ProposalTarget" bottom: "proposals" bottom: "gt" top: "rois" top: "labels"
      top: "targets" top: "inside" top: "outside" top: "matched"
      proposal_target_param {{ {TARGET_SETTINGS} batch_size: 12 }} {BBOX_REG_PARAM % ""} }}
    layer {{ name: "ip" type: "InnerProduct" bottom: "rois" top: "ip"
      inner_product_param {{ num_output: 8 weight_filler {{ type: "gaussian" std: 1e-4 }} }} }}
    layer {{ name: "decode" type: "DecodeBBox" bottom: "ip" bottom: "rois" bottom: "matched" top: "second"
      {BBOX_REG_PARAM % ""} }}
    layer {{ name: "route" type: "ScaleRoute" bottom: "second" top: "small" scale_route_param {{ high_scale: 60 }} }}
    layer {{ name: "score" type: "InnerProduct" bottom: "rois" top: "score"
      inner_product_param {{ num_output: 3 weight_filler {{ type: "gaussian" std: 1e-3 }} }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "labels" top: "loss" }}
    layer {{ name: "silence" type: "Silence" bottom: "small" bottom: "targets" bottom: "inside" bottom: "outside" }}
    """
    net = Net(text, "TRAIN")
    params, state = net.init(jax.random.key(0))
    random = np.random.default_rng(11)
    gt = np.concatenate([draw_rois(random, 2) * [1, 0.5, 0.5, 0.5, 0.5], [[1, 0, 0], [2, 0, 0]]], axis=1)
    shapes = {name: net.graph.blobs[name].shape for name in ("data", "prob", "deltas")}
    inputs = {name: random.uniform(0, 1, shape).astype("f4") for name, shape in shapes.items()} | {"gt": gt}

    def loss(params: Any) -> Any:
        names = ["loss", "rois", "second", "small"]
        blobs = net.apply(params, state, inputs, key=jax.random.key(0), blobs=names)[0]
        return blobs["loss"], blobs

    (value, blobs), gradient = net.jit(jax.value_and_grad(loss, has_aux=True))(params)
    assert np.isfinite(value)
    assert np.any(np.asarray(gradient["score"]["weight"]))
    assert not np.any(np.asarray(gradient["ip"]["weight"]))  # behind a DecodeBBox
    assert blobs["rois"].shape == (12, 5, 1, 1)
    assert 1 <= len(blobs["small"]) <= len(blobs["second"]) < 12

    (traced_value, traced_blobs), traced_gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    np.testing.assert_allclose(traced_value, value, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), traced_gradient, gradient)
    for name, blob in blobs.items():
        np.testing.assert_allclose(np.asarray(traced_blobs[name]), blob, rtol=1e-5)


def test_a_label_of_another_shape_is_an_error_with_the_shape_that_its_layer_needs() -> None:
    text = """
      layer { name: "map" type: "Input" top: "map" input_param { shape { dim: 2 dim: 6 dim: 3 dim: 4 } } }
      layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 2 dim: 5 } } }
      layer { name: "loss" type: "DetectionLoss" bottom: "map" bottom: "label" top: "loss"
        detection_loss_param { cls_num: 2 field_w: 40 field_h: 40 downsample_rate: 8 } }
    """
    with pytest.raises(GraphError, match=r"layer 'loss'.*\(2, 6, 3, 4\), not \(2, 5\)"):
        Net(text, "TRAIN")
    valid_text = text.replace("dim: 2 dim: 5", "dim: 2 dim: 6 dim: 3 dim: 4")
    assert Net(valid_text, "TRAIN").graph.blobs["label"].shape == (2, 6, 3, 4)

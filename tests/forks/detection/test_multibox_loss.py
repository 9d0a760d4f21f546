"""Tests of MultiBoxLoss."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax import CaffejaxError, Net
from caffejax.forks.detection.boxes import decode_offsets, encode_offsets
from caffejax.forks.detection.multibox_targets import Truth, match, select_hardest
from detection.cases import NUM_CLASSES, NUM_PRIORS, coarse_boxes, compute_overlap, draw_priors, draw_truth
from layer_nets import draw_settings, format_param, net_text, run_layer
from layer_suite import BATCH, Case, Shape, fork_properties, joint_batches, layer_case, normalizations_case, recorded
from layer_suite.case_net import CaseNet


def multibox_loss_case(param: str, name: str, groups: int = 1, refinement: tuple[Shape, ...] = ()) -> Case:
    shapes = ((BATCH, NUM_PRIORS * groups * 4), (BATCH, NUM_PRIORS * NUM_CLASSES), (1, 2, NUM_PRIORS * 4), (1, 1, 9, 8))
    shapes += refinement
    text = f"multibox_loss_param {{ num_classes: {NUM_CLASSES} overlap_threshold: 0.4 {param} }}"
    if "NONE" in param:  # many terms, over as many
        text += " loss_param { normalization: FULL }"
    samplers = {"b2": draw_priors, "b3": draw_truth}
    constants = frozenset({"b4", "b5"} if refinement else ())
    return layer_case("MultiBoxLoss", text, *shapes, name=name, samplers=samplers, constants=constants)


test_recorded = recorded("MultiBoxLoss", family="detection")
CASES = [
    multibox_loss_case("code_type: CENTER_SIZE", "ssd"),
    multibox_loss_case("mining_type: HARD_EXAMPLE sample_size: 6 loc_loss_type: L2 bp_inside: true", "hard"),
    multibox_loss_case("mining_type: NONE conf_loss_type: LOGISTIC encode_variance_in_target: true", "logistic"),
    multibox_loss_case(
        "mining_type: NONE share_location: false use_prior_for_matching: false", "predictions", NUM_CLASSES
    ),
    multibox_loss_case("mining_type: NONE share_location: false match_type: BIPARTITE", "classes", NUM_CLASSES),
    multibox_loss_case(
        "code_type: CENTER_SIZE objectness_score: 0.2 loc_weight: 2",
        "refined",
        refinement=((BATCH, NUM_PRIORS * 2), (BATCH, NUM_PRIORS * 4)),
    ),
]
test_properties = fork_properties(*CASES)
# with ground truth of each device's images
SPLIT_CASES = [replace(case, input_shapes={**case.input_shapes, "b3": (1, 1, BATCH, 8)}) for case in CASES]
test_joint_batches = joint_batches(*SPLIT_CASES, normalizations_case(SPLIT_CASES[0]))


RECORDED = Path(__file__).parent / "recorded"


def match_by_loops(boxes: np.ndarray, priors: np.ndarray, threshold: float | None) -> tuple[list[int], list[float]]:
    """Match the best pair repeatedly, then each remaining prior with its best box; return matches and overlaps."""
    overlap = np.asarray([[compute_overlap(p, b) for b in boxes] for p in priors]).reshape(len(priors), len(boxes))
    matches, unmatched = [-1] * len(priors), set(range(len(boxes)))
    while unmatched:
        pairs = [(overlap[i, j], -i, -j) for i in range(len(priors)) if matches[i] == -1 for j in unmatched]
        best, i, j = max(pairs, default=(0, 0, 0))
        if best <= 1e-6:
            break
        matches[-i] = -j
        unmatched.remove(-j)
    for i in range(len(priors)):
        if matches[i] == -1 and threshold is not None and len(boxes) and overlap[i].max() >= threshold:
            matches[i] = int(overlap[i].argmax())
    return matches, list(overlap.max(axis=1, initial=0))


def _match(truth: Truth, priors: Any, threshold: float | None) -> Any:
    return match(truth, priors, jnp.arange(3), num_labels=None, threshold=threshold, inside_only=False)


jitted_match = jax.jit(_match, static_argnums=2)

jitted_select_hardest = jax.jit(select_hardest)


@pytest.mark.parametrize("threshold", [None, 0.3])
@settings(max_examples=40)
@given(seed=st.integers(0, 10_000))
def test_matching_equals_greedy_matching(threshold: float | None, seed: int) -> None:
    random = np.random.default_rng(seed)
    priors, image = coarse_boxes(random, 12), random.integers(-1, 3, 7)
    boxes = coarse_boxes(random, 7)
    truth = Truth(jnp.asarray(image), jnp.ones(7, jnp.int32), jnp.asarray(boxes))
    result = jitted_match(truth, jnp.asarray(priors)[None], threshold)
    for n in range(3):
        members = np.flatnonzero(image == n)
        expected, max_overlaps = match_by_loops(boxes[members], priors, threshold)
        assert result.truth_index[n, 0].tolist() == [members[k] if k >= 0 else -1 for k in expected]
        np.testing.assert_allclose(result.overlap[n, 0], max_overlaps, rtol=1e-6)


@settings(max_examples=50)
@given(seed=st.integers(0, 10_000), count=st.integers(0, 9))
def test_mining_selects_the_hardest(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    losses, eligible = random.integers(0, 4, 8).astype(np.float32), random.random(8) < 0.7
    expected_indices = sorted(np.flatnonzero(eligible), key=lambda i: -losses[i])[:count]  # stable: of equals the first
    selected_mask = jitted_select_hardest(losses[None], eligible[None], count)[0]
    assert np.flatnonzero(selected_mask).tolist() == sorted(expected_indices)


@pytest.mark.parametrize(
    ("mining", "nms", "uses_priors"),
    [
        ("HARD_EXAMPLE", "nms_threshold: 0.3 top_k: 6", False),
        ("HARD_EXAMPLE", "nms_threshold: 0.2 top_k: -1", True),
        ("HARD_EXAMPLE", "nms_threshold: 0.3", False),
        ("MAX_NEGATIVE", "nms_threshold: 0.1 top_k: 5", False),
        ("MAX_NEGATIVE", "top_k: 50", True),
        ("MAX_NEGATIVE", "nms_threshold: 0 top_k: 1", True),
    ],
)
def test_mining_with_non_max_suppression_equals_loops(mining: str, nms: str, uses_priors: bool) -> None:
    """The loss, and the priors that get a gradient, equal those computed by loops with nms_param."""
    random = np.random.default_rng(0)
    priors, truth = coarse_boxes(random, 24), coarse_boxes(random, 3)
    loc, conf = random.normal(size=(24, 4)) * 0.5, random.normal(size=(24, 3))
    matches, max_overlaps = match_by_loops(truth, priors, 0.5)
    labels = [1 + k % 2 for k in range(3)]
    prior_labels = [labels[k] if k >= 0 else 0 for k in matches]
    losses = np.array([np.log(np.exp(c).sum()) - c[k] for c, k in zip(conf, prior_labels, strict=True)])
    location_errors = np.array(
        [np.abs(loc[i] - (truth[k] - priors[i]) / 0.1) * (k >= 0) for i, k in enumerate(matches)]
    )
    location_losses = np.where(location_errors < 1, location_errors**2 / 2, location_errors - 0.5).sum(
        1, where=location_errors > 0
    )
    if mining == "HARD_EXAMPLE":
        eligible, count, hardness = list(range(24)), 7, losses + location_losses
    else:
        eligible = [i for i in range(24) if matches[i] < 0 and max_overlaps[i] < 0.5]
        count, hardness = 3 * sum(k >= 0 for k in matches), losses
    nms_settings = dict(zip(nms.split()[::2], map(float, nms.split()[1::2]), strict=True))
    limit, top_k = np.float32(nms_settings.get("nms_threshold:", 0.3)), int(nms_settings.get("top_k:", 0))
    order = sorted(eligible, key=lambda i: -hardness[i])
    boxes = priors if uses_priors else np.float32(priors + loc * 0.1)
    selected: list[int] = []
    for i in order[:top_k] if top_k >= 0 and limit > 0 else order:
        sides = boxes[i, 2:] - boxes[i, :2]
        is_separate = limit == 0 or (
            min(sides) > 0
            and np.prod(sides) >= 1e-5
            and all(compute_overlap(boxes[i], boxes[j]) <= limit for j in selected)
        )
        selected += [i] if is_separate else []
    hard_indices = selected[:count]
    positive_indices = [i for i in range(24) if matches[i] >= 0 and (mining == "MAX_NEGATIVE" or i in hard_indices)]
    conf_indices = sorted({*positive_indices, *hard_indices})
    expected = (losses[conf_indices].sum() + location_losses[positive_indices].sum()) / max(len(positive_indices), 1)

    param = f"num_classes: 3 mining_type: {mining} sample_size: 7 nms_param {{ {nms} }} neg_overlap: 0.5"
    text = f"multibox_loss_param {{ {param} use_prior_for_nms: {str(uses_priors).lower()} }}"
    prior = np.stack([priors.ravel(), np.full(96, 0.1)])[None]
    rows = np.array([[0, label, 0, *box, 0] for label, box in zip(labels, truth, strict=True)])[None, None]
    bottoms = [np.float32(b) for b in (loc.reshape(1, -1), conf.reshape(1, -1), prior, rows)]
    net = Net(net_text("MultiBoxLoss", text, [b.shape for b in bottoms]), "TRAIN")

    def loss(conf: Any) -> Any:
        return net.loss({}, {}, {"b0": bottoms[0], "b1": conf, "b2": bottoms[2], "b3": bottoms[3]})[0]

    result, d_conf = jax.jit(jax.value_and_grad(loss))(bottoms[1])
    np.testing.assert_allclose(result, expected, rtol=1e-4)
    assert np.flatnonzero(np.any(d_conf.reshape(24, 3) != 0, axis=1)).tolist() == conf_indices


@pytest.mark.parametrize("background", [0, 2])
def test_logistic_targets_are_filled_with_the_background_label(background: int) -> None:
    """The fork fills the LOGISTIC targets with background_label_id before it sets those of the correct classes to 1."""
    random = np.random.default_rng(0)
    priors, truth = coarse_boxes(random, 8), coarse_boxes(random, 1)
    matches, _ = match_by_loops(truth, priors, 0.5)
    conf = random.normal(size=(8, 3))
    targets = np.full((8, 3), background)
    targets[np.array(matches) >= 0, 1] = 1
    expected = 1 / (1 + np.exp(-conf)) - targets
    param = f"num_classes: 3 background_label_id: {background} mining_type: NONE conf_loss_type: LOGISTIC"
    prior = np.stack([priors.ravel(), np.ones(32)])[None]
    rows = np.array([0, 1, 0, *truth[0], 0]).reshape(1, 1, 1, 8)
    bottoms = [np.float32(b) for b in (np.zeros((1, 32)), conf.reshape(1, -1), prior, rows)]
    text = f"multibox_loss_param {{ {param} }} loss_param {{ normalization: NONE }}"
    net = Net(net_text("MultiBoxLoss", text, [b.shape for b in bottoms]), "TRAIN")

    def loss(conf: Any) -> Any:
        return net.loss({}, {}, {"b0": bottoms[0], "b1": conf, "b2": bottoms[2], "b3": bottoms[3]})[0]

    np.testing.assert_allclose(jax.jit(jax.grad(loss))(bottoms[1]).reshape(8, 3), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("code", ["CORNER", "CENTER_SIZE", "CORNER_SIZE"])
@pytest.mark.parametrize("variances", [None, np.asarray([0.1, 0.1, 0.2, 0.3], np.float32)])
def test_decoding_inverts_encoding(code: str, variances: Any) -> None:
    random = np.random.default_rng(0)
    boxes, priors = coarse_boxes(random, 50), coarse_boxes(random, 50)
    offsets = encode_offsets(code, jnp.asarray(boxes), jnp.asarray(priors), variances)
    np.testing.assert_allclose(decode_offsets(code, offsets, jnp.asarray(priors), variances), boxes, atol=1e-5)
    np.testing.assert_allclose(encode_offsets(code, jnp.asarray(priors), jnp.asarray(priors), variances), 0, atol=1e-6)


def test_label_out_of_range_makes_the_loss_nan() -> None:
    recorded = np.load(RECORDED / "MultiBoxLoss" / "defaults.npz")
    bottoms = [recorded[f"bottom/{name}"].copy() for name in ("loc", "conf", "prior", "label")]
    net = Net(net_text("MultiBoxLoss", "multibox_loss_param { num_classes: 3 }", [b.shape for b in bottoms]), "TRAIN")
    compute_loss, inputs = (
        jax.jit(lambda inputs: net.loss({}, {}, inputs)[0]),
        {f"b{i}": b for i, b in enumerate(bottoms)},
    )
    assert np.isfinite(compute_loss(inputs))
    for label in (0, 3, -2):
        inputs["b3"][0, 0, 0, 1] = label
        assert np.isnan(compute_loss(inputs))


@pytest.mark.parametrize("propagate_down", ["true false false false", "false true false false"])
def test_loss_omits_bottoms_without_propagate_down(propagate_down: str) -> None:
    recorded = np.load(RECORDED / "MultiBoxLoss" / "defaults.npz")
    bottoms = [recorded[f"bottom/{name}"] for name in ("loc", "conf", "prior", "label")]

    def compute_gradients(text: str) -> Any:
        net = Net(net_text("MultiBoxLoss", text, [b.shape for b in bottoms]), "TRAIN")
        f = jax.value_and_grad(
            lambda a, b: net.loss({}, {}, {"b0": a, "b1": b, "b2": bottoms[2], "b3": bottoms[3]})[0], (0, 1)
        )
        return net.jit(f)(bottoms[0], bottoms[1])

    param = "multibox_loss_param { num_classes: 3 }"
    full_loss, (d_loc, d_conf) = compute_gradients(param)
    partial_loss, result = compute_gradients(
        param + "".join(f" propagate_down: {word}" for word in propagate_down.split())
    )
    expected = (0 * d_loc, d_conf) if propagate_down.startswith("false") else (d_loc, 0 * d_conf)
    assert 0 < partial_loss < full_loss
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_do_neg_mining_false_disables_mining() -> None:
    recorded = np.load(RECORDED / "MultiBoxLoss" / "no_gt_no_mining.npz")
    bottoms = [recorded[f"bottom/{name}"] for name in ("loc", "conf", "prior", "label")]
    param = "multibox_loss_param { num_classes: 3 code_type: CENTER_SIZE do_neg_mining: false }"
    net = Net(net_text("MultiBoxLoss", param, [b.shape for b in bottoms]), "TRAIN")
    loss = jax.jit(lambda inputs: net.loss({}, {}, inputs)[0])({f"b{i}": b for i, b in enumerate(bottoms)})
    np.testing.assert_allclose(loss, recorded["loss"], rtol=1e-5)


F = np.float32


def compute_overlap_of_any_corners(a: np.ndarray, b: np.ndarray) -> float:
    w, h = (max(min(a[k + 2], b[k + 2]) - max(a[k], b[k]), 0.0) for k in (0, 1))
    areas = [(c[2] - c[0]) * (c[3] - c[1]) if c[2] >= c[0] and c[3] >= c[1] else 0.0 for c in (a, b)]
    return w * h / (sum(areas) - w * h) if w * h else 0.0


def encode(code: str, prior: np.ndarray, box: np.ndarray) -> np.ndarray:
    side = prior[2:] - prior[:2]
    if code == "CENTER_SIZE":
        center = (box[:2] + box[2:] - prior[:2] - prior[2:]) / 2 / side
        return np.concatenate([center, np.log((box[2:] - box[:2]) / side)])
    return (box - prior) / (np.tile(side, 2) if code == "CORNER_SIZE" else 1)


def decode(code: str, prior: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    side = prior[2:] - prior[:2]
    if code == "CENTER_SIZE":
        center, half = (prior[:2] + prior[2:]) / 2 + offsets[:2] * side, np.exp(offsets[2:]) * side / 2
        return np.concatenate([center - half, center + half])
    return prior + offsets * (np.tile(side, 2) if code == "CORNER_SIZE" else 1)


def match_by_settings(p: Any, boxes: list[np.ndarray], truth: list[np.ndarray]) -> tuple[list[int], list[float]]:
    """Return for each box the index of its object, -1 for none or -2 if the box is ignored, and its largest overlap."""
    matches, max_overlaps, overlaps = [-1] * len(boxes), [0.0] * len(boxes), {}
    for i, box in enumerate(boxes):
        if p.ignore_cross_boundary_bbox and truth and (box.min() < 0 or box.max() > 1):
            matches[i] = -2
            continue
        for j, truth_box in enumerate(truth):
            if compute_overlap_of_any_corners(box, truth_box) > 1e-6:
                overlaps[i, j] = compute_overlap_of_any_corners(box, truth_box)
                max_overlaps[i] = max(max_overlaps[i], overlaps[i, j])
    unmatched_overlaps = dict(overlaps)
    while unmatched_overlaps:
        i, j = max(unmatched_overlaps, key=lambda pair: unmatched_overlaps[pair])
        matches[i] = j
        unmatched_overlaps = {
            pair: value for pair, value in unmatched_overlaps.items() if pair[0] != i and pair[1] != j
        }
    for i in range(len(boxes)):
        truth_overlaps = [
            (overlaps[i, j], -j) for j in range(len(truth)) if overlaps.get((i, j), 0) >= p.overlap_threshold
        ]
        if p.match_type == "PER_PREDICTION" and matches[i] == -1 and truth_overlaps:
            matches[i] = -max(truth_overlaps)[1]
    return matches, max_overlaps


def class_loss(p: Any, scores: np.ndarray, label: int) -> float:
    if p.conf_loss_type == "SOFTMAX":
        return float(np.log(np.exp(scores - scores[label]).sum()))
    return sum(float(np.logaddexp(0, -s if c == label else s)) for c, s in enumerate(scores))


def location_loss(p: Any, difference: np.ndarray) -> float:
    if p.loc_loss_type == "L2":
        return float((difference**2).sum() / 2)
    return sum(float(d * d / 2 if d < 1 else d - 0.5) for d in abs(difference))


def multibox_by_loops(
    p: Any,
    loc: np.ndarray,
    conf: np.ndarray,
    prior: np.ndarray,
    rows: np.ndarray,
    objectness: np.ndarray | None = None,
    refinement: np.ndarray | None = None,
) -> float:
    """Return SSD's loss, with class 0 as background; with the last two, (images, priors) and (images, priors, 4), that
    of RefineDet."""
    (priors, variances), num_images, n = prior.reshape(2, -1, 4), len(conf), prior.size // 8
    scores, loc = conf.reshape(num_images, n, -1), loc.reshape(num_images, n, -1, 4)
    total, n_matches, n_counted = 0.0, 0, 0
    for image in range(num_images):
        image_rows = [r for r in rows.reshape(-1, 8) if r[0] == image and (p.use_difficult_gt or not r[7])]
        labels = [1 if p.map_object_to_agnostic else int(r[1]) for r in image_rows]
        truth = [r[3:7] for r in image_rows]
        scale = variances if not p.encode_variance_in_target else np.ones_like(variances)
        anchors = list(priors)
        if refinement is not None:
            anchors = [decode(p.code_type, priors[i], refinement[image, i] * scale[i]) for i in range(n)]
        groups: list[tuple[int, list[int]]] = []  # the predictions' number, and the matches with them
        max_overlaps = [0.0] * n
        for g in range(loc.shape[2]):
            if not p.share_location and g == 0:
                continue
            boxes = anchors
            if not p.use_prior_for_matching:
                boxes = [decode(p.code_type, priors[i], loc[image, i, g] * scale[i]) for i in range(n)]
            matches_by_class = not p.share_location and not p.use_prior_for_matching
            truth_indices = [j for j in range(len(image_rows)) if not matches_by_class or labels[j] == g]
            matches, max_overlaps = match_by_settings(p, boxes, [truth[j] for j in truth_indices])
            matches = [truth_indices[m] if m >= 0 else m for m in matches]
            if not p.share_location:
                matches = [m if m < 0 or labels[m] == g else -1 for m in matches]
            groups.append((g, matches))

        prior_labels = [max([labels[m[i]] for _, m in groups if m[i] >= 0], default=0) for i in range(n)]
        losses = [class_loss(p, scores[image, i], prior_labels[i]) for i in range(n)]

        def match_loss(
            g: int, i: int, m: int, anchors: Any = anchors, image: int = image, truth: Any = truth, scale: Any = scale
        ) -> float:
            predicted, target = loc[image, i, g], encode(p.code_type, anchors[i], truth[m]) / scale[i]
            if p.bp_inside:
                box = anchors[i] if p.use_prior_for_matching else decode(p.code_type, anchors[i], predicted * scale[i])
                predicted = np.where((box < 0) | (box > 1), target, predicted)
            return location_loss(p, (predicted - target) / (variances[i] if p.encode_variance_in_target else 1))

        conf_indices = list(range(n))
        if p.mining_type != "NONE":
            ((_, matches),) = groups
            may_be_hard = np.full(n, bool(image_rows))
            if objectness is not None:
                may_be_hard &= objectness[image] >= p.objectness_score
            if p.mining_type == "MAX_NEGATIVE":
                negative_indices = [
                    i for i in range(n) if may_be_hard[i] and matches[i] == -1 and max_overlaps[i] < p.neg_overlap
                ]
                count = int(sum(m >= 0 for m in matches) * p.neg_pos_ratio)
                hard_indices = sorted(negative_indices, key=lambda i: -losses[i])[:count]
                conf_indices = [i for i in range(n) if matches[i] >= 0 or i in hard_indices]
            else:
                total_losses = [
                    losses[i] + (match_loss(0, i, matches[i], priors) if matches[i] >= 0 else 0) for i in range(n)
                ]
                hard_indices = [i for i in sorted(range(n), key=lambda i: -total_losses[i]) if may_be_hard[i]]
                hard_indices = hard_indices[: p.sample_size]
                conf_indices = [i for i in hard_indices if matches[i] != -2]
                matches = [m if i in hard_indices else -1 for i, m in enumerate(matches)]
                groups = [(0, matches)]
        pairs = [(g, i, m) for g, matches in groups for i, m in enumerate(matches) if m >= 0]
        total += p.loc_weight * sum(match_loss(*pair) for pair in pairs) + sum(losses[i] for i in conf_indices)
        n_matches, n_counted = n_matches + len(pairs), n_counted + len(conf_indices)
    divisors = {"VALID": n_matches, "FULL": num_images * n, "BATCH_SIZE": num_images, "NONE": 1}
    return total / max(divisors[p.normalization], 1)


MULTIBOX_CHOICES = {
    "num_classes": (2, 4),
    "loc_loss_type": ("SMOOTH_L1", "L2"),
    "conf_loss_type": ("SOFTMAX", "SOFTMAX", "LOGISTIC"),
    "loc_weight": (1, 2.5),
    "match_type": ("PER_PREDICTION", "BIPARTITE"),
    "overlap_threshold": (0.5, 0.2),
    "use_prior_for_matching": (True, True, False),
    "use_difficult_gt": (True, False),
    "neg_pos_ratio": (3, 1.5),
    "neg_overlap": (0.5, 0.2),
    "code_type": ("CORNER", "CENTER_SIZE", "CORNER_SIZE"),
    "encode_variance_in_target": (True, False),
    "ignore_cross_boundary_bbox": (True, False),
    "bp_inside": (True, False),
    "mining_type": ("MAX_NEGATIVE", "MAX_NEGATIVE", "HARD_EXAMPLE", "NONE"),
    "sample_size": (5, 64),
}


@pytest.mark.parametrize("num_further", [0, 1, 2], ids=["ssd", "objectness", "refined"])
@pytest.mark.parametrize("seed", range(20))
def test_multibox_loss_equals_loops(seed: int, num_further: int) -> None:
    random = np.random.default_rng(seed)
    s = draw_settings(random, MULTIBOX_CHOICES)
    s["share_location"] = bool(num_further) or s["mining_type"] != "NONE" or bool(random.integers(2))
    s["objectness_score"] = 0.25
    s["map_object_to_agnostic"] = s["num_classes"] == 2
    if s["mining_type"] == "NONE":
        s["conf_loss_type"] = "SOFTMAX"  # the fork's own rows of LOGISTIC have recorded cases
    normalization = ("VALID", "FULL", "BATCH_SIZE", "NONE")[random.integers(4)]
    num_images, n, num_classes = 3, 14, s["num_classes"]
    low = random.uniform(-0.05, 0.7, (n, 2))
    priors = np.concatenate([low, low + random.uniform(0.1, 0.4, (n, 2))], axis=1)
    prior = np.stack([priors, np.tile([0.1, 0.1, 0.2, 0.3], (n, 1))]).reshape(1, 2, -1).astype(F)
    num_groups = 1 if s["share_location"] else num_classes
    loc = random.normal(size=(num_images, n * num_groups * 4)).astype(F) * F(0.3)
    conf = random.normal(size=(num_images, n * num_classes)).astype(F)
    rows = np.zeros((7, 8), F)
    rows[:, 0], rows[:, 1] = random.integers(-1, num_images, 7), random.integers(1, num_classes, 7)
    rows[:, 3:5] = random.uniform(0, 0.6, (7, 2))
    rows[:, 5:7] = rows[:, 3:5] + random.uniform(0.1, 0.4, (7, 2))
    rows[:, 7] = random.random(7) < 0.3
    text = f"{format_param('multibox_loss_param', s)} loss_param {{ normalization: {normalization} }}"
    further = (random.random((num_images, n, 2)).astype(F), random.normal(size=(num_images, n, 4)).astype(F))
    further[0][0, 0, 1] = 0.25  # not below objectness_score
    flat = [x.reshape(num_images, -1) for x in further[:num_further]]
    (top,) = run_layer("MultiBoxLoss", text, loc, conf, prior, rows[None, None], *flat, phase="TRAIN")
    loop_arguments = (further[0][..., 1], further[1])[:num_further]
    p = SimpleNamespace(**s, normalization=normalization)
    expected = multibox_by_loops(p, loc, conf, prior, rows, *loop_arguments)
    np.testing.assert_allclose(top, expected, rtol=2e-4)


def compute_two_class_loss(param: str, labels: list[int], *further: np.ndarray) -> float:
    random = np.random.default_rng(0)
    priors = coarse_boxes(random, 8)
    prior = np.stack([priors.ravel(), np.full(32, 0.1)])[None].astype(F)
    rows = np.array([[0, label, 0, *priors[3 * i], 0] for i, label in enumerate(labels)], F)[None, None]
    loc, conf = random.normal(size=(1, 32)).astype(F), random.normal(size=(1, 16)).astype(F)
    text = f"multibox_loss_param {{ num_classes: 2 {param} }}"
    (top,) = run_layer("MultiBoxLoss", text, loc, conf, prior, rows, *further, phase="TRAIN")
    return float(np.asarray(top))


def test_labels_of_refinedet_s_first_stage_are_any_object() -> None:
    expected = compute_two_class_loss("", [1, 1])
    assert np.isfinite(expected)
    assert compute_two_class_loss("objectness_score: 0.01", [7, 2]) == expected
    assert compute_two_class_loss("", [7, 2], np.full((1, 16), 0.5, F)) == expected
    assert np.isnan(compute_two_class_loss("", [7, 2]))  # in SSD such a label is a mistake
    assert np.isnan(compute_two_class_loss("objectness_score: 0.01", [0, 2]))


def test_refinement_gets_no_gradient() -> None:
    (case,) = (case for case in CASES if case.name.endswith("refined"))
    for backward in ("autodiff", "rules"):
        case_net = CaseNet(case, backward=backward)

        def loss(inputs: Any, net: Net = case_net.net) -> Any:
            return net.loss({}, {}, inputs)[0]

        grads = case_net.net.jit(jax.grad(loss))(case_net.inputs)
        assert [bool(np.any(grads[f"b{i}"])) for i in (0, 1, 4, 5)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("settings", "shapes", "message"),
    [
        ("", [(2, 8)], r"bottom 4 must contain the background's and the object's probability for each of 10 priors"),
        ("", [(2, 20), (2, 20)], r"bottom 5 must contain 4 offsets for each of 10 priors, \(2, 40\)"),
        ("nms_param { top_k: 5 }", [(2, 20)], "RefineDet's bottoms and nms_param cannot be combined"),
        ("mining_type: NONE share_location: false", [(2, 20), (2, 40)], "RefineDet's bottoms need share_location"),
    ],
)
def test_invalid_refinement_raises(settings: str, shapes: list[tuple[int, ...]], message: str) -> None:
    num_groups = 3 if "false" in settings else 1
    shapes = [(2, 40 * num_groups), (2, 30), (1, 2, 40), (1, 1, 4, 8), *shapes]
    with pytest.raises(CaffejaxError, match=message):
        Net(net_text("MultiBoxLoss", f"multibox_loss_param {{ num_classes: 3 {settings} }}", shapes), "TRAIN")

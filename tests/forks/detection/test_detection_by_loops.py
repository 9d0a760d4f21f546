"""Detection layers with random settings, compared with plain loops over boxes and cells."""

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from layer_nets import run_layer

F = np.float32


def format_field(name: str, value: Any) -> str:
    """Return a setting as text; a list is a repeated field."""
    values = value if isinstance(value, list) else [value]
    return " ".join(f"{name}: {str(v).lower() if isinstance(v, bool) else v}" for v in values)


def format_param(param: str, settings: dict[str, Any]) -> str:
    return f"{param} {{ {' '.join(format_field(name, value) for name, value in settings.items())} }}"


def draw_settings(random: np.random.Generator, choices: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Draw a value for each setting from its choices; None omits the setting."""
    settings = {name: values[random.integers(len(values))] for name, values in choices.items()}
    return {name: value for name, value in settings.items() if value is not None}


# PriorBox


def priors_by_loops(s: dict[str, Any], height: int, width: int, image: tuple[int, int]) -> np.ndarray:
    size_h, size_w = s.get("img_size", image[0]), s.get("img_size", image[1])
    step_h, step_w = s.get("step_h", s.get("step", size_h / height)), s.get("step_w", s.get("step", size_w / width))
    ratios = [1.0]
    for ratio in s.get("aspect_ratio", []):
        if not any(math.isclose(ratio, other, abs_tol=1e-6) for other in ratios):
            ratios.append(ratio)
            if s.get("flip", True):
                ratios.append(1 / ratio)
    rows: list[list[float]] = []
    for i in range(height):
        for j in range(width):
            x, y = (j + s.get("offset", 0.5)) * step_w, (i + s.get("offset", 0.5)) * step_h
            for n, min_size in enumerate(s["min_size"]):
                sides = [(min_size, min_size)]
                if "max_size" in s:
                    sides.append((math.sqrt(min_size * s["max_size"][n]),) * 2)
                sides += [(min_size * math.sqrt(r), min_size / math.sqrt(r)) for r in ratios[1:]]
                for w, h in sides:
                    rows.append(
                        [(x - w / 2) / size_w, (y - h / 2) / size_h, (x + w / 2) / size_w, (y + h / 2) / size_h]
                    )
    boxes = np.clip(rows, 0, 1) if s.get("clip", False) else np.asarray(rows)
    variances = s.get("variance", [0.1])
    return np.stack([boxes, np.tile(variances, len(boxes) * 4 // len(variances)).reshape(-1, 4)])


@pytest.mark.parametrize("seed", range(8))
def test_prior_box_equals_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    s = draw_settings(
        random,
        {
            "min_size": ([12], [7, 20]),
            "aspect_ratio": (None, [2.0], [2.0, 3.0], [1.0, 2.0, 0.5]),
            "flip": (None, True, False),
            "clip": (None, True, False),
            "variance": (None, [0.2], [0.1, 0.1, 0.2, 0.3]),
            "offset": (None, 0.25),
            "img_size": (None, 60),
        },
    )
    if random.random() < 0.5:
        s["max_size"] = [size + 9 for size in s["min_size"]]
    s |= [{}, {"step": 8.0}, {"step_h": 6.0, "step_w": 11.0}][random.integers(3)]
    x, image = np.zeros((2, 4, 3, 5)), np.zeros((2, 3, 50, 80))
    (top,) = run_layer("PriorBox", format_param("prior_box_param", s), x, image)
    np.testing.assert_allclose(top.reshape(2, -1, 4), priors_by_loops(s, 3, 5, (50, 80)), atol=2e-6)


# MultiBoxLoss


def compute_overlap(a: np.ndarray, b: np.ndarray) -> float:
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


def match_by_loops(p: Any, boxes: list[np.ndarray], truth: list[np.ndarray]) -> tuple[list[int], list[float]]:
    """Return for each box the index of its object, -1 for none or -2 if the box is ignored, and its largest overlap."""
    matches, max_overlaps, overlaps = [-1] * len(boxes), [0.0] * len(boxes), {}
    for i, box in enumerate(boxes):
        if p.ignore_cross_boundary_bbox and truth and (box.min() < 0 or box.max() > 1):
            matches[i] = -2
            continue
        for j, truth_box in enumerate(truth):
            if compute_overlap(box, truth_box) > 1e-6:
                overlaps[i, j] = compute_overlap(box, truth_box)
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


def multibox_by_loops(p: Any, loc: np.ndarray, conf: np.ndarray, prior: np.ndarray, rows: np.ndarray) -> float:
    """Return SSD's loss, with class 0 as background."""
    (priors, variances), num_images, n = prior.reshape(2, -1, 4), len(conf), prior.size // 8
    scores, loc = conf.reshape(num_images, n, -1), loc.reshape(num_images, n, -1, 4)
    total, n_matches, n_counted = 0.0, 0, 0
    for image in range(num_images):
        image_rows = [r for r in rows.reshape(-1, 8) if r[0] == image and (p.use_difficult_gt or not r[7])]
        labels = [1 if p.map_object_to_agnostic else int(r[1]) for r in image_rows]
        truth = [r[3:7] for r in image_rows]
        scale = variances if not p.encode_variance_in_target else np.ones_like(variances)
        groups: list[tuple[int, list[int]]] = []  # the predictions' number, and the matches with them
        max_overlaps = [0.0] * n
        for g in range(loc.shape[2]):
            if not p.share_location and g == 0:
                continue
            boxes = list(priors)
            if not p.use_prior_for_matching:
                boxes = [decode(p.code_type, priors[i], loc[image, i, g] * scale[i]) for i in range(n)]
            matches_by_class = not p.share_location and not p.use_prior_for_matching
            truth_indices = [j for j in range(len(image_rows)) if not matches_by_class or labels[j] == g]
            matches, max_overlaps = match_by_loops(p, boxes, [truth[j] for j in truth_indices])
            matches = [truth_indices[m] if m >= 0 else m for m in matches]
            if not p.share_location:
                matches = [m if m < 0 or labels[m] == g else -1 for m in matches]
            groups.append((g, matches))

        prior_labels = [max([labels[m[i]] for _, m in groups if m[i] >= 0], default=0) for i in range(n)]
        losses = [class_loss(p, scores[image, i], prior_labels[i]) for i in range(n)]

        def match_loss(g: int, i: int, m: int, image: int = image, truth: Any = truth, scale: Any = scale) -> float:
            predicted, target = loc[image, i, g], encode(p.code_type, priors[i], truth[m]) / scale[i]
            if p.bp_inside:
                box = priors[i] if p.use_prior_for_matching else decode(p.code_type, priors[i], predicted * scale[i])
                predicted = np.where((box < 0) | (box > 1), target, predicted)
            return location_loss(p, (predicted - target) / (variances[i] if p.encode_variance_in_target else 1))

        conf_indices = list(range(n))
        if p.mining_type != "NONE":
            ((_, matches),) = groups
            if p.mining_type == "MAX_NEGATIVE":
                negative_indices = [
                    i for i in range(n) if image_rows and matches[i] == -1 and max_overlaps[i] < p.neg_overlap
                ]
                count = int(sum(m >= 0 for m in matches) * p.neg_pos_ratio)
                hard_indices = sorted(negative_indices, key=lambda i: -losses[i])[:count]
                conf_indices = [i for i in range(n) if matches[i] >= 0 or i in hard_indices]
            else:
                total_losses = [losses[i] + (match_loss(0, i, matches[i]) if matches[i] >= 0 else 0) for i in range(n)]
                hard_indices = sorted(range(n) if image_rows else [], key=lambda i: -total_losses[i])[: p.sample_size]
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


@pytest.mark.parametrize("seed", range(20))
def test_multibox_loss_equals_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    s = draw_settings(random, MULTIBOX_CHOICES)
    s["share_location"] = s["mining_type"] != "NONE" or bool(random.integers(2))
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
    (top,) = run_layer("MultiBoxLoss", text, loc, conf, prior, rows[None, None], phase="TRAIN")
    expected = multibox_by_loops(SimpleNamespace(**s, normalization=normalization), loc, conf, prior, rows)
    np.testing.assert_allclose(top, expected, rtol=2e-4)


# pooling of regions


def round_away(x: Any) -> Any:
    return np.sign(x) * np.floor(abs(x) + 0.5)


def psroi_by_loops(x: np.ndarray, rois: np.ndarray, outputs: int, groups: int, scale: float) -> np.ndarray:
    height, width = x.shape[2:]
    top = np.zeros((len(rois), outputs, groups, groups))
    for r, (image, *corners) in enumerate(rois):
        x1, y1, x2, y2 = round_away(np.asarray(corners))
        x1, y1, x2, y2 = (Fraction(c * scale) for c in (x1, y1, x2 + 1, y2 + 1))  # exact, so that borders are
        h, w = (max(side, Fraction(0.1)) / groups for side in (y2 - y1, x2 - x1))
        for c, i, j in np.ndindex(outputs, groups, groups):
            rows = [a for a in range(height) if math.floor(y1 + i * h) <= a < math.ceil(y1 + (i + 1) * h)]
            columns = [a for a in range(width) if math.floor(x1 + j * w) <= a < math.ceil(x1 + (j + 1) * w)]
            cells = [x[int(image), (c * groups + i) * groups + j, a, b] for a in rows for b in columns]
            top[r, c, i, j] = np.mean(cells) if cells else 0
    return top


def sample(maps: np.ndarray, y: float, x: float) -> np.ndarray:
    """Return the bilinear sample of maps (C, H, W) at (y, x); 0 if it is more than half a cell outside."""
    height, width = maps.shape[1:]
    if not (-0.5 <= y <= height - 0.5 and -0.5 <= x <= width - 0.5):
        return np.zeros(len(maps))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    i, j = min(int(y), height - 1), min(int(x), width - 1)
    i1, j1 = min(i + 1, height - 1), min(j + 1, width - 1)
    upper = maps[:, i, j] * (1 - (x - j)) + maps[:, i, j1] * (x - j)
    lower = maps[:, i1, j] * (1 - (x - j)) + maps[:, i1, j1] * (x - j)
    return upper * (1 - (y - i)) + lower * (y - i)


def align_by_loops(x: np.ndarray, rois: np.ndarray, h: int, w: int, scale: float, pad: float) -> np.ndarray:
    top = np.zeros((len(rois), x.shape[1], h + 1, w + 1))
    for r, (image, x1, y1, x2, y2) in enumerate(rois):
        pad_w, pad_h = pad * (x2 - x1 + 1), pad * (y2 - y1 + 1)
        left, low, right, high = ((x1 - pad_w), (y1 - pad_h), (x2 + pad_w), (y2 + pad_h))
        if right > left and high > low:
            for i, j in np.ndindex(h + 1, w + 1):
                sample_positions = (
                    low * scale + i * (high - low) * scale / h - 0.5,
                    left * scale + j * (right - left) * scale / w - 0.5,
                )
                top[r, :, i, j] = sample(x[int(image)], *sample_positions)
    return top


def warp_by_loops(x: np.ndarray, rois: np.ndarray, h: int, w: int, scale: float) -> np.ndarray:
    top = np.zeros((len(rois), x.shape[1], h, w))
    for r, (image, *corners) in enumerate(rois):
        x1, y1, x2, y2 = round_away(np.asarray(corners) * scale)
        for i, j in np.ndindex(h, w):
            top[r, :, i, j] = sample(x[int(image)], y1 + i * max(y2 - y1, 0) / h, x1 + j * max(x2 - x1, 0) / w)
    return top


@pytest.mark.parametrize("seed", range(4))
def test_roi_pooling_layers_equal_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    scale, pad = (0.25, 0.375, 0.5, 1)[seed], (0, 0.1, 0.25, 0.5)[seed]
    h, w, groups = random.integers(1, 5, 3)
    x = random.normal(size=(2, 3 * groups**2, 6, 7))
    corners = random.uniform(-2, 8 / scale, (9, 2, 2))
    rois = np.concatenate([random.integers(0, 2, (9, 1)), corners.min(1), corners.max(1)], axis=1)
    pooled_size = f"pooled_h: {h} pooled_w: {w} spatial_scale: {scale}"
    (top,) = run_layer(
        "PSROIPooling", f"psroi_pooling_param {{ output_dim: 3 group_size: {groups} spatial_scale: {scale} }}", x, rois
    )
    np.testing.assert_allclose(top, psroi_by_loops(x, rois, 3, groups, scale), atol=1e-5)
    (top,) = run_layer("ROIAlign", f"roi_pooling_param {{ {pooled_size} pad_ratio: {pad} }}", x, rois)
    np.testing.assert_allclose(top, align_by_loops(x, rois, h, w, scale, pad), atol=1e-4)
    (top,) = run_layer("ROIWarping", f"roi_warping_param {{ {pooled_size} }}", x, rois)
    np.testing.assert_allclose(top, warp_by_loops(x, rois, h, w, scale), atol=1e-4)


# Proposal


def proposals_by_loops(s: dict[str, Any], scores: np.ndarray, deltas: np.ndarray, info: np.ndarray) -> np.ndarray:
    """Return rows [x1, y1, x2, y2, score] of one image, best first, without boxes that are too small."""
    side, anchors = s["base_size"], []
    for ratio in s["ratio"]:
        w = math.floor(math.sqrt(side * side / ratio) + 0.5)
        h = math.floor(w * ratio + 0.5)
        anchors += [(w * scale, h * scale) for scale in s["scale"]]
    rows = []
    for k, i, j in np.ndindex(len(anchors), *scores.shape[1:]):
        w, h = anchors[k]
        dx, dy, dw, dh = deltas[4 * k : 4 * k + 4, i, j]
        center = (side - 1) / 2
        left, low = j * s["feat_stride"] + center - (w - 1) / 2, i * s["feat_stride"] + center - (h - 1) / 2
        x, y, half_w, half_h = left + w / 2 + dx * w, low + h / 2 + dy * h, math.exp(dw) * w / 2, math.exp(dh) * h / 2
        box = np.clip([x - half_w, y - half_h, x + half_w, y + half_h], 0, np.tile([info[1] - 1, info[0] - 1], 2))
        if box[2] - box[0] + 1 >= s["min_size"] * info[-1] and box[3] - box[1] + 1 >= s["min_size"] * info[2]:
            rows.append([*box, scores[len(anchors) + k, i, j]])
    rows = sorted(rows, key=lambda row: -row[4])[: s["pre_nms_topn"]]
    selected_rows: list[list[float]] = []
    for row in rows:
        if all(pixel_overlap(row, other) <= s["nms_thresh"] for other in selected_rows):
            selected_rows.append(row)
    return np.asarray(selected_rows[: s["post_nms_topn"]])


def pixel_overlap(a: Any, b: Any) -> float:
    w, h = (min(a[k + 2], b[k + 2]) - max(a[k], b[k]) + 1 for k in (0, 1))
    intersection = max(w, 0) * max(h, 0)
    return float(intersection / (sum((c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b)) - intersection))


@pytest.mark.parametrize("seed", range(6))
def test_proposal_equals_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    s = draw_settings(
        random,
        {
            "feat_stride": (16, 8),
            "base_size": (16, 10),
            "min_size": (16, 5),
            "ratio": ([1.0], [0.5, 1.0, 2.0]),
            "scale": ([2.0], [1.0, 3.0]),
            "pre_nms_topn": (30, 1000),
            "post_nms_topn": (4, 100),
            "nms_thresh": (0.7, 0.3),
        },
    )
    n, height, width = len(s["ratio"]) * len(s["scale"]), 4, 5
    scores = random.permutation(2 * n * height * width).reshape(2 * n, height, width) / (2 * n * height * width) + 0.01
    deltas = random.normal(size=(4 * n, height, width)) * 0.4
    info = np.asarray([height * s["feat_stride"], width * s["feat_stride"], 1.25, 0.75][: 3 + seed % 2])
    rois, best = run_layer(
        "Proposal", format_param("proposal_param", s), scores[None], deltas[None], info[None], tops=2
    )
    expected = proposals_by_loops(s, scores.astype(F), deltas.astype(F), info)
    valid_rows = best.ravel() > 0
    np.testing.assert_allclose(best.ravel()[valid_rows], expected[:, 4], rtol=1e-6)
    np.testing.assert_allclose(
        rois.reshape(-1, 5)[valid_rows], np.insert(expected[:, :4], 0, 0, axis=1), rtol=1e-4, atol=1e-3
    )


# Accuracy


@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("ignore_label", [None, 2])
@pytest.mark.parametrize(("axis", "min_is_better"), [(1, False), (1, True), (-1, False), (0, True)])
def test_accuracy_equals_loops(top_k: int, ignore_label: int | None, axis: int, min_is_better: bool) -> None:
    random = np.random.default_rng(top_k)
    scores = random.integers(0, 5, (4, 4, 4)).astype(F)  # many are equal
    labels = random.integers(0, 4, (4, 4))
    s = {
        "top_k": top_k,
        "axis": axis,
        "min_is_better": min_is_better,
        **({} if ignore_label is None else {"ignore_label": ignore_label}),
    }
    num_correct, num_labels = np.zeros(4), np.zeros(4)
    for index in np.ndindex(labels.shape):
        row, label = np.moveaxis(scores, axis, -1)[index], labels[index]
        if label != ignore_label:
            is_better = [r <= row[label] if min_is_better else r >= row[label] for c, r in enumerate(row) if c != label]
            num_correct[label] += sum(is_better) < top_k
            num_labels[label] += 1
    overall, class_accuracy = run_layer("Accuracy", format_param("accuracy_param", s), scores, labels, tops=2)
    np.testing.assert_allclose(overall, num_correct.sum() / num_labels.sum(), rtol=1e-6)
    np.testing.assert_allclose(class_accuracy, num_correct / np.maximum(num_labels, 1), rtol=1e-6)

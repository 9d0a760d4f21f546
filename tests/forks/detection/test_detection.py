"""The SSD fork's layers: files, reference loops for matching and mining, invariants of boxes, and errors."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax import CaffejaxError, Net, layer_types
from caffejax.core.layers.row_padding import strip_padding
from caffejax.forks.detection.boxes import decode_offsets, encode_offsets
from caffejax.forks.detection.multibox_targets import Truth, match, select_hardest
from layer_nets import Replay, assert_as_recorded, net_text, run_layer

RECORDED = Path(__file__).parent / "recorded"
TOLERANCE = {"atol": 1e-5, "rtol": 1e-4}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a folder with the files of the recorded cases, and make it the working directory."""
    for type_name in ("DetectionOutput", "DetectionEvaluate"):
        for file in (RECORDED / type_name).glob("s*_*.*t"):
            shutil.copy(file, tmp_path)
    for case in ("DetectionOutput/save_voc", "DetectionEvaluate/sizes"):
        for extension in ("prototxt", "npz"):
            shutil.copy(RECORDED / f"{case}.{extension}", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_voc_result_files_equal_the_recorded_files(folder: Path) -> None:
    assert_as_recorded({"path": folder / "save_voc", "phase": "TEST", "has_backward": False, **TOLERANCE})
    for expected in (RECORDED / "DetectionOutput" / "save_voc_out").iterdir():
        assert (folder / "save_voc_out" / expected.name).read_text() == expected.read_text()


@pytest.mark.parametrize("output_format", ["COCO", "ILSVRC"])
def test_result_files_in_coco_and_ilsvrc_format(folder: Path, output_format: str) -> None:
    text = (folder / "save_voc.prototxt").read_text()
    (folder / "save_voc.prototxt").write_text(text.replace('"VOC"', f'"{output_format}"'))
    replay = Replay({"path": folder / "save_voc", "phase": "TEST"})
    (top,), _ = replay.compute_tops(replay.params, replay.inputs)
    (file,) = (folder / "save_voc_out").iterdir()
    if output_format == "ILSVRC":
        lines = [line.split() for line in file.read_text().splitlines()]
        assert len(lines) == top.shape[2]
        assert [(line[0], int(line[1])) for line in lines] == [
            (("first", "second")[int(r[0])], int(r[1])) for r in top[0, 0]
        ]
    else:
        result = json.loads(file.read_text())
        assert [f["score"] for f in result] == pytest.approx(np.asarray(top[0, 0, :, 2]).tolist())
        assert result[0].keys() == {"image_id", "category_id", "bbox", "score"}


def test_missing_name_size_file_raises(folder: Path) -> None:
    replay = Replay({"path": folder / "save_voc", "phase": "TEST"})  # builds without them
    (folder / "save_voc_sizes.txt").unlink()
    with pytest.raises(CaffejaxError, match=r"save_voc_sizes\.txt: .*cannot be read"):
        replay.compute_tops(replay.params, replay.inputs)


def test_malformed_image_sizes_raise(folder: Path) -> None:
    case = {"path": folder / "sizes", "phase": "TEST", "has_backward": False, "atol": 1e-6, "rtol": 1e-6}
    assert_as_recorded(case)
    (folder / "sizes_sizes.txt").write_text("one 60\n")
    with pytest.raises(CaffejaxError, match=r"sizes_sizes\.txt:1: .*must be 'name height width', not 'one 60'"):
        assert_as_recorded(case)


def test_padding_rows_do_not_affect_the_evaluation() -> None:
    text = net_text("DetectionEvaluate", "detection_evaluate_param { num_classes: 4 }", [(1, 1, 11, 7), (1, 1, 5, 8)])
    recorded = np.load(RECORDED / "DetectionEvaluate" / "basic.npz")
    padding = np.full((1, 1, 9, 7), -1, np.float32)
    result = np.concatenate([recorded["bottom/detection"], padding], axis=2)
    tops, _ = Net(text, "TEST").apply({}, {}, {"b0": result, "b1": recorded["bottom/label"]})
    np.testing.assert_allclose(tops["t0"], recorded["top/top"])


RESIZE = "resize_param {{ resize_mode: {} height: 100 width: 100 {} }}"


@pytest.mark.parametrize("mode", ["", "WARP", "FIT_SMALL_SIZE", "units", "FIT_LARGE_SIZE_AND_PAD"])
@pytest.mark.parametrize("size", [(40, 80), (90, 30)])
def test_evaluation_maps_boxes_to_the_original_images(tmp_path: Path, mode: str, size: tuple[int, int]) -> None:
    """DetectionEvaluate measures boxes in pixels of the images before resizing, by SSD's rules."""
    (tmp_path / "sizes.txt").write_text(f"image {size[0]} {size[1]}\n")
    resize = RESIZE.format(mode, "") if mode else ""
    if mode == "units":
        resize = RESIZE.format("FIT_SMALL_SIZE", "height_scale: 30 width_scale: 70")
    random = np.random.default_rng(0)
    boxes = random.uniform(-0.1, 1.1, (60, 2, 2)).astype(np.float32)
    boxes = np.concatenate([boxes.min(1), boxes.max(1)], axis=1)
    truth, result = boxes[:20], boxes[20:]

    def to_pixels(box: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the box in pixels, and its area."""
        sides, aspect = np.array([size[1], size[0]]), size[1] / size[0]
        if mode == "units":
            box = np.clip(box * [70, 30, 70, 30], 0, [*sides, *sides])
            return box, float(np.prod(box[2:] - box[:2]))
        if mode == "FIT_LARGE_SIZE_AND_PAD":
            margin = np.array([0, (1 - 1 / aspect) / 2] if aspect > 1 else [(1 - aspect) / 2, 0])
            if np.all(box[:2] < 1 - margin) and np.all(box[2:] > margin):
                box = (box - [*margin, *margin]) / np.tile(1 - 2 * margin, 2)
        box = np.clip(box, 0, 1) * [*sides, *sides]
        return box, float(np.prod(box[2:] - box[:2] + 1))

    def overlap(a: np.ndarray, b: np.ndarray) -> float:
        (a, a_area), (b, b_area) = to_pixels(a), to_pixels(b)
        intersection_sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
        intersection = np.prod(intersection_sides + 1) if np.all(intersection_sides >= 0) else 1
        return float(intersection / (a_area + b_area - intersection))

    rows = np.concatenate([np.tile([0, 1, 0], (20, 1)), truth, np.zeros((20, 1))], axis=1)
    scores = np.linspace(1, 0.5, len(result))
    detections = np.concatenate([np.tile([0, 1], (40, 1)), scores[:, None], result], axis=1)
    text = f'num_classes: 2 overlap_threshold: 0.3 name_size_file: "{tmp_path}/sizes.txt" {resize}'
    (top,) = run_layer(
        "DetectionEvaluate", f"detection_evaluate_param {{ {text} }}", detections[None, None], rows[None, None]
    )
    matched_truths: set[int] = set()
    for row, box in zip(top[0, 0, 1:], result, strict=True):
        overlaps = [overlap(box, t) for t in truth]
        best = int(np.argmax(overlaps))
        is_correct = overlaps[best] >= 0.3 and best not in matched_truths
        matched_truths |= {best} if is_correct else set()
        assert tuple(row[3:]) == (is_correct, not is_correct)
    assert len(matched_truths) > 2


# matching and mining


def compute_overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Return the intersection over union of two boxes, in float32."""
    width, height = (max(min(a[i + 2], b[i + 2]) - max(a[i], b[i]), np.float32(0)) for i in (0, 1))
    areas = [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    return float(width * height / (areas[0] + areas[1] - width * height))


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


def coarse_boxes(random: np.random.Generator, n: int) -> np.ndarray:
    """Draw boxes on a grid, so that many overlaps are equal."""
    low = random.integers(0, 6, (n, 2))
    return (np.concatenate([low, low + random.integers(1, 4, (n, 2))], axis=1) / 8).astype(np.float32)


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


def _match(truth: Truth, priors: Any, threshold: float | None) -> Any:
    return match(truth, priors, jnp.arange(3), num_labels=None, threshold=threshold, inside_only=False)


jitted_match = jax.jit(_match, static_argnums=2)


@settings(max_examples=50)
@given(seed=st.integers(0, 10_000), count=st.integers(0, 9))
def test_mining_selects_the_hardest(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    losses, eligible = random.integers(0, 4, 8).astype(np.float32), random.random(8) < 0.7
    expected_indices = sorted(np.flatnonzero(eligible), key=lambda i: -losses[i])[:count]  # stable: of equals the first
    selected_mask = jitted_select_hardest(losses[None], eligible[None], count)[0]
    assert np.flatnonzero(selected_mask).tolist() == sorted(expected_indices)


jitted_select_hardest = jax.jit(select_hardest)


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


# boxes


@pytest.mark.parametrize("code", ["CORNER", "CENTER_SIZE", "CORNER_SIZE"])
@pytest.mark.parametrize("variances", [None, np.asarray([0.1, 0.1, 0.2, 0.3], np.float32)])
def test_decoding_inverts_encoding(code: str, variances: Any) -> None:
    random = np.random.default_rng(0)
    boxes, priors = coarse_boxes(random, 50), coarse_boxes(random, 50)
    offsets = encode_offsets(code, jnp.asarray(boxes), jnp.asarray(priors), variances)
    np.testing.assert_allclose(decode_offsets(code, offsets, jnp.asarray(priors), variances), boxes, atol=1e-5)
    np.testing.assert_allclose(encode_offsets(code, jnp.asarray(priors), jnp.asarray(priors), variances), 0, atol=1e-6)


# DetectionOutput's rows


def detect_by_loops(scores: np.ndarray, priors: np.ndarray, threshold: float, keep: int) -> list[list[float]]:
    """Return the detections of a batch with zero offsets, as rows [image, label, score, box]; class 0 is background."""
    rows = []
    for image, image_scores in enumerate(scores):
        result = []
        for label in range(1, scores.shape[2]):
            selected: list[int] = []
            for i in np.argsort(-image_scores[:, label], kind="stable"):
                overlap = [compute_overlap(priors[i], priors[k]) for k in selected]
                if image_scores[i, label] > 0.5 and all(o <= threshold for o in overlap):
                    selected.append(i)
            result += [[image, label, image_scores[i, label], *priors[i]] for i in selected]
        best = sorted(result, key=lambda row: -row[2])[:keep]
        rows += [row for row in result if row in best]
    return rows


@pytest.mark.parametrize(("keep", "clip"), [(4, False), (-1, False), (-1, True)])
def test_detection_output_equals_loops(keep: int, clip: bool) -> None:
    random = np.random.default_rng(3)
    priors, scores = coarse_boxes(random, 9), random.random((3, 9, 3)).astype(np.float32)
    scores[1] = 0  # nothing in the second image
    if clip:  # some reach over the image's edge
        priors[::2] += np.float32(0.4)
    param = f"num_classes: 3 keep_top_k: {keep} confidence_threshold: 0.5 nms_param {{ nms_threshold: 0.2 }}"
    param += f" clip: {str(clip).lower()}"
    text = net_text("DetectionOutput", f"detection_output_param {{ {param} }}", [(3, 36), (3, 27), (1, 2, 36)])
    blob = np.stack([priors.ravel(), np.ones(36, np.float32)])[None]
    inputs = {"b0": np.zeros((3, 36), np.float32), "b1": scores.reshape(3, 27), "b2": blob}
    net = Net(text, "TEST")
    top = jax.jit(lambda inputs: net.apply({}, {}, inputs)[0]["t0"])(inputs)
    clipped_priors = priors.clip(0, 1) if clip else priors
    expected = detect_by_loops(scores, clipped_priors, 0.2, keep if keep > 0 else 100)
    assert (clipped_priors != priors).any() == clip
    assert top.shape == (1, 1, 3 * (4 if keep > 0 else 18), 7)
    np.testing.assert_allclose(strip_padding(top)[0, 0], expected, rtol=1e-6)
    assert np.all(np.asarray(top)[0, 0, len(expected) :] == -1)


# what is refused


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


PREDICTIONS = [(2, 8), (2, 6), (1, 2, 8)]
TRUTH, DETECTIONS = (1, 1, 3, 8), (1, 1, 3, 7)
INVALID_CASES: dict[str, list[tuple[str, list[tuple[int, ...]], str]]] = {
    "multibox_loss_param": [
        ("", [*PREDICTIONS, TRUTH], "needs num_classes"),
        ("num_classes: 4", [*PREDICTIONS, TRUTH], r"bottom 1 .* 4 values for each of 2 priors, \(2, 8\)"),
        ("num_classes: 3", [*PREDICTIONS, DETECTIONS], "rows of 8"),
        ("num_classes: 3", [*PREDICTIONS[:2], (1, 8), TRUTH], "bottom 2 must contain priors"),
        ("num_classes: 3 share_location: false", [*PREDICTIONS, TRUTH], "mining needs share_location: true"),
        ("num_classes: 3 do_neg_mining: false mining_type: MAX_NEGATIVE", [*PREDICTIONS, TRUTH], "contradicts"),
        ("num_classes: 3 ignore_difficult_gt: true", [*PREDICTIONS, TRUTH], "ignore_difficult_gt is not supported"),
    ],
    "detection_output_param": [
        ("num_classes: 1", PREDICTIONS, "besides the background"),
        ("num_classes: 3 keep_top_k: 0", PREDICTIONS, "keep_top_k is 0, but must be positive"),
        ("num_classes: 3 nms_param { eta: 2 }", PREDICTIONS, "eta must be"),
    ],
    "detection_evaluate_param": [
        ("num_classes: 3", [(1, 1, 3, 6), TRUTH], "bottom 0 must have rows of 7"),
        ("num_classes: 3 resize_param { resize_mode: FIT_SMALL_SIZE }", [DETECTIONS, TRUTH], "needs height and width"),
    ],
    "prior_box_param": [
        ("", [(1, 1, 2, 2), (1, 3, 9, 9)], "needs a min_size"),
        ("min_size: 4 max_size: 3", [(1, 1, 2, 2), (1, 3, 9, 9)], "more than its min_size"),
        ("min_size: 4 variance: 1 variance: 2", [(1, 1, 2, 2), (1, 3, 9, 9)], "once or 4 times"),
        ("min_size: 4 step: 0", [(1, 1, 2, 2), (1, 3, 9, 9)], "step, .* must be positive"),
        ("min_size: 4 aspect_ratio: 0", [(1, 1, 2, 2), (1, 3, 9, 9)], "aspect_ratio must be positive"),
        ("min_size: 4 keras: true", [(1, 1, 2, 2), (1, 3, 9, 9)], "keras of a different fork"),
    ],
}
TYPE_BY_PARAM = {t.signature.param: name for name, t in layer_types().items() if name != "PriorBoxClustered"}


@pytest.mark.parametrize(
    ("param", "text", "shapes", "message"), [(param, *case) for param, cases in INVALID_CASES.items() for case in cases]
)
def test_invalid_settings_and_shapes_are_refused(
    param: str, text: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(CaffejaxError, match=f"layer 'layer'.*{message}"):
        Net(net_text(TYPE_BY_PARAM[param], f"{param} {{ {text} }}", shapes), "TRAIN")


def test_do_neg_mining_false_disables_mining() -> None:
    recorded = np.load(RECORDED / "MultiBoxLoss" / "no_gt_no_mining.npz")
    bottoms = [recorded[f"bottom/{name}"] for name in ("loc", "conf", "prior", "label")]
    param = "multibox_loss_param { num_classes: 3 code_type: CENTER_SIZE do_neg_mining: false }"
    net = Net(net_text("MultiBoxLoss", param, [b.shape for b in bottoms]), "TRAIN")
    loss = jax.jit(lambda inputs: net.loss({}, {}, inputs)[0])({f"b{i}": b for i, b in enumerate(bottoms)})
    np.testing.assert_allclose(loss, recorded["loss"], rtol=1e-5)

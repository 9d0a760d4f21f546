"""Tests of DetectionOutput."""

import itertools
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import caffejax
from caffejax import CaffejaxError, Net, read_net
from caffejax.base.errors import LayerError
from caffejax.core.graph import build
from caffejax.core.layers.row_padding import strip_padding
from caffejax.cpu.kernels import onednn_program
from detection.cases import NUM_CLASSES, NUM_PRIORS, coarse_boxes, compute_overlap, draw_priors
from layer_nets import Replay, assert_as_recorded, assert_host_equals_compiled, find_host_form, net_text
from layer_suite import BATCH, Case, Shape, fork_properties, layer_case, recorded


def detection_output_case(param: str, name: str, groups: int = 1, refinement: tuple[Shape, ...] = ()) -> Case:
    shapes = ((BATCH, NUM_PRIORS * groups * 4), (BATCH, NUM_PRIORS * NUM_CLASSES), (1, 2, NUM_PRIORS * 4))
    shapes += refinement
    text = f"detection_output_param {{ num_classes: {NUM_CLASSES} {param} }}"
    return layer_case("DetectionOutput", text, *shapes, name=name, phase="TEST", samplers={"b2": draw_priors})


test_recorded = recorded("DetectionOutput", family="detection")
test_properties = fork_properties(
    detection_output_case("code_type: CENTER_SIZE nms_param { top_k: 6 } keep_top_k: 5", "best"),
    detection_output_case(
        "share_location: false confidence_threshold: 0.4 nms_param { eta: 0.9 nms_threshold: 0.8 }", "all", NUM_CLASSES
    ),
    detection_output_case(
        "code_type: CENTER_SIZE objectness_score: 0.1 keep_top_k: 5",
        "refined",
        refinement=((BATCH, NUM_PRIORS * 2), (BATCH, NUM_PRIORS * 4)),
    ),
)


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


def test_voc_result_files_equal_the_recorded_files(folder: Path) -> None:
    assert_as_recorded({"path": folder / "save_voc", "phase": "TEST", "has_backward": False, **TOLERANCE})
    for expected in (RECORDED / "DetectionOutput" / "save_voc_out").iterdir():
        assert (folder / "save_voc_out" / expected.name).read_text() == expected.read_text()


def test_a_layer_that_writes_results_is_no_function(folder: Path) -> None:
    (layer,) = (x for x in read_net(folder / "save_voc.prototxt").layer if x.name == "layer")
    arrays = np.load(folder / "save_voc.npz")
    detect = caffejax.layer("DetectionOutput", layer)
    with pytest.raises(CaffejaxError, match=r"\(DetectionOutput\): writes '.*', which a function does not: unset"):
        detect(*(arrays[f"bottom/{name}"] for name in layer.bottom))
    assert not list((folder / "save_voc_out").glob("*"))


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


@pytest.mark.parametrize(("settings", "num_scores"), [("", 26), ("keep_top_k: 0", 27)])
def test_the_shape_rule_keeps_the_errors_of_forward(
    settings: str, num_scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [(1, 36), (1, num_scores), (1, 2, 36)]
    text = net_text("DetectionOutput", f"detection_output_param {{ num_classes: 3 {settings} }}", shapes)

    def build_message() -> str:
        try:
            return str([blob.shape for blob in Net(text).graph.blobs.values()])
        except CaffejaxError as error:
            return str(error)

    rule_message = build_message()
    monkeypatch.setattr(build, "_shapes_by_rule", lambda *_: None)
    assert rule_message == build_message()


SETTINGS = list(
    itertools.product(
        ("", "confidence_threshold: 0.3"),
        ("keep_top_k: -1", "keep_top_k: 5"),
        ("", "nms_param { nms_threshold: 0.2 }", "nms_param { nms_threshold: 0.7 top_k: 6 eta: 0.8 }"),
        ("share_location: true", "share_location: false background_label_id: -1"),
        ("code_type: CENTER_SIZE", "code_type: CORNER variance_encoded_in_target: true"),
    )
)


@pytest.mark.skipif(not onednn_program.is_available(), reason="needs the compiled kernels")
@pytest.mark.parametrize("settings", SETTINGS[::7], ids=" ".join)
def test_host_detection_output_equals_compiled_detection_output(settings: tuple[str, ...]) -> None:
    param = f"detection_output_param {{ num_classes: 3 {' '.join(settings)} }}"
    num_groups = 3 if "share_location: false" in param else 1
    num_images, num_priors = 2, 12
    net = Net(
        net_text(
            "DetectionOutput",
            param,
            [(num_images, num_priors * num_groups * 4), (num_images, num_priors * 3), (1, 2, num_priors * 4)],
        )
    )
    batches = []
    for seed, scores in itertools.product(range(3), ("spread", "equal", "none")):
        random = np.random.default_rng(seed)
        low = random.uniform(0, 0.6, (num_priors, 2))
        boxes = np.concatenate(
            [low, low + random.uniform(-0.05, 0.4, (num_priors, 2))], 1
        )  # some are turned inside out
        prior = np.stack([boxes.ravel(), np.full(num_priors * 4, 0.1)])[None].astype(np.float32)
        location = random.normal(0, 0.5, (num_images, num_priors * num_groups * 4)).astype(np.float32)
        confidence = random.uniform(0, 1, (num_images, num_priors * 3)).astype(np.float32)
        if scores == "equal":
            confidence = np.round(confidence, 1)
        batches.append((location, confidence * 0 - 1 if scores == "none" else confidence, prior))
    assert_host_equals_compiled(net.graph.layer("layer").context, *batches)


def decode(code: str, prior: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the box with these offsets from a prior, of which the variances are factors already."""
    if code == "CORNER":
        return prior + offsets
    width, height = prior[2] - prior[0], prior[3] - prior[1]
    x, y = (prior[0] + prior[2]) / 2 + offsets[0] * width, (prior[1] + prior[3]) / 2 + offsets[1] * height
    half_width, half_height = np.exp(offsets[2]) * width / 2, np.exp(offsets[3]) * height / 2
    return np.array([x - half_width, y - half_height, x + half_width, y + half_height], np.float32)


@pytest.mark.parametrize("on_host", [False, True], ids=["compiled", "host"])
@pytest.mark.parametrize("num_further", [1, 2], ids=["objectness", "refined"])
@pytest.mark.parametrize("code", ["CORNER", "CENTER_SIZE"])
@pytest.mark.parametrize("settings", ["confidence_threshold: 0.3 keep_top_k: 4", "background_label_id: 1"])
def test_refined_detections_equal_loops(settings: str, code: str, num_further: int, on_host: bool) -> None:
    """RefineDet's rule: priors are moved twice, and those without an object are of class 0."""
    if on_host and not onednn_program.is_available():
        pytest.skip("needs the compiled kernels")
    background, min_score, keep = (0, 0.3, 4) if "keep" in settings else (1, -1, 100)
    for seed in range(5):
        random = np.random.default_rng(seed)
        priors, variances = coarse_boxes(random, 9), np.float32([0.1, 0.1, 0.2, 0.2])
        arm, loc = (random.normal(size=(3, 9, 4)).astype(np.float32) for _ in range(2))
        scores, objectness = (random.random((3, 9, n)).astype(np.float32) for n in (3, 2))
        objectness[0, 0, 1], objectness[0, 1, 1] = 0.25, np.nan  # neither is below objectness_score
        objectness[1, :, 1] = 0  # nothing in the second image
        rows = []
        for image in range(3):
            boxes, image_scores, result = [], scores[image].copy(), []
            for i, prior in enumerate(priors):
                anchor = decode(code, prior, arm[image, i] * variances) if num_further == 2 else prior
                boxes.append(decode(code, anchor, loc[image, i] * variances))
                if objectness[image, i, 1] < 0.25:
                    image_scores[i] = [1, 0, 0]
            for label in {0, 1, 2} - {background}:
                selected: list[int] = []
                for i in np.argsort(-image_scores[:, label], kind="stable"):
                    if image_scores[i, label] > min_score and all(
                        compute_overlap(boxes[i], boxes[k]) <= 0.3 for k in selected
                    ):
                        selected.append(i)
                result += [[image, label, image_scores[i, label], *boxes[i]] for i in selected]
            best = sorted(result, key=lambda row: -row[2])[:keep]
            rows += [row for row in result if any(row is other for other in best)]
        prior = np.stack([priors.ravel(), np.tile(variances, 9)])[None]
        bottoms = [loc, scores, prior, objectness, arm][: 3 + num_further]
        bottoms = [b if b is prior else b.reshape(3, -1) for b in bottoms]
        param = f"num_classes: 3 code_type: {code} objectness_score: 0.25 {settings}"
        net = Net(net_text("DetectionOutput", f"detection_output_param {{ {param} }}", [b.shape for b in bottoms]))
        if on_host:
            context = net.graph.layer("layer").context
            form = find_host_form(context.type)
            assert form is not None
            top = context.call(form, *bottoms)
        else:
            inputs = {f"b{i}": b for i, b in enumerate(bottoms)}
            top = net.jit(lambda inputs, net=net: net.apply({}, {}, inputs)[0]["t0"])(inputs)
        np.testing.assert_allclose(strip_padding(np.asarray(top))[0, 0], rows, rtol=1e-4, atol=1e-6)


def test_a_fourth_bottom_with_four_axes_is_an_image_and_ignored() -> None:
    random = np.random.default_rng(0)
    prior = np.stack([coarse_boxes(random, 4).ravel(), np.full(16, 0.1, np.float32)])[None]
    bottoms = [random.random(shape).astype(np.float32) for shape in ((2, 16), (2, 12))]
    image = np.zeros((2, 8, 1, 1), np.float32)
    tops = []
    for further in ([], [image]):
        arrays = [*bottoms, prior, *further]
        net = Net(net_text("DetectionOutput", "detection_output_param { num_classes: 3 }", [b.shape for b in arrays]))
        tops.append(net.jit(net.apply)({}, {}, {f"b{i}": b for i, b in enumerate(arrays)})[0]["t0"])
    np.testing.assert_array_equal(*tops)


@pytest.mark.parametrize(
    ("shapes", "settings", "message"),
    [
        (
            [(2, 7)],
            "",
            r"bottom 3 must contain the background's and the object's probability for each of 4 priors, \(2, 8\)",
        ),
        (
            [(2, 8), (2, 8)],
            "",
            r"bottom 4 must contain 4 offsets for each of 4 priors, \(2, 16\), but has shape \(2, 8\)",
        ),
        ([(2, 8), (1, 16)], "", "bottom 4 must contain 4 offsets"),
        ([(2, 8), (2, 16)], "share_location: false", "RefineDet's bottoms need share_location: true"),
    ],
)
def test_invalid_refinement_raises(shapes: list[tuple[int, ...]], settings: str, message: str) -> None:
    num_groups = 3 if settings else 1
    shapes = [(2, 16 * num_groups), (2, 12), (1, 2, 16), *shapes]
    with pytest.raises(CaffejaxError, match=message):
        Net(net_text("DetectionOutput", f"detection_output_param {{ num_classes: 3 {settings} }}", shapes))


def test_host_forward_refuses_invalid_bottoms() -> None:
    net = Net(net_text("DetectionOutput", "detection_output_param { num_classes: 3 }", [(1, 36), (1, 27), (1, 2, 36)]))
    context = net.graph.layer("layer").context
    invalid_bottoms = [np.zeros(shape, np.float32) for shape in ((1, 36), (1, 26), (1, 2, 36))]
    form = find_host_form(context.type)
    assert form is not None
    with pytest.raises(LayerError, match="27"):
        context.call(form, *invalid_bottoms)

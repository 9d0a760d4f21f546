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
from layer_suite import BATCH, Case, fork_properties, layer_case, recorded


def detection_output_case(param: str, name: str, groups: int = 1) -> Case:
    shapes = ((BATCH, NUM_PRIORS * groups * 4), (BATCH, NUM_PRIORS * NUM_CLASSES), (1, 2, NUM_PRIORS * 4))
    text = f"detection_output_param {{ num_classes: {NUM_CLASSES} {param} }}"
    return layer_case("DetectionOutput", text, *shapes, name=name, phase="TEST", samplers={"b2": draw_priors})


test_recorded = recorded("DetectionOutput", family="detection")
test_properties = fork_properties(
    detection_output_case("code_type: CENTER_SIZE nms_param { top_k: 6 } keep_top_k: 5", "best"),
    detection_output_case(
        "share_location: false confidence_threshold: 0.4 nms_param { eta: 0.9 nms_threshold: 0.8 }", "all", NUM_CLASSES
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


def test_host_forward_refuses_invalid_bottoms() -> None:
    net = Net(net_text("DetectionOutput", "detection_output_param { num_classes: 3 }", [(1, 36), (1, 27), (1, 2, 36)]))
    context = net.graph.layer("layer").context
    invalid_bottoms = [np.zeros(shape, np.float32) for shape in ((1, 36), (1, 26), (1, 2, 36))]
    form = find_host_form(context.type)
    assert form is not None
    with pytest.raises(LayerError, match="27"):
        context.call(form, *invalid_bottoms)

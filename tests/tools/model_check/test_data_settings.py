"""`check` refuses the settings of data layers that training refuses, whether the source exists or not."""

import json
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.cli.check import _format_failure_counts, _format_loading_counts
from caffejax.core.data.database import WRITERS
from caffejax.core.program.net import Net
from caffejax.core.schema import caffe_pb2
from caffejax.forks.detection.data.annotated_datum import write_annotated
from caffejax.tools.model_check import Report
from caffejax.tools.model_check.check import check_file
from caffejax.tools.model_check.check_report import Finding, PhaseReport

SIDE = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source for each type of data layer."""
    folder = tmp_path_factory.mktemp("sources")
    image = np.full((SIDE, SIDE, 3), 100, np.uint8)
    cv2.imwrite(str(folder / "a.png"), image)
    cv2.imwrite(str(folder / "labels.png"), image[:, :, 0])
    (folder / "list.txt").write_text(f"{folder}/a.png 1\n")
    (folder / "pairs.txt").write_text(f"{folder}/a.png {folder}/labels.png\n")
    (folder / "windows.txt").write_text(f"# 0\n{folder}/a.png\n3 {SIDE} {SIDE}\n2\n1 1 2 2 9 9\n0 0 2 2 9 9\n")
    (folder / "frames").mkdir()
    for i in (1, 2):
        cv2.imwrite(str(folder / "frames" / f"image_{i:04d}.jpg"), image)
        cv2.imwrite(str(folder / "frames" / f"{i:06d}.jpg"), image)
    (folder / "videos.txt").write_text(f"{folder}/frames 1 0\n")
    write_annotated(folder / "annotated", [(image, np.array([[1, 0, 0, 0, 0.5, 1, 0]], np.float32))])
    with WRITERS["lmdb"](folder / "lanes") as put:
        datum = caffe_pb2.Datum(encoded=True, data=(folder / "a.png").read_bytes())
        put(b"0", caffe_pb2.AnnotatedDatum(datum=datum, type=caffe_pb2.AnnotatedDatum.LANE).SerializeToString())
    for name, channels in (("images", 3), ("poses", 6)):
        with WRITERS["lmdb"](folder / name) as put:
            data = np.zeros((channels, 100, 100), np.uint8)
            put(
                b"0", caffe_pb2.Datum(channels=channels, height=100, width=100, data=data.tobytes()).SerializeToString()
            )
    with WRITERS["lmdb"](folder / "boxes") as put:
        pixels = cv2.imencode(".png", image)[1].tobytes()
        put(b"0", caffe_pb2.Datum(data=pixels, encoded=True, float_data=[1, 0, 0.5, 0.5, 1, 1]).SerializeToString())
    (folder / "rois.txt").write_text(f"# 0\n{folder}/a.png\n1\n1 2 2 9 9 0\n")
    config = {"scales": "24", "max_size": "30", "pixel_means": "1, 2, 3", "use_flipped": "1", "n_classes": "2"}
    (folder / "config.json").write_text(json.dumps(config))
    with h5py.File(folder / "rows.h5", "w") as file:
        file["data"], file["label"] = np.zeros((4, 2)), np.zeros(4)
    (folder / "hdf5.txt").write_text(f"{folder}/rows.h5\n")
    return folder


# the source and the valid settings of each type: its messages, and transform_param
LAYERS: dict[str, tuple[str, dict[str, str]]] = {
    "Data": ("images", {"data_param": "batch_size: 1 backend: LMDB"}),
    "AnnotatedData": ("annotated", {"data_param": "batch_size: 1 backend: LMDB", "annotated_data_param": ""}),
    "BoxData": ("boxes", {"data_param": "batch_size: 1 backend: LMDB"}),
    "LaneData": ("lanes", {"data_param": "batch_size: 1 backend: LMDB", "annotated_data_param": ""}),
    "CustomData": ("images", {"data_param": "batch_size: 1 backend: LMDB"}),
    "ImageData": ("list.txt", {"image_data_param": "batch_size: 1"}),
    "ImageSegData": ("pairs.txt", {"image_data_param": "batch_size: 1 label_type: PIXEL"}),
    "ImageLabelmapData": ("pairs.txt", {"image_data_param": "batch_size: 1"}),
    "DenseImageData": ("pairs.txt", {"dense_image_data_param": "batch_size: 1"}),
    "WindowData": (
        "windows.txt",
        {
            "window_data_param": "batch_size: 2 fg_threshold: 0.5 bg_threshold: 0.5 fg_fraction: 0.5",
            "transform_param": "crop_size: 8",
        },
    ),
    "FrcnnRoiData": ("rois.txt", {"window_data_param": "config: '{folder}/config.json'"}),
    "HDF5Data": ("hdf5.txt", {"hdf5_data_param": "batch_size: 1"}),
    "VideoData": (
        "videos.txt",
        {"video_data_param": "batch_size: 1 use_image: true new_length: 1", "transform_param": "crop_size: 8"},
    ),
    "CPMData": (
        "poses",
        {
            "data_param": "batch_size: 1 backend: LMDB",
            "cpm_transform_param": "num_parts: 56 np_in_lmdb: 17 stride: 8 crop_size_x: 16 crop_size_y: 16 "
            "sigma: 7 target_dist: 0.6",
        },
    ),
}
SOURCE_MESSAGE = {name: next(iter(messages)) for name, (_, messages) in LAYERS.items()}

WITH_TRANSFORM = [name for name in LAYERS if name not in ("HDF5Data", "CPMData", "CustomData", "FrcnnRoiData")]
LISTS = ["ImageData", "ImageSegData", "ImageLabelmapData", "DenseImageData"]
DATABASES = ["Data", "AnnotatedData", "LaneData", "BoxData", "CustomData", "CPMData"]
SSD = "transform_param", "annotated_data_param"
ANNOTATED = ["AnnotatedData", "LaneData"]
OF_SSD = [*ANNOTATED, "Data", "ImageData"]
# types, the message, and its invalid settings
INVALID: list[tuple[list[str], str, tuple[str, ...]]] = [
    (WITH_TRANSFORM, "transform_param", (
        "crop_size: 5 crop_h: 5 crop_w: 5", "mean_file: 'm' mean_value: 3", "mean_file: '{folder}/a.png'",
        "force_color: true force_gray: true", "flow: true",
    )),
    ([name for name in WITH_TRANSFORM if name != "WindowData"], "transform_param", ("crop_h: 5",)),
    ([name for name in WITH_TRANSFORM if name not in OF_SSD], "transform_param", (
        "resize_param { height: 32 width: 32 }", "noise_param { inverse: true }",
    )),
    ([name for name in WITH_TRANSFORM if name not in ANNOTATED], "transform_param", ("expand_param { prob: 1 }",)),
    (["Data", "ImageData"], "transform_param", (
        "resize_param { height: 9 }", "resize_param { height: 9 width: 9 } distort_param { hue_delta: 1 }",
        "noise_param { jpeg: 101 }",
    )),
    (ANNOTATED, "transform_param", (
        "resize_param { }", "resize_param { height: 9 width: 9 } resize_param { height: 8 width: 8 }",
        "expand_param { max_expand_ratio: 0.5 }", "distort_param { hue_delta: -1 }", "noise_param { jpeg: 101 }",
        "noise_param { saltpepper: true }", "mean_file: 'm' expand_param { }",
        "distort_param { contrast_prob: 1 contrast_lower: 2 }",
    )),
    (["AnnotatedData"], "annotated_data_param", (
        "batch_sampler { sampler { max_scale: 2 } }", "batch_sampler { sampler { min_scale: 0 } }",
        "batch_sampler { sampler { min_aspect_ratio: 3 } }", "batch_sampler { max_trials: 4294967295 }",
        "anno_type: LANE", "yolo_data_type: 2", "yolo_data_jitter: 1.5", "seg_scales: 4",
    )),
    ([name for name in LAYERS if name not in ("WindowData", "FrcnnRoiData")], "SOURCE", ("batch_size: 0",)),
    (["FrcnnRoiData"], "SOURCE", ("config: ''", "batch_size: 2")),
    (["FrcnnRoiData"], "transform_param", ("mirror: true", "mean_value: 3")),
    ([name for name in LAYERS if name != "HDF5Data"], "data_param", ("prefetch: 0", "prefetch: 100000")),
    (DATABASES, "data_param", ("backend: IMAGEDB", "images_per_blob: 2", "one_hot_label_size: 3")),
    (["BoxData"], "data_param", ("side: 0", "side: 7 side: 5")),
    (["CustomData"], "data_param", (
        "slice_point: 0", "slice_point: 1 slice_point: 2", "encoding: UINT8 encoding: UINT8", "mean_file: 'm'",
        "preselection_file: 'p'", "scale: nan", "crop_size: 5", "mirror: true", "rand_skip: 1",
    )),
    (["CustomData"], "transform_param", ("scale: 2", "mean_value: 3")),
    (LISTS, "SOURCE", ("new_height: 5",)),
    (["ImageData"], "image_data_param", ("min_height: 5", "label_type: PIXEL", "new_length: 3")),
    (["ImageSegData"], "image_data_param", ("ignore_label: 256",)),
    (["ImageSegData", "ImageLabelmapData", "DenseImageData"], "transform_param", (
        "scale_factors: 0", "scale_factors: inf", "mean_file: 'm' crop_size: 5",
    )),
    (["DenseImageData"], "dense_image_data_param", (
        "label_divide_factor: 0", "label_divide_factor: 9 new_height: 8 new_width: 8", "crop_height: 5",
        "label_divide_factor: 2 crop_height: 4 crop_width: 4",
    )),
    (["WindowData"], "window_data_param", (
        "batch_size: 0", "context_pad: 4", "crop_mode: 'round'", "fg_fraction: 1.5", "fg_fraction: -0.1",
    )),
    (["WindowData"], "transform_param", ("crop_size: 0", "crop_size: 1000000", "force_color: true")),
    (["HDF5Data"], "transform_param", ("scale: 2",)),
    (["VideoData"], "video_data_param", (
        "new_length: 0", "sampling_rate: 0", "max_sampling_rate: 0", "num_of_labels: 0", "device_id: 1",
        "new_height: 5", "num_segments: 0", "num_segments: 1 name_pattern: 'frame.jpg'",
        "modality: RGB use_image: true",
    )),
    (["VideoData"], "transform_param", ("mean_value: 1 mean_value: 2",)),
    (["CPMData"], "cpm_transform_param", (
        "num_parts: 0", "np_in_lmdb: 2", "stride: 0", "sigma: nan", "clahe_tile_size: 0", "aug_way: 'table'",
        "crop_size_x: 1000000 crop_size_y: 1000000",
    )),
]  # fmt: skip


def make_layer(name: str, folder: Path, message: str = "", settings: str = "", *, source: str | None = None) -> str:
    file, texts = LAYERS[name]
    texts = {key: text.replace("{folder}", str(folder)) for key, text in texts.items()}
    path = source if source is not None else f"{folder}/{file}"
    texts[SOURCE_MESSAGE[name]] += f" source: '{path}'"
    if message:
        key = SOURCE_MESSAGE[name] if message == "SOURCE" else message
        texts[key] = merge_fields(texts.get(key, ""), settings.replace("{folder}", str(folder)))
    messages = " ".join(f"{key} {{ {text} }}" for key, text in texts.items())
    tops = "top: 'data' top: 'label'" + " top: 'boxes'" * (name == "FrcnnRoiData")
    return f"layer {{ name: 'd' type: '{name}' {tops} {messages} }}"


def merge_fields(text: str, settings: str) -> str:
    """Return settings after fields of `text` that they do not set again."""
    names = {word.rstrip(":") for word in settings.split() if word.endswith(":")}
    fields = [pair for pair in text.split(" ") if pair]
    kept = [f"{a} {b}" for a, b in zip(fields[::2], fields[1::2], strict=True) if a.rstrip(":") not in names]
    return " ".join([*kept, settings])


CASES = [(name, m, s) for names, m, all_settings in INVALID for name in names for s in all_settings]


def check(text: str, path: Path) -> PhaseReport:
    path.write_text(text)
    return check_file(path).phases[0]


@pytest.mark.parametrize("name", LAYERS)
def test_invalid_settings_are_refused_with_and_without_the_source(name: str, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.prototxt"
    for source in (None, f"{tmp_path}/gone")[name == "CPMData" :]:  # its record here describes nobody
        assert check(make_layer(name, folder, source=source), file).outcome == "loads"
    for message, settings in ((m, s) for n, m, s in CASES if n == name):
        findings = {}
        for kind, source in (("present", None), ("absent", f"{folder}/gone")):
            phase = check(make_layer(name, folder, message, settings, source=source), file)
            assert phase.outcome == "fails", (kind, message, settings)
            assert all(finding.layers == ("d",) for finding in phase.findings), phase.findings
            findings[kind] = [finding.message for finding in phase.findings]
        path = f"{folder}/{LAYERS[name][0]}"  # messages may name the source
        assert findings["absent"] == [text.replace(path, f"{folder}/gone") for text in findings["present"]], settings
        with pytest.raises(CaffejaxError) as error:  # what training does
            Net(make_layer(name, folder, message, settings), "TRAIN")
        messages = [f"{p.file}: {p.message}" if p.file else p.message for p in error.value.problems]
        assert messages == findings["present"]


@pytest.mark.parametrize("source", ["images", "gone"])
def test_all_problems_of_a_layer_and_of_the_net_are_reported_at_once(source: str, folder: Path, tmp_path: Path) -> None:
    text = (
        f"layer {{ name: 'd' type: 'Data' top: 'data' top: 'label' data_param {{ batch_size: 0 prefetch: 0 "
        f"backend: LMDB source: '{folder / source}' }} transform_param {{ crop_h: 2 mean_file: 'x' mean_value: 1 "
        "resize_param { } } } layer { name: 'r' type: 'Reul' bottom: 'data' top: 'r' }"
    )
    messages = " ".join(finding.message for finding in check(text, tmp_path / "net.prototxt").findings)
    problems = (
        "batch_size must be 1",
        "prefetch must be",
        "only one of crop_h",
        "both mean_file",
        "resize_param",
        "Reul",
    )
    for problem in problems:
        assert problem in messages


def test_a_layer_with_unreadable_text_is_not_checked_further(tmp_path: Path) -> None:
    text = "layer { name: 'd' type: 'Data' top: 'x' nonsense: 3 data_param { source: 'gone' batch_size: 0 } }"
    assert "batch_size" not in str(check(text, tmp_path / "net.prototxt"))


@pytest.mark.parametrize("name", LAYERS)
def test_missing_files_are_named_with_their_fields(name: str, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.prototxt"
    field = f"{SOURCE_MESSAGE[name]}.source"
    assert f"{field} 'gone' does not exist" in check(make_layer(name, folder, source="gone"), file).assumed[0]
    if name in WITH_TRANSFORM:
        phase = check(make_layer(name, folder, "transform_param", "mean_file: 'mean.binaryproto'"), file)
        assert phase.outcome == "loads"
        assert "transform_param.mean_file 'mean.binaryproto' does not exist" in phase.assumed[0]
        assert "source" not in phase.assumed[0].partition(":")[0]
        both = make_layer(name, folder, "transform_param", "mean_file: 'mean.binaryproto'", source="gone")
        assert f"{field} 'gone' and transform_param.mean_file 'mean.binaryproto' do" in check(both, file).assumed[0]


def test_missing_files_of_other_layers_and_entries_of_lists_are_named(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.prototxt"
    text = (
        "layer { name: 'in' type: 'Input' top: 'det' top: 'truth' input_param { shape { dim: 1 dim: 1 dim: 3 dim: 7 } "
        "shape { dim: 1 dim: 1 dim: 2 dim: 8 } } } layer { name: 'e' type: 'DetectionEvaluate' bottom: 'det' "
        "bottom: 'truth' top: 'map' detection_evaluate_param { num_classes: 3 name_size_file: 'sizes.txt' } }"
    )
    sentence = "detection_evaluate_param.name_size_file 'sizes.txt' of layer 'e' (DetectionEvaluate) does not exist"
    assert check(text, file).assumed == (sentence,)
    label_map = make_layer("AnnotatedData", folder, "annotated_data_param", "label_map_file: 'map.prototxt'")
    phase = check(label_map, file)
    assert phase.outcome == "loads"
    assert phase.assumed == (
        "annotated_data_param.label_map_file 'map.prototxt' of layer 'd' (AnnotatedData) does not exist",
    )
    (tmp_path / "list").write_text("none.png 1\n")
    phase = check(make_layer("ImageData", folder, source=f"{tmp_path}/list"), file)
    assert phase.outcome == "fails"
    assert "none.png" in str(phase.findings[0])


@pytest.mark.parametrize(
    ("loading", "failing", "text"),
    [
        ({"net": 5, "solver": 3}, {"net": 1}, "1 of 6 nets does not load"),
        ({"net": 5}, {"solver": 2, "net": 1}, "1 of 6 nets and 2 of 2 solvers do not load"),
        ({}, {"net": 1}, "1 of 1 net does not load"),
        ({}, {"net": 2}, "2 of 2 nets do not load"),
        ({"net": 3}, {"solver": 1}, "1 of 1 solver does not load"),
    ],
)
def test_counts_leave_out_kinds_of_which_there_are_none(loading: Any, failing: Any, text: str) -> None:
    failed = [Report("f", kind) for kind, n in failing.items() for _ in range(n)]
    models = [*(Report("f", kind) for kind, n in loading.items() for _ in range(n)), *failed]
    assert _format_failure_counts(failed, models) == text
    loaded = _format_loading_counts([*models, Report("f", "solver", findings=(Finding("setting", "x"),))])
    assert "solver" in loaded  # also if none loads

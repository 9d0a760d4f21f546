"""VideoData: clips of C3D and segments of temporal segment networks, from frames whose pixels encode their index."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from caffejax.base.errors import DataError
from caffejax.core.program.net import Net
from caffejax.core.schema import caffe_pb2
from caffejax.tools.model_check.check import check_file

NUM_FRAMES = {"one": 12, "two": 9, "three": 20}
SIZE = (10, 14)


def make_frame(video: int, frame: int) -> np.ndarray:
    """(H, W, 3): blue is the video, green the frame, red the column."""
    columns = np.broadcast_to(np.arange(SIZE[1]), SIZE)
    return np.stack([np.full(SIZE, 10 * video), np.full(SIZE, frame), columns], axis=2).astype(np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Frames as PNG files by the names of JPEG files, which OpenCV does not mind; a flow of two channels."""
    path: Path = tmp_path_factory.mktemp("videos")
    for video, (name, count) in enumerate(NUM_FRAMES.items()):
        (path / name).mkdir()
        for frame in range(1, count + 1):
            for file in (f"{frame:06d}.jpg", f"img_{frame:05d}.jpg"):
                (path / name / file).write_bytes(cv2.imencode(".png", make_frame(video, frame))[1].tobytes())
            for axis, value in (("x", 100 + frame), ("y", 200 + frame)):
                flow = np.full(SIZE, value, np.uint8) + np.arange(SIZE[1], dtype=np.uint8) // 7
                (path / name / f"flow_{axis}_{frame:04d}.jpg").write_bytes(cv2.imencode(".png", flow)[1].tobytes())
    writer = cv2.VideoWriter(str(path / "film.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (32, 24))
    for frame in range(12):
        writer.write(np.full((24, 32, 3), 20 * frame, np.uint8))
    writer.release()
    lists = {
        "clips": "one 1 7\ntwo 3 0\nthree  5  2\n",
        "lengths": "one 12 7\ntwo 9 0\nthree 20 2\n",
        "films": "film.avi 0 4\nfilm.avi 5 1\n",
        "drawn": "film.avi 4\n",
        "labels": "one 1 0,2\ntwo 1 1\nthree 1 0,1,2\n",
        "bad": "one 1\ntwo x 0\nthree 1 2\n",
        "lost": "one 1 7\nfour 1 2\n",
    }
    for name, text in lists.items():
        (path / f"{name}.txt").write_text(text)
    return path


def layer_text(
    folder: Path, file: str, settings: str, transform: str = "", batch_size: int = 3, param: str = "video_data_param"
) -> str:
    return f"""layer {{ name: "d" type: "VideoData" top: "data" top: "label" transform_param {{ {transform} }}
        {param} {{ source: "{folder}/{file}.txt" batch_size: {batch_size} {settings} }} }}"""


CLIP_SETTINGS = "use_image: true new_length: 3"


@pytest.mark.parametrize("param", ["video_data_param", "image_data_param"])
@pytest.mark.parametrize("step", [1, 2])
def test_clips_are_read_from_images(folder: Path, open_source: Any, param: str, step: int) -> None:
    source = open_source(layer_text(folder, "clips", f"{CLIP_SETTINGS} sampling_rate: {step}", param=param), workers=0)
    data, label = next(source)
    assert data.shape == (3, 3, 3, *SIZE)
    np.testing.assert_array_equal(label, [7, 0, 2])
    for video, first_frame in enumerate((1, 3, 5)):
        expected = np.stack([make_frame(video, first_frame + step * i) for i in range(3)]).transpose(3, 0, 1, 2)
        np.testing.assert_array_equal(data[video], expected)
    np.testing.assert_array_equal(next(source)[0], data)  # round and round


@pytest.mark.parametrize("param", ["video_data_param", "image_data_param"])
def test_frames_of_a_clip_are_cropped_and_mirrored_together(folder: Path, open_source: Any, param: str) -> None:
    settings = "crop_size: 6 mirror: true mean_value: 2 scale: 0.5"
    uses_image_param = param == "image_data_param"
    text = f"{CLIP_SETTINGS} {settings if uses_image_param else ''}"
    net = layer_text(folder, "clips", text, "" if uses_image_param else settings, param=param)
    source, crops = open_source(net, "TRAIN", seed=1, workers=0), set()
    assert source.tops[0].shape == (3, 3, 3, 6, 6)
    for _ in range(8):
        data = next(source)[0] * 2 + 2
        for video, first_frame in enumerate((1, 3, 5)):
            clip = data[video]
            np.testing.assert_array_equal(clip[1, :, 0, 0], np.arange(first_frame, first_frame + 3))
            assert (clip[0] == 10 * video).all()
            np.testing.assert_array_equal(clip[2], np.broadcast_to(clip[2, 0, 0], (3, 6, 6)))
            step = clip[2, 0, 0, 1] - clip[2, 0, 0, 0]
            np.testing.assert_array_equal(np.diff(clip[2, 0, 0]), np.full(5, step))
            crops.add((step, clip[2, 0, 0].min()))
    assert {step for step, _ in crops} == {-1, 1}
    assert len(crops) > 8


def test_means_are_subtracted_from_clips(folder: Path, open_source: Any, tmp_path: Path) -> None:
    clips = next(open_source(layer_text(folder, "clips", CLIP_SETTINGS), workers=0))[0]
    means = "mean_value: 1 mean_value: 2 mean_value: 3"
    centered_clips = next(open_source(layer_text(folder, "clips", CLIP_SETTINGS, means), workers=0))[0]
    np.testing.assert_array_equal(
        clips - centered_clips, np.broadcast_to(np.arange(1, 4).reshape(3, 1, 1, 1), clips.shape)
    )
    mean = np.random.default_rng(0).integers(0, 9, (1, 3, 3, *SIZE)).astype(np.float32)
    blob = caffe_pb2.BlobProto(data=mean.ravel())
    blob.shape.dim.extend(mean.shape)
    (tmp_path / "mean.binaryproto").write_bytes(blob.SerializeToString())
    for crop in ("", "crop_size: 4"):
        text = f'mean_file: "{tmp_path}/mean.binaryproto" {crop}'
        result = next(open_source(layer_text(folder, "clips", CLIP_SETTINGS, text), workers=0))[0]
        expected = clips - mean
        np.testing.assert_array_equal(result, expected[..., 3:7, 5:9] if crop else expected)


def test_clips_are_read_from_a_video_file(folder: Path, open_source: Any) -> None:
    text = "new_length: 3 sampling_rate: 2 new_height: 12 new_width: 16"
    data, label = next(open_source(layer_text(folder, "films", text, batch_size=2), workers=0))
    assert data.shape == (2, 3, 3, 12, 16)
    np.testing.assert_array_equal(label, [4, 1])
    np.testing.assert_allclose(data.mean((1, 3, 4)), [[0, 40, 80], [100, 140, 180]], atol=2)


def test_temporal_jitter_selects_a_random_first_frame(folder: Path, open_source: Any) -> None:
    text = "new_length: 3 use_temporal_jitter: true"
    file_source = open_source(layer_text(folder, "drawn", text, batch_size=8), "TRAIN", workers=0)
    starts = {round(float(clip[0, 0].mean()) / 20) for _ in range(9) for clip in next(file_source)[0]}
    assert starts == set(range(10))
    text = f"{CLIP_SETTINGS} use_temporal_jitter: true"
    folder_source = open_source(layer_text(folder, "lengths", text), "TRAIN", workers=0)
    starts = {int(next(folder_source)[0][1, 1, 0, 0, 0]) for _ in range(40)}
    assert starts == set(range(1, 8))
    assert next(open_source(layer_text(folder, "lengths", text), workers=0))[0][1, 1, 0, 0, 0] == 1


def test_clips_have_several_sampling_rates_and_labels(folder: Path, open_source: Any) -> None:
    text = f"{CLIP_SETTINGS} use_sampling_rate_jitter: true max_sampling_rate: 3"
    source = open_source(layer_text(folder, "clips", text), "TRAIN", workers=0)
    steps = {tuple(np.diff(next(source)[0][0, 1, :, 0, 0])) for _ in range(20)}
    assert steps == {(1, 1), (2, 2), (3, 3)}
    labels = next(
        open_source(
            layer_text(folder, "labels", f"{CLIP_SETTINGS} use_multiple_label: true num_of_labels: 3"), workers=0
        )
    )[1]
    np.testing.assert_array_equal(labels, [[1, 0, 1], [0, 1, 0], [1, 1, 1]])


RGB_SETTINGS = 'modality: RGB name_pattern: "img_%05d.jpg" num_segments: 2 new_length: 2'


def test_segments_are_centered_in_test_and_random_in_train(folder: Path, open_source: Any) -> None:
    data, label = next(
        open_source(layer_text(folder, "lengths", RGB_SETTINGS, "mean_value: 1 mean_value: 2 mean_value: 3"), workers=0)
    )
    assert data.shape == (3, 12, *SIZE)
    np.testing.assert_array_equal(label, [7, 0, 2])
    for video, count in enumerate(NUM_FRAMES.values()):
        segment_length = count // 2
        first = (segment_length - 1) // 2
        frames = [first + 1, first + 2, first + segment_length + 1, first + segment_length + 2]
        expected = np.concatenate(
            [make_frame(video, frame).transpose(2, 0, 1) - np.array([[[1]], [[2]], [[3]]]) for frame in frames]
        )
        np.testing.assert_array_equal(data[video], expected)
    source = open_source(layer_text(folder, "lengths", RGB_SETTINGS), "TRAIN", workers=0)
    starts = np.array([next(source)[0][1, 1::3, 0, 0] for _ in range(40)])
    assert (np.diff(starts[:, :2]) == 1).all()
    assert set(starts[:, 0]) == {1, 2, 3}
    assert set(starts[:, 2]) == {5, 6, 7}


def test_mirrored_flows_are_inverted(folder: Path, open_source: Any) -> None:
    text = "modality: FLOW new_length: 3"
    data = next(open_source(layer_text(folder, "lengths", text), workers=0))[0]
    assert data.shape == (3, 6, *SIZE)
    first = (12 - 3 + 1) // 2
    expected = [[100 + first + i, 200 + first + i] for i in (1, 2, 3)]
    np.testing.assert_array_equal(data[0, :, 0, 0], np.ravel(expected))
    has_mirrored_flow = False
    source = open_source(layer_text(folder, "lengths", text, "mirror: true is_flow: true"), workers=0)
    for _ in range(6):
        for result, flow in zip(next(source)[0], data, strict=True):
            mirrored_flow = flow[:, :, ::-1].copy()
            mirrored_flow[::2] = 255 - mirrored_flow[::2]
            assert (result == flow).all() or (result == mirrored_flow).all()
            has_mirrored_flow |= bool((result == mirrored_flow).all())
    assert has_mirrored_flow


def test_multi_scale_crops_have_several_sizes(folder: Path, open_source: Any) -> None:
    crop = "crop_size: 6 multi_scale: true fix_crop: true scale_ratios: 1 scale_ratios: 0.7 scale_ratios: 0.5"
    text = 'modality: RGB name_pattern: "img_%05d.jpg"'
    source = open_source(layer_text(folder, "lengths", text, crop), "TRAIN", workers=0)
    widths = set()
    for _ in range(30):
        for image in next(source)[0]:
            left, right = image[2, 0, [0, -1]]
            widths.add(round(float(right - left)) + 1)
    assert {6} < widths <= {6, 9, 10}  # 10 * 0.7 and 10 * 0.5 are near enough to 6; scaling rounds the ends of 10
    (columns,) = {
        tuple(image[2, 0]) for image in next(open_source(layer_text(folder, "lengths", text, crop), workers=0))[0]
    }
    assert columns == (4, 5, 6, 7, 8, 9)


def test_a_net_reads_clips(folder: Path) -> None:
    text = (
        layer_text(folder, "clips", CLIP_SETTINGS)
        + """
        layer { name: "c" type: "Convolution3D" bottom: "data" top: "c"
            convolution3d_param { num_output: 2 kernel_size: 3 kernel_depth: 3 } }"""
    )
    assert Net(text).graph.blobs["c"].shape == (3, 2, 1, 8, 12)


def test_video_data_of_old_files_is_read(folder: Path) -> None:
    text = f"""layers {{ name: "d" type: VIDEO_DATA top: "data" top: "label"
        image_data_param {{ source: "{folder}/clips.txt" batch_size: 2
            {CLIP_SETTINGS} crop_size: 4 mirror: true }} }}"""
    assert Net(text).graph.blobs["data"].shape == (2, 3, 3, 4, 4)


@pytest.mark.parametrize(
    ("file", "settings", "transform", "message"),
    [
        (
            "bad",
            CLIP_SETTINGS,
            "",
            r"bad.txt:1: .*'one 1' is not a name, an integer, a label(.|\n)*bad.txt:2: .*'two x 0'",
        ),
        ("lost", CLIP_SETTINGS, "", r"lost.txt:2: .*there is no video 'four'"),
        ("clips", "use_image: true new_length: 0", "", "new_length must be 1 or more"),
        ("clips", "use_image: true new_length: 30", "", r"000013.jpg: .*no such file"),
        (
            "lengths",
            "use_image: true use_temporal_jitter: true new_length: 30",
            "",
            "has 12 frames, but 30 are needed",
        ),
        ("films", "new_length: 30", "", r"film.avi: .*has 12 frames, too few to start at frame 0"),
        ("drawn", "new_length: 30 use_temporal_jitter: true", "", "has 12 frames, but 30 are needed"),
        ("clips", "new_length: 3", "", "is not a video that OpenCV can read"),
        ("labels", f"{CLIP_SETTINGS} use_multiple_label: true num_of_labels: 2", "", "must be below num_of_labels 2"),
        ("clips", CLIP_SETTINGS, "mean_value: 1 mean_value: 2", "mean_value is set 2 times, but there are 3 channels"),
        ("clips", CLIP_SETTINGS, "crop_size: 11", "smaller than crop_size 11"),
        ("clips", f"{CLIP_SETTINGS} new_height: 4", "", "only one of new_height and new_width"),
        ("clips", 'video_type: VIDEO video_file: "x"', "", "SSD fork's VideoData"),
        ("lengths", 'modality: RGB name_pattern: "img_%s_%d.jpg"', "", "must have %d for the frame's number"),
        ("lengths", RGB_SETTINGS, "multi_scale: true", "needs a crop_size"),
        ("lengths", RGB_SETTINGS, "crop_size: 4 scale_ratios: 2", "scale_ratios must be above 0"),
        ("lengths", RGB_SETTINGS, "crop_size: 40", "smaller than crop_size 40"),
        (
            "lengths",
            RGB_SETTINGS,
            " ".join(["mean_value: 1"] * 5),
            "mean_value is set 5 times, but there are 12 channels",
        ),
        ("lengths", RGB_SETTINGS.replace("num_segments: 2", "num_segments: 0"), "", "num_segments must be 1 or more"),
        ("clips", f"{CLIP_SETTINGS} encoded: true", "", "encoded is not supported"),
    ],
)
def test_invalid_lists_and_settings_are_refused(
    folder: Path, open_source: Any, file: str, settings: str, transform: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        next(open_source(layer_text(folder, file, settings, transform), "TRAIN", workers=0))


CONVOLUTION = """layer { name: "c" type: "Convolution3D" bottom: "data" top: "c"
    convolution3d_param { num_output: 2 kernel_size: 3 kernel_depth: 3 } }"""


@pytest.mark.parametrize(
    ("settings", "transform", "next_layer", "shape"),
    [
        (f"{CLIP_SETTINGS} new_height: 9 new_width: 8", "", CONVOLUTION, "3x3x3x9x8"),
        (CLIP_SETTINGS, "crop_size: 7", CONVOLUTION, "3x3x3x7x7"),
        (RGB_SETTINGS, "crop_size: 7", "", "3x12x7x7"),
    ],
)
def test_check_assumes_the_shapes_of_missing_videos(
    tmp_path: Path, settings: str, transform: str, next_layer: str, shape: str
) -> None:
    (tmp_path / "net.prototxt").write_text(layer_text(tmp_path, "nowhere", settings, transform) + next_layer)
    report = check_file(tmp_path / "net.prototxt")
    assert report.loads
    assert all(f"assumed to be {shape}, 3" in phase.assumed[0] for phase in report.phases)

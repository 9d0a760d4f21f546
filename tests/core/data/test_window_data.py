"""WindowData: the window file, the warp as Caffe computes it, sampling, and bad input."""

import math
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from caffejax.base.errors import DataError
from caffejax.core.data.window_data import Warp, read_windows

SIZES = [(50, 70), (64, 40)]  # height, width


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two images and a window file about them."""
    path = tmp_path_factory.mktemp("windows")
    for i, (height, width) in enumerate(SIZES):
        pixels = np.random.default_rng(i).integers(0, 256, (height, width, 3), np.uint8)
        cv2.imwrite(str(path / f"im {i}.png".replace(" ", "")), pixels)
    (path / "windows.txt").write_text(
        "# 0\nim0.png\n3\n50\n70\n4\n"
        "3 1.0 10 5 40 30\n5 0.7 0 0 69 49\n2 0.5 20 20 25 44\n1 0.3 30 3 60 20\n"
        "# 1\nim1.png\n3 64 40\n3\n7 0.9 1 2 38 60\n0 0.0 5 5 30 30\n4 0.45 0 0 39 63\n"
    )
    return path


def layer_text(folder, settings="", transform="crop_size: 12", batch_size=8, file="windows.txt"):
    return f"""layer {{ name: "d" type: "WindowData" top: "data" top: "label" transform_param {{ {transform} }}
        window_data_param {{
            source: "{folder / file}" root_folder: "{folder}/" batch_size: {batch_size} {settings} }} }}"""


def test_windows_are_divided_by_their_overlap(folder):
    windows = read_windows(folder / "windows.txt", 0.5, 0.4)
    assert windows.names == ["im0.png", "im1.png"]
    assert windows.foreground.tolist() == [
        [0, 3, 10, 5, 40, 30],
        [0, 5, 0, 0, 69, 49],
        [0, 2, 20, 20, 25, 44],
        [1, 7, 1, 2, 38, 60],
    ]
    assert windows.background.tolist() == [[0, 0, 30, 3, 60, 20], [1, 0, 5, 5, 30, 30]]


GOLDEN_WINDOWS = Path(__file__).parents[2] / "golden" / "data_windows"


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN_WINDOWS.glob("*.npz")))
def test_batches_equal_caffes_batches(name, open_source, monkeypatch):
    """One window on an object and one on none, so that Caffe's random choice had nothing to choose from."""
    monkeypatch.chdir(GOLDEN_WINDOWS)
    data, label = next(open_source(Path(f"{name}.prototxt"), phase="TRAIN"))
    with np.load(f"{name}.npz") as recorded_arrays:
        np.testing.assert_array_equal(label, recorded_arrays["0/label"])
        np.testing.assert_array_equal(data, recorded_arrays["0/data"])


def round_as_c(x):
    return int(math.floor(abs(float(x)) + 0.5) * (1 if x >= 0 else -1))


def reference_warp(image, box, size, context, square, mirror):
    """The square, and where it is filled, computed step by step in floats."""
    float32 = np.float32
    x1, y1, x2, y2 = box
    rows, columns = image.shape[:2]
    pad_w = pad_h = 0
    to_width = to_height = size
    if context or square:
        context_scale = float32(size) / float32(size - 2 * context)
        half_height, half_width = float32((y2 - y1 + 1) / 2), float32((x2 - x1 + 1) / 2)
        center_x, center_y = float32(x1) + half_width, float32(y1) + half_height
        if square:
            half_height = half_width = max(half_height, half_width)
        x1, x2 = round_as_c(center_x - half_width * context_scale), round_as_c(center_x + half_width * context_scale)
        y1, y2 = round_as_c(center_y - half_height * context_scale), round_as_c(center_y + half_height * context_scale)
        scale_x, scale_y = float32(size) / float32(x2 - x1 + 1), float32(size) / float32(y2 - y1 + 1)
        pad_x1, pad_y1 = max(0, -x1), max(0, -y1)
        pad_x2, pad_y2 = max(0, x2 - columns + 1), max(0, y2 - rows + 1)
        x1, x2, y1, y2 = x1 + pad_x1, x2 - pad_x2, y1 + pad_y1, y2 - pad_y2
        to_width = round_as_c(float32(x2 - x1 + 1) * scale_x)
        to_height = round_as_c(float32(y2 - y1 + 1) * scale_y)
        pad_h = round_as_c(float32(pad_y1) * scale_y)
        pad_w = round_as_c(float32(pad_x2 if mirror else pad_x1) * scale_x)
        to_height = min(to_height, size - pad_h)
        to_width = min(to_width, size - pad_w)
        if min(to_height, to_width) < 1:  # OpenCV ends Caffe here
            return None
    out, is_filled = np.zeros((size, size, 3), np.float32), np.zeros((size, size), bool)
    resized_window = cv2.resize(image[y1 : y2 + 1, x1 : x2 + 1], (to_width, to_height), interpolation=cv2.INTER_LINEAR)
    resized_window = cv2.flip(resized_window, 1) if mirror else resized_window
    out[pad_h : pad_h + to_height, pad_w : pad_w + to_width] = resized_window
    is_filled[pad_h : pad_h + to_height, pad_w : pad_w + to_width] = True
    return out, is_filled


@settings(max_examples=200)
@given(
    height=st.integers(4, 60),
    width=st.integers(4, 60),
    box=st.tuples(*[st.floats(0, 1)] * 4),
    size=st.integers(8, 40),
    context=st.integers(0, 3),
    square=st.booleans(),
    mirror=st.booleans(),
)
@example(height=32, width=4, box=(0.0, 0.0, 0.0, 1.0), size=8, context=2, square=True, mirror=False)
def test_the_warp_equals_the_reference(height, width, box, size, context, square, mirror):
    x1, x2 = sorted(int(v * (width - 1)) for v in box[:2])
    y1, y2 = sorted(int(v * (height - 1)) for v in box[2:])
    image = np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)
    expected = reference_warp(image, (x1, y1, x2, y2), size, context, square, mirror)
    warp, box = Warp(size, context, square), np.array([x1, y1, x2, y2])
    if expected is None:
        with pytest.raises(DataError, match="too little of it is in the image"):
            warp(image, box, mirror)
        return
    expected, is_filled = expected
    pixels, row, column = warp(image, box, mirror)
    actual, actual_is_filled = np.zeros((size, size, 3), np.float32), np.zeros((size, size), bool)
    actual[row : row + pixels.shape[0], column : column + pixels.shape[1]] = pixels
    actual_is_filled[row : row + pixels.shape[0], column : column + pixels.shape[1]] = True
    np.testing.assert_array_equal(actual_is_filled, is_filled)
    np.testing.assert_array_equal(actual, expected)


def test_a_window_with_context_shows_the_surrounding_pixels():
    """Scale 1: the square is cut out of the image as it is."""
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    pixels, row, column = Warp(17, 4, False)(image, np.array([10, 12, 17, 19]), False)
    # 8 pixels become 17 - 2 * 4 = 9, so the region is 17 wide: from 14 - 4 * 17 / 9 = 6.4, rounded, to 21.6
    assert (row, column) == (0, 0)
    np.testing.assert_array_equal(pixels, image[8:25, 6:23])


@pytest.mark.parametrize("crop_mode", ["warp", "square"])
@pytest.mark.parametrize("mean", ["", "mean_value: 10 mean_value: 20 mean_value: 30"])
def test_batches_are_windows_of_the_file(folder, open_source, crop_mode, mean):
    settings = f'context_pad: 2 crop_mode: "{crop_mode}" fg_fraction: 0.4 bg_threshold: 0.4 scale: 0.5'
    windows = read_windows(folder / "windows.txt", 0.5, 0.4)
    images = [cv2.imread(str(folder / name)) for name in windows.names]
    means = np.array([10, 20, 30] if mean else [0, 0, 0], np.float32)
    allowed_windows = {0: [], 1: []}
    for is_foreground, rows in enumerate([windows.background, windows.foreground]):
        for image_index, label, *box in rows.tolist():
            for mirror in (False, True):
                out, is_filled = reference_warp(images[image_index], box, 12, 2, crop_mode == "square", mirror)
                out = np.where(is_filled[..., None], (out - means) * np.float32(0.5), 0).transpose(2, 0, 1)
                allowed_windows[is_foreground].append((out, label))
    source = open_source(layer_text(folder, settings, f"crop_size: 12 mirror: true {mean}"), "TRAIN", seed=3)
    assert [top.shape for top in source.tops] == [(8, 3, 12, 12), (8,)]
    seen_windows = set()
    for _ in range(12):
        data, labels = next(source)
        for i, (image, label) in enumerate(zip(data, labels, strict=True)):
            is_foreground = int(i >= 5)  # int(8 * 0.4) = 3 of the batch are foreground, and come last
            matches = [
                j
                for j, (out, expected) in enumerate(allowed_windows[is_foreground])
                if np.array_equal(out, image) and expected == label
            ]
            assert matches
            seen_windows.add((is_foreground, matches[0]))
    assert len(seen_windows) == len(allowed_windows[0]) + len(allowed_windows[1]), "some windows never came"


def test_batches_depend_on_the_seed_and_resume(folder, open_source):
    net = layer_text(folder, "cache_images: true", "crop_size: 8 mirror: true")
    first_source, resumed_source, other_source = (open_source(net, "TRAIN", seed=seed) for seed in (1, 1, 2))
    batches = [next(first_source) for _ in range(3)]
    resumed_source.set_state({"examples": 16})
    np.testing.assert_array_equal(next(resumed_source)[0], batches[2][0])
    assert not np.array_equal(next(other_source)[0], batches[0][0])


def test_the_center_of_the_mean_file_is_subtracted(folder, open_source, tmp_path):
    from caffejax.core.schema import caffe_pb2

    mean = np.random.default_rng(5).random((3, 20, 20)).astype(np.float32)
    blob = caffe_pb2.BlobProto(num=1, channels=3, height=20, width=20, data=mean.ravel().tolist())
    (tmp_path / "mean").write_bytes(blob.SerializeToString())
    windows = next(open_source(layer_text(folder), seed=1))[0]
    centered_windows = next(
        open_source(layer_text(folder, transform=f'crop_size: 12 mean_file: "{tmp_path}/mean"'), seed=1)
    )[0]
    np.testing.assert_array_equal(centered_windows, windows - mean[:, 4:16, 4:16])


def test_scale_in_transform_param_is_ignored_with_a_warning(folder, open_source, caplog):
    windows = next(open_source(layer_text(folder)))[0]
    np.testing.assert_array_equal(
        next(open_source(layer_text(folder, transform="crop_size: 12 scale: 0.1")))[0], windows
    )
    assert "transform_param.scale has no effect on WindowData" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"not a window file, or damaged: is empty|names no images"),
        ("0 im0.png", r":1: .*not a window file, or damaged: '0' is unexpected here"),
        ("# 0\nim0.png\n3 50 70\n2\n1 0.9 1 2 3 4\n", "not a window file"),
        ("# 0\nim0.png\n3 50 70\n1\n1 0.9 1 two 3 4\n", r":5: .*'two' is unexpected here"),
        ("# 0\nim0.png\n3 50 70\n1\n1 0.9 1 2.5 3 4\n", "not a window file"),
        ("# 1\nim0.png\n3 50 70\n0\n", r":1: .*expected image 0, found image 1"),
        ("# 0\nim0.png\n1 50 70\n1\n1 0.9 1 2 3 4\n", "must have 3 channels, not 1"),
        ("# 0\nim0.png\n3 50 70\n1\n0 0.9 1 2 3 4\n", "a foreground window has class 0"),
        ("# 0\nnone.png\n3 50 70\n1\n1 0.9 1 2 3 4\n", "there is no image '.*none.png'"),
        ("# 0\nim0.png\n3 50 70\n1\n1 0.9 1 2 3 4\n", "no window overlaps by less than 0.5, but a batch needs 6"),
        ("# 0\nim0.png\n3 50 70\n1\n1 0.1 1 2 3 4\n", "no window overlaps by 0.5 or more, but a batch needs 2"),
        (
            "# 0\nim0.png\n3 50 70\n2\n1 0.1 1 2 3 4\n1 0.9 60 2 90 4\n",
            r"im0.png': window 60 2 90 4: is not in the image, which is 70 x 50",
        ),
    ],
)
def test_invalid_window_files_are_refused(folder, open_source, text, message):
    (folder / "bad.txt").write_text(text)
    with pytest.raises(DataError, match=message) as exc_info:
        next(open_source(layer_text(folder, file="bad.txt")))
    assert "bad.txt" in str(exc_info.value)
    assert "layer 'd' (WindowData)" in str(exc_info.value)


def test_a_window_file_without_end_is_refused(open_source):
    with pytest.raises(DataError, match=r"/dev/zero: layer 'd' .*the window file cannot be read: it is a device"):
        open_source(layer_text(Path("/dev"), file="zero"))


def test_all_invalid_settings_are_named_at_once(folder, open_source):
    with pytest.raises(DataError) as exc_info:
        open_source(layer_text(folder, 'crop_mode: "warped" fg_fraction: 2', "", batch_size=0))
    messages = str(exc_info.value)
    for text in ("batch_size must be 1", "crop_size must be 1", "crop_mode is 'warped'", "fg_fraction is 2"):
        assert text in messages
    with pytest.raises(DataError, match="context_pad must be less than half"):
        open_source(layer_text(folder, "context_pad: 6"))

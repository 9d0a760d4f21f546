"""ImageSegData, DenseImageData and ImageLabelmapData: images and their label images are transformed alike."""

from typing import Any

import cv2
import numpy as np
import pytest

from caffejax.base.errors import DataError

SIZES = [(20, 30), (24, 26), (31, 22), (20, 30), (28, 28)]
PARAMS = {
    "ImageSegData": "image_data_param",
    "DenseImageData": "dense_image_data_param",
    "ImageLabelmapData": "image_data_param",
}
PIXEL = "label_type: PIXEL"


def make_labels(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 21, SIZES[i], np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images whose blue is their label, green 100 and red the image's number; HED's maps are 255 for odd labels."""
    path = tmp_path_factory.mktemp("images")
    for i, size in enumerate(SIZES):
        labels = make_labels(i)
        image = np.stack([labels, np.full(size, 100, np.uint8), np.full(size, i, np.uint8)], axis=2)
        cv2.imwrite(str(path / f"im {i}.png"), image)
        cv2.imwrite(str(path / f"{i}.png"), labels)
        cv2.imwrite(str(path / f"edges{i}.png"), labels % 2 * 255)
    (path / "list.txt").write_text("".join(f"im {i}.png {i}.png\n" for i in range(5)))
    (path / "edges.txt").write_text("".join(f"im {i}.png edges{i}.png\n" for i in range(5)))
    (path / "classes.txt").write_text("".join(f"im {i}.png {i + 3}\n" for i in range(5)))
    (path / "images.txt").write_text("".join(f"im {i}.png\n" for i in range(5)))
    return path


def layer_text(
    layer_type: str,
    source: Any,
    settings: str = PIXEL,
    transform: str = "",
    batch_size: int = 4,
    tops: str = "data label",
) -> str:
    top_fields = " ".join(f'top: "{top}"' for top in tops.split())
    if layer_type == "DenseImageData":
        settings = settings.replace(PIXEL, "")
    return f"""layer {{ name: "d" type: "{layer_type}" {top_fields} transform_param {{ {transform} }}
        {PARAMS[layer_type]} {{ source: "{source}" batch_size: {batch_size} {settings} }} }}"""


CASES = [
    ("ImageSegData", "list.txt", PIXEL),
    ("DenseImageData", "list.txt", ""),
    ("ImageLabelmapData", "edges.txt", ""),
]


@pytest.mark.parametrize(("layer_type", "file", "settings"), CASES)
@pytest.mark.parametrize("workers", [0, 1])
def test_images_and_labels_are_cropped_and_mirrored_together(folder, open_source, layer_type, file, settings, workers):
    if workers and layer_type != "ImageSegData":
        return
    net = layer_text(layer_type, folder / file, f"shuffle: true {settings}", "crop_size: 16 mirror: true")
    source = open_source(net, "TRAIN", seed=3, workers=workers)
    assert [top.shape for top in source.tops] == [(4, 3, 16, 16), (4, 1, 16, 16)]
    crops, batches = set(), []
    for _ in range(10):
        data, label = batch = next(source)
        batches.append(batch)
        assert (data[:, 1] == 100).all()
        np.testing.assert_array_equal(label[:, 0], data[:, 0] % 2 if layer_type == "ImageLabelmapData" else data[:, 0])
        for image in data:
            i = int(image[2, 0, 0])
            windows = np.lib.stride_tricks.sliding_window_view(make_labels(i), (16, 16))
            for flip in 1, -1:
                for corner in np.argwhere((windows == image[0, :, ::flip]).all(axis=(2, 3))):
                    crops.add((i, *corner.tolist(), flip))
    assert len(crops) > 30
    assert {crop[0] for crop in crops} == set(range(5))
    resumed_source = open_source(net, "TRAIN", seed=3)
    resumed_source.set_state({"examples": 20})
    for a, b in zip(next(resumed_source), batches[5], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("layer_type", "file", "settings"), CASES)
def test_images_without_a_crop_keep_their_sizes(folder, open_source, layer_type, file, settings):
    source = open_source(layer_text(layer_type, folder / file, settings, "mean_value: 100 scale: 0.5", batch_size=1))
    for i in [*range(5), 0]:
        data, label = next(source)
        np.testing.assert_array_equal(data[0, 0], (make_labels(i) - np.float32(100)) * 0.5)
        np.testing.assert_array_equal(
            label[0, 0], make_labels(i) % 2 if layer_type == "ImageLabelmapData" else make_labels(i)
        )
        assert label.dtype == np.float32


def test_images_smaller_than_the_crop_are_padded(folder, open_source):
    net = layer_text(
        "ImageSegData", folder / "list.txt", f"{PIXEL} ignore_label: 77", "crop_size: 25 mean_value: 100.25"
    )
    net = net.replace('top: "label"', 'top: "label" top: "size"')
    data, label, size = next(open_source(net))
    assert data.shape == (4, 3, 25, 25)
    assert label.shape == (4, 1, 25, 25)
    np.testing.assert_array_equal(size.reshape(4, 2), [[20, 25], [24, 25], [25, 22], [20, 25]])
    # 20 x 30, padded to 25 x 30, of which the middle is cut
    np.testing.assert_array_equal(label[0, 0, :20], make_labels(0)[:, 2:27])
    np.testing.assert_array_equal(data[0, 0, :20], make_labels(0)[:, 2:27] - np.float32(100.25))
    assert (label[0, 0, 20:] == 77).all()
    assert (data[0, :, 20:] == 0).all()
    np.testing.assert_array_equal(label[2, 0, :, :22], make_labels(2)[3:28])
    assert (label[2, 0, :, 22:] == 77).all()


def test_label_types_image_and_none_fill_the_label_map(folder, open_source):
    data, label = next(open_source(layer_text("ImageSegData", folder / "classes.txt", "new_height: 8 new_width: 9")))
    assert data.shape == (4, 3, 8, 9)
    assert label.shape == (4, 1, 8, 9)
    np.testing.assert_array_equal(label.reshape(4, -1), np.tile(np.arange(3, 7)[:, None], 72))
    _, label = next(
        open_source(layer_text("ImageSegData", folder / "images.txt", "label_type: NONE new_height: 8 new_width: 9"))
    )
    assert (label == 255).all()


def test_labels_are_resized_to_the_nearest_pixel(folder, open_source):
    source = open_source(layer_text("DenseImageData", folder / "list.txt", "new_height: 40 new_width: 60"))
    data, label = next(source)
    np.testing.assert_array_equal(label[0, 0], make_labels(0).repeat(2, axis=0).repeat(2, axis=1))
    assert data.shape == (4, 3, 40, 60)


@pytest.mark.parametrize("mirror", [False, True])
def test_label_divide_factor_reduces_the_label_maps(folder, open_source, mirror):
    size = f"new_height: 40 new_width: 63 label_divide_factor: 4 mirror: {str(mirror).lower()}"
    source = open_source(layer_text("DenseImageData", folder / "list.txt", size, batch_size=1), "TRAIN")
    flips = set()
    for _ in range(10 if mirror else 1):
        data, label = next(source)
        assert (data.shape, label.shape) == ((1, 3, 40, 63), (1, 1, 10, 15))
        i = int(data[0, 2, 0, 0])
        rows, columns = (np.arange(n) * side // n for n, side in zip((10, 15), SIZES[i], strict=True))
        expected = make_labels(i)[rows[:, None], columns]  # the nearest pixel, as OpenCV counts
        flips |= {flip for flip in (1, -1) if (label[0, 0] == expected[:, ::flip]).all()}
        assert (label[0, 0] == expected).all() or (mirror and (label[0, 0] == expected[:, ::-1]).all())
    assert flips == ({1, -1} if mirror else {1})


def test_small_label_images_need_no_resizing(folder, open_source):
    small_labels = make_labels(0)[::2, ::2]
    cv2.imwrite(str(folder / "small.png"), small_labels)
    (folder / "small.txt").write_text("im 0.png small.png\n")
    net = layer_text("DenseImageData", folder / "small.txt", "label_divide_factor: 2", batch_size=1)
    data, label = next(open_source(net))
    assert data.shape[2:] == SIZES[0]
    np.testing.assert_array_equal(label[0, 0], small_labels)


@pytest.mark.parametrize(
    ("settings", "transform", "message"),
    [
        ("label_divide_factor: 2 new_height: 8 new_width: 8", "crop_size: 4", "cannot be combined with a crop"),
        ("label_divide_factor: 9 new_height: 8 new_width: 80", "", "label_divide_factor is 9"),
        ("label_divide_factor: 0", "", "label_divide_factor is 0"),
        ("label_divide_factor: 2", "", "to be divided by 2, but its label image"),
    ],
)
def test_invalid_label_divide_factors_are_refused(folder, open_source, settings, transform, message):
    with pytest.raises(DataError, match=message):
        open_source(layer_text("DenseImageData", folder / "list.txt", settings, transform))


def test_scale_factors_resize_the_images(folder, open_source):
    transform = "scale_factors: 0.5 scale_factors: 1 scale_factors: 2"
    net = layer_text("ImageSegData", folder / "list.txt", PIXEL, transform, batch_size=1, tops="data")
    source = open_source(net, "TRAIN", seed=1)
    shapes = [next(source)[0].shape[2:] for _ in range(20)]
    factors = {(h / SIZES[i % 5][0], w / SIZES[i % 5][1]) for i, (h, w) in enumerate(shapes)}
    assert factors >= {(1, 1), (2, 2)}
    assert all(0.48 < f <= 2 for pair in factors for f in pair)


def test_dense_image_data_is_cropped_and_mirrored_by_dense_image_data_param(folder, open_source):
    net = layer_text("DenseImageData", folder / "list.txt", "mirror: true crop_height: 12 crop_width: 18")
    data, label = next(open_source(net, "TRAIN"))
    assert data.shape == (4, 3, 12, 18)
    np.testing.assert_array_equal(label[:, 0], data[:, 0])
    with pytest.raises(DataError, match="both have a crop"):
        open_source(layer_text("DenseImageData", folder / "list.txt", "crop_height: 4 crop_width: 4", "crop_size: 4"))


@pytest.mark.parametrize(
    ("lines", "settings", "message"),
    [
        ("im 0.png\n", PIXEL, "list:1: .* there is no image 'im'"),
        ("lonely\n", PIXEL, "list:1: .* 'lonely' is not two paths"),
        ("im 0.png nowhere.png\n", PIXEL, "list:1: .* there is no label image 'nowhere.png'"),
        ("im 0.png 1.png\n", PIXEL, r"im 0.png' is 20x30 \(HxW\), but its label image '.*1.png' is 24x26"),
        ("im 0.png 300\n", "", "labels outside 0 to 255"),
        ("im 0.png 0.png\n", f"{PIXEL} ignore_label: -1", "ignore_label must be 0 to 255"),
        ("im 0.png 0.png\n", f"{PIXEL} new_height: 4", "only one of new_height and new_width"),
        ("im 0.png 0.png\n", f"{PIXEL} short_side: 4", "image_data_param.short_side is not supported"),
        (
            "im 0.png 0.png\nim 1.png 1.png\n",
            PIXEL,
            "im 1.png' becomes 3x24x26 .* but the batch's first image becomes 3x20x30",
        ),
    ],
)
def test_invalid_lists_and_settings_are_refused(folder, open_source, lines, settings, message):
    (folder / "list").write_text(lines)
    with pytest.raises(DataError, match=message):
        next(open_source(layer_text("ImageSegData", folder / "list", settings)))


def test_a_mean_file_with_a_crop_is_refused(folder, open_source):
    with pytest.raises(DataError, match="mean"):
        open_source(layer_text("ImageSegData", folder / "list.txt", PIXEL, 'crop_size: 4 mean_file: "nowhere"'))


def test_skip_bad_replaces_a_bad_pair_by_the_next(folder, open_source):
    (folder / "bad.png").write_bytes(b"no image")
    (folder / "bad").write_text("im 3.png bad.png\nim 0.png 0.png\n")
    data, label = next(open_source(layer_text("ImageSegData", folder / "bad", PIXEL), skip_bad=True))
    assert (data[:, 2] == 0).all()
    np.testing.assert_array_equal(label[:, 0], data[:, 0])

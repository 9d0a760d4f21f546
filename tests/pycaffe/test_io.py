"""Images, and arrays in Caffe's messages."""

from importlib import import_module
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from caffejax.base.errors import CaffejaxError, DataError
from caffejax.core.schema import caffe_pb2
from caffejax.pycaffe import io
from caffejax.pycaffe.io import (
    array_to_blobproto,
    array_to_datum,
    arraylist_to_blobprotovector_str,
    blobproto_to_array,
    blobprotovector_str_to_arraylist,
    datum_to_array,
    load_image,
    oversample,
    resize_image,
)

from .conftest import draw_normal

WEIGHTS = Path(__file__).parents[1] / "golden" / "weights"


@pytest.mark.parametrize("name", ["mean_nd", "mean_legacy", "mean_3d_double"])
def test_files_written_by_caffe_are_read(name: str) -> None:
    blob = caffe_pb2.BlobProto.FromString((WEIGHTS / f"{name}.binaryproto").read_bytes())
    expected = next(iter(np.load(WEIGHTS / f"{name}.npz").values()))
    array = blobproto_to_array(blob)
    assert array.dtype == np.float64
    assert array.shape == expected.shape
    np.testing.assert_allclose(array, expected, rtol=1e-6)


@given(st.data())
def test_blobs_round_trip(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=5)))
    array = data.draw(arrays(np.float32, shape, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
    blob = array_to_blobproto(array, diff=-array)
    np.testing.assert_array_equal(blobproto_to_array(blob), array, strict=False)
    np.testing.assert_array_equal(blobproto_to_array(blob, return_diff=True), -array)
    (first, second) = blobprotovector_str_to_arraylist(arraylist_to_blobprotovector_str([array, array * 0]))
    assert first.shape == shape
    np.testing.assert_array_equal(first, array)
    assert not second.any()


def test_blobs_with_legacy_dimensions_are_read() -> None:
    blob = caffe_pb2.BlobProto(num=1, channels=2, height=1, width=3, data=range(6))
    assert blobproto_to_array(blob).shape == (1, 2, 1, 3)


def test_a_shape_that_does_not_fit_raises_an_error() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 2\), but 3 values"):
        blobproto_to_array(caffe_pb2.BlobProto(shape=dict(dim=[2, 2]), data=[1, 2, 3]))
    with pytest.raises(CaffejaxError, match="not a BlobProtoVector"):
        blobprotovector_str_to_arraylist(b"\xff\xff")


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int64])
def test_datums_round_trip(dtype: Any) -> None:
    array = np.random.default_rng(0).integers(0, 256, (3, 4, 5)).astype(dtype)
    datum = array_to_datum(array, label=7)
    assert (datum.channels, datum.height, datum.width, datum.label) == (3, 4, 5, 7)
    assert bool(datum.data) == (dtype == np.uint8)
    decoded = datum_to_array(caffe_pb2.Datum.FromString(datum.SerializeToString()))
    assert decoded.dtype == (np.uint8 if dtype == np.uint8 else np.float64)
    np.testing.assert_array_equal(decoded, array)
    decoded[0] = 0  # it is the caller's own
    assert not array_to_datum(array).HasField("label")


def test_a_compressed_datum_is_decoded() -> None:
    image = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    datum = caffe_pb2.Datum(encoded=True, data=cv2.imencode(".png", image)[1].tobytes())
    np.testing.assert_array_equal(datum_to_array(datum), image.transpose(2, 0, 1))


@pytest.mark.parametrize("shape", [(3,), (4, 5), (1, 3, 4, 5)])
def test_a_datum_has_three_axes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Incorrect array shape"):
        array_to_datum(np.zeros(shape))


def write_image(path: Path, pixels: np.ndarray) -> Path:
    assert cv2.imwrite(str(path), pixels)
    return path


def test_images_are_loaded_as_rgb_or_gray_floats(tmp_path: Path) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (5, 6, 3)).astype(np.uint8)
    file = write_image(tmp_path / "a.png", rgb[:, :, ::-1])
    image = load_image(file)
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image, (rgb / 255).astype(np.float32))
    gray = load_image(str(file), color=False)
    assert gray.shape == (5, 6, 1)
    np.testing.assert_allclose(gray[:, :, 0], rgb / 255 @ [0.2125, 0.7154, 0.0721], rtol=1e-6)


def test_loading_file_objects(tmp_path: Path) -> None:
    file = write_image(tmp_path / "a.png", np.random.default_rng(0).integers(0, 256, (5, 6, 3)).astype(np.uint8))
    image = load_image(file)
    np.testing.assert_array_equal(load_image(BytesIO(file.read_bytes())), image)
    with file.open("rb") as stream:
        np.testing.assert_array_equal(load_image(stream), image)
        with pytest.raises(DataError, match=r"a\.png.*of 0 bytes"):
            load_image(stream)  # at its end
    with pytest.raises(DataError, match=r"StringIO.*binary mode"):
        load_image(StringIO("no image"))  # type: ignore[arg-type]


def test_names_that_caffes_module_imports() -> None:
    image = np.random.default_rng(0).random((6, 5, 3))
    assert io.resize(image, (3, 4)).shape == (3, 4, 3)
    assert io.skimage.io.imread is import_module("skimage.io").imread
    assert io.zoom(image, (2, 2, 1)).shape == (12, 10, 3)
    with pytest.raises(AttributeError, match="nothing"):
        io.nothing  # noqa: B018


def test_gray_16_bit_and_transparent_images_are_loaded(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 6)).astype(np.uint8)
    file = write_image(tmp_path / "gray.png", pixels)
    np.testing.assert_array_equal(load_image(file, color=False)[:, :, 0], (pixels / 255).astype(np.float32))
    np.testing.assert_array_equal(load_image(file), np.stack([(pixels / 255).astype(np.float32)] * 3, axis=-1))
    image_16_bit = pixels.astype(np.uint16) * 257
    np.testing.assert_array_equal(load_image(write_image(tmp_path / "deep.png", image_16_bit)), load_image(file))
    bgra = np.random.default_rng(1).integers(0, 256, (5, 6, 4)).astype(np.uint8)
    image = load_image(write_image(tmp_path / "alpha.png", bgra))
    np.testing.assert_array_equal(image, (bgra[:, :, 2::-1] / 255).astype(np.float32))


def test_loading_invalid_images_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.jpg").write_text("no image")
    for name, message in (("empty.png", "of 0 bytes"), ("text.jpg", "of 8 bytes"), ("absent.jpg", "no such file")):
        with pytest.raises(DataError, match=rf"{name}: .*{message}"):
            load_image(tmp_path / name)


def resize_by_coordinates(image: np.ndarray, dims: tuple[int, int], order: int) -> np.ndarray:
    """Resize by the definition: pixels are areas, and outside the image is its smallest value."""
    rows, columns = ((np.arange(n) + 0.5) * old / n - 0.5 for n, old in zip(dims, image.shape, strict=False))
    grid = np.meshgrid(rows, columns, indexing="ij")
    channels = [
        ndimage.map_coordinates(c, grid, order=order, mode="grid-constant", cval=image.min())
        for c in np.moveaxis(image.astype(np.float64), 2, 0)
    ]
    return np.stack(channels, axis=2)


SIZES = st.tuples(st.integers(1, 12), st.integers(1, 12))


@given(SIZES, SIZES, st.sampled_from([1, 3]), st.integers(0, 99))
def test_linear_resizing(old: tuple[int, int], new: tuple[int, int], channels: int, seed: int) -> None:
    image = draw_normal(*old, channels, seed=seed)
    resized = resize_image(image, new)
    assert resized.dtype == np.float32
    np.testing.assert_allclose(resized, resize_by_coordinates(image, new, 1), atol=2e-6 * np.ptp(image) + 1e-6)


@pytest.mark.parametrize(("old", "new"), [((21, 31), (7, 11)), ((7, 9), (20, 13)), ((5, 5), (5, 11)), ((1, 4), (3, 3))])
def test_resizing_to_the_nearest(old: tuple[int, int], new: tuple[int, int]) -> None:
    image = draw_normal(*old, 3)
    np.testing.assert_array_equal(resize_image(image, new, interp_order=0), resize_by_coordinates(image, new, 0))


SCIKIT_IMAGE = {  # skimage.transform.resize of [[0, 1, 4], [9, 16, 25]], mode="constant", anti_aliasing=False
    (0, (3, 5)): [[0, 0, 1, 4, 4], [9, 9, 16, 25, 25], [9, 9, 16, 25, 25]],
    (1, (3, 5)): [
        [0, 0.333333, 0.833333, 2.333333, 2.666667],
        [3.6, 6.1, 8.5, 12.1, 11.6],
        [6, 9.833333, 13.333333, 17.833333, 16.666667],
    ],
    (1, (1, 2)): [[5.5, 13]],
    (3, (3, 5)): [
        [0, 0, 0, 0.766326, 1.266161],
        [4.372853, 6.810031, 10.208176, 16.818307, 15.089112],
        [6.870112, 10.675416, 15.014512, 22.942769, 20.005255],
    ],
}


@pytest.mark.parametrize(("order", "dims"), SCIKIT_IMAGE)
def test_resizing_equals_scikit_image(order: int, dims: tuple[int, int]) -> None:
    image = np.array([[0, 1, 4], [9, 16, 25]])[:, :, np.newaxis]
    resized = resize_image(image, dims, interp_order=order)
    np.testing.assert_allclose(resized[:, :, 0], SCIKIT_IMAGE[order, dims], atol=1e-5)


@pytest.mark.parametrize("order", [0, 1, 3])
def test_images_with_other_channel_counts_are_resized_like_scipy(order: int) -> None:
    image = draw_normal(5, 6, 2)
    resized = resize_image(image, (9, 4), interp_order=order)
    np.testing.assert_allclose(resized, ndimage.zoom(image, (9 / 5, 4 / 6, 1), order=order), atol=1e-5)
    np.testing.assert_allclose(resized[0, 0], image[0, 0], rtol=1e-5)
    np.testing.assert_allclose(resized[-1, -1], image[-1, -1], rtol=1e-5)


def test_constant_images_stay_constant() -> None:
    resized = resize_image(np.full((4, 5, 3), 7, np.uint8), (8, 9))
    assert resized.dtype == np.float32
    np.testing.assert_array_equal(resized, np.full((8, 9, 3), 7))


@pytest.mark.parametrize(("shape", "order"), [((4, 5), 1), ((0, 5, 3), 1), ((4, 5, 3), 6)])
def test_invalid_resizes_are_rejected(shape: tuple[int, ...], order: int) -> None:
    with pytest.raises(ValueError, match=r"an image must|interp_order must"):
        resize_image(np.zeros(shape), (2, 2), order)


def test_oversampling() -> None:
    images = [draw_normal(7, 10, 3, seed=i) for i in range(2)]
    crops = oversample(images, (4, 5))
    assert crops.shape == (20, 4, 5, 3)
    for i, image in enumerate(images):
        expected = [image[:4, :5], image[:4, 5:], image[3:, :5], image[3:, 5:], image[1:5, 2:7]]
        np.testing.assert_array_equal(crops[10 * i : 10 * i + 5], expected)
        np.testing.assert_array_equal(crops[10 * i + 5 : 10 * i + 10], np.array(expected)[:, :, ::-1])
    with pytest.raises(ValueError, match="7 x 10 cannot be cropped to 8 x 5"):
        oversample(images, (8, 5))

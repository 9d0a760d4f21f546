"""Truncated JPEGs are read to the pixels of `cv2.imread`, as Caffe reads files; in records they are errors."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax.base.databases import Lmdb
from caffejax.base.errors import DataError
from caffejax.cli import main
from caffejax.core.data.image_decoding import BadImageError, decode_datum, decode_file, decode_image, read_image
from caffejax.core.schema import caffe_pb2

IMAGE = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (40, 56, 3), np.uint8), (5, 5), 2)
KINDS: dict[str, tuple[np.ndarray, list[int]]] = {
    "baseline": (IMAGE, []),
    "progressive": (IMAGE, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]),
    "restart intervals": (IMAGE, [cv2.IMWRITE_JPEG_RST_INTERVAL, 2]),
    "gray": (IMAGE[:, :, 0], []),
}


def encode(kind: str = "baseline") -> bytes:
    image, settings = KINDS[kind]
    return bytes(cv2.imencode(".jpg", image, settings)[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("color", [True, False])
def test_files_cut_anywhere_have_the_pixels_of_imread(kind: str, color: bool, tmp_path: Path) -> None:
    data, path, num_read = encode(kind), tmp_path / "a.jpg", 0
    for size in [*range(1, 700, 1 if color else 7), *range(700, len(data), 41), *range(len(data) - 3, len(data))]:
        path.write_bytes(data[:size])
        expected = cv2.imread(str(path), cv2.IMREAD_COLOR if color else cv2.IMREAD_GRAYSCALE)
        if expected is None:
            with pytest.raises(DataError, match=r"a\.jpg"):
                read_image(path, color)
            continue
        num_read += 1
        image = read_image(path, color)
        np.testing.assert_array_equal(image, expected[None] if not color else expected.transpose(2, 0, 1))
    assert num_read > 20


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    data = encode()
    Path("half.jpg").write_bytes(data[: len(data) // 2])
    Path("list.txt").write_text("half.jpg 3\n")
    Path("windows.txt").write_text("# 0\nhalf.jpg\n3 40 56\n1\n1 1 0 0 55 39\n")
    return tmp_path


def test_layers_and_tools_read_them_with_one_warning(
    folder: Path, open_source: Any, caplog: pytest.LogCaptureFixture
) -> None:
    pixels = np.asarray(cv2.imread("half.jpg"))
    source = open_source(
        "layer { name: 'd' type: 'ImageData' top: 'x' top: 'y' image_data_param { source: 'list.txt' batch_size: 2 } }"
    )
    for _ in range(2):
        images, labels = next(source)
        np.testing.assert_array_equal(images, np.stack([pixels.transpose(2, 0, 1)] * 2))
        assert labels.tolist() == [3, 3]
    warnings = [message for message in caplog.messages if "truncated" in message]
    assert len(warnings) == 1
    assert "half.jpg" in warnings[0]
    windows = open_source(
        "layer { name: 'd' type: 'WindowData' top: 'x' top: 'y' transform_param { crop_size: 8 } window_data_param { "
        "source: 'windows.txt' batch_size: 1 fg_threshold: 0.5 bg_threshold: 0.5 fg_fraction: 1 } }",
        "TRAIN",
    )
    np.testing.assert_array_equal(next(windows)[0][0], cv2.resize(pixels, (8, 8)).transpose(2, 0, 1))
    assert main(["convert_imageset", "./", "list.txt", "raw"]) == 0
    _, value = Lmdb("raw")[0]
    datum = caffe_pb2.Datum.FromString(value)
    np.testing.assert_array_equal(decode_datum(datum), pixels.transpose(2, 0, 1))
    assert main(["compute_image_mean", "raw", "mean.binaryproto"]) == 0


def test_encoded_records_are_errors(folder: Path, open_source: Any) -> None:
    """convert_imageset copies the bytes, as in Caffe; cv2.imdecode does not decode them."""
    assert main(["convert_imageset", "--encoded", "--encode_type=jpg", "./", "list.txt", "encoded"]) == 0
    _, value = Lmdb("encoded")[0]
    datum = caffe_pb2.Datum.FromString(value)
    assert datum.encoded
    assert datum.data == Path("half.jpg").read_bytes()
    for read in (
        lambda: decode_datum(datum),
        lambda: decode_image(datum.data),
        lambda: caffe.io.load_image("half.jpg"),
    ):
        with pytest.raises(DataError, match="cannot be decoded"):
            read()
    with pytest.raises(DataError, match=r"record .*cannot be decoded"):
        open_source(
            "layer { name: 'd' type: 'Data' top: 'x' data_param { source: 'encoded' batch_size: 1 backend: LMDB } }"
        )


def test_the_size_in_the_header_is_checked_before_a_truncated_file_is_decoded() -> None:
    data = bytearray(encode())
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = b"\xff\xff\xff\xff"  # 65,535 x 65,535
    with pytest.raises(BadImageError, match="pixels"):
        decode_file("a.jpg", bytes(data[:900]), max_pixels=10**6)
    assert decode_file("a.jpg", encode()[:900], max_pixels=40 * 56).shape == (3, 40, 56)
    with pytest.raises(BadImageError, match="pixels"):
        decode_file("a.jpg", encode()[:900], max_pixels=40 * 56 - 1)

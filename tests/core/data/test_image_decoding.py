"""Datums: every form of data, and bad ones."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffejax.base.errors import DataError
from caffejax.core.data.image_decoding import COLOR, GRAY, UNCHANGED, read_datum
from caffejax.core.schema import caffe_pb2


def serialize_datum(**fields):
    return caffe_pb2.Datum(**fields).SerializeToString()


def serialize_encoded_datum(image, suffix=".png", **fields):
    return serialize_datum(encoded=True, data=cv2.imencode(suffix, image)[1].tobytes(), **fields)


def test_bytes_are_uint8_images():
    image, label = read_datum(
        serialize_datum(channels=2, height=1, width=3, data=bytes([0, 1, 2, 253, 254, 255]), label=7)
    )
    assert image.dtype == np.uint8
    assert image.tolist() == [[[0, 1, 2]], [[253, 254, 255]]]
    assert label == 7


def test_floats_are_float32_images():
    image, label = read_datum(serialize_datum(channels=1, height=2, width=2, float_data=[0.5, -1, 300, 1e-9], label=-1))
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image, np.array([[[0.5, -1], [300, 1e-9]]], np.float32))
    assert label == -1


PIXELS = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("image", "decode_mode", "expected"),
    [
        (PIXELS, UNCHANGED, PIXELS.transpose(2, 0, 1)),
        (PIXELS, COLOR, PIXELS.transpose(2, 0, 1)),
        (PIXELS[..., 0], UNCHANGED, PIXELS[None, ..., 0]),
        (PIXELS[..., 0], GRAY, PIXELS[None, ..., 0]),
        (PIXELS[..., 0], COLOR, np.stack([PIXELS[..., 0]] * 3)),
    ],
)
def test_encoded_images_are_channels_first_in_the_order_bgr(image, decode_mode, expected):
    actual, label = read_datum(serialize_encoded_datum(image, label=3), decode_mode)
    assert actual.dtype == np.uint8
    np.testing.assert_array_equal(actual, expected)
    assert label == 3


def test_gray_levels_of_a_color_png_are_libpngs():
    blue, green, red = PIXELS.astype(np.int64).transpose(2, 0, 1)
    expected = (9797 * red + 19234 * green + 3737 * blue) >> 15
    np.testing.assert_array_equal(read_datum(serialize_encoded_datum(PIXELS), GRAY)[0], expected[None])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xff\xff", "is not a Datum"),
        (
            serialize_datum(channels=3, height=4, width=4, data=b"x" * 47),
            r"is declared as 3x4x4 \(CxHxW\), but has 47 values",
        ),
        (serialize_datum(channels=1, height=2, width=2, float_data=[1, 2, 3]), "is declared as 1x2x2 .* has 3 values"),
        (serialize_datum(), "is declared as 0x0x0"),
        (serialize_datum(channels=-1, height=-1, width=4, data=b"1234"), "is declared as -1x-1x4"),
        (serialize_datum(encoded=True), "image of 0 bytes cannot be decoded"),
        (serialize_datum(encoded=True, data=b"no picture"), "image of 10 bytes cannot be decoded"),
        (serialize_encoded_datum(PIXELS.astype(np.uint16)), "has uint16 pixels, not bytes"),
    ],
)
def test_invalid_datums_are_refused(data, message):
    with pytest.raises(DataError, match=message):
        read_datum(data)


@given(data=st.binary(max_size=200), decode_mode=st.sampled_from([UNCHANGED, COLOR, GRAY]))
def test_any_bytes_give_an_image_or_a_data_error(data, decode_mode):
    for record in (data, serialize_datum(encoded=True, data=data), serialize_encoded_datum(PIXELS)[:-1] + data):
        try:
            image, _ = read_datum(record, decode_mode)
        except DataError:
            continue
        assert image.ndim == 3
        assert image.size

"""The Transformer: from images to a net's input, and back."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import caffejax.pycaffe as caffe
from caffejax.pycaffe.io import Transformer, resize_image

from .conftest import draw_normal


def make_transformer(*shape: int) -> Transformer:
    return caffe.io.Transformer({"data": shape or (10, 3, 6, 7)})


def test_steps_are_applied_in_caffes_order() -> None:
    t = make_transformer()
    t.set_transpose("data", (2, 0, 1))
    t.set_channel_swap("data", (2, 1, 0))
    t.set_raw_scale("data", 255)
    t.set_mean("data", np.array([104.0, 117.0, 123.0]))
    t.set_input_scale("data", 0.5)
    image = np.random.default_rng(0).random((6, 7, 3)).astype(np.float32)
    original = image.copy()
    expected = (image[:, :, ::-1] * 255 - [104, 117, 123]) * 0.5
    preprocessed = t.preprocess("data", image)
    assert preprocessed.dtype == np.float32
    np.testing.assert_allclose(preprocessed, expected.transpose(2, 0, 1), atol=1e-4)
    np.testing.assert_array_equal(image, original)  # the caller's image is left alone
    np.testing.assert_allclose(t.deprocess("data", preprocessed[np.newaxis]), image, atol=1e-6)


def test_without_settings_the_image_is_unchanged() -> None:
    image = draw_normal(3, 6, 7)
    t = make_transformer(10, 6, 7, 3)
    t.inputs["data"] = (10, 3, 3, 6)
    np.testing.assert_array_equal(t.preprocess("data", image), image)
    np.testing.assert_array_equal(t.deprocess("data", image[np.newaxis]), image)


@given(st.data())
def test_values_round_trip(data: st.DataObject) -> None:
    channels = data.draw(st.sampled_from([1, 2, 3, 5]))
    t = make_transformer(1, channels, 4, 5)
    t.set_transpose("data", (2, 0, 1))
    if data.draw(st.booleans()):
        t.set_channel_swap("data", data.draw(st.permutations(range(channels))))
    if data.draw(st.booleans()):
        t.set_raw_scale("data", data.draw(st.sampled_from([255, 0.25])))
    if data.draw(st.booleans()):
        shape = data.draw(st.sampled_from([(channels,), (channels, 4, 5), (channels, 1, 1)]))
        t.set_mean("data", draw_normal(*shape))
    if data.draw(st.booleans()):
        t.set_input_scale("data", 0.017)
    image = draw_normal(4, 5, channels)
    np.testing.assert_allclose(t.deprocess("data", t.preprocess("data", image)), image, rtol=1e-3, atol=1e-3)


def test_images_of_different_sizes_are_resized() -> None:
    t = make_transformer()
    t.set_transpose("data", (2, 0, 1))
    image = draw_normal(9, 11, 3)
    np.testing.assert_array_equal(t.preprocess("data", image), resize_image(image, (6, 7)).transpose(2, 0, 1))


def test_mean_images_of_different_sizes_are_resized() -> None:
    t = make_transformer()
    mean = draw_normal(3, 12, 14)
    t.set_mean("data", mean)
    expected = resize_image(mean.transpose(1, 2, 0), (6, 7)).transpose(2, 0, 1)
    np.testing.assert_array_equal(t.mean["data"], expected)
    t.set_mean("data", draw_normal(3, 6, 7))
    np.testing.assert_array_equal(t.mean["data"], draw_normal(3, 6, 7))


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("set_transpose", (1, 0), "Transpose order"),
        ("set_channel_swap", (1, 0), "Channel swap"),
        ("set_mean", np.zeros(4), "Mean channels incompatible"),
        ("set_mean", np.zeros((1, 6, 7)), "Mean channels incompatible"),
        ("set_mean", np.zeros((1, 3, 6, 7)), "Mean shape invalid"),
    ],
)
def test_settings_are_checked(setting: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(make_transformer(), setting)("data", value)
    with pytest.raises(ValueError, match="dta is not one of the net inputs: data"):
        getattr(make_transformer(), setting)("dta", value)


def test_unknown_inputs_are_rejected() -> None:
    for call in ("preprocess", "deprocess", "set_raw_scale", "set_input_scale"):
        with pytest.raises(ValueError, match="is not one of the net inputs"):
            getattr(make_transformer(), call)("dta", 1)

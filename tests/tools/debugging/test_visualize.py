"""Tiled pictures of feature maps, compared with Caffe's vis_square."""

import math

import cv2
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from caffejax.tools.debugging.visualize import (
    encode_image,
    enlarge,
    find_first_filters,
    get_filter_weights,
    make_feature_maps,
    make_filter_maps,
    make_grid,
)


def vis_square(data: np.ndarray) -> np.ndarray:
    """As in Caffe's notebook 00-classification."""
    data = (data - data.min()) / (data.max() - data.min())
    n = int(np.ceil(np.sqrt(data.shape[0])))
    padding = ((0, n**2 - data.shape[0]), (0, 1), (0, 1), *((0, 0),) * (data.ndim - 3))
    data = np.pad(data, padding, mode="constant", constant_values=1)
    data = data.reshape((n, n, *data.shape[1:])).transpose((0, 2, 1, 3, *range(4, data.ndim + 1)))
    return data.reshape((n * data.shape[1], n * data.shape[3], *data.shape[4:]))


@pytest.mark.parametrize("shape", [(1, 3, 4), (4, 2, 2), (5, 3, 2), (12, 1, 1), (20, 5, 5), (7, 4, 3, 3)])
def test_a_grid_equals_vis_square(shape: tuple[int, ...]) -> None:
    maps = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    actual, expected = make_grid(maps), np.rint(vis_square(maps.astype(np.float64)) * 255)
    assert actual.dtype == np.uint8
    num_pixel_rows = -(-shape[0] // math.ceil(math.sqrt(shape[0]))) * (shape[1] + 1)
    assert actual.shape == (
        num_pixel_rows + 1,
        expected.shape[1] + 1,
        *shape[3:],
    )  # rows with nothing in them are left out
    np.testing.assert_array_equal(actual[1:, 1:], expected[:num_pixel_rows])
    assert (actual[0] == 255).all()
    assert (actual[:, 0] == 255).all()


def test_per_map_scales_each_map_separately() -> None:
    maps = np.array([[[0, 1], [2, 4]], [[10, 10], [10, 30]], [[5, 5], [5, 5]]], np.float32)
    tiles = make_grid(maps, per_map=True)
    assert tiles[1:3, 1:3].tolist() == [[0, 64], [128, 255]]
    assert tiles[1:3, 4:6].tolist() == [[0, 0], [0, 255]]
    assert tiles[4:6, 1:3].tolist() == [[0, 0], [0, 0]]


def test_numbers_that_are_not_finite_are_white_and_excluded_from_the_scale() -> None:
    maps = np.array([[[0, np.nan], [np.inf, 1]]], np.float32)
    assert make_grid(maps)[1:3, 1:3].tolist() == [[0, 255], [255, 255]]
    assert (make_grid(np.full((2, 2, 2), np.nan)) == 255).all()


@pytest.mark.parametrize("rgb", [False, True])
def test_filters_are_drawn_in_their_colors(rgb: bool) -> None:
    weights = np.zeros((2, 3, 2, 2), np.float32)
    weights[0, 2 if not rgb else 0] = 1  # red
    weights[1, 0 if not rgb else 2] = 1  # blue
    file = np.frombuffer(encode_image(make_grid(make_filter_maps(weights, rgb=rgb))), np.uint8)
    picture = cv2.imdecode(file, cv2.IMREAD_COLOR)[..., ::-1]
    assert picture[1, 1].tolist() == [255, 0, 0]
    assert picture[1, 4].tolist() == [0, 0, 255]


def test_filters_without_three_channels_are_gray() -> None:
    weights = np.arange(2 * 4 * 3 * 3).reshape(2, 4, 3, 3)
    np.testing.assert_array_equal(make_filter_maps(weights), weights.reshape(8, 3, 3))


@pytest.mark.parametrize(
    ("shape", "maps_shape"),
    [((5, 3, 4), (5, 3, 4)), ((3, 4), (1, 3, 4)), ((7,), (1, 3, 3)), ((4, 1, 1), (1, 2, 2)), ((), (1, 1, 1))],
)
def test_rows_of_blobs_of_any_shape_become_maps(shape: tuple[int, ...], maps_shape: tuple[int, ...]) -> None:
    row = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    result = make_feature_maps(row)
    assert result.shape == maps_shape
    np.testing.assert_array_equal(result.ravel()[: row.size], row.ravel())
    assert np.isnan(result.ravel()[row.size :]).all()


def test_pictures_are_enlarged_by_integer_factors() -> None:
    image = np.arange(6, dtype=np.uint8).reshape(2, 3)
    enlarged_image = enlarge(image, 9)
    assert enlarged_image.shape == (6, 9)
    np.testing.assert_array_equal(enlarged_image[1::3, 1::3], image)
    assert enlarge(np.zeros((900, 20, 3), np.uint8), 512).shape == (900, 20, 3)


@pytest.mark.parametrize(
    ("maps", "message"),
    [(np.zeros((0, 3, 3)), "nothing to draw"), (np.zeros((5, 0, 3)), "nothing to draw"),
     (np.zeros((300**2, 1, 100), np.float16), r"an image of 600 x 30300 pixels.*--maps=N")],
)  # fmt: skip
def test_drawings_that_cannot_work_are_refused(maps: np.ndarray, message: str) -> None:
    with pytest.raises(CaffejaxError, match=message):
        make_grid(maps)
    with pytest.raises(CaffejaxError, match=r"'\.doc' is not a picture format"):
        encode_image(np.zeros((2, 2), np.uint8), ".doc")


def test_the_first_filters_are_those_larger_than_a_pixel() -> None:
    net = Net(
        """
        layer { name: "data" type: "Input" top: "x" input_param { shape { dim: 1 dim: 3 dim: 9 dim: 9 } } }
        layer { name: "one" type: "Convolution" bottom: "x" top: "a"
          convolution_param { num_output: 2 kernel_size: 1 } }
        layer { name: "two" type: "Convolution" bottom: "a" top: "b"
          convolution_param { num_output: 4 kernel_size: 3 } }
        layer { name: "ip" type: "InnerProduct" bottom: "b" top: "c" inner_product_param { num_output: 2 } }
        """
    )
    assert list(get_filter_weights(net.graph)) == ["one", "two"]
    result = find_first_filters(net.graph)
    assert result is not None
    assert result.slot.layer == "two"

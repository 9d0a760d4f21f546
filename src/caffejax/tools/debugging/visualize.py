"""Images of a net's filters and feature maps, arranged in a grid.

Images are uint8 arrays: (H, W) for grey, or (H, W, 3) for colour with the channels blue, green, red, as in OpenCV.
"""

from __future__ import annotations

import math

import numpy as np

from ...base.errors import CaffejaxError
from ...core.graph import Graph, Param

_MAX_SIDE = 2**14  # pixels
_WHITE = 255


def get_filter_weights(graph: Graph) -> dict[str, Param]:
    """Return the first parameter of each layer whose first parameter has four axes, by layer key."""
    return {
        layer.key: layer.params[0] for layer in graph.layers if layer.params and len(layer.params[0].spec.shape) == 4
    }


def find_first_filters(graph: Graph) -> Param | None:
    """Return the first filter weights that are larger than 1 x 1, or None if all are 1 x 1."""
    return next((p for p in get_filter_weights(graph).values() if p.spec.shape[2:] != (1, 1)), None)


def make_filter_maps(weights: np.ndarray, *, rgb: bool = False) -> np.ndarray:
    """Return filters as maps for `make_grid`.

    Args:
        weights: the filters, of shape (N, channels, H, W).
        rgb: whether the order of three channels is red, green, blue. By default it is blue, green, red, as in Caffe's
            models.

    Returns:
        Colour maps (N, H, W, 3) if there are three channels, otherwise (N * channels, H, W).
    """
    if weights.shape[1] == 3:
        return weights[:, :: -1 if rgb else 1].transpose(0, 2, 3, 1)
    return weights.reshape(-1, *weights.shape[2:])


def make_feature_maps(features: np.ndarray) -> np.ndarray:
    """Return the features of one example as maps (N, H, W) for `make_grid`.

    Features (channels, H, W) give one map per channel, and features (H, W) give one map. A vector is arranged as one
    square map, padded with NaN.
    """
    if features.ndim == 3 and features.shape[1:] != (1, 1):
        return features
    if features.ndim == 2:
        return features[None]
    vector = features.ravel()
    width = math.isqrt(max(vector.size - 1, 0)) + 1
    height = -(-vector.size // width)
    padded_vector = np.full(height * width, np.nan, np.float32)
    padded_vector[: vector.size] = vector
    return padded_vector.reshape(1, height, width)


def make_grid(maps: np.ndarray, *, per_map: bool = False) -> np.ndarray:
    """Return an image of maps in a square grid, like `vis_square` in Caffe's notebooks.

    The lowest value is black, and the highest value is white.

    Args:
        maps: the maps, of shape (N, H, W) or (N, H, W, 3). Values that are not finite are white, like the borders.
        per_map: whether to use the lowest and highest value of each map, instead of the lowest and highest value of all
            maps.

    Raises:
        CaffejaxError: if `maps` is empty, or the image would be too large.
    """
    if not maps.size:
        raise CaffejaxError(f"there is nothing to draw: the maps have shape {maps.shape}")
    num_columns = math.isqrt(len(maps) - 1) + 1
    num_rows = -(-len(maps) // num_columns)
    height, width = maps.shape[1] + 1, maps.shape[2] + 1
    if max(num_rows * height, num_columns * width) > _MAX_SIDE:
        raise CaffejaxError(
            f"{len(maps)} maps of {height - 1} x {width - 1} pixels need an image of {num_rows * height} x "
            f"{num_columns * width} pixels, but a side may have at most {_MAX_SIDE}; draw fewer maps (--maps=N)"
        )
    image = np.full((num_rows * height + 1, num_columns * width + 1, *maps.shape[3:]), _WHITE, np.uint8)
    for i, tile in enumerate(_scale_to_uint8(maps, per_map)):
        top, left = i // num_columns * height + 1, i % num_columns * width + 1
        image[top : top + height - 1, left : left + width - 1] = tile
    return image


def enlarge(image: np.ndarray, side: int = 512) -> np.ndarray:
    """Return an image with each pixel repeated so that the longer side is about `side` pixels long.

    A larger image is returned unchanged.
    """
    factor = max(1, round(side / max(image.shape[:2])))
    return image.repeat(factor, 0).repeat(factor, 1)


def encode_image(image: np.ndarray, suffix: str = ".png") -> bytes:
    """Return the bytes of an image file in the format of the file extension `suffix`.

    Raises:
        CaffejaxError: if OpenCV cannot write this format.
    """
    import cv2

    try:
        is_encoded, data = cv2.imencode(suffix, image)
    except cv2.error:
        is_encoded = False
    if not is_encoded:
        raise CaffejaxError(f"'{suffix}' is not a picture format that can be written; choose .png or .jpg")
    return bytes(data)


def _scale_to_uint8(maps: np.ndarray, per_map: bool) -> np.ndarray:
    """Scale maps to the range 0 to 255. If `per_map` is true, scale each map separately.

    Values that are not finite become 255.
    """
    values = np.asarray(maps, np.float64)
    is_finite = np.isfinite(values)
    axes = tuple(range(1 if per_map else 0, maps.ndim))
    low = np.where(is_finite, values, np.inf).min(axes, keepdims=True)
    high = np.where(is_finite, values, -np.inf).max(axes, keepdims=True)
    span = np.where(high > low, high - low, 1.0)
    with np.errstate(invalid="ignore"):
        scaled_values = np.rint((values - low) / span * 255)
    return np.where(is_finite, scaled_values, _WHITE).astype(np.uint8)

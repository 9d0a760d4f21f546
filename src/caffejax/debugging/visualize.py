"""Pictures of a net's filters and feature maps, side by side in a grid.

Pictures are uint8: (H, W) in grey, or (H, W, 3) in colour with channels blue, green, red, the order of OpenCV.
"""

from __future__ import annotations

import math

import numpy as np

from ..errors import CaffejaxError
from ..graph import Graph, Param

_LARGEST = 2**14  # pixels of a picture's side
_WHITE = 255


def filter_params(graph: Graph) -> dict[str, Param]:
    """Return the filter weights by layer: the first parameter of each layer, if it has four axes."""
    return {
        layer.key: layer.params[0] for layer in graph.layers if layer.params and len(layer.params[0].spec.shape) == 4
    }


def first_filters(graph: Graph) -> Param | None:
    """Return the first filter weights that are larger than 1 x 1, or None if all are 1 x 1."""
    return next((p for p in filter_params(graph).values() if p.spec.shape[2:] != (1, 1)), None)


def filter_maps(weights: np.ndarray, *, rgb: bool = False) -> np.ndarray:
    """Return filters as maps for `grid`: colour maps (N, H, W, 3) for three channels, else (N * channels, H, W).

    Args:
        weights: (N, channels, H, W).
        rgb: the three channels are red, green, blue; default: blue, green, red, as in Caffe's models.
    """
    if weights.shape[1] == 3:
        return weights[:, :: -1 if rgb else 1].transpose(0, 2, 3, 1)
    return weights.reshape(-1, *weights.shape[2:])


def feature_maps(features: np.ndarray) -> np.ndarray:
    """Return one row of a blob as maps for `grid`, shape (N, H, W).

    A row (channels, H, W) results in one map per channel, and a row (H, W) in one map. A vector is arranged in one
    square map, padded with NaN.
    """
    if features.ndim == 3 and features.shape[1:] != (1, 1):
        return features
    if features.ndim == 2:
        return features[None]
    row = features.ravel()
    width = math.isqrt(max(row.size - 1, 0)) + 1
    height = -(-row.size // width)
    padded = np.full(height * width, np.nan, np.float32)
    padded[: row.size] = row
    return padded.reshape(1, height, width)


def grid(maps: np.ndarray, *, each: bool = False) -> np.ndarray:
    """Return a picture of maps arranged in a square grid, from black (lowest value) to white (highest value).

    It is the picture of `vis_square` in Caffe's notebooks.

    Args:
        maps: (N, H, W) or (N, H, W, 3), of any numbers. Values that are not finite are white, like the borders.
        each: scale each map by its lowest and highest value; default: all maps by the lowest and highest of all.

    Raises:
        CaffejaxError: if `maps` is empty, or the picture would be too large.
    """
    if not maps.size:
        raise CaffejaxError(f"there is nothing to draw: the maps are of shape {maps.shape}")
    n = math.isqrt(len(maps) - 1) + 1
    rows = -(-len(maps) // n)
    height, width = maps.shape[1] + 1, maps.shape[2] + 1
    if max(rows * height, n * width) > _LARGEST:
        raise CaffejaxError(
            f"{len(maps)} maps of {height - 1} x {width - 1} make a picture of {rows * height} x {n * width} pixels; "
            f"at most {_LARGEST} are drawn along a side: draw fewer maps (--maps=N)"
        )
    picture = np.full((rows * height + 1, n * width + 1, *maps.shape[3:]), _WHITE, np.uint8)
    for i, drawn in enumerate(_levels(maps, each)):
        top, left = i // n * height + 1, i % n * width + 1
        picture[top : top + height - 1, left : left + width - 1] = drawn
    return picture


def enlarge(picture: np.ndarray, side: int = 512) -> np.ndarray:
    """Return a picture with each pixel repeated so that the longer side is about `side` pixels long.

    A larger picture is returned unchanged.
    """
    times = max(1, round(side / max(picture.shape[:2])))
    return picture.repeat(times, 0).repeat(times, 1)


def encode_picture(picture: np.ndarray, suffix: str = ".png") -> bytes:
    """Return the bytes of an image file with a picture, in the format of the file extension `suffix`.

    Raises:
        CaffejaxError: if OpenCV cannot write this format.
    """
    import cv2

    try:
        done, data = cv2.imencode(suffix, picture)
    except cv2.error:
        done = False
    if not done:
        raise CaffejaxError(f"'{suffix}' is not a picture format that can be written; choose .png or .jpg")
    return bytes(data)


def _levels(maps: np.ndarray, each: bool) -> np.ndarray:
    """Return maps scaled to uint8 from 0 to 255, each map by itself if `each`; values that are not finite are 255."""
    numbers = np.asarray(maps, np.float64)
    finite = np.isfinite(numbers)
    axes = tuple(range(1 if each else 0, maps.ndim))
    low = np.where(finite, numbers, np.inf).min(axes, keepdims=True)
    high = np.where(finite, numbers, -np.inf).max(axes, keepdims=True)
    span = np.where(high > low, high - low, 1.0)
    with np.errstate(invalid="ignore"):
        levels = np.rint((numbers - low) / span * 255)
    return np.where(finite, levels, _WHITE).astype(np.uint8)

"""Resizes images as Caffe's Python tools do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.opencv import cv2


def resize_image(im: np.ndarray, new_dims: Sequence[int], interp_order: int = 1) -> np.ndarray:
    """Resize an image, without smoothing it first.

    As in Caffe, there are two ways. Images of one or three channels go as in `skimage.transform.resize` with mode
    "constant" and anti_aliasing=False: pixels are areas, and beyond the image lies its smallest value, which shows
    at the edges of enlarged images. Others go as in `scipy.ndimage.zoom`: the outermost pixels stay outermost.
    Results agree with these libraries to rounding (1e-6 of the range of values); only where nearest neighbours
    (order 0) are equally near may they choose the other one, and beyond order 1 it is today's scikit-image that is
    followed, whose splines differ from those of Caffe's time.

    Args:
        im: (H, W, K).
        new_dims: height and width.
        interp_order: 0 for the nearest pixel, 1 for linear, up to 5 for splines.

    Returns:
        (*new_dims, K), float32.
    """
    if im.ndim != 3 or 0 in im.shape:
        raise ValueError(f"an image is (height, width, channels), not {im.shape}")
    if interp_order not in range(6):
        raise ValueError(f"interp_order is 0 to 5, not {interp_order}")
    height, width = (int(n) for n in new_dims)
    im = np.asarray(im, im.dtype if im.dtype in (np.float32, np.float64) else np.float32)
    low, high = im.min(), im.max()
    if im.shape[2] not in (1, 3):
        resized = _zoom(im, (height, width), interp_order, grid_mode=False)
    elif not high > low:
        resized = np.full((height, width, im.shape[2]), low)
    elif interp_order == 0:
        resized = im[_nearest(height, im.shape[0])[:, np.newaxis], _nearest(width, im.shape[1])]
    elif interp_order == 1:
        inner = cv2.resize(im - low, (width, height), interpolation=cv2.INTER_LINEAR)
        edges = np.outer(_inside(height, im.shape[0]), _inside(width, im.shape[1])).astype(im.dtype)
        resized = inner.reshape(height, width, -1) * edges[:, :, np.newaxis] + low
    else:
        resized = _zoom((im - low) / (high - low), (height, width), interp_order, grid_mode=True)
        resized = resized.clip(0, 1) * (high - low) + low
    return resized.astype(np.float32)


def _centres(new: int, old: int) -> np.ndarray:
    """Return where the centres of the new pixels lie among the old ones."""
    return (np.arange(new) + 0.5) * (old / new) - 0.5


def _nearest(new: int, old: int) -> np.ndarray:
    return np.floor(_centres(new, old) + 0.5).astype(int).clip(0, old - 1)


def _inside(new: int, old: int) -> np.ndarray:
    """Return the share of the two neighbours' weights that lies inside of the image."""
    centres = _centres(new, old)
    return 1 - np.maximum(np.maximum(-centres, centres - (old - 1)), 0)


def _zoom(im: np.ndarray, dims: tuple[int, int], order: int, grid_mode: bool) -> np.ndarray:
    from scipy.ndimage import zoom  # jax brings scipy

    factors = (dims[0] / im.shape[0], dims[1] / im.shape[1], 1)
    mode = "grid-constant" if grid_mode else "constant"
    return zoom(im, factors, order=order, mode=mode, grid_mode=grid_mode)

"""From images as stored to a batch as the net wants it: crop, (pixel - mean) x scale, mirror."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import DataError
from ..layers.context import Context
from .crop import Crop
from .draws import Draws
from .fields import refuse_others
from .mean import mean_of

_KNOWN = {"scale", "mirror", "crop_size", "mean_file", "mean_value", "force_color", "force_gray"}


class Transform:
    """What a layer's transform_param asks for.

    Raises:
        DataError: if it asks for what excludes each other, or what caffejax does not know.
    """

    def __init__(self, ctx: Context, draws: Draws) -> None:
        param = ctx.layer.transform_param
        refuse_others(param, "transform_param", _KNOWN)
        if param.force_color and param.force_gray:
            raise DataError("transform_param has both force_color and force_gray; keep one of them")
        self._crop = Crop(param.crop_size, random=ctx.training)
        self._mean = mean_of(ctx)
        self._scale = np.float32(param.scale)
        self._mirror: bool = param.mirror
        self._draws = draws

    def shape(self, image: tuple[int, ...]) -> tuple[int, ...]:
        """The shape (C, h, w) that an image (C, H, W) comes out with.

        Raises:
            DataError: if such an image does not fit the crop or the mean.
        """
        self._mean.over(image)
        return self._crop.shape(image)

    def __call__(self, images: Sequence[np.ndarray], start: int) -> np.ndarray:
        """Transforms a batch.

        Args:
            images: arrays (C, H, W), which all have the same `shape(...)`.
            start: the number of the first one, counted from the start of training; it decides the draws.

        Returns:
            float32 (N, C, h, w).
        """
        words = self._draws.words(start, len(images))
        extents = np.array([image.shape[1:] for image in images], np.uint64)
        corners = self._crop.origins(extents, words[:, 1:3]).tolist()
        flips = (words[:, 0] % 2 == 1).tolist() if self._mirror else [False] * len(images)
        batch = np.empty((len(images), *self._crop.shape(images[0].shape)), np.float32)
        height, width = batch.shape[2:]
        mean = self._mean.over(images[0].shape)
        for out, image, (row, column), flip in zip(batch, images, corners, flips, strict=True):
            if image.shape != mean.shape:
                mean = self._mean.over(image.shape)
            window = np.s_[:, row : row + height, column : column + width]
            # One pass over the pixels, and no Python but this per image.
            np.subtract(image[window], mean[window], out=out[:, :, ::-1] if flip else out)
        if self._scale != 1:
            batch *= self._scale
        return batch

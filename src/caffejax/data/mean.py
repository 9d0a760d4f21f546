"""The mean that is subtracted: an image from a file, or a value for each channel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import DataError, Problem, WeightsError
from ..layers.context import Site
from ..schema.blobs import read_blob_proto
from .shapes import dims


@dataclass(frozen=True)
class Mean:
    """What to subtract from an image.

    Attributes:
        values: float32 (C, H, W), or (C, 1, 1) for values by channel.
        file: the mean_file it comes from, if any: then its size must be the image's.
    """

    values: np.ndarray
    file: str | None = None

    def broadcast_to(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the mean of each pixel of an image of that shape (C, H, W).

        Raises:
            DataError: if it does not fit.
        """
        if self.file is not None and self.values.shape != shape:
            raise DataError(
                f"is {dims(shape)} (CxHxW), but mean_file {self.file} is {dims(self.values.shape)}: "
                "they must be equal, also with a crop_size"
            )
        if len(self.values) not in (1, shape[0]):
            raise DataError(
                f"has {shape[0]} channels, but there are {len(self.values)} mean_value: "
                "give one, or one for each channel"
            )
        return np.broadcast_to(self.values, shape)


def read_mean(site: Site) -> Mean:
    """Return the mean that transform_param asks for; zero if it asks for none.

    Raises:
        DataError: if both kinds are given, or the file is missing or no mean.
    """
    param = site.layer.transform_param
    if not param.HasField("mean_file"):
        return Mean(np.array(list(param.mean_value) or [0], np.float32).reshape(-1, 1, 1))
    if param.mean_value:
        raise DataError("transform_param has both mean_file and mean_value; keep one of them")
    path = site.path(param.mean_file)
    return Mean(_read(path), str(path))


def _read(path: Path) -> np.ndarray:
    try:
        stored = np.asarray(read_blob_proto(path), np.float32)
    except WeightsError as error:
        raise DataError(replace(p, message=f"mean_file: {p.message}") for p in error.problems) from error
    if stored.ndim not in (4, 5) or len(stored) != 1 or not stored.size:
        message = f"mean_file has shape {dims(stored.shape)}; it must be one image, 1xCxHxW"
        raise DataError(Problem(message, file=str(path)))
    return stored.reshape(-1, *stored.shape[-2:])  # a clip's, 1xCxLxHxW, has a channel for each frame's

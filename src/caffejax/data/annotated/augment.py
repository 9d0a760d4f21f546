"""What a layer's transform_param and annotated_data_param do to a picture, and with it to its boxes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...errors import DataError
from ...layers.context import Site
from .boxes import mirrored
from .colours import distorted, distortion_problems
from .emitting import Emit
from .expanding import expanded, expansion_problems
from .noise import noise_problems, recompressed, spoiled
from .picture import Picture
from .resizing import rescaled, resize_problems, resized
from .sampling import BatchSamplers, sampler_problems

# settings of transform_param that are followed here
FOLLOWED = ("resize_param", "noise_param", "distort_param", "expand_param", "emit_constraint")


class Prepared(NamedTuple):
    """A picture that is ready to be cropped and mirrored.

    Attributes:
        picture: the picture.
        size: height and width that its image had before it was resized.
    """

    picture: Picture
    size: tuple[int, int]


class Augment:
    """What is done to a picture, in Caffe's order: colours, a larger background, a sample of it, the size, noise.

    Then comes the crop, which is made with the rest of the batch, and `after` it what the net sees of the boxes.

    The fork keeps the result of each of the first three as a JPEG, where the image was compressed. In the TEST phase
    this is done here as well, so that scores are the fork's. In training it would only cost time.

    Args:
        site: the layer.
        background: the mean of each channel.

    Raises:
        DataError: with all that is wrong with the settings.
    """

    def __init__(self, site: Site, background: np.ndarray) -> None:
        param, samplers = site.layer.transform_param, site.layer.annotated_data_param.batch_sampler
        problems = [*resize_problems(param.resize_param), *sampler_problems(samplers)]
        problems += noise_problems(param.noise_param) if param.HasField("noise_param") else ()
        problems += distortion_problems(param.distort_param) if param.HasField("distort_param") else ()
        problems += expansion_problems(param) if param.HasField("expand_param") else ()
        if problems:
            raise DataError(problems)
        self._param = param
        self._background = background
        self._emit = Emit(param.emit_constraint if param.HasField("emit_constraint") else None)
        self._as_jpeg = not site.training
        self._sample = BatchSamplers(samplers, self._emit)
        self._resize = param.resize_param[0] if param.resize_param else None

    def __call__(self, picture: Picture, rng: np.random.Generator, compressed: bool) -> Prepared:
        """Do all that comes before the crop.

        Args:
            picture: the picture.
            rng: decides over all that is random.
            compressed: whether the image was stored compressed.

        Raises:
            DataError: if the image does not have the channels that it takes.
        """
        param = self._param

        def kept(new: Picture) -> Picture:
            same = new is picture or not (self._as_jpeg and compressed)
            return new if same else replace(new, image=recompressed(new.image))

        if param.HasField("distort_param"):
            picture = kept(replace(picture, image=distorted(picture.coloured(), param.distort_param, rng)))
        if param.HasField("expand_param"):
            picture = kept(expanded(picture, param.expand_param, self._background, self._emit, rng))
        picture = kept(self._sample(picture, rng))
        height, width = picture.image.shape[:2]
        if self._resize is not None:
            picture = resized(picture, self._resize, rng)
        if param.HasField("noise_param"):
            picture = replace(picture, image=spoiled(picture.coloured(), param.noise_param, rng))
        return Prepared(picture, (height, width))

    def after(self, prepared: Prepared, window: np.ndarray, flip: bool) -> np.ndarray:
        """Return the objects that the net sees, in units of the window that is cut out, which may be mirrored."""
        seen = self._emit(prepared.picture, window).seen_through(window)
        boxes = mirrored(seen.boxes) if flip else seen.boxes
        if self._resize is not None:
            boxes = rescaled(boxes, self._resize, prepared.size, window)
        return seen.with_boxes(boxes).objects

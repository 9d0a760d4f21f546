"""What Classifier and Detector share: a net with one input for images, and how images become that input."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..schema.caffe_pb2 import TEST
from . import io
from ._net import Net


def transformer_of(
    name: str,
    shape: Sequence[int],
    mean: np.ndarray | None = None,
    input_scale: float | None = None,
    raw_scale: float | None = None,
    channel_swap: Sequence[int] | None = None,
) -> io.Transformer:
    """Return what turns images (H, W, K) into an input of that name and shape; what is None is left out.

    Raises:
        ValueError: if mean or channel_swap do not fit it.
    """
    if channel_swap is not None and tuple(shape[1:2]) != (len(channel_swap),):
        swap = ",".join(map(str, channel_swap))
        raise ValueError(f"channel_swap {swap} does not fit '{name}' of shape {tuple(shape)}: it is 0 for one channel")
    transformer = io.Transformer({name: shape})
    transformer.set_transpose(name, (2, 0, 1))
    if mean is not None:
        transformer.set_mean(name, mean)
    if input_scale is not None:
        transformer.set_input_scale(name, input_scale)
    if raw_scale is not None:
        transformer.set_raw_scale(name, raw_scale)
    if channel_swap is not None:
        transformer.set_channel_swap(name, channel_swap)
    return transformer


def center_crops(images: np.ndarray, dims: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the centres of images (N, H, W, K), of height and width `dims`.

    Raises:
        ValueError: if the images are smaller.
    """
    (height, width), (h, w) = images.shape[1:3], dims
    if h > height or w > width:
        raise ValueError(f"images of {height} x {width} cannot be cropped to {h} x {w}")
    top, left = (height - h) // 2, (width - w) // 2
    return images[:, top : top + h, left : left + w]


class ImageNet(Net):
    """A trained net in phase TEST whose first input takes images.

    Args:
        model_file: the net prototxt.
        pretrained_file: its weights.
        mean, input_scale, raw_scale, channel_swap: as `io.Transformer` takes them; None leaves a step out.
        strict_weights: as `Net` takes it.

    Attributes:
        transformer: turns images (H, W, K) into the input.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str],
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        strict_weights: bool = False,
    ) -> None:
        super().__init__(model_file, TEST, weights=pretrained_file, strict_weights=strict_weights)
        if not self.inputs:
            raise ValueError(
                "the net has no input in phase TEST: give one with an Input layer, as deploy prototxts have"
            )
        name = self.inputs[0]
        shape = self.blobs[name].data.shape
        self.transformer = transformer_of(name, shape, mean, input_scale, raw_scale, channel_swap)

    def _predict(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """Return the net's first output for each image."""
        name = self.inputs[0]
        batch: dict[str, Any] = {name: np.stack([self.transformer.preprocess(name, image) for image in images])}
        return np.asarray(self.forward_all(**batch)[self.outputs[0]])

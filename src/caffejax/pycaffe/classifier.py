"""`caffe.Classifier`: classification of images, averaged over ten crops per image as in Caffe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.errors import ArgumentValueError
from ..core.schema.caffe_pb2 import TEST
from . import io
from ._arguments import as_dims, as_list, as_path
from ._fork_files import fall_back_to_fork
from ._net import Net
from ._old_names import refuse_arguments


class ImageInputNet(Net):
    """A trained net in phase TEST whose first input takes images.

    Args:
        model_file: the net prototxt.
        pretrained_file: the net's weights.
        mean, input_scale, raw_scale, channel_swap: see `io.Transformer`; None skips a step.
        strict_weights: see `Net`.

    Attributes:
        transformer: converts images (H, W, K) to the input.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str],
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        strict_weights: bool | None = None,
    ) -> None:
        as_path(pretrained_file, "pretrained_file")
        super().__init__(model_file, TEST, weights=pretrained_file, strict_weights=strict_weights)
        if not self.inputs:
            raise ArgumentValueError(
                "the net has no input in phase TEST: use one with an Input layer, such as a deploy prototxt"
            )
        name = self.inputs[0]
        shape = self.blobs[name].data.shape
        self.transformer = io.make_transformer(name, shape, mean, input_scale, raw_scale, channel_swap)

    def _predict(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """Return the net's first output, one row per image (H, W, K), after preprocessing the images."""
        name = self.inputs[0]
        batch: dict[str, Any] = {name: np.stack([self.transformer.preprocess(name, image) for image in images])}
        return np.asarray(self.forward_all(**batch)[self.outputs[0]])


class Classifier(ImageInputNet):
    """A net that classifies images.

    Args:
        model_file: the net prototxt.
        pretrained_file: the net's weights.
        image_dims: height and width to which images are resized before they are cropped to the input's size; default:
            the input's size.
        mean, input_scale, raw_scale, channel_swap: see `io.Transformer`.
        strict_weights: see `Net`.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str],
        image_dims: Sequence[int] | None = None,
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        strict_weights: bool | None = None,
        **old_arguments: Any,
    ) -> None:
        refuse_arguments("Classifier", old_arguments)
        super().__init__(model_file, pretrained_file, mean, input_scale, raw_scale, channel_swap, strict_weights)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].data.shape[2:])
        self.image_dims = as_dims(self.crop_dims if image_dims is None else image_dims, "image_dims")

    def predict(self, inputs: Sequence[np.ndarray], oversample: bool = True) -> np.ndarray:
        """Return class probabilities.

        Args:
            inputs: images (H, W, K), as `io.load_image` returns them.
            oversample: average over ten crops: four corners, the center, and their mirror images. If False, only the
                center is classified.

        Returns:
            Probabilities, (N, classes). With `oversample=False`, the net's output in its shape, with one row per image.

        Raises:
            ValueError: if the crops are larger than the images after resizing.
        """
        inputs = as_list(inputs, "inputs (images)")
        if not inputs:
            raise ArgumentValueError("inputs must have at least one image")
        images = np.stack([io.resize_image(image, self.image_dims) for image in inputs])
        if oversample:
            predictions = self._predict(list(io.oversample(list(images), self.crop_dims)))
            return predictions.reshape(len(images), 10, -1).mean(1)
        return self._predict(list(io.center_crops(images, self.crop_dims)))


__getattr__ = fall_back_to_fork(__name__)

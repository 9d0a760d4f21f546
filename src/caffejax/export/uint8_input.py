"""Image preprocessing that an exported net can include, so that its input takes uint8 images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from ..base.errors import GraphError, Problem
from ..core.data.sampling import CounterRng
from ..core.data.transform import Normalize, Transform
from ..core.program.net import Net
from .inference_model import InferenceModel


def _make_zero_mean() -> np.ndarray:
    return np.zeros((1, 1, 1), np.float32)


@dataclass(frozen=True, eq=False)
class Uint8Preprocessing:
    """Conversion of images to a net's input: a center crop, then (pixel * factor - mean) * scale.

    Attributes:
        input_name: the name of the net's input.
        image_shape: (height, width, channels) of the images, which are uint8 (N, H, W, C) with channels R, G, B.
        input_size: (height, width) of the net's input, at most the size of the images.
        channel_order: for each input channel, the index of the image channel. (2, 1, 0) converts RGB to BGR.
        factor: the factor applied to pixels before the mean is subtracted.
        mean: the mean, float32 (C, 1, 1) or (C, h, w) with the size of the input.
        scale: the factor applied after the mean is subtracted.

    Raises:
        GraphError: if settings contradict each other. The message lists all contradictions.
    """

    input_name: str
    image_shape: tuple[int, int, int]
    input_size: tuple[int, int]
    channel_order: tuple[int, ...]
    factor: float = 1.0
    mean: np.ndarray = field(default_factory=_make_zero_mean)
    scale: float = 1.0

    def __post_init__(self) -> None:
        *sides, channels = self.image_shape
        problems = []
        if any(n < min_size for n, min_size in zip(sides, self.input_size, strict=True)):
            problems.append(
                f"images of {_format_shape(sides)} are smaller than the input '{self.input_name}', "
                f"{_format_shape(self.input_size)}"
            )
        if not all(0 <= i < channels for i in self.channel_order):
            problems.append(
                f"channel order {self.channel_order} is out of range: images have channels 0 to {channels - 1}"
            )
        if any(
            n not in (1, expected)
            for n, expected in zip(self.mean.shape, (len(self.channel_order), *self.input_size), strict=True)
        ):
            expected = (len(self.channel_order), *self.input_size)
            problems.append(
                f"the mean has shape {_format_shape(self.mean.shape)}, but the input '{self.input_name}' has shape "
                f"{_format_shape(expected)}"
            )
        if problems:
            raise GraphError(problems)

    @property
    def corner(self) -> tuple[int, int]:
        """The row and column of the image at which the crop begins."""
        (height, width, _), (h, w) = self.image_shape, self.input_size
        return (height - h) // 2, (width - w) // 2

    def image_spec(self, blob: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        """Return the shape and dtype of the images for the net's input `blob`, whose batch size may be symbolic."""
        return jax.ShapeDtypeStruct((blob.shape[0], *self.image_shape), np.uint8)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Convert images, uint8 (N, H, W, C), to the net's input, float32 (N, C, h, w)."""
        (top, left), (h, w) = self.corner, self.input_size
        pixels = images[:, top : top + h, left : left + w].astype(jnp.float32).transpose(0, 3, 1, 2)
        if self.channel_order != tuple(range(pixels.shape[1])):
            pixels = jnp.stack([pixels[:, i] for i in self.channel_order], axis=1)
        return (pixels * np.float32(self.factor) - np.asarray(self.mean, np.float32)) * np.float32(self.scale)


def find_image_input(model: InferenceModel) -> str:
    """Return the name of the only input with four axes.

    Raises:
        GraphError: if not exactly one input has four axes.
    """
    candidates = [name for name, blob in model.inputs.items() if blob.ndim == 4]
    if len(candidates) != 1:
        shapes = ", ".join(f"{name} {_format_shape(blob.shape)}" for name, blob in model.inputs.items()) or "none"
        message = f"preprocessing needs exactly one input of four axes; the net's inputs are {shapes}"
        raise GraphError(Problem(message, model.net.graph.file))
    return candidates[0]


def caffe_channel_order(channels: int) -> tuple[int, ...]:
    """Return the order in which Caffe's tools store the channels of RGB images, as `Uint8Preprocessing.channel_order`.

    For three channels it is B, G, R, which is (2, 1, 0). Otherwise the channels keep their order.
    """
    return (2, 1, 0) if channels == 3 else tuple(range(channels))


def read_data_layer_preprocessing(
    net: Net, model: InferenceModel, image_size: Sequence[int] | None = None, channel_order: Sequence[int] | None = None
) -> Uint8Preprocessing:
    """Return the preprocessing that the transform_param of a data, MemoryData or Input layer defines in phase TEST.

    Args:
        net: the full net.
        model: the exported part of the net.
        image_size: (height, width) of the images. The default is the size of the mean image or, if there is none, of
            the input.
        channel_order: the channel order, see `Uint8Preprocessing`. The default is B, G, R, the order of Caffe's tools.

    Raises:
        GraphError: if the input is not a top of a layer with a transform_param, or if the images and the mean image
            differ in size.
        DataError: if the mean file is missing.
    """
    input_name = find_image_input(model)
    key = next(layer.key for layer in model.net.graph.layers if input_name in layer.tops)
    layer = net.graph.layer(key)
    normalize = layer.device_transform
    if normalize is None and layer.definition.layer.HasField("transform_param"):  # Caffe ignores that of Input
        normalize = Transform(layer.definition, CounterRng(0, layer.name)).device_transform
    if not isinstance(normalize, Normalize):
        message = f"computes '{input_name}' without a transform_param; use --preprocess=classify and its flags"
        raise GraphError(layer.make_problem(message))
    channels, *size = model.inputs[input_name].shape[1:]
    has_mean_image = normalize.mean.shape[1:] != (1, 1)
    height, width = image_size or (normalize.mean.shape[1:] if has_mean_image else size)
    channel_order = tuple(channel_order or caffe_channel_order(channels))
    preprocessing = Uint8Preprocessing(
        input_name, (height, width, channels), (size[0], size[1]), channel_order, scale=float(normalize.scale)
    )
    if not has_mean_image:
        return replace(preprocessing, mean=normalize.mean)
    if normalize.mean.shape[1:] != (height, width):
        sizes = f"{_format_shape(normalize.mean.shape[1:])}, not {height}x{width}"
        raise GraphError(layer.make_problem(f"images must have the size of its mean_file, {sizes}"))
    (top, left), (h, w) = preprocessing.corner, preprocessing.input_size
    return replace(preprocessing, mean=normalize.mean[:, top : top + h, left : left + w])


def _format_shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))

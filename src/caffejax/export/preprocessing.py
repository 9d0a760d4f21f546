"""From images as decoders give them to a net's input, as part of what is exported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from ..data.transform import Normalize
from ..errors import GraphError, Problem
from ..net import Net
from .inference_model import Subject


def _zero() -> np.ndarray:
    return np.zeros((1, 1, 1), np.float32)


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """What makes a net's input of images: the middle of each, (pixel * factor - mean) * scale.

    Attributes:
        blob: the input.
        image: height, width and channels of the images, which are uint8 (N, H, W, C), colours in the order R, G, B.
        size: height and width of the input.
        order: for each channel of the input the image's: (2, 1, 0) makes R, G, B to B, G, R.
        factor: what pixels are multiplied by first.
        mean: what is subtracted then: float32 (C, 1, 1), or (C, h, w) of the input's size.
        scale: what the difference is multiplied by.

    Raises:
        GraphError: naming all that does not fit.
    """

    blob: str
    image: tuple[int, int, int]
    size: tuple[int, int]
    order: tuple[int, ...]
    factor: float = 1.0
    mean: np.ndarray = field(default_factory=_zero)
    scale: float = 1.0

    def __post_init__(self) -> None:
        *sides, channels = self.image
        problems = []
        if any(n < least for n, least in zip(sides, self.size, strict=True)):
            problems.append(f"images of {_by(sides)} are smaller than the input '{self.blob}', {_by(self.size)}")
        if not all(0 <= i < channels for i in self.order):
            problems.append(f"images of {channels} channels have none of the numbers {self.order}, counted from 0")
        if any(n not in (1, whole) for n, whole in zip(self.mean.shape, (len(self.order), *self.size), strict=True)):
            whole = (len(self.order), *self.size)
            problems.append(f"the mean is {_by(self.mean.shape)}; the input '{self.blob}' is {_by(whole)}")
        if problems:
            raise GraphError(problems)

    @property
    def corner(self) -> tuple[int, int]:
        """The row and the column of the image where the input begins."""
        (height, width, _), (h, w) = self.image, self.size
        return (height - h) // 2, (width - w) // 2

    def images(self, blob: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        """Return what is taken in place of an input of this shape, whose first axis may be symbolic."""
        return jax.ShapeDtypeStruct((blob.shape[0], *self.image), np.uint8)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return the input, float32 (N, C, h, w)."""
        (top, left), (h, w) = self.corner, self.size
        pixels = images[:, top : top + h, left : left + w].astype(jnp.float32).transpose(0, 3, 1, 2)
        if self.order != tuple(range(pixels.shape[1])):
            pixels = jnp.stack([pixels[:, i] for i in self.order], axis=1)
        return (pixels * np.float32(self.factor) - np.asarray(self.mean, np.float32)) * np.float32(self.scale)


def image_input(subject: Subject) -> str:
    """Return the input that takes images: the only one with four axes.

    Raises:
        GraphError: if there is no such input, or more than one.
    """
    found = [name for name, blob in subject.inputs.items() if blob.ndim == 4]
    if len(found) != 1:
        shapes = ", ".join(f"{name} {_by(blob.shape)}" for name, blob in subject.inputs.items()) or "none"
        message = f"one input of four axes is needed for images to be preprocessed; the net's inputs are {shapes}"
        raise GraphError(Problem(message, subject.net.graph.file))
    return found[0]


def colour_order(channels: int) -> tuple[int, ...]:
    """Return the order that Caffe's tools leave channels in: B, G, R."""
    return (2, 1, 0) if channels == 3 else tuple(range(channels))


def of_data_layer(
    net: Net, subject: Subject, image: Sequence[int] | None = None, order: Sequence[int] | None = None
) -> Preprocessing:
    """Return what a net's data layer does in phase TEST, by its transform_param, to images that are not mirrored.

    Args:
        net: the whole net.
        subject: what is exported of it.
        image: height and width of the images; unless given those of the mean, if it is an image, or the input's.
        order: of the channels, see `Preprocessing`; unless given B, G, R, as Caffe's tools store images.

    Raises:
        GraphError: if no data layer with a transform_param feeds the input, or the images do not fit.
    """
    blob = image_input(subject)
    key = next(layer.key for layer in subject.net.graph.layers if blob in layer.tops)
    layer = net.graph.layer(key)
    finish = layer.look.finish if layer.look else None
    if not isinstance(finish, Normalize):
        message = f"makes '{blob}' and has no transform_param to export; say with other flags how images become it"
        raise GraphError(layer.problem(message))
    channels, *size = subject.inputs[blob].shape[1:]
    whole = finish.mean.shape[1:] != (1, 1)
    height, width = image or (finish.mean.shape[1:] if whole else size)
    order = tuple(order or colour_order(channels))
    made = Preprocessing(blob, (height, width, channels), (size[0], size[1]), order, scale=float(finish.scale))
    if not whole:
        return replace(made, mean=finish.mean)
    if finish.mean.shape[1:] != (height, width):
        sizes = f"{_by(finish.mean.shape[1:])}, not {height}x{width}"
        raise GraphError(layer.problem(f"images must be as large as its mean_file, {sizes}"))
    (top, left), (h, w) = made.corner, made.size
    return replace(made, mean=finish.mean[:, top : top + h, left : left + w])


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))

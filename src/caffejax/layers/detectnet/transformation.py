"""DetectNetTransformation: images of one size, augmented in TRAIN, and the grids of labels that go with them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context, Shape
from ..dtypes import promote
from ..no_gradient import no_gradient
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .augmentation import DRAWS, Augmentation, augmented, drawn, require_augmentation, turns
from .coverage import coverage_grid, objects_of, require_ground_truth
from .pictures import recoloured, rescaled, rotated

_NUMBERS = 16  # in a row of a label


def detectnet_transformation(ctx: Context, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Images (N x 3 x H x W) made `image_size_y` x `image_size_x`, and their grids of labels for DetectNet.

    A label is 1 + most rows of 16 numbers: how many objects there are; then for each x, y, width, height, angle, class,
    and what does not count. A grid has a cell for each `stride` pixels and 8 channels and more: foreground, box (4),
    1 / width, 1 / height, norm, and one for each class. In TRAIN the image is augmented and cropped, in TEST scaled.
    The mean value is subtracted.
    """
    truth, a = ctx.layer.detectnet_groundtruth_param, ctx.layer.detectnet_augmentation_param
    mean = _checked(ctx, images, labels)
    size = images.shape[2], images.shape[3]
    images, labels = promote(images), promote(labels).reshape(labels.shape[0], labels.shape[-2], _NUMBERS)
    out = truth.image_size_y, truth.image_size_x

    def tested(image: jax.Array, label: jax.Array) -> tuple[jax.Array, jax.Array]:
        as_it_is = Augmentation(0, 1, False, out, 0, (0, 0))
        objects = augmented(objects_of(label), as_it_is, size)
        image = image - mean
        return image if size == out else rescaled(image, out, (0, 0), out), coverage_grid(truth, objects)

    def trained(image: jax.Array, label: jax.Array, numbers: jax.Array) -> tuple[jax.Array, jax.Array]:
        chosen = drawn(truth, a, size, numbers)
        image = recoloured(image, chosen.hue, chosen.saturation) - mean
        image = jnp.where(chosen.flip, image[:, :, ::-1], image)
        if turns(a):
            image = rotated(rescaled(image, chosen.size, (0, 0), _largest(a, size)), chosen, out)
        else:
            image = rescaled(image, chosen.size, chosen.offset, out)
        return image, coverage_grid(truth, augmented(objects_of(label), chosen, size))

    if not ctx.training:
        return jax.vmap(tested)(images, labels)
    numbers = jax.random.uniform(ctx.key, (images.shape[0], DRAWS))
    return jax.vmap(trained)(images, labels, numbers)


register(
    LayerType(
        Signature("DetectNetTransformation", bottoms=2, tops=2, in_place=False),
        Traced(detectnet_transformation),
        Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True),
        LayerTraits(row_wise=True),
        docs=LayerDocs(
            origin="NVIDIA Caffe",
            restrictions="`mean_value` only, no `mean_file`; of transform_param nothing else counts, as in the fork.",
        ),
    )
)


def _checked(ctx: Context, images: Any, labels: Any) -> jax.Array:
    """Return the mean of each channel."""
    require_ground_truth(ctx.layer.detectnet_groundtruth_param)
    require_augmentation(ctx.layer.detectnet_augmentation_param)
    transform, shape = ctx.layer.transform_param, tuple(labels.shape)
    require(
        len(images.shape) == 4 and images.shape[1] == 3, f"images must be N x 3 x H x W, not of shape {images.shape}"
    )
    require(
        _are_labels(shape) and shape[0] == images.shape[0],
        f"labels must have rows of {_NUMBERS} numbers for each image, ({images.shape[0]}, 1, 1 + most, {_NUMBERS}), "
        f"not shape {shape}",
    )
    require(not transform.HasField("mean_file"), "transform_param: a mean_file is not supported here; use mean_value")
    means = list(transform.mean_value) or [0.0]
    require(len(means) in (1, 3), f"transform_param needs 1 or 3 mean_value, not {len(means)}")
    return jnp.asarray(means, jnp.float32).reshape(-1, 1, 1)


def _are_labels(shape: Any) -> bool:
    return len(shape) in (3, 4) and shape[-1] == _NUMBERS and shape[-2] > 0 and all(n == 1 for n in shape[1:-2])


def _largest(a: Any, size: Shape) -> tuple[int, int]:
    """Return height and width that no scaled image exceeds."""
    height, width = (int(n * max(1.0, a.scale_min, a.scale_max)) + 1 for n in size)
    return height, width

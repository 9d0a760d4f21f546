"""DetectNetTransformation, which resizes images to one size, augments them in TRAIN, and computes label grids."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.context import Context, Shape
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.schema.caffe_pb2 import DetectNetGroundTruthParameter

_MIN_AREA = 1.1920929e-07  # smaller areas count as 0
_DEFAULT_CLASS_MAP = {1: 0}


class Objects(NamedTuple):
    """The labelled objects of an image, in pixels.

    Attributes:
        corner: (M, 2), x and y of the top left corner.
        sides: (M, 2), width and height.
        classes: (M,), class numbers of the labels.
        valid: (M,), True for rows with an object. `valid[0]` is False, because row 0 of a label contains the number of
            objects.
    """

    corner: jax.Array
    sides: jax.Array
    classes: jax.Array
    valid: jax.Array


def read_objects(label: jax.Array) -> Objects:
    """Return the objects in the label of one image, (1 + M, 16). Row 0 begins with the number of objects."""
    row = jnp.arange(label.shape[0])
    return Objects(label[:, :2], label[:, 2:4], label[:, 5].astype(jnp.int32), (row >= 1) & (row <= label[0, 0]))


def grid_size(p: Any) -> tuple[int, int]:
    """Return the number of rows and the number of columns of the label grid."""
    return round(p.image_size_y / p.stride), round(p.image_size_x / p.stride)


def require_ground_truth(p: Any) -> None:
    """Raise `LayerError` unless stride, image size and scale_cvg are positive and the grid has cells."""
    size_text = f"stride {p.stride}, image_size_x {p.image_size_x} and image_size_y {p.image_size_y}"
    require(min(p.stride, p.image_size_x, p.image_size_y) > 0, f"{size_text} must be above 0")
    require(min(grid_size(p)) > 0, f"{size_text} give a grid without cells")
    require(p.scale_cvg > 0, f"scale_cvg must be above 0, not {p.scale_cvg:g}")


def make_coverage_grid(p: Any, objects: Objects) -> jax.Array:
    """Return the label grid (8 + classes, rows, columns) of one image.

    The channels are foreground (1), corners of the box in pixels relative to the corner of the cell (4), 1 / width and
    1 / height of the box (2), norm (1), and the one-hot class. norm is the area of a cell over the area of the object's
    region; if obj_norm is false, norm is at least 1. If several objects cover a cell, the last of these objects is
    used. Cells without an object are 0.
    """
    class_map = {mapping.src: mapping.dst for mapping in p.object_class} or _DEFAULT_CLASS_MAP
    objects, channel = _crop_objects(p, objects), jnp.full_like(objects.classes, -1)
    for source, target in class_map.items():
        channel = jnp.where(objects.classes == source, target, channel)
    corner, sides = objects.corner, objects.sides
    valid = objects.valid & (channel >= 0) & (sides[:, 0] * sides[:, 1] >= _MIN_AREA)
    region_sizes = _compute_region_sizes(p, sides)
    x, y = (jnp.arange(n, dtype=corner.dtype) * p.stride for n in grid_size(p)[::-1])
    low, high = corner + sides * 0.5 - region_sizes * 0.5, corner + sides * 0.5 + region_sizes * 0.5
    overlap_area = (
        _overlap_lengths(low[:, 1], high[:, 1], y, p.stride)[:, :, None]
        * _overlap_lengths(low[:, 0], high[:, 0], x, p.stride)[:, None]
    )
    is_covered = (overlap_area / p.stride**2 > _MIN_AREA) & valid[:, None, None]
    last_object = jnp.max(
        jnp.where(is_covered, jnp.arange(len(valid))[:, None, None], 0), axis=0
    )  # row 0 does not hold an object

    safe_sides, area = jnp.where(valid[:, None], sides, 1), jnp.where(valid, region_sizes[:, 0] * region_sizes[:, 1], 1)
    norm = jnp.maximum(0.0 if p.obj_norm else 1.0, p.stride**2 / area)
    one_hot = channel[:, None] == jnp.arange(max(class_map.values()) + 1)
    columns = [
        jnp.ones_like(norm)[:, None],
        corner,
        corner + sides,
        1 / safe_sides,
        norm[:, None],
        one_hot.astype(corner.dtype),
    ]
    cell_values = jnp.concatenate(columns, axis=1)[last_object]
    cell_origins = jnp.stack(jnp.broadcast_arrays(x, y[:, None]), axis=-1)
    cell_values = cell_values.at[:, :, 1:5].add(-jnp.tile(cell_origins, 2))
    return jnp.moveaxis(jnp.where((last_object > 0)[:, :, None], cell_values, 0), -1, 0)


def _crop_objects(p: Any, objects: Objects) -> Objects:
    """Return the objects, cropped to the image if crop_bboxes is true. Objects beyond the image get sides of 0."""
    if not p.crop_bboxes:
        return objects
    size = jnp.asarray([p.image_size_x, p.image_size_y], objects.corner.dtype)
    corner = jnp.maximum(objects.corner, 0)
    sides = jnp.minimum(objects.corner + objects.sides, size) - corner
    return objects._replace(corner=corner, sides=jnp.where(jnp.all(sides > 0, axis=1, keepdims=True), sides, 0))


def _compute_region_sizes(p: Any, sides: jax.Array) -> jax.Array:
    """Return the size of the central region of each object, (M, 2), as (width, height) in pixels.

    Only cells that the region covers are labelled. `sides`, (M, 2), are the sizes of the objects in pixels.
    """
    region_sizes = sides * p.scale_cvg
    if p.gridbox_type == DetectNetGroundTruthParameter.GRIDBOX_MIN:
        return jnp.minimum(sides, jnp.maximum(p.min_cvg_len, region_sizes))
    return jnp.minimum(p.max_cvg_len, region_sizes)


def _overlap_lengths(low: jax.Array, high: jax.Array, start: jax.Array, stride: int) -> jax.Array:
    """Return the length that each region shares with each cell along an axis, in pixels, (regions, cells).

    Args:
        low, high: (regions,), the ends of the regions.
        start: (cells,), the start of each cell.
        stride: the size of a cell.
    """
    return jnp.maximum(jnp.minimum(high[:, None], start + stride) - jnp.maximum(low[:, None], start), 0)


NUM_UNIFORMS = 12  # the number of uniform random values that the augmentation of an image uses


class DetectNetAugmentation(NamedTuple):
    """The augmentation of one image: changes of colors, flip, scale, rotation and crop, applied in this order.

    Attributes:
        hue: degrees that are added to the hue.
        saturation: the factor by which the saturation is multiplied.
        flip: whether to flip the image from left to right.
        size: height and width to which the image is scaled.
        angle: the rotation in radians.
        offset: y and x of the crop, which may extend beyond the image.
    """

    hue: Any
    saturation: Any
    flip: Any
    size: Any
    angle: Any
    offset: Any


def require_augmentation(a: Any) -> None:
    """Raise `LayerError` if settings of the augmentation are invalid or not supported."""
    require(
        min(a.scale_min, a.scale_max) > 0, f"scale_min {a.scale_min:g} and scale_max {a.scale_max:g} must be above 0"
    )
    for field, _ in a.ListFields():
        require(
            field.message_type is None,
            f"detectnet_augmentation_param: {field.name} is not supported; remove it",
        )


def has_rotation(a: Any) -> bool:
    """Return whether the settings of the augmentation allow rotations."""
    return bool(a.rotation_prob > 0 and a.max_rotate_degree != 0)


def sample_augmentation(truth: Any, a: Any, size: tuple[int, int], uniforms: jax.Array) -> DetectNetAugmentation:
    """Return a random augmentation of one image.

    Args:
        truth: the DetectNetGroundTruthParameter, which contains the size of the augmented image.
        a: the DetectNetAugmentationParameter.
        size: height and width of the image.
        uniforms: (NUM_UNIFORMS,), uniform in [0, 1).
    """
    values = iter(uniforms)

    def choose(probability: float, value: Any, otherwise: Any) -> Any:
        return jnp.where(next(values) < probability, value, otherwise)

    hue = choose(a.hue_rotation_prob, jnp.clip((2 * next(values) - 1) * a.hue_rotation, -180, 180), 0)
    saturation = choose(a.desaturation_prob, 1 - next(values) * a.desaturation_max, 1)
    flip = choose(a.flip_prob, True, False)
    original_size = jnp.asarray(size)
    scaled_size = _round_half_away(original_size * (a.scale_min + (a.scale_max - a.scale_min) * next(values)))
    new_size = jnp.maximum(choose(a.scale_prob, scaled_size, original_size), 1)
    angle = (
        jnp.deg2rad(choose(a.rotation_prob, (2 * next(values) - 1) * a.max_rotate_degree, 0)) if has_rotation(a) else 0
    )
    position, shift = jnp.stack([next(values), next(values)]), jnp.asarray([a.shift_y, a.shift_x])
    is_random = next(values) < a.crop_prob
    position, shift = jnp.where(is_random, position, 0.5), jnp.where(is_random, shift, 0)
    rotated_size = rotated_extent(new_size, angle)[1] if has_rotation(a) else new_size
    target_size = jnp.asarray([truth.image_size_y, truth.image_size_x])
    offset = _round_half_away(position * (rotated_size - target_size + shift) - shift // 2)
    return DetectNetAugmentation(hue, saturation, flip, new_size, angle, offset)


def augment_objects(objects: Objects, augmentation: DetectNetAugmentation, size: tuple[int, int]) -> Objects:
    """Return the objects of an image at their positions in the augmented image.

    Args:
        objects: the objects at their positions in the image.
        augmentation: the augmentation.
        size: (height, width) of the image before augmentation.
    """
    corner, sides = objects.corner, objects.sides
    flipped_corner = corner.at[:, 0].set(size[1] - corner[:, 0] - sides[:, 0] - 1)
    corner = jnp.where(augmentation.flip, flipped_corner, corner)
    scale = _swap_xy(augmentation.size).astype(corner.dtype) / jnp.asarray(size[::-1], corner.dtype)
    corner, sides = corner * scale, sides * scale
    image_center, rotated_corner = (
        _swap_xy(augmentation.size) / 2,
        _swap_xy(rotated_extent(augmentation.size, augmentation.angle)[0]),
    )
    relative_center = corner + sides / 2 - image_center
    rotation_shift = rotate_points(relative_center, augmentation.angle) - relative_center - rotated_corner
    corner = corner + jnp.where(augmentation.angle == 0, 0, rotation_shift) - _swap_xy(augmentation.offset)
    return objects._replace(corner=corner.astype(sides.dtype), sides=sides)


def rotate_points(points: jax.Array, angle: Any) -> jax.Array:
    """Return points (x, y), (..., 2), rotated around the origin by an angle in radians.

    A positive angle rotates clockwise, because y points down.
    """
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    x, y = points[..., 0], points[..., 1]
    return jnp.stack([x * cos - y * sin, x * sin + y * cos], axis=-1)


def rotated_extent(size: Any, angle: Any) -> tuple[jax.Array, jax.Array]:
    """Return the first pixel (y, x) and the size (height, width) of the bounding box of a rotated image.

    If the angle is 0, they are (0, 0) and `size`.

    Args:
        size: (height, width) of the image before the rotation.
        angle: the rotation in radians.
    """
    size = jnp.asarray(size)
    cos, sin = jnp.abs(jnp.cos(angle)), jnp.abs(jnp.sin(angle))
    half_size = (size * cos + size[::-1] * sin) / 2
    low, high = jnp.floor(size / 2 - half_size), jnp.ceil(size / 2 + half_size)
    is_unrotated = jnp.asarray(angle == 0)
    return jnp.where(is_unrotated, 0, low).astype(size.dtype), jnp.where(is_unrotated, size, high - low + 1).astype(
        size.dtype
    )


def _swap_xy(pair: Any) -> jax.Array:
    return jnp.asarray(pair)[::-1]


def _round_half_away(x: jax.Array) -> jax.Array:
    return (jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)).astype(jnp.int32)


_CUBIC_PARAMETER = -0.75  # OpenCV's parameter of the family of cubic kernels
_EPSILON = 1.1920929e-07


def shift_colors(image: jax.Array, hue: Any, saturation: Any) -> jax.Array:
    """Return an image, (3, H, W) in the order B, G, R, with a changed hue and saturation.

    If both changes are negligible, the image is returned unchanged.

    Args:
        image: the image.
        hue: degrees that are added to the hue.
        saturation: the factor by which the saturation is multiplied.
    """
    saturation = jnp.where(saturation < 1 - 1 / 255, saturation, 1)
    blue, green, red = image
    value = jnp.max(image, axis=0)
    range_ = value - jnp.min(image, axis=0)
    safe_range = jnp.where(range_ > 0, range_, 1)
    sector = jnp.where(
        value == red,
        (green - blue) / safe_range,
        jnp.where(value == green, 2 + (blue - red) / safe_range, 4 + (red - green) / safe_range),
    )

    def compute_channel(sextant_offset: int) -> jax.Array:
        sextant = (sextant_offset + sector + hue / 60) % 6
        return value - range_ * saturation * jnp.clip(jnp.minimum(sextant, 4 - sextant), 0, 1)

    shifted_image = jnp.stack([compute_channel(1), compute_channel(3), compute_channel(5)]).astype(image.dtype)
    return jnp.where((jnp.abs(hue) > _EPSILON) | (saturation < 1), shifted_image, image)


def rescale(image: jax.Array, size: Any, offset: Any, out_size: tuple[int, int]) -> jax.Array:
    """Scale an image by bicubic interpolation, and return a window of it, (C, *out_size), with 0 outside the image.

    Only the window is computed.

    Args:
        image: the image before scaling, (C, H, W).
        size: height and width to which the image is scaled; may be traced.
        offset: y and x of the window.
        out_size: height and width of the window.
    """
    for axis, n in ((1, out_size[0]), (2, out_size[1])):
        indices, weights = _cubic_cells_and_weights(image.shape[axis], size[axis - 1], offset[axis - 1], n)
        weight_shape = (n, 1) if axis == 1 else (n,)
        products = (
            jnp.take(image, indices[:, k], axis=axis) * weights[:, k].reshape(weight_shape).astype(image.dtype)
            for k in range(4)
        )
        image = sum(products, start=jnp.zeros((), image.dtype))
    return image


def rotate(image: jax.Array, augmentation: DetectNetAugmentation, out_size: tuple[int, int]) -> jax.Array:
    """Rotate a scaled image by bilinear interpolation, and return its crop, (C, *out_size), with 0 outside the image.

    Args:
        image: the scaled image, (C, H, W). It may be larger than `augmentation.size`; pixels beyond that size are
            ignored.
        augmentation: the augmentation, which contains the angle and the offset of the crop.
        out_size: height and width of the crop.
    """
    size = jnp.asarray(augmentation.size)
    y, x = jnp.mgrid[: out_size[0], : out_size[1]]
    low, extent = rotated_extent(size, augmentation.angle)
    position = jnp.stack([y, x], axis=-1) + jnp.asarray(augmentation.offset)
    is_inside = jnp.all((position >= 0) & (position < extent), axis=-1)
    source = rotate_points((position + low - size / 2)[..., ::-1], -augmentation.angle)[..., ::-1] + size / 2
    first_cell = jnp.floor(source).astype(jnp.int32)
    fraction = (source - first_cell).astype(image.dtype)
    last_cell = size - jnp.where(
        augmentation.angle == 0, 1, 2
    )  # after a rotation, pixels on the border have no neighbour
    is_inside &= jnp.all((first_cell >= 0) & (first_cell <= last_cell), axis=-1)
    result = jnp.zeros((), image.dtype)
    for shift in (0, 0), (0, 1), (1, 0), (1, 1):
        cell = jnp.clip(first_cell + jnp.asarray(shift), 0, size - 1)
        weight = jnp.prod(jnp.where(jnp.asarray(shift) == 1, fraction, 1 - fraction), axis=-1)
        result = result + image[:, cell[..., 0], cell[..., 1]] * jnp.where(is_inside, weight, 0)
    return result


def _cubic_cells_and_weights(length: int, size: Any, offset: Any, num_positions: int) -> tuple[jax.Array, jax.Array]:
    """Return the cells that bicubic interpolation along an axis reads for each position, and their weights.

    Args:
        length: the length of the axis.
        size: the length to which the axis is scaled.
        offset: the first position in the scaled axis.
        num_positions: the number of positions.

    Returns:
        The indices and the weights of four cells for each position, (num_positions, 4) each. Weights are 0 for
        positions outside the scaled axis.
    """
    position = jnp.arange(num_positions) + offset
    is_inside = (position >= 0) & (position < size)
    numerator = (
        2 * jnp.clip(position, 0, size - 1) + 1
    ) * length - size  # the source position times 2 * size, exact in integers
    first_cell = numerator // (2 * size)
    fraction = (numerator - first_cell * 2 * size) / (2 * size)
    outer_weight, inner_weight = (_cubic_outer(1 + fraction), _cubic_inner(fraction))
    next_inner_weight = _cubic_inner(1 - fraction)
    weights = jnp.stack(
        [outer_weight, inner_weight, next_inner_weight, 1 - outer_weight - inner_weight - next_inner_weight], axis=1
    )
    indices = jnp.clip(first_cell[:, None] + jnp.arange(-1, 3), 0, length - 1)
    return indices, jnp.where(is_inside[:, None], weights, 0)


def _cubic_outer(x: jax.Array) -> jax.Array:
    return ((_CUBIC_PARAMETER * x - 5 * _CUBIC_PARAMETER) * x + 8 * _CUBIC_PARAMETER) * x - 4 * _CUBIC_PARAMETER


def _cubic_inner(x: jax.Array) -> jax.Array:
    return ((_CUBIC_PARAMETER + 2) * x - (_CUBIC_PARAMETER + 3)) * x * x + 1


_LABEL_VALUES = 16  # values in a row of a label


@register(
    "DetectNetTransformation",
    bottoms=2,
    tops=2,
    further_params=("detectnet_groundtruth_param", "detectnet_augmentation_param"),
    in_place=False,
    stops_gradient=True,
    row_wise=True,
    origin="NVIDIA Caffe",
    restrictions="`mean_file` is not supported; other fields of transform_param than `mean_value` are ignored.",
)
def detectnet_transformation(images: jax.Array, labels: jax.Array, *, ctx: Context) -> tuple[jax.Array, jax.Array]:
    """Resize images to one size, augment them in TRAIN, and compute a label grid for each image.

    Bottoms: images (N, 3, H, W), and labels (N, 1, 1 + M, 16). The tops are the images, (N, 3, image_size_y,
    image_size_x), and the label grids, (N, 8 + classes, rows, columns). Row 0 of a label begins with the number of
    objects. Each further row contains x, y, width, height, angle and class of an object; the other values are ignored.
    The grid has a cell for each `stride` pixels. Its channels are foreground (1), corners of the box relative to the
    cell (4), 1 / width and 1 / height (2), norm (1), and the one-hot class. In TRAIN, images are augmented and cropped.
    In TEST, they are scaled. The mean value is subtracted in both phases.
    """
    truth, a = ctx.layer.detectnet_groundtruth_param, ctx.layer.detectnet_augmentation_param
    mean = _check_and_read_mean(ctx, images, labels)
    size = images.shape[2], images.shape[3]
    images, labels = promote(images), promote(labels).reshape(labels.shape[0], labels.shape[-2], _LABEL_VALUES)
    out_size = truth.image_size_y, truth.image_size_x

    def transform_in_test(image: jax.Array, label: jax.Array) -> tuple[jax.Array, jax.Array]:
        scaling = DetectNetAugmentation(0, 1, False, out_size, 0, (0, 0))
        objects = augment_objects(read_objects(label), scaling, size)
        image = image - mean
        return image if size == out_size else rescale(image, out_size, (0, 0), out_size), make_coverage_grid(
            truth, objects
        )

    def transform_in_train(image: jax.Array, label: jax.Array, uniforms: jax.Array) -> tuple[jax.Array, jax.Array]:
        augmentation = sample_augmentation(truth, a, size, uniforms)
        image = shift_colors(image, augmentation.hue, augmentation.saturation) - mean
        image = jnp.where(augmentation.flip, image[:, :, ::-1], image)
        if has_rotation(a):
            image = rotate(rescale(image, augmentation.size, (0, 0), _max_scaled_size(a, size)), augmentation, out_size)
        else:
            image = rescale(image, augmentation.size, augmentation.offset, out_size)
        return image, make_coverage_grid(truth, augment_objects(read_objects(label), augmentation, size))

    if not ctx.training:
        return jax.vmap(transform_in_test)(images, labels)
    uniforms = jax.random.uniform(ctx.key, (images.shape[0], NUM_UNIFORMS))
    return jax.vmap(transform_in_train)(images, labels, uniforms)


def _check_and_read_mean(ctx: Context, images: Any, labels: Any) -> jax.Array:
    """Return the mean of each channel, (1 or 3, 1, 1), after checking that the bottoms and settings are valid."""
    require_ground_truth(ctx.layer.detectnet_groundtruth_param)
    require_augmentation(ctx.layer.detectnet_augmentation_param)
    transform, shape = ctx.layer.transform_param, tuple(labels.shape)
    require(len(images.shape) == 4 and images.shape[1] == 3, f"images must be N x 3 x H x W, not {images.shape}")
    require(
        _is_label_shape(shape) and shape[0] == images.shape[0],
        f"labels must have rows of {_LABEL_VALUES} values for each image, "
        f"({images.shape[0]}, 1, 1 + objects, {_LABEL_VALUES}), "
        f"not shape {shape}",
    )
    require(not transform.HasField("mean_file"), "transform_param: mean_file is not supported; set mean_value")
    means = list(transform.mean_value) or [0.0]
    require(len(means) in (1, 3), f"transform_param needs 1 or 3 mean_value, not {len(means)}")
    return jnp.asarray(means, jnp.float32).reshape(-1, 1, 1)


def _is_label_shape(shape: Any) -> bool:
    return len(shape) in (3, 4) and shape[-1] == _LABEL_VALUES and shape[-2] > 0 and all(n == 1 for n in shape[1:-2])


def _max_scaled_size(a: Any, size: Shape) -> tuple[int, int]:
    """Return an upper bound of the height and width of scaled images, for images of height and width `size`."""
    height, width = (int(n * max(1.0, a.scale_min, a.scale_max)) + 1 for n in size)
    return height, width

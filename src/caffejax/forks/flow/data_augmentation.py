"""DataAugmentation, GenerateAugmentationParameters and FlowAugmentation, which vary pairs of images and their flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers.context import Context, Params, ParamSpec, Phase, Shape
from ...core.layers.cross_replica import pmean
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.schema.caffe_pb2 import AugmentationParameter
from .augmentation import (
    COEFFICIENTS,
    GENERATORS,
    Geometry,
    apply_effects,
    change_colors,
    change_colors_along_axes,
    check_settings,
    draw_rows,
    draws_any,
    drop_small_changes,
    invert,
    make_matrices,
    map_positions,
    sample_images,
    schedule_factor,
    unpack,
)

Arrays = tuple[jax.Array, ...]


@register(
    "DataAugmentation",
    bottoms=(1, 2),
    tops=(1, 2),
    param="augmentation_param",
    further_params=("coeff_schedule_param",),
    in_place=False,
    stateful=True,
    stops_gradient=True,
    blob_names=("iterations", "pixel_mean", "channel_mean"),
    origin="FlowNet 2",
    restrictions="Fog and motion blur have no effect, as in the fork; write_augmented and write_mean write nothing.",
)
def data_augmentation(p: AugmentationParameter, x: jax.Array, *given: jax.Array, state: Params, ctx: Context) -> Any:
    """Cut out and vary images (N, C, H, W), and subtract a mean.

    Without crop_width and crop_height the images are not varied. Otherwise a part of this size is sampled bilinearly,
    at the center of the image if nothing is drawn, and its colors are changed. The coefficients (N, 42, 1, 1) of the
    changes are a second bottom, or drawn by the settings in TRAIN (in TEST with augment_during_test). A second top
    holds them. Spreads are multiplied by a factor that goes from initial_coeff to final_coeff of coeff_schedule_param.

    With recompute_mean n the mean of the images is an average over the first n passes, in TEST, too: a mean for each
    pixel, or with `mean_per_pixel: false` for each channel. Without it, three values of `mean` are subtracted from the
    channels with `mean_per_pixel: false`. Blobs: the number of passes (1, 1, 1, 1); with recompute_mean the mean of
    each pixel (1, C, height, width) and of each channel (1, C, 1, 1). They are loaded from files of other sizes, too.
    """
    num_passes = jnp.floor(promote(state["iterations"])) + 1
    geometry = _crop_geometry(p, x)
    images = promote(x)
    rows = given[0] if given else jnp.zeros((x.shape[0], len(COEFFICIENTS), 1, 1), jnp.float32)
    if geometry is not None:
        if not given and _draws(p, ctx.phase):
            factor = schedule_factor(ctx.layer.coeff_schedule_param, num_passes.reshape(()))
            rows = draw_rows(p, jax.random.fold_in(ctx.key, 0), factor, geometry, rows.reshape(rows.shape[0], -1))
        images = _vary(ctx, images, rows, geometry)
    new_state = [num_passes]
    if p.recompute_mean:
        batch_mean = pmean(ctx, jnp.mean(images, axis=0, keepdims=True))
        updates = num_passes <= p.recompute_mean
        pixel_mean, channel_mean = (promote(state[name]) for name in ("pixel_mean", "channel_mean"))
        pixel_mean = jnp.where(updates, (pixel_mean * (num_passes - 1) + batch_mean) / num_passes, pixel_mean)
        channel_mean = jnp.where(updates, jnp.mean(pixel_mean, axis=(2, 3), keepdims=True), channel_mean)
        images = images - (pixel_mean if p.mean_per_pixel else channel_mean)
        new_state += [pixel_mean, channel_mean]
    elif len(p.mean) == 3 and not p.mean_per_pixel:
        images = images - np.array(p.mean, np.float32)[:, None, None]
    tops = (images.astype(x.dtype), rows.reshape(rows.shape[0], -1, 1, 1))
    cast_state = tuple(new.astype(old.dtype) for new, old in zip(new_state, state.values(), strict=True))
    return tops if ctx.num_tops == 2 else tops[0], cast_state


@data_augmentation.params
def data_augmentation_params(p: AugmentationParameter, x: Any, *given: Any) -> list[ParamSpec]:
    geometry = _crop_geometry(p, x)
    channels = x.shape[1]
    require(
        channels == 3 or p.recompute_mean or len(p.mean) != 3 or p.mean_per_pixel,
        f"3 values of `mean` need images of 3 channels, not {channels}",
    )
    shapes: dict[str, Shape] = {"iterations": (1, 1, 1, 1)}
    if p.recompute_mean:
        size = tuple(x.shape[2:]) if geometry is None else geometry.crop
        shapes |= {"pixel_mean": (1, channels, *size), "channel_mean": (1, channels, 1, 1)}
    return [ParamSpec(shape, learnable=False, name=name) for name, shape in shapes.items()]


@data_augmentation.check
def check_data_augmentation(p: AugmentationParameter) -> None:
    check_settings(p, ("mode", "bottomwidth", "bottomheight"))
    n = len(p.chromatic_eigvec)
    require(n in (0, 9), f"chromatic_eigvec must have 9 values, the rows of a 3 x 3 matrix, not {n}")


@data_augmentation.convert_stored
def convert_stored_augmentation(
    p: AugmentationParameter, blobs: Sequence[Any], *, shapes: Sequence[Shape]
) -> tuple[Sequence[Any], str | None]:
    """Return the blobs that a file stores, for images of the net's size: the mean of each pixel is the channel's."""
    if not p.recompute_mean:
        return blobs[:1], None
    if len(blobs) != 3 or any(b is None for b in blobs) or np.shape(blobs[1]) == tuple(shapes[1]):
        return blobs, None
    iterations, pixel_mean, channel_mean = blobs
    if pixel_mean.ndim != 4 or pixel_mean.shape[1] != shapes[1][1] or channel_mean.size != shapes[1][1]:
        return blobs, None
    mean = pixel_mean.mean(axis=(2, 3), keepdims=True) if p.mean_per_pixel else channel_mean.reshape(shapes[2])
    return (iterations, np.broadcast_to(mean, shapes[1]), mean), None


def _draws(p: AugmentationParameter, phase: Phase) -> bool:
    return (p.augment_during_test or phase == "TRAIN") and draws_any(p)


def _crop_geometry(p: AugmentationParameter, x: Any) -> Geometry | None:
    """Return the sizes of the images and of the part to cut out, or None if nothing is cut out."""
    require(len(x.shape) == 4, f"needs images with 4 axes (num, channels, height, width), not {x.shape}")
    if not (p.HasField("crop_width") and p.HasField("crop_height")):
        return None
    size, crop = tuple(x.shape[2:]), (p.crop_height, p.crop_width)
    require(
        all(1 < c <= n for c, n in zip(crop, size, strict=True)),
        f"crop_height {crop[0]} and crop_width {crop[1]} must be at least 2 and at most the image's {size}",
    )
    return Geometry(size, crop)


def _vary(ctx: Context, images: jax.Array, rows: jax.Array, geometry: Geometry) -> jax.Array:
    p = ctx.param
    coefficients = drop_small_changes(unpack(rows))
    x = sample_images(images, make_matrices(coefficients, geometry), geometry.crop)
    if images.shape[1] != 3:  # the fork changes the colors of three channels only, and ends where others need it
        return x
    if len(p.chromatic_eigvec):
        axes = np.reshape(p.chromatic_eigvec, (3, 3))
        x = change_colors_along_axes(ctx, x, images, coefficients, axes, p.max_multiplier)
    x = change_colors(x, coefficients, p.max_multiplier)
    key = None if ctx.fold_in_args is None else jax.random.fold_in(ctx.key, 1)
    return apply_effects(x, coefficients, key, p.max_multiplier)


_SETTINGS_OF_IMAGES = ("max_multiplier", "recompute_mean", "mean_per_pixel", "mean", "chromatic_eigvec")


@register(
    "GenerateAugmentationParameters",
    bottoms=(1, 3),
    param="augmentation_param",
    further_params=("coeff_schedule_param",),
    in_place=False,
    stateful=True,
    stops_gradient=True,
    unsupported={"shard": "each device would draw for all rows"},
    origin="FlowNet 2",
)
def generate_augmentation_parameters(
    p: AugmentationParameter, *bottoms: jax.Array, state: Params, ctx: Context
) -> tuple[jax.Array, Arrays]:
    """Draw coefficients of augmentation, (N, 42, 1, 1), for DataAugmentation and FlowAugmentation.

    Bottoms: coefficients, whole images and cut-out images; or only one: images, or coefficients of images whose sizes
    are crop_width, crop_height, bottomwidth and bottomheight. `mode` "add" adds to given coefficients, "replace"
    replaces what is drawn, "regenerate", which is always used with images alone, ignores given ones. In TEST nothing is
    drawn without augment_during_test.
    """
    num_passes = promote(state["iterations"]) + 1
    has_given_rows = _parameter_mode(p, bottoms[0]) != "regenerate"
    n = bottoms[0].shape[0]
    rows = promote(bottoms[0]).reshape(n, -1) if has_given_rows else jnp.zeros((n, len(COEFFICIENTS)), jnp.float32)
    if _draws(p, ctx.phase):
        factor = schedule_factor(ctx.layer.coeff_schedule_param, num_passes.reshape(()))
        keeps_colors = _parameter_mode(p, bottoms[0]) == "add"
        geometry = _parameter_geometry(p, *bottoms)
        rows = draw_rows(p, ctx.key, factor, geometry, rows, keeps_given_colors=keeps_colors)
    return rows.reshape(n, -1, 1, 1), (num_passes.astype(state["iterations"].dtype),)


@generate_augmentation_parameters.params
def generate_augmentation_parameters_params(p: AugmentationParameter, *bottoms: Any) -> list[ParamSpec]:
    require(len(bottoms) != 2, "needs 1 bottom, or 3 (coefficients, images, cut-out images), but has 2")
    for i, b in enumerate(bottoms):
        require(len(b.shape) == 4, f"bottom {i} needs 4 axes (num, channels, height, width), not {b.shape}")
    _parameter_geometry(p, *bottoms)
    if _parameter_mode(p, bottoms[0]) != "regenerate":
        require(
            tuple(bottoms[0].shape[1:]) == (len(COEFFICIENTS), 1, 1),
            f"needs {len(COEFFICIENTS)} augmentation coefficients for each image, not shape {bottoms[0].shape}",
        )
    return [ParamSpec((1,), learnable=False, persistent=False, name="iterations")]


@generate_augmentation_parameters.check
def check_generate_augmentation_parameters(p: AugmentationParameter) -> None:
    check_settings(p, _SETTINGS_OF_IMAGES)
    require(
        p.mode in ("add", "replace", "regenerate"), f"mode must be 'add', 'replace' or 'regenerate', not '{p.mode}'"
    )


def _parameter_mode(p: AugmentationParameter, x: Any) -> str:
    return "regenerate" if max(x.shape[2:]) > 1 else str(p.mode)


def _parameter_geometry(p: AugmentationParameter, *bottoms: Any) -> Geometry:
    if len(bottoms) == 3:
        return Geometry(tuple(bottoms[1].shape[2:]), tuple(bottoms[2].shape[2:]))
    require(
        p.crop_width > 1 and p.crop_height > 1, "with one bottom crop_width and crop_height must be set, to 2 or more"
    )
    size = tuple(bottoms[0].shape[2:])
    if max(size) <= 1:
        size = (p.bottomheight, p.bottomwidth)
        require(min(size) > 0, "coefficients as the only bottom need bottomwidth and bottomheight, the images' size")
    return Geometry(size, (p.crop_height, p.crop_width))


@register(
    "FlowAugmentation",
    bottoms=3,
    param="augmentation_param",
    in_place=False,
    stops_gradient=True,
    row_wise=True,
    origin="FlowNet 2",
)
def flow_augmentation(
    p: AugmentationParameter, flow: jax.Array, first_rows: jax.Array, second_rows: jax.Array
) -> jax.Array:
    """Change a flow (N, 2, H, W) as DataAugmentation changed both images; return (N, 2, crop_height, crop_width).

    The other bottoms are the coefficients (N, 42, 1, 1) of the first and the second image. A pixel of the top is
    followed to the first image, along the flow of the nearest pixel there, and back from the second image.
    """
    require(len(flow.shape) == 4 and flow.shape[1] == 2, f"needs a flow (num, 2, height, width), not {flow.shape}")
    require(
        p.crop_width > 0 and p.crop_height > 0,
        f"crop_width and crop_height must be positive, not {p.crop_width} and {p.crop_height}",
    )
    n, _, height, width = flow.shape
    geometry = Geometry((height, width), (p.crop_height, p.crop_width))
    first, second = (make_matrices(unpack(rows), geometry) for rows in (first_rows, second_rows))
    x, y = map_positions(first, geometry.crop)
    column, row = (
        jnp.clip(jnp.trunc(v + 0.5), 0, limit - 1).astype(jnp.int32) for v, limit in ((x, width), (y, height))
    )
    index = (row * width + column).reshape(n, 1, -1)
    moved = jnp.take_along_axis(promote(flow).reshape(n, 2, -1), index, axis=2, mode="clip")
    moved_x, moved_y = x + moved[:, 0].reshape(x.shape), y + moved[:, 1].reshape(y.shape)
    t = invert(second)[:, :, :, None, None]
    rows, columns = np.arange(p.crop_height, dtype=np.float32)[:, None], np.arange(p.crop_width, dtype=np.float32)
    new_x = t[:, 0, 0] * moved_x + t[:, 0, 1] * moved_y + t[:, 0, 2] - columns
    new_y = t[:, 1, 0] * moved_x + t[:, 1, 1] * moved_y + t[:, 1, 2] - rows
    return jnp.stack([new_x, new_y], axis=1).astype(flow.dtype)


@flow_augmentation.check
def check_flow_augmentation(p: AugmentationParameter) -> None:
    others = ("augment_during_test", "mode", "bottomwidth", "bottomheight")
    check_settings(p, (*_SETTINGS_OF_IMAGES, *GENERATORS, *others))

"""Coefficients of FlowNet 2's augmentation, their random draw, and the changes of positions and colors they describe.

A blob of coefficients, (N, 42, 1, 1), has a row for each image, in the order of `COEFFICIENTS`. A coefficient that is 0
where nothing is changed is stored as it is, one that is 1 there by its logarithm, so a row of zeros changes nothing and
rows are combined by adding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers.context import Context, Shape
from ...core.layers.cross_replica import pmean
from ...core.schema.caffe_pb2 import AugmentationCoeff, CoeffScheduleParameter

_SPATIAL = ("mirror", "dx", "dy", "angle", "zoom_x", "zoom_y")
_CHROMATIC = ("gamma", "brightness", "contrast", "color1", "color2", "color3")
_EIGEN = (
    *(f"{kind}_{part}{k}" for part in ("nomean", "withmean") for kind in ("pow", "add", "mult") for k in range(3)),
    *("lmult_pow", "lmult_add", "lmult_mult", "col_angle"),
)
_EFFECT = (
    *("fog_amount", "fog_size", "motion_blur_angle", "motion_blur_size"),
    *("shadow_angle", "shadow_distance", "shadow_strength", "noise"),
)
COEFFICIENTS = (*_SPATIAL, *_CHROMATIC, *_EIGEN, *_EFFECT)
_DEFAULTS = {name: float(getattr(AugmentationCoeff(), name)) for name in COEFFICIENTS}

_MAX_TRIES = 50
_DECAY = 1.0986  # as in the fork: ln 3, so half of the change is made after half_life passes

# the settings that draw coefficients, and the coefficients that they draw, of each group
_SPATIAL_SETTINGS = ("mirror", "rotate", "zoom", "translate", "squeeze", "translate_x", "translate_y")
_DRAWN: Mapping[str, tuple[tuple[str, ...], ...]] = {  # each coefficient of a tuple gets the same number
    "gamma": (("gamma",),),
    "brightness": (("brightness",),),
    "contrast": (("contrast",),),
    "color": (("color1",), ("color2",), ("color3",)),
    "ladd_pow": (("pow_nomean0",),),
    "col_pow": (("pow_nomean1",), ("pow_nomean2",)),
    "ladd_add": (("add_nomean0",),),
    "col_add": (("add_nomean1",), ("add_nomean2",)),
    "ladd_mult": (("mult_nomean0",),),
    "col_mult": (("mult_nomean1",), ("mult_nomean2",)),
    "sat_pow": (("pow_withmean1", "pow_withmean2"),),
    "sat_add": (("add_withmean1", "add_withmean2"),),
    "sat_mult": (("mult_withmean1", "mult_withmean2"),),
    "lmult_pow": (("lmult_pow",),),
    "lmult_mult": (("lmult_mult",),),
    "lmult_add": (("lmult_add",),),
    "col_rotate": (("col_angle",),),
    "noise": (("noise",),),
}
_EFFECT_SETTINGS = (  # if one of a group is set, all of them are drawn
    ("fog_amount", "fog_size"),
    ("motion_blur_angle", "motion_blur_size"),
    ("shadow_angle", "shadow_distance", "shadow_strength"),
)
_RAND_TYPES = ("uniform", "gaussian", "bernoulli", "uniform_bernoulli", "gaussian_bernoulli")

Coefficients = dict[str, jax.Array]


class Geometry(NamedTuple):
    """The sizes, (height, width), of an image and of the part of it that is cut out."""

    image: Shape
    crop: Shape


def unpack(rows: jax.Array) -> Coefficients:
    """Return each coefficient, (N,), of a blob of coefficients."""
    columns = rows.reshape(rows.shape[0], -1)
    require(
        columns.shape[1] == len(COEFFICIENTS),
        f"needs {len(COEFFICIENTS)} augmentation coefficients for each image, not a blob of shape {rows.shape}",
    )
    return {name: jnp.exp(columns[:, i]) if _DEFAULTS[name] else columns[:, i] for i, name in enumerate(COEFFICIENTS)}


def pack(coefficients: Coefficients, n: int) -> jax.Array:
    """Return n rows, (n, 42); coefficients that are not given have no effect."""
    zeros = jnp.zeros(n, jnp.float32)
    columns = {name: jnp.log(c) if _DEFAULTS[name] else c for name, c in coefficients.items()}
    return jnp.stack([columns.get(name, zeros).astype(jnp.float32) for name in COEFFICIENTS], axis=1)


def drop_small_changes(coefficients: Coefficients) -> Coefficients:
    """Replace coefficients that differ by less than 0.001 from those that change nothing."""
    return {
        name: jnp.where(jnp.abs(c - _DEFAULTS[name]) < 1e-3, _DEFAULTS[name], c) for name, c in coefficients.items()
    }


def schedule_factor(schedule: CoeffScheduleParameter, num_passes: Any) -> Any:
    """Return the factor of all spreads in a pass, where `num_passes` counts this pass, too."""
    require(schedule.half_life > 0, f"coeff_schedule_param.half_life must be positive, not {schedule.half_life:g}")
    progress = 2 / (1 + jnp.exp(-_DECAY * num_passes / schedule.half_life)) - 1
    return schedule.initial_coeff + (schedule.final_coeff - schedule.initial_coeff) * progress


def check_settings(p: Any, unused: Collection[str]) -> None:
    """Raise `LayerError` if an AugmentationParameter sets fields in `unused`, or a generator of an unknown type."""
    fields = [(f, v) for f, v in p.ListFields() if f.is_repeated or f.message_type or v != f.default_value]
    unused_fields = ", ".join(f.name for f, _ in fields if f.name in unused)
    require(not unused_fields, f"augmentation_param: {unused_fields} would have no effect; remove it")
    for field, value in fields:
        if field.message_type is not None and field.message_type.name == "RandomGeneratorParameter":
            require(
                value.rand_type in _RAND_TYPES,
                f"{field.name}.rand_type must be one of {', '.join(_RAND_TYPES)}, not '{value.rand_type}'",
            )


GENERATORS = (*_SPATIAL_SETTINGS, *_DRAWN, *(name for group in _EFFECT_SETTINGS for name in group))


def draws_spatial(p: Any) -> bool:
    """Return whether an AugmentationParameter has settings that draw changes of positions."""
    return any(p.HasField(name) for name in _SPATIAL_SETTINGS)


def draws_any(p: Any) -> bool:
    """Return whether an AugmentationParameter has settings that draw coefficients."""
    return any(p.HasField(name) for name in GENERATORS)


def draw_rows(
    p: Any, key: jax.Array, factor: Any, geometry: Geometry, given_rows: jax.Array, *, keeps_given_colors: bool = True
) -> jax.Array:
    """Draw coefficients, and add them to given ones, (N, 42).

    Changes of positions are drawn again, up to 49 times, until all corners of the cut-out part are inside the image;
    then given ones are kept. With `keeps_given_colors=False` drawn colors and effects replace the given ones.
    """
    spatial_key, other_key = jax.random.split(key)
    n, rows = given_rows.shape[0], given_rows
    if draws_spatial(p):
        tries = (_MAX_TRIES - 1) * n
        drawn_rows = pack(_draw_spatial(p, spatial_key, factor, tries), tries).reshape(_MAX_TRIES - 1, n, -1)
        candidates = drawn_rows + given_rows
        is_valid = jax.vmap(lambda rows: _is_inside(unpack(rows), geometry))(candidates)
        first = jnp.take_along_axis(candidates, jnp.argmax(is_valid, axis=0)[None, :, None], axis=0)[0]
        rows = jnp.where(jnp.any(is_valid, axis=0)[:, None], first, given_rows)
    drawn = _draw_others(p, other_key, factor, n)
    if not drawn:
        return rows
    if not keeps_given_colors:
        rows = rows * np.array([name not in drawn for name in COEFFICIENTS], np.float32)
    return rows + pack(drawn, n)


def _draw_spatial(p: Any, key: jax.Array, factor: Any, n: int) -> Coefficients:
    keys = dict(
        zip((*_SPATIAL_SETTINGS, "translate_dy"), jax.random.split(key, len(_SPATIAL_SETTINGS) + 1), strict=True)
    )
    result: Coefficients = {}

    def draw(setting: str, default: float, key_name: str = "") -> jax.Array:
        return _draw(getattr(p, setting), keys[key_name or setting], factor, n, default)

    if p.HasField("mirror"):
        result["mirror"] = (_draw(p.mirror, keys["mirror"], 1.0, n, 0.0) != 0).astype(jnp.float32)
    if p.HasField("translate"):
        result |= {"dx": draw("translate", 0.0), "dy": draw("translate", 0.0, "translate_dy")}
    result |= {f"d{axis}": draw(f"translate_{axis}", 0.0) for axis in "xy" if p.HasField(f"translate_{axis}")}
    if p.HasField("rotate"):
        result["angle"] = draw("rotate", 0.0)
    if p.HasField("zoom"):
        result["zoom_x"] = result["zoom_y"] = draw("zoom", 1.0)
    if p.HasField("squeeze"):
        squeeze, one = draw("squeeze", 1.0), jnp.ones(n)
        result |= {
            "zoom_x": result.get("zoom_x", one) * squeeze,
            "zoom_y": result.get("zoom_y", one) / squeeze,
        }
    return result


def _draw_others(p: Any, key: jax.Array, factor: Any, n: int) -> Coefficients:
    result: Coefficients = {}
    draws: list[tuple[str, tuple[str, ...], float | None]] = [
        (setting, names, None) for setting, groups in _DRAWN.items() if p.HasField(setting) for names in groups
    ]
    for group in _EFFECT_SETTINGS:
        if any(p.HasField(name) for name in group):
            draws += [(name, (name,), 0.0) for name in group]
    for i, (setting, names, default) in enumerate(draws):
        values = _draw(getattr(p, setting), jax.random.fold_in(key, i), factor, n, default)
        result |= dict.fromkeys(names, values)
    return result


def _draw(p: Any, key: jax.Array, factor: Any, n: int, default: float | None) -> jax.Array:
    """Draw n numbers by a RandomGeneratorParameter.

    Where a generator with a probability draws nothing, the result is `default`; if this is None, it is the number that
    0 gives.
    """
    value_key, choice_key = jax.random.split(key)
    spread = p.spread * (factor if p.apply_schedule else 1)
    distribution, _, is_choice = p.rand_type.partition("_")
    is_chosen = jax.random.bernoulli(choice_key, min(max(p.prob, 0.0), 1.0), (n,))
    if distribution == "bernoulli":
        return p.multiplier * is_chosen.astype(jnp.float32)
    if distribution == "uniform":
        noise = jax.random.uniform(value_key, (n,), minval=-1, maxval=1)
    else:
        noise = jax.random.normal(value_key, (n,))
    values = p.mean + jnp.maximum(spread, 0) * noise
    if is_choice:
        values = jnp.where(is_chosen, values, 0)
    values = jnp.exp(values) if p.exp else values
    values = p.multiplier * (_round_away_from_zero(values) if p.discretize else values)
    return jnp.where(is_chosen, values, default) if is_choice and default is not None else values


def _round_away_from_zero(x: jax.Array) -> jax.Array:
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)


def _is_inside(coefficients: Coefficients, geometry: Geometry) -> jax.Array:
    matrices = make_matrices(coefficients, geometry)
    height, width = geometry.crop
    corners = np.array([[0, width - 1, 0, width - 1], [0, 0, height - 1, height - 1], [1] * 4], np.float32)
    positions = jnp.floor(jnp.einsum("nij,jk->nik", matrices, corners, precision="highest"))
    limits = np.array(geometry.image[::-1], np.float32)[:, None] - 2
    return jnp.all((positions >= 0) & (positions <= limits), axis=(1, 2))


def make_matrices(coefficients: Coefficients, geometry: Geometry) -> jax.Array:
    """Return the matrices, (N, 2, 3), that give the (x, y) in the image of (x, y, 1) in the cut-out part."""
    c = coefficients
    (height, width), (image_height, image_width) = geometry.crop, geometry.image
    sign = jnp.where(c["mirror"] != 0, -1.0, 1.0)
    cos, sin = jnp.cos(c["angle"]), jnp.sin(c["angle"])
    center_x, center_y = -0.5 * width * sign, -0.5 * height
    rows = (
        (cos * sign, -sin, cos * center_x - sin * center_y + c["dx"] * width, c["zoom_x"], image_width),
        (sin * sign, cos, sin * center_x + cos * center_y + c["dy"] * height, c["zoom_y"], image_height),
    )
    return jnp.stack([jnp.stack([a / z, b / z, d / z + 0.5 * size], axis=1) for a, b, d, z, size in rows], axis=1)


def invert(matrices: jax.Array) -> jax.Array:
    """Return the matrices, (N, 2, 3), of the inverse changes of positions."""
    (a, c, e), (b, d, f) = (jnp.moveaxis(matrices[:, i], 1, 0) for i in range(2))
    determinant = a * d - b * c
    rows = (d, -c, c * f - d * e), (-b, a, b * e - a * f)
    return jnp.stack([jnp.stack([v / determinant for v in row], axis=1) for row in rows], axis=1)


def map_positions(matrices: jax.Array, size: Shape) -> tuple[jax.Array, jax.Array]:
    """Return x and y, (N, height, width) each, that the matrices give for all pixels of a plane of this size."""
    y, x = np.meshgrid(*(np.arange(n, dtype=np.float32) for n in size), indexing="ij")
    t = matrices[:, :, :, None, None]
    return t[:, 0, 0] * x + t[:, 0, 1] * y + t[:, 0, 2], t[:, 1, 0] * x + t[:, 1, 1] * y + t[:, 1, 2]


def sample_images(images: jax.Array, matrices: jax.Array, size: Shape) -> jax.Array:
    """Sample images (N, C, H, W) bilinearly at the positions of a plane of this size; return (N, C, *size).

    Positions are limited to [0, W - 1.05] and [0, H - 1.05], as in the fork.
    """
    n, channels, height, width = images.shape
    x, y = map_positions(matrices, size)
    x, y = (jnp.clip(v, 0, limit - 1.05) for v, limit in ((x, width), (y, height)))
    left, above = jnp.floor(x), jnp.floor(y)
    plane = images.reshape(n, channels, -1)

    def read(rows: jax.Array, columns: jax.Array) -> jax.Array:
        index = (rows * width + columns).astype(jnp.int32).reshape(n, 1, -1)
        values = jnp.take_along_axis(plane, index, axis=2, mode="clip")
        return values.reshape(n, channels, *size)

    dx, dy = (x - left)[:, None], (y - above)[:, None]
    right, below = jnp.minimum(left + 1, width - 1), jnp.minimum(above + 1, height - 1)
    upper = (1 - dx) * read(above, left) + dx * read(above, right)
    lower = (1 - dx) * read(below, left) + dx * read(below, right)
    return (1 - dy) * upper + dy * lower


def change_colors(x: jax.Array, coefficients: Coefficients, max_value: float) -> jax.Array:
    """Change color, gamma, brightness and contrast of (N, 3, H, W), if an image of the batch needs a change.

    Colors are from 0 to 1; results are limited to `max_value`.
    """
    c = {name: a[:, None, None, None] for name, a in coefficients.items()}
    colored = x * jnp.concatenate([c["color1"], c["color2"], c["color3"]], axis=1)
    brightness = jnp.sum(x, axis=1, keepdims=True) / (jnp.sum(colored, axis=1, keepdims=True) + 0.01)
    y = jnp.clip(colored * brightness, 0, 1) ** c["gamma"] + c["brightness"]
    y = jnp.clip(0.5 + (y - 0.5) * c["contrast"], 0, max_value)
    return jnp.where(_is_changed(coefficients, _CHROMATIC), y, x)


def change_colors_along_axes(
    ctx: Context, x: jax.Array, images: jax.Array, coefficients: Coefficients, axes: Any, max_value: float
) -> jax.Array:
    """Change (N, 3, H, W) along the principal axes of colors, if an image of the batch needs a change.

    Args:
        ctx: the layer's context.
        x: the images to change.
        images: the whole images of the batch, from which the range of colors along the axes is taken.
        coefficients: (N,) each.
        axes: (3, 3), a principal axis in each row.
        max_value: the largest result.
    """
    matrix = jnp.asarray(np.asarray(axes, np.float32))
    extent = jnp.max(jnp.abs(jnp.einsum("ac,nchw->anhw", matrix, images, precision="highest")), axis=(1, 2, 3))
    extent = extent if ctx.axis_name is None else jax.lax.pmax(extent, ctx.axis_name)
    mean_color = pmean(ctx, jnp.mean(images, axis=(0, 2, 3)))
    has_extent = extent > 1e-2
    divisor = jnp.where(has_extent, extent, 1)
    mean = matrix @ mean_color / divisor
    largest = jnp.sqrt(jnp.sum(extent**2))
    c = {name: a[:, None, None] for name, a in coefficients.items()}

    def change(value: jax.Array, part: str, k: int) -> jax.Array:
        return (_signed_power(value, c[f"pow_{part}{k}"]) + c[f"add_{part}{k}"]) * c[f"mult_{part}{k}"]

    parts = jnp.einsum("ac,nchw->anhw", matrix, x - mean_color[:, None, None], precision="highest")
    a = [jnp.where(has_extent[k], change(parts[k] / divisor[k], "nomean", k), parts[k]) + mean[k] for k in range(3)]
    a[0] = jnp.where(has_extent[0], change(a[0], "withmean", 0), a[0])
    saturation = jnp.hypot(a[1], a[2])
    is_saturated = saturation > 1e-2
    raised = _power(saturation, c["pow_withmean1"], is_saturated)
    new_saturation = jnp.maximum(raised + c["add_withmean1"], 0) * c["mult_withmean1"]
    cos, sin = jnp.cos(c["col_angle"]), jnp.sin(c["col_angle"])
    a[1], a[2] = cos * a[1] - sin * a[2], sin * a[1] + cos * a[2]
    a = [v * divisor[k] for k, v in enumerate(a)]
    length = jnp.sqrt(sum(v**2 for v in a)) / jnp.where(largest > 1e-2, largest, 1)
    scale = jnp.where(is_saturated, new_saturation / jnp.where(is_saturated, saturation, 1), 1)
    a[1], a[2] = a[1] * scale, a[2] * scale
    old_length = jnp.sqrt(sum(v**2 for v in a))
    raised_length = jnp.power(length, c["lmult_pow"])
    new_length = jnp.maximum(raised_length + c["lmult_add"], 0) * c["lmult_mult"] * largest
    has_length = (largest > 1e-2) & (old_length > 1e-2)
    factor = new_length / jnp.where(has_length, old_length, 1)
    a = [jnp.where(has_length, jnp.minimum(v * factor, extent[k]), v) for k, v in enumerate(a)]
    y = jnp.clip(jnp.einsum("ac,anhw->nchw", matrix, jnp.stack(a), precision="highest"), 0, max_value)
    return jnp.where(_is_changed(coefficients, _EIGEN), y, x)


def apply_effects(x: jax.Array, coefficients: Coefficients, key: jax.Array | None, max_value: float) -> jax.Array:
    """Darken the side of a shadow of (N, C, H, W) and add noise, if an image of the batch needs it."""
    c = {name: a[:, None, None, None] for name, a in coefficients.items()}
    height, width = x.shape[2:]
    columns, rows = np.arange(width) - width // 2, np.arange(height)[:, None] - height // 2
    distance = columns * jnp.cos(c["shadow_angle"]) + rows * jnp.sin(c["shadow_angle"]) - c["shadow_distance"]
    y = jnp.clip(jnp.where(distance > 0, x - c["shadow_strength"], x), 0, max_value)
    if key is not None:
        y = y + jnp.maximum(c["noise"], 0) * jax.random.normal(key, y.shape)
    is_foggy = (coefficients["fog_amount"] != 0) & (coefficients["fog_size"] != 0)
    others = [coefficients[name] > 0 for name in ("motion_blur_size", "shadow_strength", "noise")]
    return jnp.where(jnp.any(jnp.stack([is_foggy, *others])), y, x)


def _is_changed(coefficients: Coefficients, names: tuple[str, ...]) -> jax.Array:
    return jnp.any(jnp.stack([coefficients[name] != _DEFAULTS[name] for name in names]))


def _power(base: jax.Array, exponent: jax.Array, is_used: jax.Array) -> jax.Array:
    return jnp.where(is_used, jnp.power(jnp.where(is_used, base, 1), exponent), base)


def _signed_power(x: jax.Array, exponent: jax.Array) -> jax.Array:
    return jnp.copysign(jnp.power(jnp.abs(x), exponent), x)

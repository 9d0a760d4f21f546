"""PriorBox: the boxes that detections start from, some at each cell of a map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import require
from ..context import Context, Shape
from ..registry import register
from ..types import Facts, Gradient, LayerType, Signature, Traced

_OTHERS = ("faceboxes", "box_width", "box_height", "tf", "yx_order", "keras")  # settings of other forks
_FLOAT = np.float32


def prior_box(ctx: Context, x: jax.Array, image: jax.Array) -> jax.Array:
    """Boxes around each cell of the first bottom, as parts of the second, and their variances: (1, 2, boxes * 4).

    For each cell, row by row, and each min_size: the square of that size, that of the geometric mean of it and its
    max_size, then one for each aspect_ratio and its flip. Sizes are cut to whole pixels.
    """
    return priors(ctx.param, lambda: box_sizes(ctx.param), x, image)


register(
    LayerType(
        Signature("PriorBox", bottoms=2, param="prior_box_param", in_place=False),
        Traced(prior_box),
        Gradient(exists=False),
        Facts(
            by_shapes=True,
            integers=True,
            origin="SSD",
            restrictions="Settings of other forks are refused, such as faceboxes.",
        ),
    )
)


def priors(p: Any, sizes: Callable[[], Sequence[tuple[float, float]]], x: jax.Array, image: jax.Array) -> jax.Array:
    """Return boxes around each cell of a map, and their variances, as a top (1, 2, boxes * 4).

    Args:
        p: the PriorBoxParameter.
        sizes: gives the boxes' widths and heights in pixels.
        x: the map.
        image: of which the boxes are parts.

    Raises:
        LayerError: if bottoms or settings make no sense.
    """
    for name, shape in (("bottom 0", x.shape), ("bottom 1", image.shape)):
        require(len(shape) == 4, f"{name} must have 4 axes (num, channels, height, width), not shape {shape}")
    boxes = _boxes(p, np.asarray(sizes(), _FLOAT), tuple(x.shape[2:]), tuple(image.shape[2:]))
    if p.clip:
        boxes = np.clip(boxes, 0, 1)
    variances = np.broadcast_to(_variances(p), boxes.shape)
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.float32
    return jnp.asarray(np.stack([boxes.ravel(), variances.ravel()])[None], dtype)


def _boxes(p: Any, sides: np.ndarray, cells: Shape, image: Shape) -> np.ndarray:
    """Return the boxes, (height, width, boxes of a cell, 4), in float32 as the forks compute them."""
    size = _size(p, image)
    step = _step(p, tuple(_FLOAT(a) / _FLOAT(b) for a, b in zip(size, cells, strict=True)))
    height, width = ((np.arange(n, dtype=_FLOAT) + _FLOAT(p.offset)) * s for n, s in zip(cells, step, strict=True))
    centers = np.stack(np.broadcast_arrays(width[None, :], height[:, None]), axis=-1)[:, :, None]
    scale = np.asarray(size[::-1], _FLOAT)
    return np.concatenate([(centers - sides / 2) / scale, (centers + sides / 2) / scale], axis=-1)


def box_sizes(p: Any) -> list[tuple[float, float]]:
    """Return width and height of each box of a cell, in pixels.

    Raises:
        LayerError: for sizes that make no sense.
    """
    if unknown := [name for name in _OTHERS if (getattr(p, name) if name[:3] != "box" else len(getattr(p, name)))]:
        require(False, f"prior_box_param: {', '.join(unknown)} of another fork is not supported")
    require(len(p.min_size) > 0, "prior_box_param needs a min_size")
    require(all(s >= 1 for s in p.min_size), f"min_size must be at least 1 pixel: {list(p.min_size)}")
    require(
        len(p.max_size) in (0, len(p.min_size)),
        f"max_size must be given for each min_size or not at all: {len(p.max_size)} for {len(p.min_size)}",
    )
    require(
        all(a < b for a, b in zip(p.min_size, p.max_size, strict=False)),
        f"each max_size must be more than its min_size: {list(p.min_size)}, {list(p.max_size)}",
    )
    ratios = [ratio for ratio in aspect_ratios(p) if abs(ratio - 1) >= 1e-6]
    sizes: list[tuple[float, float]] = []
    for i, size in enumerate(map(int, p.min_size)):
        sizes.append((size, size))
        if p.max_size:
            sizes.append((np.sqrt(size * int(p.max_size[i])),) * 2)
        sizes += [(size * np.sqrt(ratio), size / np.sqrt(ratio)) for ratio in ratios]
    return sizes


def aspect_ratios(p: Any) -> list[float]:
    """Return 1 and each ratio that is new, with its flip after it."""
    require(all(ratio > 0 for ratio in p.aspect_ratio), f"aspect_ratio must be positive: {list(p.aspect_ratio)}")
    ratios = [1.0]
    for ratio in p.aspect_ratio:
        if all(abs(ratio - known) >= 1e-6 for known in ratios):
            ratios += [ratio, 1 / ratio] if p.flip else [ratio]
    return ratios


def _variances(p: Any) -> np.ndarray:
    given = list(p.variance) or [0.1]
    require(len(given) in (1, 4), f"variance must be given once or 4 times, not {len(given)} times")
    require(all(v > 0 for v in given), f"variance must be positive: {given}")
    return np.asarray(given, _FLOAT)


def _size(p: Any, image: Shape) -> Shape:
    """Return the image's height and width: img_size, or img_h and img_w, or the bottom's."""
    either = p.HasField("img_h") or p.HasField("img_w")
    require(not (either and p.HasField("img_size")), "give either img_size or img_h and img_w, not both")
    if not either and not p.HasField("img_size"):
        return image
    size = (p.img_h, p.img_w) if either else (p.img_size, p.img_size)
    require(all(n > 0 for n in size), f"img_size, or img_h and img_w, must be positive: {size}")
    return size


def _step(p: Any, otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how far cells are apart: step, or step_h and step_w, or as the sizes say."""
    either = p.HasField("step_h") or p.HasField("step_w")
    require(not (either and p.HasField("step")), "give either step or step_h and step_w, not both")
    if not either and not p.HasField("step"):
        return otherwise
    step = (p.step_h, p.step_w) if either else (p.step, p.step)
    require(all(s > 0 for s in step), f"step, or step_h and step_w, must be positive: {step}")
    return tuple(map(_FLOAT, step))

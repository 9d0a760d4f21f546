"""PriorBox and PriorBoxClustered, which compute default boxes around each cell of a feature map."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers.context import Shape
from ...core.layers.declaration import declare, register
from ...core.layers.dtype_policy import promote
from ...core.layers.types import LayerType, Traced, Variants
from ...core.ops.host_constant import host_constant
from ...core.ops.implementations import register_forms
from ...core.schema.caffe_pb2 import PriorBoxParameter

_UNSUPPORTED_SETTINGS = ("box_width", "box_height", "tf", "yx_order", "keras")  # settings of other forks
_FLOAT = np.float32
_DENSE_SQUARES = {32: (4, 8.0), 64: (2, 16.0)}  # FaceBoxes: {min_size: (squares per row, distance in pixels)}


def prior_box(p: PriorBoxParameter, x: jax.Array, image: jax.Array) -> jax.Array:
    """Compute default boxes around each cell of a feature map, and their variances.

    Bottoms: the map and the image, both (N, C, H, W). Only their shapes are read. The top, (1, 2, boxes * 4), contains
    the boxes, then the variances. Boxes are x1, y1, x2, y2 as fractions of the image, cell by cell in row-major order.
    For each min_size, a cell has a square of this size. With max_size, it also has a square with the geometric mean of
    both sizes. For each aspect_ratio (and its inverse with `flip`), it has a box with the area of the first square.
    Sizes are truncated to integer pixels.

    OpenCV's offset_h and offset_w give one or two centers in the cell, and each box is repeated at each of them.
    TextBoxes (denser_prior_boxes) repeats each box around the lower border of the cell. FaceBoxes (faceboxes) has 4 x 4
    squares of size 32, at offsets of -16, -8, 0 and 8 pixels from the center of the cell, and 2 x 2 squares of size 64,
    at offsets of -16 and 0 pixels. Its squares are 1 pixel smaller.
    """
    return make_priors(p, lambda: cell_boxes(p), x, image)


def prior_box_top_shapes(p: PriorBoxParameter, x: Any, image: Any) -> list[Shape] | None:
    return [_PriorGrid(p, cell_boxes(p), x, image).shape]


def select_prior_box(layer: Any) -> str:
    p = layer.prior_box_param
    return "TextBoxes" if p.denser_prior_boxes else "FaceBoxes" if p.faceboxes else "SSD"


def resolve_prior_box(layer: Any, shapes: Any, layers: Sequence[Any], siblings: Sequence[Any]) -> Any:
    """Set denser_prior_boxes or faceboxes if only that variant fits the convolutions that read the same map.

    These convolutions predict 4 locations and num_classes scores for each box of a cell. A variant is set only if their
    num_output matches the number of its boxes, but not the number of SSD's boxes.

    Returns:
        The layer.
    """
    p = layer.prior_box_param
    convolutions = [sibling.convolution_param for sibling in siblings if sibling.type == "Convolution"]
    output_counts = {convolution.num_output for convolution in convolutions}
    param_pairs = [(net_layer.detection_output_param, net_layer.multibox_loss_param) for net_layer in layers]
    num_classes = next((param.num_classes for pair in param_pairs for param in pair if param.num_classes), 0)

    def matches_outputs() -> bool:
        n = len(_read_offsets(p)) * len(cell_boxes(p))
        return {4 * n, num_classes * n} <= output_counts

    if num_classes and select_prior_box(layer) == "SSD" and not (p.offset_h or p.offset_w or matches_outputs()):
        for name in ("denser_prior_boxes", "faceboxes"):
            setattr(p, name, True)
            if matches_outputs():
                break
            p.ClearField(name)
    return layer


def _make_variant(origin: str) -> LayerType:
    return declare(
        "PriorBox",
        Traced(prior_box, top_shapes=prior_box_top_shapes),
        bottoms=2,
        param="prior_box_param",
        in_place=False,
        fork_settings=("denser_prior_boxes", "offset_h", "offset_w"),
        differentiable=False,
        depends_only_on_shapes=True,
        accepts_integers=True,
        origin=origin,
        restrictions="Settings of other forks are refused, such as box_width.",
    ).type


register(
    "PriorBox",
    Variants(
        select_prior_box,
        {origin: _make_variant(origin) for origin in ("SSD", "TextBoxes", "FaceBoxes")},
        selection_doc="With denser_prior_boxes it is TextBoxes', with faceboxes it is FaceBoxes'. Without these "
        "settings, it is the variant whose boxes match the num_output of sibling Convolutions, which is 4 and "
        "num_classes for each box of a cell. If several variants match, SSD's is used.",
        resolve=resolve_prior_box,
    ),
    bottoms=2,
    param="prior_box_param",
    in_place=False,
    origin="SSD, TextBoxes, FaceBoxes",
)


def make_priors(p: Any, make_boxes: Callable[[], Sequence[CellBox]], x: jax.Array, image: jax.Array) -> jax.Array:
    """Return boxes around each cell of a map, then their variances, as a top (1, 2, boxes * 4).

    Args:
        p: the PriorBoxParameter.
        make_boxes: a function that returns the boxes of a cell in pixels.
        x: the map (N, C, H, W).
        image: the image (N, C, H, W); the boxes are fractions of its height and width.

    Raises:
        LayerError: if bottoms or settings are invalid.
    """
    grid = _PriorGrid(p, make_boxes(), x, image)
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.float32
    if isinstance(x, np.ndarray):
        return grid.compute_top().astype(dtype)
    return host_constant(grid.compute_top, grid.shape, dtype)


class _PriorGrid:
    """The prior boxes of a map, defined by the arguments of `make_priors`; `shape` is the shape of the top."""

    def __init__(self, p: Any, boxes: Sequence[CellBox], x: Any, image: Any) -> None:
        for name, shape in (("bottom 0", x.shape), ("bottom 1", image.shape)):
            require(len(shape) == 4, f"{name} must have 4 axes (num, channels, height, width), not shape {shape}")
        self._p, self._map_size = p, tuple(x.shape[2:])
        self._size = _read_height_and_width(p, "img_size", ("img_h", "img_w"), tuple(image.shape[2:]))
        steps = tuple(_FLOAT(a) / _FLOAT(b) for a, b in zip(self._size, self._map_size, strict=True))
        self._step = tuple(map(_FLOAT, _read_height_and_width(p, "step", ("step_h", "step_w"), steps)))  # pixels
        self._boxes, self._variances = np.asarray(boxes, _FLOAT), _read_variances(p)
        self.shape = 1, 2, math.prod(self._map_size) * len(boxes) * len(_read_offsets(p)) * 4

    def compute_top(self) -> np.ndarray:
        """Return the boxes, then their variances, (1, 2, boxes * 4)."""
        corners = _compute_corners(self._p, self._boxes, self._map_size, self._size, self._step)
        if self._p.clip:
            corners = np.clip(corners, 0, 1)
        return np.stack([corners.ravel(), np.broadcast_to(self._variances, corners.shape).ravel()])[None]


def _compute_corners(p: Any, boxes: np.ndarray, map_size: Shape, size: Shape, step: Sequence[Any]) -> np.ndarray:
    """Return the corners (x1, y1, x2, y2) of the boxes as fractions of the image, (height, width, boxes of a cell, 4).

    They are computed in float32, as in the forks.

    Args:
        p: the PriorBoxParameter.
        boxes: (boxes of a cell, 4), rows of `CellBox`.
        map_size: height and width of the map.
        size: height and width of the image in pixels.
        step: the distances between cells along height and width, in pixels.
    """
    offsets = np.asarray(_read_offsets(p), _FLOAT)
    sides, shifts = (np.repeat(columns, len(offsets), axis=0) for columns in (boxes[:, :2], boxes[:, 2:]))
    cells = np.stack(np.meshgrid(*map(np.arange, map_size), indexing="ij"), axis=-1).astype(_FLOAT)
    centers = ((cells[:, :, None] + offsets) * np.asarray(step, _FLOAT))[..., ::-1]
    centers = np.tile(centers, (1, 1, len(boxes), 1)) + shifts
    scale = np.asarray(size[::-1], _FLOAT)
    return np.concatenate([(centers - sides / 2) / scale, (centers + sides / 2) / scale], axis=-1)


def _read_offsets(p: Any) -> list[tuple[float, float]]:
    """Return the places (along height, along width) of the centers in a cell, at which each box is repeated."""
    heights, widths = p.offset_h, p.offset_w
    if not (heights or widths):
        return [(p.offset, p.offset), (1.0, p.offset)][: 1 + p.denser_prior_boxes]
    others = [name for name in ("offset", "denser_prior_boxes", "faceboxes") if p.HasField(name)]
    require(not others, f"offset_h and offset_w contradict {', '.join(others)}; remove either")
    n, m = len(heights), len(widths)
    require(n == m <= 2, f"needs one or two pairs of offset_h and offset_w, not {n} and {m}")
    return list(zip(heights, widths, strict=True))


class CellBox(NamedTuple):
    """A box of a cell: its width, its height, and the offset of its center from the center of the cell, in pixels."""

    width: float
    height: float
    dx: float = 0.0
    dy: float = 0.0


def cell_boxes(p: Any) -> list[CellBox]:
    """Return the boxes of a cell, in pixels, that min_size, max_size and the aspect ratios define.

    Raises:
        LayerError: if sizes are invalid.
    """
    _refuse_unsupported(p, _UNSUPPORTED_SETTINGS)
    require(len(p.min_size) > 0, "prior_box_param needs a min_size")
    require(all(s >= 1 for s in p.min_size), f"min_size must be at least 1 pixel: {list(p.min_size)}")
    require(
        len(p.max_size) in (0, len(p.min_size)),
        f"max_size must be set for each min_size or not at all, but there are {len(p.max_size)} max_size for "
        f"{len(p.min_size)} min_size",
    )
    require(
        all(a < b for a, b in zip(p.min_size, p.max_size, strict=False)),
        f"each max_size must be more than its min_size, but min_size is {list(p.min_size)} and "
        f"max_size is {list(p.max_size)}",
    )
    ratios = [ratio for ratio in read_aspect_ratios(p) if abs(ratio - 1) >= 1e-6]
    boxes: list[CellBox] = []
    for i, size in enumerate(map(int, p.min_size)):
        boxes += _dense_squares(size) if p.faceboxes else [CellBox(size, size)]
        if p.max_size:
            side = np.sqrt(size * int(p.max_size[i]))
            boxes.append(CellBox(side, side))
        boxes += [CellBox(size * np.sqrt(ratio), size / np.sqrt(ratio)) for ratio in ratios]
    return boxes


def _refuse_unsupported(p: Any, names: Sequence[str]) -> None:
    unsupported_fields = [name for name in names if (getattr(p, name) if name[:3] != "box" else len(getattr(p, name)))]
    require(
        not unsupported_fields,
        f"prior_box_param: {', '.join(unsupported_fields)} of a different fork is not supported; remove it",
    )


def _dense_squares(size: int) -> list[CellBox]:
    n, spacing = _DENSE_SQUARES.get(size, (1, 0.0))
    shifts = [(i - n // 2) * spacing for i in range(n)]
    return [CellBox(size - 1, size - 1, dx, dy) for dy in shifts for dx in shifts]


def read_aspect_ratios(p: Any) -> list[float]:
    """Return the distinct aspect ratios, starting with 1. With `flip`, each ratio but 1 is followed by its inverse."""
    require(all(ratio > 0 for ratio in p.aspect_ratio), f"aspect_ratio must be positive: {list(p.aspect_ratio)}")
    ratios = [1.0]
    for ratio in p.aspect_ratio:
        if all(abs(ratio - existing) >= 1e-6 for existing in ratios):
            ratios += [ratio, 1 / ratio] if p.flip else [ratio]
    return ratios


def _read_variances(p: Any) -> np.ndarray:
    variances = list(p.variance) or [0.1]
    require(len(variances) in (1, 4), f"variance must be set once or 4 times, not {len(variances)} times")
    require(all(v > 0 for v in variances), f"variance must be positive: {variances}")
    return np.asarray(variances, _FLOAT)


def _read_height_and_width(p: Any, name: str, names: tuple[str, str], default: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return (height, width) from the setting `name` for both, or from a setting in `names` for each.

    If none of these settings is set, return `default`.
    """
    names_text, has_separate = f"{name}, or {' and '.join(names)},", any(map(p.HasField, names))
    require(not (has_separate and p.HasField(name)), f"set either {name} or {' and '.join(names)}, not both")
    if not has_separate and not p.HasField(name):
        return default
    pair = tuple(getattr(p, field) for field in (names if has_separate else (name, name)))
    require(all(n > 0 for n in pair), f"{names_text} must be positive: {pair}")
    return pair


@register(
    "PriorBoxClustered",
    bottoms=2,
    param="prior_box_param",
    in_place=False,
    fork_settings=("width", "height"),
    differentiable=False,
    depends_only_on_shapes=True,
    accepts_integers=True,
    origin="OpenVINO",
    restrictions="Sizes of PriorBox, such as min_size, are refused.",
)
def prior_box_clustered(p: PriorBoxParameter, x: jax.Array, image: jax.Array) -> jax.Array:
    """Compute boxes of explicit sizes around each cell of a feature map, and their variances.

    Bottoms: the map and the image, both (N, C, H, W). Only their shapes are read. The top, (1, 2, boxes * 4), contains
    the boxes, then the variances. Boxes are x1, y1, x2, y2 as fractions of the image, cell by cell in row-major order.
    A cell has a box for each pair of `width` and `height`, in pixels.
    """
    return make_priors(p, lambda: clustered_boxes(p), x, image)


def clustered_boxes(p: Any) -> list[CellBox]:
    """Return the boxes of a cell, one for each pair of `width` and `height`, in pixels.

    Raises:
        LayerError: if sizes are invalid.
    """
    _refuse_unsupported(p, (*_UNSUPPORTED_SETTINGS, "faceboxes"))
    prior_box_fields = [name for name in ("min_size", "max_size", "aspect_ratio") if len(getattr(p, name))]
    require(
        not prior_box_fields,
        f"prior_box_param: {', '.join(prior_box_fields)} is only for PriorBox; set width and height",
    )
    require(len(p.width) > 0, "prior_box_param needs a width and a height for each box, but has no width")
    require(
        len(p.width) == len(p.height),
        f"prior_box_param needs equal numbers of width and height, not {len(p.width)} and {len(p.height)}",
    )
    boxes = [CellBox(*size) for size in zip(p.width, p.height, strict=True)]
    require(min(*p.width, *p.height) > 0, f"width and height must be positive: {list(p.width)}, {list(p.height)}")
    return boxes


def read_predictions(loc: Any, conf: Any, prior: Any, num_groups: int, num_classes: int) -> tuple[Any, Any, Any]:
    """Return the bottoms of an SSD layer as arrays of locations, scores, and priors with their variances.

    Returns:
        locations (images, priors, groups, 4), scores (images, priors, classes), and priors (2, priors, 4).

    Raises:
        LayerError: if the shapes of the bottoms do not match.
    """
    require(
        len(prior.shape) >= 3 and prior.shape[:2] == (1, 2) and prior.size % 8 == 0 < prior.size,
        f"bottom 2 must contain priors and their variances, (1, 2, priors * 4), but has shape {prior.shape}",
    )
    num_priors = prior.size // 8
    require(len(conf.shape) > 0, "bottom 1 must have a batch axis, but is a scalar")
    num_images = conf.shape[0]
    for i, (x, num_values) in enumerate(((loc, num_groups * 4), (conf, num_classes))):
        require(
            len(x.shape) > 0 and x.shape[0] == num_images and x.size == num_images * num_priors * num_values,
            f"bottom {i} must contain {num_values} values for each of {num_priors} priors, "
            f"({num_images}, {num_priors * num_values}), but has shape {x.shape}",
        )
    return (
        promote(loc).reshape(num_images, num_priors, num_groups, 4),
        promote(conf).reshape(num_images, num_priors, num_classes),
        promote(prior).reshape(2, num_priors, 4),
    )


# by NumPy, given its arrays
register_forms("host", {function: function for function in (prior_box, prior_box_clustered.forward)})

"""py-faster-rcnn's ProposalTargetLayer, a Python layer that is built in: regions to train on, and what they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import require
from ..boxes import overlaps
from ..context import Context, Shape
from ..no_gradient import no_gradient
from ..on_host import generator
from ..param_str import settings
from ..types import Gradient, LayerDocs, LayerType, OnHost, Signature
from .anchor_target_layer import require_truth
from .anchors import encoded
from .rois import are_rows_of_five

_DEFAULTS: dict[str, Any] = {
    "num_classes": 21,
    "batch_size": 128,
    "fg_fraction": 0.25,
    "fg_thresh": 0.5,
    "bg_thresh_hi": 0.5,
    "bg_thresh_lo": 0.1,
    "bbox_inside_weights": (1.0, 1.0, 1.0, 1.0),
    "bbox_normalize_targets_precomputed": False,
    "bbox_normalize_means": (0.0, 0.0, 0.0, 0.0),
    "bbox_normalize_stds": (0.1, 0.1, 0.2, 0.2),
}


def proposal_target_layer(
    ctx: Context, rois: np.ndarray, truth: np.ndarray, *_image: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Sampled regions with their classes, box targets, inside and outside weights (4 columns for each class).

    Candidates are the regions, bottom 0, and the true boxes, bottom 1: x1, y1, x2, y2, class, where rows of class 0 do
    not count. MNC names the image's size as a third. The settings of py-faster-rcnn's cfg can be given in param_str, in
    lower case.
    """
    s = _settings(ctx)
    rois, truth = (np.asarray(x.reshape(len(x), 5), np.float32) for x in (rois, truth))
    image = np.rint(rois[:, 0])  # negative in rows of padding
    require(not np.any(image > 0), "ROIs must all be of image 0: this layer takes one image, as the original does")
    truth = truth[np.rint(truth[:, 4]) >= 1]
    boxes = np.concatenate([rois[image == 0, 1:], truth[:, :4]])
    rois = np.pad(boxes, ((0, 0), (1, 0)))
    overlap = overlaps(boxes[:, None], truth[:, :4], 1.0)
    most = overlap.max(axis=1, initial=0.0)
    random = generator(ctx)
    positive = np.flatnonzero(most >= s["fg_thresh"])
    positive = _some(random, positive, round(s["fg_fraction"] * s["batch_size"]))
    negative = np.flatnonzero((most < s["bg_thresh_hi"]) & (most >= s["bg_thresh_lo"]))
    negative = _some(random, negative, s["batch_size"] - len(positive))
    kept = np.concatenate([positive, negative])
    nearest = truth[overlap[positive].argmax(axis=1)] if len(positive) else np.zeros((0, 5), np.float32)
    labels = np.zeros(len(kept), np.float32)
    labels[: len(positive)] = nearest[:, 4]
    return rois[kept], labels, *_targets(s, rois[positive, 1:], nearest, len(kept))


def proposal_target_layer_top_shapes(ctx: Context, rois: Any, truth: Any, *_image: Any) -> list[Shape]:
    require(are_rows_of_five(rois), f"ROIs must be rows image, x1, y1, x2, y2, not of shape {rois.shape}")
    require_truth(truth)
    s = _settings(ctx)
    n, columns = s["batch_size"], 4 * s["num_classes"]
    return [(n, 5), (n,), (n, columns), (n, columns), (n, columns)]


PROPOSAL_TARGET_LAYER = LayerType(
    Signature("Python", bottoms=(2, 3), tops=5, param="python_param", in_place=False),
    OnHost(proposal_target_layer, proposal_target_layer_top_shapes, ragged=True),
    Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True),
    docs=LayerDocs(origin="py-faster-rcnn", restrictions="One image, as in the original."),
)


def _settings(ctx: Context) -> dict[str, Any]:
    s = settings(ctx.param.param_str, _DEFAULTS | {"bp_all": 0})  # MNC's, which matters to masks only
    require(s["num_classes"] > 1, "num_classes counts the background too, and must be 2 at least")
    require(s["batch_size"] > 0, f"batch_size must be > 0, not {s['batch_size']}")
    require(0 <= s["fg_fraction"] <= 1, f"fg_fraction must lie between 0 and 1, not be {s['fg_fraction']}")
    for name in ("bbox_inside_weights", "bbox_normalize_means", "bbox_normalize_stds"):
        require(len(s[name]) == 4, f"{name} must be four numbers")
    require(all(std > 0 for std in s["bbox_normalize_stds"]), "bbox_normalize_stds must be > 0")
    return s


def _some(random: np.random.Generator, among: np.ndarray, n: int) -> np.ndarray:
    return random.choice(among, n, replace=False) if len(among) > n else random.permutation(among)


def _targets(
    s: dict[str, Any], boxes: np.ndarray, truth: np.ndarray, rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return targets, inside and outside weights, 0 but in the columns of the classes of the first rows."""
    deltas = encoded(boxes, truth[:, :4], np)
    if s["bbox_normalize_targets_precomputed"]:
        deltas = (deltas - np.float32(s["bbox_normalize_means"])) / np.float32(s["bbox_normalize_stds"])
    targets, inside = np.zeros((2, rows, s["num_classes"], 4), np.float32)
    classes = np.rint(truth[:, 4]).astype(int)
    require(not np.any(classes >= s["num_classes"]), f"a true box's class is not below num_classes, {s['num_classes']}")
    targets[np.arange(len(boxes)), classes] = deltas
    inside[np.arange(len(boxes)), classes] = s["bbox_inside_weights"]
    targets, inside = targets.reshape(rows, -1), inside.reshape(rows, -1)
    return targets, inside, (inside > 0).astype(np.float32)

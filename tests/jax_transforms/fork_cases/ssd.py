"""Layers of the SSD fork, and similar layers of CTPN, caffe-windows and fast-rcnn."""

import numpy as np
from case import ROWS, Case, Shape, layer

IMAGE: Shape = (ROWS, 3, 5, 6)
MATRIX: Shape = (ROWS, 5)
FULL_IMAGE: Shape = (ROWS, 3, 40, 50)

CLASSES, PRIORS = 3, 10


def boxes(random: np.random.Generator, n: int) -> np.ndarray:
    """Boxes in the image, (n, 4)."""
    middle, half = random.uniform(0.3, 0.7, (n, 2)), random.uniform(0.1, 0.3, (n, 2))
    return np.concatenate([middle - half, middle + half], axis=1)


def priors(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    n = shape[2] // 4
    return np.stack([boxes(random, n).ravel(), np.tile([0.1, 0.1, 0.2, 0.2], n)])[None]


def truth(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return ground truth of the first images, with every third row of another image or padding."""
    n = shape[2]
    images = np.where(np.arange(n) % 3, np.arange(n) % 2, -1)
    columns = [images, random.integers(1, CLASSES, n), np.zeros(n), *boxes(random, n).T, np.zeros(n)]
    return np.stack(columns, axis=1)[None, None]


def detections(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    n = shape[2]
    columns = [np.arange(n) // 4, random.integers(1, CLASSES, n), random.uniform(0, 1, n), *boxes(random, n).T]
    return np.stack(columns, axis=1)[None, None]


def multibox(param: str, name: str, groups: int = 1) -> Case:
    shapes = ((ROWS, PRIORS * groups * 4), (ROWS, PRIORS * CLASSES), (1, 2, PRIORS * 4), (1, 1, 9, 8))
    text = f"multibox_loss_param {{ num_classes: {CLASSES} overlap_threshold: 0.4 {param} }}"
    if "NONE" in param:  # many terms, over as many
        text += " loss_param { normalization: FULL }"
    return layer("MultiBoxLoss", text, *shapes, name=name, draws={"b2": priors, "b3": truth})


def detection(param: str, name: str, groups: int = 1) -> Case:
    shapes = ((ROWS, PRIORS * groups * 4), (ROWS, PRIORS * CLASSES), (1, 2, PRIORS * 4))
    text = f"detection_output_param {{ num_classes: {CLASSES} {param} }}"
    return layer("DetectionOutput", text, *shapes, name=name, phase="TEST", draws={"b2": priors})


LAYERS: list[Case] = [
    layer(
        "DetectionEvaluate",
        f"detection_evaluate_param {{ num_classes: {CLASSES} }}",
        (1, 1, 12, 7),
        (1, 1, 9, 8),
        phase="TEST",
        draws={"b0": detections, "b1": truth},
    ),
    detection("code_type: CENTER_SIZE nms_param { top_k: 6 } keep_top_k: 5", "best"),
    detection(
        "share_location: false confidence_threshold: 0.4 nms_param { eta: 0.9 nms_threshold: 0.8 }", "all", CLASSES
    ),
    layer("Flip", "flip_param { flip_height: true }", IMAGE),
    multibox("code_type: CENTER_SIZE", "ssd"),
    multibox("mining_type: HARD_EXAMPLE sample_size: 6 loc_loss_type: L2 bp_inside: true", "hard"),
    multibox("mining_type: NONE conf_loss_type: LOGISTIC encode_variance_in_target: true", "logistic"),
    multibox("mining_type: NONE share_location: false use_prior_for_matching: false", "predictions", CLASSES),
    multibox("mining_type: NONE share_location: false match_type: BIPARTITE", "classes", CLASSES),
    layer("Normalize", "normalize_param { }", IMAGE, name="normface"),
    layer("Normalize", "normalize_param { bp_norm: true }", IMAGE, name="normface_lengths", tops=2),
    layer("Normalize", "norm_param { across_spatial: false }", IMAGE, name="places"),
    layer("Normalize", "norm_param { channel_shared: false }", IMAGE, name="image_channels"),
    layer("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", IMAGE),
    layer("PriorBox", "prior_box_param { min_size: 8 max_size: 13 aspect_ratio: 2 }", IMAGE, FULL_IMAGE),
    layer("PriorBox", "prior_box_param { min_size: 8 denser_prior_boxes: true }", IMAGE, FULL_IMAGE, name="textboxes"),
    layer("PriorBox", "prior_box_param { min_size: 32 faceboxes: true }", IMAGE, FULL_IMAGE, name="faceboxes"),
    layer("Reverse", "reverse_param { axis: 2 axis: 3 }", IMAGE),
    layer("SmoothL1Loss", "", MATRIX, MATRIX, name="ssd"),
    layer("SmoothL1Loss", "loss_weight: 1", MATRIX, MATRIX, MATRIX, name="fast"),
    layer("SmoothL1Loss", "smooth_l1_loss_param { sigma: 2 }", MATRIX, MATRIX, MATRIX, MATRIX, name="faster"),
    layer("Transpose", "transpose_param { dim: 0 dim: 3 dim: 1 dim: -2 }", IMAGE),
]

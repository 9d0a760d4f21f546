"""Cases of the SSD fork's layers, and of similar layers of CTPN, caffe-windows and fast-rcnn."""

import numpy as np
from case import BATCH, Case, Shape, layer_case

IMAGE: Shape = (BATCH, 3, 5, 6)
MATRIX: Shape = (BATCH, 5)
FULL_IMAGE: Shape = (BATCH, 3, 40, 50)

NUM_CLASSES, NUM_PRIORS = 3, 10


def draw_boxes(random: np.random.Generator, n: int) -> np.ndarray:
    """Draw boxes within the image, with shape (n, 4)."""
    center, half_sides = random.uniform(0.3, 0.7, (n, 2)), random.uniform(0.1, 0.3, (n, 2))
    return np.concatenate([center - half_sides, center + half_sides], axis=1)


def draw_priors(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    n = shape[2] // 4
    return np.stack([draw_boxes(random, n).ravel(), np.tile([0.1, 0.1, 0.2, 0.2], n)])[None]


def draw_truth(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw ground truth of the first two images; every third row is padding, with image -1."""
    n = shape[2]
    images = np.where(np.arange(n) % 3, np.arange(n) % 2, -1)
    columns = [images, random.integers(1, NUM_CLASSES, n), np.zeros(n), *draw_boxes(random, n).T, np.zeros(n)]
    return np.stack(columns, axis=1)[None, None]


def draw_detections(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    n = shape[2]
    columns = [np.arange(n) // 4, random.integers(1, NUM_CLASSES, n), random.uniform(0, 1, n), *draw_boxes(random, n).T]
    return np.stack(columns, axis=1)[None, None]


def multibox_loss_case(param: str, name: str, groups: int = 1) -> Case:
    shapes = ((BATCH, NUM_PRIORS * groups * 4), (BATCH, NUM_PRIORS * NUM_CLASSES), (1, 2, NUM_PRIORS * 4), (1, 1, 9, 8))
    text = f"multibox_loss_param {{ num_classes: {NUM_CLASSES} overlap_threshold: 0.4 {param} }}"
    if "NONE" in param:  # many terms, over as many
        text += " loss_param { normalization: FULL }"
    return layer_case("MultiBoxLoss", text, *shapes, name=name, samplers={"b2": draw_priors, "b3": draw_truth})


def detection_output_case(param: str, name: str, groups: int = 1) -> Case:
    shapes = ((BATCH, NUM_PRIORS * groups * 4), (BATCH, NUM_PRIORS * NUM_CLASSES), (1, 2, NUM_PRIORS * 4))
    text = f"detection_output_param {{ num_classes: {NUM_CLASSES} {param} }}"
    return layer_case("DetectionOutput", text, *shapes, name=name, phase="TEST", samplers={"b2": draw_priors})


LAYER_CASES: list[Case] = [
    layer_case(
        "DetectionEvaluate",
        f"detection_evaluate_param {{ num_classes: {NUM_CLASSES} }}",
        (1, 1, 12, 7),
        (1, 1, 9, 8),
        phase="TEST",
        samplers={"b0": draw_detections, "b1": draw_truth},
    ),
    detection_output_case("code_type: CENTER_SIZE nms_param { top_k: 6 } keep_top_k: 5", "best"),
    detection_output_case(
        "share_location: false confidence_threshold: 0.4 nms_param { eta: 0.9 nms_threshold: 0.8 }", "all", NUM_CLASSES
    ),
    layer_case("Flip", "flip_param { flip_height: true }", IMAGE),
    multibox_loss_case("code_type: CENTER_SIZE", "ssd"),
    multibox_loss_case("mining_type: HARD_EXAMPLE sample_size: 6 loc_loss_type: L2 bp_inside: true", "hard"),
    multibox_loss_case("mining_type: NONE conf_loss_type: LOGISTIC encode_variance_in_target: true", "logistic"),
    multibox_loss_case(
        "mining_type: NONE share_location: false use_prior_for_matching: false", "predictions", NUM_CLASSES
    ),
    multibox_loss_case("mining_type: NONE share_location: false match_type: BIPARTITE", "classes", NUM_CLASSES),
    layer_case("Normalize", "normalize_param { }", IMAGE, name="normface"),
    layer_case("Normalize", "normalize_param { bp_norm: true }", IMAGE, name="normface_lengths", tops=2),
    layer_case("Normalize", "norm_param { across_spatial: false }", IMAGE, name="places"),
    layer_case("Normalize", "norm_param { channel_shared: false }", IMAGE, name="image_channels"),
    layer_case("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", IMAGE),
    layer_case("PriorBox", "prior_box_param { min_size: 8 max_size: 13 aspect_ratio: 2 }", IMAGE, FULL_IMAGE),
    layer_case(
        "PriorBox", "prior_box_param { min_size: 8 denser_prior_boxes: true }", IMAGE, FULL_IMAGE, name="textboxes"
    ),
    layer_case("PriorBox", "prior_box_param { min_size: 32 faceboxes: true }", IMAGE, FULL_IMAGE, name="faceboxes"),
    layer_case("Reverse", "reverse_param { axis: 2 axis: 3 }", IMAGE),
    layer_case("SmoothL1Loss", "", MATRIX, MATRIX, name="ssd"),
    layer_case("SmoothL1Loss", "loss_weight: 1", MATRIX, MATRIX, MATRIX, name="fast"),
    layer_case("SmoothL1Loss", "smooth_l1_loss_param { sigma: 2 }", MATRIX, MATRIX, MATRIX, MATRIX, name="faster"),
    layer_case("Transpose", "transpose_param { dim: 0 dim: 3 dim: 1 dim: -2 }", IMAGE),
]

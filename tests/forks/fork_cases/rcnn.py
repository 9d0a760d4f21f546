"""Cases of layers that work on regions of interest."""

from typing import Any

import numpy as np
from case import BATCH, Shape, layer_case

MAPS: Shape = (2, 3, 6, 7)
ROIS: Shape = (BATCH, 5)
POOL = "pooled_h: 3 pooled_w: 2 spatial_scale: 0.5"


def draw_rois(random: np.random.Generator, shape: tuple[int, ...], num_images: int = 2) -> np.ndarray:
    """Draw rows [image, x1, y1, x2, y2] within maps of half the size; scaled corners are not near halves."""
    corner = random.integers(0, 5, (shape[0], 2)) * 2.0
    end_corner = corner + random.integers(1, 3, (shape[0], 2)) * 2.0
    return np.concatenate([random.integers(0, num_images, (shape[0], 1)), corner + 0.1, end_corner + 0.2], axis=1)


def draw_rois_of_one_image(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return draw_rois(random, shape, num_images=1)


def draw_rois_within_image(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw regions whose bilinear samples are far from the centers of cells, where interpolation has kinks."""
    result = draw_rois(random, shape)
    return result + np.asarray([0, 0.23, 0.31, 0.37, 0.29])


def draw_truth(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw boxes [x1, y1, x2, y2, class] in an image of 64 x 64."""
    corner = random.uniform(0, 30, (shape[0], 2))
    end_corner = corner + random.uniform(15, 30, (shape[0], 2))
    return np.concatenate([corner, end_corner, random.integers(1, 3, (shape[0], 1))], axis=1)


def draw_image_info(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray([[64, 64, 1, 1][: shape[1]]])


def python_case(module: str, cls: str, text: str, *bottoms: Shape, **options: Any) -> Any:
    param = f"python_param {{ module: '{module}' layer: '{cls}' param_str: \"{text}\" }}"
    return layer_case("Python", param, *bottoms, name=cls, **options)


SCORES: Shape = (1, 18, 4, 4)
DELTAS: Shape = (1, 36, 4, 4)

LAYER_CASES = [
    layer_case("ROIPooling", f"roi_pooling_param {{ {POOL} }}", MAPS, ROIS, samplers={"b1": draw_rois}),
    layer_case("ROIAlign", f"roi_pooling_param {{ {POOL} }}", MAPS, ROIS, samplers={"b1": draw_rois_within_image}),
    layer_case("ROIWarping", f"roi_warping_param {{ {POOL} }}", MAPS, ROIS, samplers={"b1": draw_rois}),
    layer_case(
        "PSROIPooling",
        "psroi_pooling_param { output_dim: 2 group_size: 3 spatial_scale: 0.5 }",
        (2, 18, 6, 7),
        ROIS,
        samplers={"b1": draw_rois},
    ),
    layer_case("MaskPooling", "", (BATCH, 3, 4, 5), (BATCH, 1, 4, 5)),
    layer_case("MaskResize", "mask_resize_param { output_height: 3 output_width: 7 }", (BATCH, 2, 5, 6)),
    layer_case(
        "Proposal",
        "proposal_param { ratio: 0.5 ratio: 1 ratio: 2 scale: 1 scale: 2 scale: 3 post_nms_topn: 7 min_size: 4 }",
        SCORES,
        DELTAS,
        (1, 4),
        tops=2,
        samplers={"b2": draw_image_info},
    ),
    python_case(
        "rpn.proposal_layer",
        "ProposalLayer",
        "{'feat_stride': 16, 'scales': [1, 2, 3], 'rpn_post_nms_top_n': 7}",
        SCORES,
        DELTAS,
        (1, 3),
        samplers={"b2": draw_image_info},
    ),
    python_case(
        "rpn.anchor_target_layer",
        "AnchorTargetLayer",
        "{'feat_stride': 16, 'scales': [1, 2, 3], 'rpn_batchsize': 8}",
        SCORES,
        (2, 5),
        (1, 3),
        tops=4,
        random=True,
        samplers={"b1": draw_truth, "b2": draw_image_info},
    ),
    python_case(
        "rpn.proposal_target_layer",
        "ProposalTargetLayer",
        "{'num_classes': 3, 'batch_size': 4, 'bg_thresh_lo': 0}",
        ROIS,
        (2, 5),
        tops=5,
        random=True,
        samplers={"b0": draw_rois_of_one_image, "b1": draw_truth},
    ),
    python_case("pylayer.mask_layer", "MaskLayer", "", (BATCH, 9), phase="TEST"),
    python_case(
        "pylayer.stage_bridge_layer",
        "StageBridgeLayer",
        "",
        ROIS,
        (BATCH, 12),
        (BATCH, 3),
        (1, 3),
        phase="TEST",
        samplers={"b0": draw_rois_of_one_image, "b3": draw_image_info},
    ),
    python_case(
        "spatial_dropout", "SpatialDropoutLayer", "{'phase': 'TRAIN', 'p': '0.4'}", (BATCH, 4, 3, 2), random=True
    ),
    layer_case(
        "SoftmaxWithLossOHEM",
        "loss_weight: 1 loss_weight: 0 loss_weight: 0 loss_param { ignore_label: 1 }",
        (BATCH, 5),
        (BATCH,),
        tops=3,
        classes=5,
    ),
    layer_case(
        "SmoothL1LossOHEM",
        "loss_weight: 1 loss_weight: 0",
        (BATCH, 4, 2, 1),
        (BATCH, 4, 2, 1),
        (BATCH, 4, 2, 1),
        tops=2,
    ),
    layer_case(
        "BoxAnnotatorOHEM",
        "box_annotator_ohem_param { roi_per_img: 2 }",
        ROIS,
        (BATCH,),
        (BATCH,),
        (BATCH, 8),
        tops=2,
        samplers={"b0": draw_rois},
    ),
]

"""Layers of the SSD fork, and what CTPN, caffe-windows and fast-rcnn have of the kind."""

from case import ROWS, Case, Shape, layer

IMAGE: Shape = (ROWS, 3, 5, 6)
MATRIX: Shape = (ROWS, 5)

LAYERS: list[Case] = [
    layer("Flip", "flip_param { flip_height: true }", IMAGE),
    layer("Normalize", "", IMAGE, name="normface"),
    layer("Normalize", "normalize_param { bp_norm: true }", IMAGE, name="normface_lengths", tops=2),
    layer("Normalize", "norm_param { across_spatial: false }", IMAGE, name="places"),
    layer("Normalize", "norm_param { channel_shared: false }", IMAGE, name="image_channels"),
    layer("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", IMAGE),
    layer("PriorBox", "prior_box_param { min_size: 8 max_size: 13 aspect_ratio: 2 }", IMAGE, (ROWS, 3, 40, 50)),
    layer("Reverse", "reverse_param { axis: 2 axis: 3 }", IMAGE),
    layer("SmoothL1Loss", "", MATRIX, MATRIX, name="ssd"),
    layer("SmoothL1Loss", "", MATRIX, MATRIX, MATRIX, name="fast"),
    layer("SmoothL1Loss", "smooth_l1_loss_param { sigma: 2 }", MATRIX, MATRIX, MATRIX, MATRIX, name="faster"),
    layer("Transpose", "transpose_param { dim: 0 dim: 3 dim: 1 dim: -2 }", IMAGE),
]

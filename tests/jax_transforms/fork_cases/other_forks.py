"""Layers of forks that few nets use."""

import numpy as np
from case import ROWS, layer

from fork_cases.yolo import SMALL_ANCHORS, draw_labels, draw_small_numbers

MATRIX = (ROWS, 5)
MAP = (ROWS, 14, 3, 3)


def draw_cosines(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.uniform(-0.9, 0.9, shape).astype(np.float32)


def draw_continuation_indicators(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """1 for each step of an item but the first and those after its end."""
    time = np.arange(shape[0])[:, None]
    return ((time > 0) & (time < random.integers(1, shape[0] + 1, shape[1]))).astype(np.float32)


def draw_label_sequences(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.integers(-1, 3, shape).astype(np.float32)


def draw_cell_labels(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """YOLOv1's labels of 2 x 2 cells: difficult, there, classes, boxes."""
    integers = random.integers(0, 2, (shape[0], 12))
    return np.concatenate([integers, random.uniform(0.1, 0.9, (shape[0], 16))], axis=1).astype(np.float32)


EVAL_SETTINGS = f"num_class: 2 num_object: 2 {SMALL_ANCHORS} nms: 0.5 threshold: 0.1"

LAYER_CASES = [
    layer("AssistedExcitation", "", (ROWS, 3, 4, 5), (ROWS, 1, 5, 5), (ROWS, 1, 4, 5), samplers={"b1": draw_labels}),
    layer(
        "CTCGreedyDecoder",
        "",
        (6, ROWS, 4),
        (6, ROWS),
        (6, ROWS),
        tops=3,
        samplers={"b1": draw_continuation_indicators, "b2": draw_label_sequences},
        classes=4,
    ),
    layer("Filter", "filter_param { num_output: 2 }", MATRIX, name="channels"),
    layer("CosinAddm", "cosin_add_m_param { m: 0.5 }", MATRIX, (ROWS,), classes=5, samplers={"b0": draw_cosines}),
    layer(
        "EvalDetection",
        f"eval_detection_param {{ side: 3 {EVAL_SETTINGS} }}",
        MAP,
        (ROWS, 1, 5, 5),
        samplers={"b0": draw_small_numbers, "b1": draw_labels},
    ),
    layer(
        "EvalDetection",
        "eval_detection_param { side: 2 num_class: 3 num_object: 2 threshold: 0.2 nms: 0.5 }",
        (ROWS, 52),
        (ROWS, 28),
        name="cells",
        samplers={
            "b0": lambda random, shape: random.uniform(0.1, 0.9, shape).astype(np.float32),
            "b1": draw_cell_labels,
        },
    ),
    layer("GradientScaler", "gradient_scaler_param { lower_bound: 0.2 max_iter: 10 }", MATRIX),
    layer("LstmSimple", 'lstm_simple_param { num_output: 3 weight_filler { type: "gaussian" } }', (8, 4)),
    layer("Lstm", 'recurrent_param { num_output: 3 weight_filler { type: "gaussian" } }', (4, ROWS, 5), (4, ROWS)),
    layer("Mish", "", MATRIX),
    layer(
        "PriorBoxClustered",
        "prior_box_param { width: 9.4 width: 25.1 height: 15 height: 39.6 step: 16 variance: 0.1 }",
        (ROWS, 3, 5, 6),
        (ROWS, 3, 40, 50),
    ),
    layer(
        "ResizeBilinear",
        'resize_bilinear_param { data_format: "NCHW" output_height: 7 scale_width: 0.5 half_pixel_centers: true }',
        (ROWS, 3, 5, 6),
    ),
    layer("ResizeBilinear", "resize_bilinear_param { scale_height: 2 scale_width: 3 }", (ROWS, 3, 4, 2), name="last"),
    layer("TripletLoss", "triplet_loss_param { margin: 3 }", MATRIX, MATRIX, MATRIX),
    layer("TripletLoss", "triplet_loss_param { alpha: 3 }", MATRIX, MATRIX, MATRIX, (ROWS,), name="labels", classes=3),
]

"""Cases of forks' layers that few nets use."""

import numpy as np
from case import BATCH, layer_case

from fork_cases.yolo import SMALL_ANCHORS, draw_labels, draw_small_numbers

MATRIX = (BATCH, 5)
MAP = (BATCH, 14, 3, 3)


def draw_cosines(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.uniform(-0.9, 0.9, shape).astype(np.float32)


def draw_continuation_indicators(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw indicators that are 1 at each step of a sequence except the first and those after its end."""
    time = np.arange(shape[0])[:, None]
    return ((time > 0) & (time < random.integers(1, shape[0] + 1, shape[1]))).astype(np.float32)


def draw_label_sequences(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.integers(-1, 3, shape).astype(np.float32)


def draw_cell_labels(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw YOLOv1's labels of 2 x 2 cells: difficult flags, object flags, classes, boxes."""
    integers = random.integers(0, 2, (shape[0], 12))
    return np.concatenate([integers, random.uniform(0.1, 0.9, (shape[0], 16))], axis=1).astype(np.float32)


EVAL_SETTINGS = f"num_class: 2 num_object: 2 {SMALL_ANCHORS} nms: 0.5 threshold: 0.1"

LAYER_CASES = [
    layer_case(
        "AssistedExcitation", "", (BATCH, 3, 4, 5), (BATCH, 1, 5, 5), (BATCH, 1, 4, 5), samplers={"b1": draw_labels}
    ),
    layer_case(
        "CTCGreedyDecoder",
        "",
        (6, BATCH, 4),
        (6, BATCH),
        (6, BATCH),
        tops=3,
        samplers={"b1": draw_continuation_indicators, "b2": draw_label_sequences},
        classes=4,
    ),
    layer_case("Filter", "filter_param { num_output: 2 }", MATRIX, name="channels"),
    layer_case("CosinAddm", "cosin_add_m_param { m: 0.5 }", MATRIX, (BATCH,), classes=5, samplers={"b0": draw_cosines}),
    layer_case(
        "EvalDetection",
        f"eval_detection_param {{ side: 3 {EVAL_SETTINGS} }}",
        MAP,
        (BATCH, 1, 5, 5),
        samplers={"b0": draw_small_numbers, "b1": draw_labels},
    ),
    layer_case(
        "EvalDetection",
        "eval_detection_param { side: 2 num_class: 3 num_object: 2 threshold: 0.2 nms: 0.5 }",
        (BATCH, 52),
        (BATCH, 28),
        name="cells",
        samplers={
            "b0": lambda random, shape: random.uniform(0.1, 0.9, shape).astype(np.float32),
            "b1": draw_cell_labels,
        },
    ),
    layer_case("GradientScaler", "gradient_scaler_param { lower_bound: 0.2 max_iter: 10 }", MATRIX),
    layer_case("LstmSimple", 'lstm_simple_param { num_output: 3 weight_filler { type: "gaussian" } }', (8, 4)),
    layer_case(
        "Lstm", 'recurrent_param { num_output: 3 weight_filler { type: "gaussian" } }', (4, BATCH, 5), (4, BATCH)
    ),
    layer_case("Mish", "", MATRIX),
    layer_case(
        "PriorBoxClustered",
        "prior_box_param { width: 9.4 width: 25.1 height: 15 height: 39.6 step: 16 variance: 0.1 }",
        (BATCH, 3, 5, 6),
        (BATCH, 3, 40, 50),
    ),
    layer_case(
        "ResizeBilinear",
        'resize_bilinear_param { data_format: "NCHW" output_height: 7 scale_width: 0.5 half_pixel_centers: true }',
        (BATCH, 3, 5, 6),
    ),
    layer_case(
        "ResizeBilinear", "resize_bilinear_param { scale_height: 2 scale_width: 3 }", (BATCH, 3, 4, 2), name="last"
    ),
    layer_case("TripletLoss", "triplet_loss_param { margin: 3 }", MATRIX, MATRIX, MATRIX),
    layer_case(
        "TripletLoss", "triplet_loss_param { alpha: 3 }", MATRIX, MATRIX, MATRIX, (BATCH,), name="labels", classes=3
    ),
]

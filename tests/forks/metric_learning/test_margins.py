"""Tests of MarginInnerProduct, LabelSpecificRescale, LabelSpecificAdd and CosinAddm."""

import numpy as np

from layer_suite import BATCH, LABELS, MATRIX, fork_properties, layer_case, recorded

FILLER = 'weight_filler { type: "gaussian" std: 1 }'


def draw_cosines(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.uniform(-0.9, 0.9, shape).astype(np.float32)


test_recorded = recorded("MarginInnerProduct", family="metric_learning")
test_properties = fork_properties(
    layer_case(
        "MarginInnerProduct",
        f"margin_inner_product_param {{ num_output: 4 type: QUADRUPLE base: 10 gamma: 0.5 lambda_min: 1 {FILLER} }}",
        (BATCH, 5),
        LABELS,
        tops=2,
        classes=4,
    ),
    layer_case(
        "LabelSpecificRescale",
        "label_specific_rescale_param { positive_weight_base: 2 gamma: 1 negative_weight: 0.5 for_ip: true }",
        (BATCH, 5),
        LABELS,
        tops=2,
        classes=5,
    ),
    layer_case(
        "LabelSpecificAdd",
        "label_specific_add_param { bias_base: 0.2 bias_gamma: 1 bias_max: 1 }",
        (BATCH, 5),
        LABELS,
        classes=5,
        name="growing",
    ),
    layer_case("LabelSpecificAdd", "label_specific_add_param { bias: -0.3 }", (BATCH, 5), LABELS, classes=5),
    layer_case("CosinAddm", "cosin_add_m_param { m: 0.5 }", MATRIX, (BATCH,), classes=5, samplers={"b0": draw_cosines}),
)

"""Further cases of devices that share a global batch, of forks' losses and metrics; see global_batch_cases.py."""

from collections.abc import Callable
from dataclasses import replace

from case import BATCH, Case, Shape, layer_case
from fork_cases.ssd import LAYER_CASES as SSD_CASES

MAP: Shape = (BATCH, 3, 2, 4)
LABEL_MAP: Shape = (BATCH, 2, 4)
MATRIX: Shape = (BATCH, 5)
LABELS: Shape = (BATCH,)

LOSS_WEIGHTS = "loss_weight: 1 loss_weight: 0"


def make_cases(make_normalized_case: Callable[..., Case]) -> list[Case]:
    """Return the cases; `make_normalized_case(case, fields)` returns a net with a case's loss by each normalization."""
    hard_example_loss = layer_case("SmoothL1LossOHEM", "", MAP, MAP)
    return [
        *(make_normalized_case(hard_example_loss, ignore_field) for ignore_field in ("", "ignore_label: 1")),
        *_make_multibox_cases(make_normalized_case),
        layer_case(
            "EltwiseAccuracy", "eltwise_accuracy_param { ignore_label: 1 }", MAP, LABEL_MAP, classes=3, name="ignore"
        ),
        layer_case(
            "SmoothL1Loss",
            "loss_weight: 2 smooth_l1_loss_param {} loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 7 }",
            MATRIX,
            MATRIX,
            name="PRE_FIXED",
        ),
        layer_case("GeneralTripletLoss", LOSS_WEIGHTS, MATRIX, LABELS, classes=5, tops=2, name="means"),
        layer_case(
            "GeneralContrastiveLoss",
            f"{LOSS_WEIGHTS} general_contrastive_loss_param {{ negative_margin: 2 normalize_negative: 0.1 }}",
            MATRIX,
            LABELS,
            classes=5,
            tops=2,
            name="means",
        ),
    ]


def _make_multibox_cases(make_normalized_case: Callable[..., Case]) -> list[Case]:
    """Return cases with separate ground truth for each device's images, and one with all normalizations."""
    boxes = [
        replace(case, input_shapes={**case.input_shapes, "b3": (1, 1, BATCH, 8)})
        for case in SSD_CASES
        if case.name.startswith("MultiBoxLoss")
    ]
    return [*boxes, make_normalized_case(boxes[0], "")]

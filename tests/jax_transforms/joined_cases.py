"""What else is asked of devices whose batches count as one: all ways to normalise a loss, and to reduce a batch."""

from dataclasses import replace
from typing import Any

from case import ROWS, Case, Shape, layer
from cases import FURTHER, LAYERS

MAP: Shape = (ROWS, 3, 2, 4)
PLACES: Shape = (ROWS, 2, 4)
MATRIX: Shape = (ROWS, 5)
LABELS: Shape = (ROWS,)

WEIGHTS = "loss_weight: 1 loss_weight: 0"

NORMALIZATIONS = {
    "FULL": "normalization: FULL",
    "VALID": "normalization: VALID",
    "BATCH_SIZE": "normalization: BATCH_SIZE",
    "NONE": "normalization: NONE",
    "PRE_FIXED": "normalization: PRE_FIXED pre_fixed_normalizer: 7",
}
NORMALISED: dict[str, tuple[tuple[Shape, ...], dict[str, Any]]] = {
    "SoftmaxWithLoss": ((MAP, PLACES), {"classes": 3}),
    "InfogainLoss": ((MAP, PLACES, (1, 1, 3, 3)), {"classes": 3}),
    "SigmoidCrossEntropyLoss": ((MAP, MAP), {}),
    "SmoothL1LossOHEM": ((MAP, MAP), {}),
}


def _normalised() -> list[Case]:
    return [
        layer(kind, f"loss_param {{ {text} {ignored} }}", *shapes, name=f"{name}{'_ignore' * bool(ignored)}", **options)
        for kind, (shapes, options) in NORMALISED.items()
        for name, text in NORMALIZATIONS.items()
        for ignored in ("", "ignore_label: 1")
    ]


def _multibox() -> list[Case]:
    """Their own ground truth for each device's images, and each way to normalise."""
    own = [
        replace(case, fed={**case.fed, "b3": (1, 1, ROWS, 8)})
        for case in LAYERS + FURTHER
        if case.name.startswith("MultiBoxLoss")
    ]
    first, text = own[0], "multibox_loss_param"
    assert text in first.layers
    ways = [
        replace(first, name=f"{first.name}_{name}", layers=first.layers.replace(text, f"loss_param {{ {way} }} {text}"))
        for name, way in NORMALIZATIONS.items()
    ]
    return own + ways


MORE = [
    *_normalised(),
    *_multibox(),
    *(
        layer("Reduction", f"reduction_param {{ operation: {name} coeff: 0.3 }}", MATRIX, name=name)
        for name in ("SUM", "ASUM", "SUMSQ", "MEAN")
    ),
    layer("Accuracy", "accuracy_param { ignore_label: 1 }", MATRIX, LABELS, classes=5, tops=2, name="classes"),
    layer("EltwiseAccuracy", "eltwise_accuracy_param { ignore_label: 1 }", MAP, PLACES, classes=3, name="ignore"),
    layer(
        "SmoothL1Loss",
        "loss_weight: 2 smooth_l1_loss_param {} loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 7 }",
        MATRIX,
        MATRIX,
        name="PRE_FIXED",
    ),
    layer("GeneralTripletLoss", WEIGHTS, MATRIX, LABELS, classes=5, tops=2, name="means"),
    layer(
        "GeneralContrastiveLoss",
        f"{WEIGHTS} general_contrastive_loss_param {{ negative_margin: 2 normalize_negative: 0.1 }}",
        MATRIX,
        LABELS,
        classes=5,
        tops=2,
        name="means",
    ),
]
CASES = [case for case in LAYERS + FURTHER if not case.name.startswith("MultiBoxLoss")] + MORE

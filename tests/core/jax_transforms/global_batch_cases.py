"""Additional cases of devices that share a global batch: all loss normalizations, and reductions over the batch."""

import re
from dataclasses import replace
from importlib import import_module
from typing import Any

from case import BATCH, Case, Shape, layer_case
from cases import EXTRA_FORK_CASES, FORK_CASES, LAYER_CASES

MAP: Shape = (BATCH, 3, 2, 4)
LABEL_MAP: Shape = (BATCH, 2, 4)
MATRIX: Shape = (BATCH, 5)
LABELS: Shape = (BATCH,)

NORMALIZATIONS = (
    "normalization: FULL",
    "normalization: VALID",
    "normalization: BATCH_SIZE",
    "normalization: NONE",
    "normalization: PRE_FIXED pre_fixed_normalizer: 7",
)
NORMALIZED_LOSSES: dict[str, tuple[tuple[Shape, ...], dict[str, Any]]] = {
    "SoftmaxWithLoss": ((MAP, LABEL_MAP), {"classes": 3}),
    "InfogainLoss": ((MAP, LABEL_MAP, (1, 1, 3, 3)), {"classes": 3}),
    "SigmoidCrossEntropyLoss": ((MAP, MAP), {}),
}


def make_normalized_case(loss: Case, fields: str = "") -> Case:
    """Return one net with a loss layer for each normalization, all over the same bottoms."""
    layers = [
        re.sub('(name|top): "(layer|t0)"', rf'\1: "\2_{i}"', loss.layers).removesuffix("}")
        + f"loss_param {{ {normalization} {fields} }} }}"
        for i, normalization in enumerate(NORMALIZATIONS)
    ]
    return replace(
        loss, name=f"{loss.name}_normalised{'_ignore' * bool(fields)}", layers="\n".join(layers), is_net=True
    )


EXTRA_CASES = [
    *(
        make_normalized_case(layer_case(layer_type, "", *shapes, **options), ignore_field)
        for layer_type, (shapes, options) in NORMALIZED_LOSSES.items()
        for ignore_field in ("", "ignore_label: 1")
    ),
    *(
        layer_case("Reduction", f"reduction_param {{ operation: {name} coeff: 0.3 }}", MATRIX, name=name)
        for name in ("SUM", "ASUM", "SUMSQ", "MEAN")
    ),
    layer_case("Accuracy", "accuracy_param { ignore_label: 1 }", MATRIX, LABELS, classes=5, tops=2, name="classes"),
]
if FORK_CASES:
    EXTRA_CASES += import_module("fork_global_batch_cases").make_cases(make_normalized_case)
CASES = [case for case in LAYER_CASES + EXTRA_FORK_CASES if not case.name.startswith("MultiBoxLoss")] + EXTRA_CASES

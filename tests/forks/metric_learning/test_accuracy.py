"""Tests of Accuracy."""

import numpy as np
import pytest

from layer_nets import format_param, run_layer
from layer_suite import LABELS, MATRIX, fork_properties, layer_case

test_properties = fork_properties(
    layer_case("Accuracy", "accuracy_param { min_is_better: true }", MATRIX, LABELS, classes=5, name="of_distances"),
)


F = np.float32


@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("ignore_label", [None, 2])
@pytest.mark.parametrize(("axis", "min_is_better"), [(1, False), (1, True), (-1, False), (0, True)])
def test_accuracy_equals_loops(top_k: int, ignore_label: int | None, axis: int, min_is_better: bool) -> None:
    random = np.random.default_rng(top_k)
    scores = random.integers(0, 5, (4, 4, 4)).astype(F)  # many are equal
    labels = random.integers(0, 4, (4, 4))
    s = {
        "top_k": top_k,
        "axis": axis,
        "min_is_better": min_is_better,
        **({} if ignore_label is None else {"ignore_label": ignore_label}),
    }
    num_correct, num_labels = np.zeros(4), np.zeros(4)
    for index in np.ndindex(labels.shape):
        row, label = np.moveaxis(scores, axis, -1)[index], labels[index]
        if label != ignore_label:
            is_better = [r <= row[label] if min_is_better else r >= row[label] for c, r in enumerate(row) if c != label]
            num_correct[label] += sum(is_better) < top_k
            num_labels[label] += 1
    overall, class_accuracy = run_layer("Accuracy", format_param("accuracy_param", s), scores, labels, tops=2)
    np.testing.assert_allclose(overall, num_correct.sum() / num_labels.sum(), rtol=1e-6)
    np.testing.assert_allclose(class_accuracy, num_correct / np.maximum(num_labels, 1), rtol=1e-6)

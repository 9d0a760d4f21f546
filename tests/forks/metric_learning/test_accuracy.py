"""Tests of Accuracy."""

from layer_suite import LABELS, MATRIX, fork_properties, layer_case

test_properties = fork_properties(
    layer_case("Accuracy", "accuracy_param { min_is_better: true }", MATRIX, LABELS, classes=5, name="of_distances"),
)

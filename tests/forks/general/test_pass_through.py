"""Tests of MemoryLoss, GradientScaler, Gather and Debug."""

from layer_suite import BATCH, LABELS, MATRIX, fork_properties, layer_case

test_properties = fork_properties(
    layer_case("MemoryLoss", "", (BATCH, 5), LABELS),
    layer_case("GradientScaler", "gradient_scaler_param { lower_bound: 0.2 max_iter: 10 }", MATRIX),
    layer_case("Gather", "", (BATCH, 5), (BATCH,), tops=2),
    layer_case("Debug", "", (BATCH, 5)),
)

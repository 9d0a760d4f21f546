"""Tests of SigmoidCrossEntropyLoss."""

from layer_suite import MATRIX, fork_properties, layer_case

test_properties = fork_properties(
    layer_case("SigmoidCrossEntropyLoss", "", MATRIX, MATRIX, MATRIX, name="weighted", distribution="positive"),
)

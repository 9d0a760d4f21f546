"""Tests of ChannelNorm, FlowWarp and Mean."""

from layer_suite import BATCH, fork_properties, layer_case

IMAGES = (BATCH, 2, 5, 6)
FLOW = (BATCH, 2, 5, 6)

test_properties = fork_properties(
    layer_case("ChannelNorm", "", IMAGES),
    layer_case("FlowWarp", "", IMAGES, FLOW),
    layer_case("Mean", "mean_param { operation: SUBTRACT value: 1 value: 2 output_scale: 0.5 }", IMAGES),
)

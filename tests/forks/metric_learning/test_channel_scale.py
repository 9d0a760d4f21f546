"""Tests of ChannelScale."""

from layer_suite import BATCH, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("ChannelScale", family="metric_learning")
test_properties = fork_properties(
    layer_case("ChannelScale", "", MAPS, (BATCH, 1, 5, 6)),
    layer_case("ChannelScale", "channel_scale_param { global_scale: true }", MAPS, (BATCH, 1, 5, 6), name="global"),
)

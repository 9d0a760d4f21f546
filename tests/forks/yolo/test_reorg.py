"""Tests of Reorg and AssistedExcitation."""

from layer_suite import BATCH, fork_properties, layer_case, recorded
from yolo.cases import draw_labels

test_recorded = recorded("Reorg", family="yolo")
test_properties = fork_properties(
    layer_case(
        "AssistedExcitation", "", (BATCH, 3, 4, 5), (BATCH, 1, 5, 5), (BATCH, 1, 4, 5), samplers={"b1": draw_labels}
    ),
    layer_case("Reorg", "reorg_param { stride: 2 }", (BATCH, 4, 4, 6)),
    layer_case("Reorg", "reorg_param { stride: 2 reverse: true }", (BATCH, 4, 3, 2), name="reverse"),
)

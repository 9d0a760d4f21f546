"""Tests of BN."""

from layer_suite import BATCH, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)
CONSTANT_FILLER = '{ type: "constant" value: 1 }'

test_recorded = recorded("BN", family="segmentation")
test_properties = fork_properties(
    layer_case(
        "BN", f"bn_param {{ slope_filler {CONSTANT_FILLER} bias_filler {CONSTANT_FILLER} }}", MAPS, name="pspnet_train"
    ),
    layer_case("BN", f"bn_param {{ slope_filler {CONSTANT_FILLER} }}", MAPS, name="pspnet_test", phase="TEST"),
    layer_case("BN", f"bn_param {{ slope_filler {CONSTANT_FILLER} frozen: true }}", MAPS, name="pspnet_frozen"),
    layer_case(
        "BN", f"bn_param {{ scale_filler {CONSTANT_FILLER} shift_filler {CONSTANT_FILLER} }}", MAPS, name="segnet"
    ),
    layer_case(
        "BN", f"bn_param {{ scale_filler {CONSTANT_FILLER} bn_mode: INFERENCE }}", MAPS, name="segnet_inference"
    ),
    layer_case("BN", f"bn_param {{ scale_filler {CONSTANT_FILLER} }}", MAPS, tops=3, name="segnet_three_tops"),
)

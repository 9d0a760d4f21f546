"""Tests of BatchNorm."""

from layer_suite import IMAGE, fork_properties, layer_case

NVIDIA = "batch_norm_param { scale_bias: true bias_filler { value: 0.5 } scale_filler { value: 2 } }"
INTEL = "batch_norm_param { filler { value: 2 } bias_filler { value: 0.5 } }"
PARTS = "batch_norm_param { use_weight_bias: false }"

test_properties = fork_properties(
    layer_case("BatchNorm", NVIDIA, IMAGE, name="with_scale_and_bias_train"),
    layer_case("BatchNorm", NVIDIA, IMAGE, name="with_scale_and_bias_test", phase="TEST"),
    layer_case("BatchNorm", INTEL, IMAGE, name="with_scale_and_bias_intel"),
    layer_case("BatchNorm", PARTS, IMAGE, name="of_parts"),
    layer_case("BatchNorm", "batch_norm_param { stats_batch_size: 100 }", IMAGE, name="of_large_parts"),
)

"""Tests of Resample, Downsample and Accum."""

from layer_suite import BATCH, fork_properties, layer_case

IMAGES = (BATCH, 2, 5, 6)

test_properties = fork_properties(
    layer_case("Resample", "resample_param { height: 3 width: 7 }", IMAGES, name="linear"),
    layer_case("Resample", "resample_param { height: 8 width: 9 type: CUBIC }", IMAGES, name="cubic"),
    layer_case("Resample", "resample_param { type: NEAREST }", IMAGES, (BATCH, 1, 3, 3), name="nearest"),
    layer_case("Downsample", "downsample_param { top_height: 3 top_width: 2 }", IMAGES),
    layer_case("Accum", "accum_param { size_divisible_by: 7 }", IMAGES, (BATCH, 1, 3, 2)),
)

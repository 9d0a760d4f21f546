"""Tests of Interp, ResizeBilinear and Padding."""

from layer_suite import BATCH, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("Interp", family="segmentation")
test_properties = fork_properties(
    layer_case(
        "ResizeBilinear",
        'resize_bilinear_param { data_format: "NCHW" output_height: 7 scale_width: 0.5 half_pixel_centers: true }',
        (BATCH, 3, 5, 6),
    ),
    layer_case(
        "ResizeBilinear", "resize_bilinear_param { scale_height: 2 scale_width: 3 }", (BATCH, 3, 4, 2), name="last"
    ),
    layer_case("Interp", "interp_param { zoom_factor: 2 pad_beg: -1 }", MAPS, name="zoom"),
    layer_case("Interp", "interp_param { shrink_factor: 2 }", MAPS, name="shrink"),
    layer_case("Interp", "interp_param { height: 7 width: 3 }", MAPS, name="size"),
    layer_case("Padding", "padding_param { pad_beg: 2 pad_end: -1 }", MAPS),
)

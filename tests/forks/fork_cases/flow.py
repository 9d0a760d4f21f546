"""Cases of FlowNet 2's layers."""

from case import BATCH, layer_case

IMAGE = (BATCH, 2, 5, 6)
FLOW = (BATCH, 2, 5, 6)

LAYER_CASES = [
    layer_case(
        "Correlation", "correlation_param { pad: 3 kernel_size: 3 max_displacement: 2 stride_2: 2 }", IMAGE, IMAGE
    ),
    layer_case(
        "Correlation",
        "correlation_param { pad: 1 kernel_size: 1 max_displacement: 1 stride_1: 2 correlation_type: SUBTRACT }",
        IMAGE,
        IMAGE,
        name="subtract",
    ),
    layer_case(
        "Correlation1D",
        "correlation_param { pad: 2 kernel_size: 1 max_displacement: 2 single_direction: -1 }",
        IMAGE,
        IMAGE,
    ),
    layer_case("L1Loss", "", (BATCH, 5), (BATCH, 5)),
    layer_case("L1Loss", "l1_loss_param { plateau: 0.1 }", IMAGE, name="flow"),
    layer_case(
        "L1Loss", "l1_loss_param { l2_per_location: true normalize_by_num_entries: true }", IMAGE, IMAGE, name="l2"
    ),
    layer_case("LpqLoss", "lpq_loss_param { p: 2 q: 0.4 p_epsilon: 0.1 normalize_by_num_entries: true }", IMAGE, IMAGE),
    layer_case("ChannelNorm", "", IMAGE),
    layer_case("FlowWarp", "", IMAGE, FLOW),
    layer_case("Resample", "resample_param { height: 3 width: 7 }", IMAGE, name="linear"),
    layer_case("Resample", "resample_param { height: 8 width: 9 type: CUBIC }", IMAGE, name="cubic"),
    layer_case("Resample", "resample_param { type: NEAREST }", IMAGE, (BATCH, 1, 3, 3), name="nearest"),
    layer_case("Downsample", "downsample_param { top_height: 3 top_width: 2 }", IMAGE),
    layer_case("Accum", "accum_param { size_divisible_by: 7 }", IMAGE, (BATCH, 1, 3, 2)),
    layer_case("Mean", "mean_param { operation: SUBTRACT value: 1 value: 2 output_scale: 0.5 }", IMAGE),
]

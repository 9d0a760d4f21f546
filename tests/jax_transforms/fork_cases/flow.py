"""Layers of FlowNet 2."""

from case import ROWS, layer

IMAGE = (ROWS, 2, 5, 6)
FLOW = (ROWS, 2, 5, 6)

LAYER_CASES = [
    layer("Correlation", "correlation_param { pad: 3 kernel_size: 3 max_displacement: 2 stride_2: 2 }", IMAGE, IMAGE),
    layer(
        "Correlation",
        "correlation_param { pad: 1 kernel_size: 1 max_displacement: 1 stride_1: 2 correlation_type: SUBTRACT }",
        IMAGE,
        IMAGE,
        name="subtract",
    ),
    layer(
        "Correlation1D",
        "correlation_param { pad: 2 kernel_size: 1 max_displacement: 2 single_direction: -1 }",
        IMAGE,
        IMAGE,
    ),
    layer("L1Loss", "", (ROWS, 5), (ROWS, 5)),
    layer("L1Loss", "l1_loss_param { plateau: 0.1 }", IMAGE, name="flow"),
    layer("L1Loss", "l1_loss_param { l2_per_location: true normalize_by_num_entries: true }", IMAGE, IMAGE, name="l2"),
    layer("LpqLoss", "lpq_loss_param { p: 2 q: 0.4 p_epsilon: 0.1 normalize_by_num_entries: true }", IMAGE, IMAGE),
    layer("ChannelNorm", "", IMAGE),
    layer("FlowWarp", "", IMAGE, FLOW),
    layer("Resample", "resample_param { height: 3 width: 7 }", IMAGE, name="linear"),
    layer("Resample", "resample_param { height: 8 width: 9 type: CUBIC }", IMAGE, name="cubic"),
    layer("Resample", "resample_param { type: NEAREST }", IMAGE, (ROWS, 1, 3, 3), name="nearest"),
    layer("Downsample", "downsample_param { top_height: 3 top_width: 2 }", IMAGE),
    layer("Accum", "accum_param { size_divisible_by: 7 }", IMAGE, (ROWS, 1, 3, 2)),
    layer("Mean", "mean_param { operation: SUBTRACT value: 1 value: 2 output_scale: 0.5 }", IMAGE),
]

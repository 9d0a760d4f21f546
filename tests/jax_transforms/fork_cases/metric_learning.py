"""Layers for recognising faces."""

from case import ROWS, layer

FILLER = 'weight_filler { type: "gaussian" std: 1 }'
LABELS = (ROWS,)

LAYER_CASES = [
    layer(
        "MarginInnerProduct",
        f"margin_inner_product_param {{ num_output: 4 type: QUADRUPLE base: 10 gamma: 0.5 lambda_min: 1 {FILLER} }}",
        (ROWS, 5),
        LABELS,
        tops=2,
        classes=4,
    ),
    layer(
        "CenterLoss",
        'center_loss_param { num_output: 4 center_filler { type: "gaussian" std: 1 } } loss_weight: 0.5',
        (ROWS, 5),
        LABELS,
        classes=4,
    ),
    layer("InnerDistance", f"inner_distance_param {{ num_output: 3 {FILLER} }}", (ROWS, 4)),
    layer(
        "InnerDistance",
        f"inner_distance_param {{ num_output: 4 normalize: true {FILLER} }}",
        (ROWS, 5),
        name="unit",
    ),
    layer("InnerDistance", 'inner_distance_param { distance_type: "L1" }', (ROWS, 5), (4, 5), name="l1_bottom"),
    layer(
        "InnerDistance", "inner_distance_param { update_center_only: true }", (ROWS, 5), (4, 5), LABELS, name="centers"
    ),
    layer("GeneralContrastiveLoss", "", (ROWS, 5), LABELS, classes=5, distribution="positive"),
    layer(
        "GeneralContrastiveLoss",
        "general_contrastive_loss_param { max_negative_only: true exp_negative_weight: true }",
        (ROWS, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="nearest",
    ),
    layer(
        "GeneralContrastiveLoss",
        "general_contrastive_loss_param { max_positive_only: true add_intra_mae: true }",
        (ROWS, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="intra",
    ),
    layer("Decode", "decode_param { cache_size: 1 pregen_label_count: 3 }", (ROWS, 5), LABELS, classes=3),
    layer("AccuracyDecode", "", (ROWS, 5), LABELS, classes=5),
    layer("AccuracyEncoding", "decode_param { cache_size: 1 }", (ROWS, 5), (ROWS, 2), classes=3),
    layer("Knn", "knn_param { num_output: 3 max_stored_batches: 2 k: 2 }", (ROWS, 5), LABELS, classes=3),
    layer("DataSequence", "data_sequence_param { k: 1 }", (ROWS, 5), LABELS, classes=3, tops=4, random=True),
    layer("MemoryLoss", "", (ROWS, 5), LABELS),
    layer("GeneralTripletLoss", "", (ROWS, 5), LABELS, classes=5, distribution="positive"),
    layer(
        "GeneralTripletLoss",
        "general_triplet_loss_param { hardest_only: true add_center_loss: false margin: 1 }",
        (ROWS, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="hardest",
    ),
    layer(
        "LabelSpecificRescale",
        "label_specific_rescale_param { positive_weight_base: 2 gamma: 1 negative_weight: 0.5 for_ip: true }",
        (ROWS, 5),
        LABELS,
        tops=2,
        classes=5,
    ),
    layer(
        "LabelSpecificAdd",
        "label_specific_add_param { bias_base: 0.2 bias_gamma: 1 bias_max: 1 }",
        (ROWS, 5),
        LABELS,
        classes=5,
        name="growing",
    ),
    layer("LabelSpecificAdd", "label_specific_add_param { bias: -0.3 }", (ROWS, 5), LABELS, classes=5),
]

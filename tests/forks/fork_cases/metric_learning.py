"""Cases of layers for face recognition."""

from case import BATCH, layer_case

FILLER = 'weight_filler { type: "gaussian" std: 1 }'
LABELS = (BATCH,)

LAYER_CASES = [
    layer_case(
        "MarginInnerProduct",
        f"margin_inner_product_param {{ num_output: 4 type: QUADRUPLE base: 10 gamma: 0.5 lambda_min: 1 {FILLER} }}",
        (BATCH, 5),
        LABELS,
        tops=2,
        classes=4,
    ),
    layer_case(
        "CenterLoss",
        'center_loss_param { num_output: 4 center_filler { type: "gaussian" std: 1 } } loss_weight: 0.5',
        (BATCH, 5),
        LABELS,
        classes=4,
    ),
    layer_case("InnerDistance", f"inner_distance_param {{ num_output: 3 {FILLER} }}", (BATCH, 4)),
    layer_case(
        "InnerDistance",
        f"inner_distance_param {{ num_output: 4 normalize: true {FILLER} }}",
        (BATCH, 5),
        name="unit",
    ),
    layer_case("InnerDistance", 'inner_distance_param { distance_type: "L1" }', (BATCH, 5), (4, 5), name="l1_bottom"),
    layer_case(
        "InnerDistance", "inner_distance_param { update_center_only: true }", (BATCH, 5), (4, 5), LABELS, name="centers"
    ),
    layer_case("GeneralContrastiveLoss", "", (BATCH, 5), LABELS, classes=5, distribution="positive"),
    layer_case(
        "GeneralContrastiveLoss",
        "general_contrastive_loss_param { max_negative_only: true exp_negative_weight: true }",
        (BATCH, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="nearest",
    ),
    layer_case(
        "GeneralContrastiveLoss",
        "general_contrastive_loss_param { max_positive_only: true add_intra_mae: true }",
        (BATCH, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="intra",
    ),
    layer_case("Decode", "decode_param { cache_size: 1 pregen_label_count: 3 }", (BATCH, 5), LABELS, classes=3),
    layer_case("AccuracyDecode", "", (BATCH, 5), LABELS, classes=5),
    layer_case("AccuracyEncoding", "decode_param { cache_size: 1 }", (BATCH, 5), (BATCH, 2), classes=3),
    layer_case("Knn", "knn_param { num_output: 3 max_stored_batches: 2 k: 2 }", (BATCH, 5), LABELS, classes=3),
    layer_case("DataSequence", "data_sequence_param { k: 1 }", (BATCH, 5), LABELS, classes=3, tops=4, random=True),
    layer_case("MemoryLoss", "", (BATCH, 5), LABELS),
    layer_case("GeneralTripletLoss", "", (BATCH, 5), LABELS, classes=5, distribution="positive"),
    layer_case(
        "GeneralTripletLoss",
        "general_triplet_loss_param { hardest_only: true add_center_loss: false margin: 1 }",
        (BATCH, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="hardest",
    ),
    layer_case(
        "LabelSpecificRescale",
        "label_specific_rescale_param { positive_weight_base: 2 gamma: 1 negative_weight: 0.5 for_ip: true }",
        (BATCH, 5),
        LABELS,
        tops=2,
        classes=5,
    ),
    layer_case(
        "LabelSpecificAdd",
        "label_specific_add_param { bias_base: 0.2 bias_gamma: 1 bias_max: 1 }",
        (BATCH, 5),
        LABELS,
        classes=5,
        name="growing",
    ),
    layer_case("LabelSpecificAdd", "label_specific_add_param { bias: -0.3 }", (BATCH, 5), LABELS, classes=5),
]

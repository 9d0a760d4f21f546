"""Cases of BVLC's types with the settings, bottoms and tops that forks added."""

from case import BATCH, Case, layer_case

IMAGE = (BATCH, 3, 5, 6)
MATRIX = (BATCH, 5)
LABELS = (BATCH,)
NVIDIA = "batch_norm_param { scale_bias: true bias_filler { value: 0.5 } scale_filler { value: 2 } }"
INTEL = "batch_norm_param { filler { value: 2 } bias_filler { value: 0.5 } }"
PARTS = "batch_norm_param { use_weight_bias: false }"
BIAS = "bias_term: true bias_filler { value: 0.5 }"
DILATED = "convolution_param { num_output: 4 kernel_size: 2 hole: 2 }"
WEIGHTED = "loss_param { weight_by_label_freqs: true class_weighting: 0.5 class_weighting: 2 class_weighting: 1 }"

PAIRS = 'contrastive_loss_param { output_matches: true distance_calculation: "MANHATTAN" }'
RNN_PARAM = """recurrent_param { num_output: 4 weight_filler { type: "uniform" min: -1 max: 1 } }
  rnn_param { recurrent_nonlinearity: "Sigmoid" output_nonlinearity: "TanH" }"""

LAYER_CASES: list[Case] = [
    layer_case("Accuracy", "accuracy_param { min_is_better: true }", MATRIX, LABELS, classes=5, name="of_distances"),
    layer_case("BatchNorm", NVIDIA, IMAGE, name="with_scale_and_bias_train"),
    layer_case("BatchNorm", NVIDIA, IMAGE, name="with_scale_and_bias_test", phase="TEST"),
    layer_case("BatchNorm", INTEL, IMAGE, name="with_scale_and_bias_intel"),
    layer_case("BatchNorm", PARTS, IMAGE, name="of_parts"),
    layer_case("BatchNorm", "batch_norm_param { stats_batch_size: 100 }", IMAGE, name="of_large_parts"),
    layer_case(
        "ContrastiveLoss",
        f"loss_weight: 1 loss_weight: 0 {PAIRS}",
        MATRIX,
        MATRIX,
        (BATCH, 2),
        tops=2,
        classes=2,
        name="of_labels",
    ),
    layer_case("Convolution", DILATED, IMAGE, name="hole"),
    layer_case("Dropout", "dropout_param { scale_train: false }", IMAGE, name="unscaled", random=True),
    layer_case("Dropout", "dropout_param { scale_train: false }", IMAGE, name="unscaled_test", phase="TEST"),
    layer_case(
        "Dropout", "dropout_param { sample_weights_test: true }", IMAGE, name="sampled", phase="TEST", random=True
    ),
    layer_case("InnerProduct", "inner_product_param { bias_term: false }", MATRIX, (4, 5), name="of_bottoms"),
    layer_case(
        "InnerProduct",
        'inner_product_param { num_output: 4 normalize: true weight_filler { type: "gaussian_unitball" } }',
        MATRIX,
        name="of_unit_rows",
    ),
    layer_case(
        "InnerProduct", "inner_product_param { num_output: 4 enable_noise: true }", MATRIX, name="noisy", random=True
    ),
    layer_case("LRN", "lrn_param { local_size: 3 deconv_ignore: true }", IMAGE, name="for_deconv"),
    layer_case(
        "Parameter",
        'parameter_param { shape { dim: 4 dim: 3 } blob_filler { type: "gaussian" } }',
        name="filled",
    ),
    layer_case("RNN", RNN_PARAM, (3, BATCH, 4), (3, BATCH), name="of_nonlinearities"),
    layer_case("Scale", f"scale_param {{ min_value: -100 max_value: 100 {BIAS} }}", IMAGE, name="held"),
    layer_case("Scale", "scale_param { match_by_count: true }", IMAGE, (3, 1, 1), name="matched"),
    layer_case("SigmoidCrossEntropyLoss", "", MATRIX, MATRIX, MATRIX, name="weighted", distribution="positive"),
    layer_case("Softmax", "softmax_param { temperature: 2.5 }", MATRIX, name="with_temperature"),
    layer_case(
        "SoftmaxWithLoss",
        "loss_weight: 1 loss_weight: 0 loss_weight: 0",
        (BATCH, 3),
        LABELS,
        tops=3,
        classes=3,
        name="with_losses",
    ),
    layer_case("SoftmaxWithLoss", WEIGHTED, (BATCH, 3), LABELS, classes=3, name="of_weighted_classes"),
    layer_case(
        "SoftmaxWithLoss", "loss_param { weight_by_label_freqs: true }", (BATCH, 3), LABELS, classes=3, name="by_count"
    ),
]

"""Tests of Decode, AccuracyDecode, AccuracyEncoding and others."""

from layer_suite import BATCH, LABELS, fork_properties, layer_case

test_properties = fork_properties(
    layer_case("Decode", "decode_param { cache_size: 1 pregen_label_count: 3 }", (BATCH, 5), LABELS, classes=3),
    layer_case("AccuracyDecode", "", (BATCH, 5), LABELS, classes=5),
    layer_case("AccuracyEncoding", "decode_param { cache_size: 1 }", (BATCH, 5), (BATCH, 2), classes=3),
    layer_case("Knn", "knn_param { num_output: 3 max_stored_batches: 2 k: 2 }", (BATCH, 5), LABELS, classes=3),
    layer_case("DataSequence", "data_sequence_param { k: 1 }", (BATCH, 5), LABELS, classes=3, tops=4, random=True),
)

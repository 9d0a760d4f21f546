"""Tests of Dropout, SeLu, SeLuDropout and SpatialDropout."""

from layer_suite import BATCH, IMAGE, Shape, fork_properties, layer_case

MAPS: Shape = (BATCH, 4, 5, 6)

test_properties = fork_properties(
    layer_case("Dropout", "dropout_param { scale_train: false }", IMAGE, name="unscaled", random=True),
    layer_case("Dropout", "dropout_param { scale_train: false }", IMAGE, name="unscaled_test", phase="TEST"),
    layer_case(
        "Dropout", "dropout_param { sample_weights_test: true }", IMAGE, name="sampled", phase="TEST", random=True
    ),
    layer_case(
        "Python",
        "python_param { module: 'spatial_dropout' layer: 'SpatialDropoutLayer' "
        "param_str: \"{'phase': 'TRAIN', 'p': '0.4'}\" }",
        (BATCH, 4, 3, 2),
        name="SpatialDropoutLayer",
        random=True,
    ),
    layer_case("SeLu", "", MAPS),
    layer_case("SeLuDropout", "", MAPS, name="train", random=True),
    layer_case("SeLuDropout", "", MAPS, name="test", phase="TEST"),
    layer_case("SpatialDropout", "", MAPS, name="train", random=True),
    layer_case("SpatialDropout", "", MAPS, name="test", phase="TEST"),
)

"""Errors that layers raise for invalid settings and shapes."""

import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text

INVALID_LAYERS = [
    ("PReLU", "", [(3,)], "needs a bottom with a channel axis"),
    ("Clip", "", [(2, 3)], "must set min and max"),
    ("Exp", "exp_param { base: 0 }", [(2,)], "base must be positive, or -1 for e, not 0"),
    ("Log", "log_param { base: -2 }", [(2,)], "base must be positive, or -1 for e, not -2"),
    ("Log", "log_param { base: 1 }", [(2,)], "no logarithm to base 1"),
    ("Bias", "", [(2, 3, 4), (2,)], "dimension mismatch"),
    ("Bias", "bias_param { axis: 2 }", [(2, 3, 4), (4, 2)], "dimension mismatch"),
    ("Bias", "bias_param { axis: 2 num_axes: 2 }", [(2, 3, 4)], "extends past the bottom"),
    ("Scale", "scale_param { num_axes: -2 }", [(2, 3, 4)], "num_axes must be -1"),
    ("Scale", "scale_param { axis: 3 }", [(2, 3, 4)], "axis 3 is out of range"),
    ("Scale", "scale_param { bias_term: true }", [(2, 3, 4), (4,)], "dimension mismatch"),
    ("Eltwise", "", [(2, 3), (2, 4)], r"the shape of bottom 0, \(2, 3\), but has \(2, 4\)"),
    ("Eltwise", "eltwise_param { coeff: 1 }", [(2,), (2,)], "once for each bottom, or not at all: 2 times, not 1"),
    (
        "Eltwise",
        "eltwise_param { operation: PROD coeff: 1 coeff: 1 }",
        [(2,), (2,)],
        "cannot be used with operation PROD",
    ),
    ("Eltwise", "eltwise_param { operation: MIN }", [(2,), (2,)], "MIN is not supported"),
    ("BatchNorm", "", [(4,)], "needs a bottom with a channel axis"),
    ("BatchNorm", "param { lr_mult: 1 }", [(4, 2)], "lr_mult must be 0"),
    ("MVN", "", [(1, 2, 3, 4, 5)], "has 5 axes"),
    ("EuclideanLoss", "", [(2, 3), (3, 3)], "same first dimension"),
    ("EuclideanLoss", "", [(2, 3), (2, 4)], "same dimension"),
    ("EuclideanLoss", "", [(2, 1, 1, 1, 3), (2, 3)], "more than 4 axes must have equal shapes"),
    ("ContrastiveLoss", "", [(2, 3), (2, 4), (2,)], "as many channels"),
    ("ContrastiveLoss", "", [(2, 3, 2), (2, 3, 2), (2,)], r"\(pairs, channels, 1, 1\)"),
    ("HingeLoss", "", [(2, 3), (3,)], "same first dimension"),
    ("MultinomialLogisticLoss", "", [(2, 3), (2, 2)], "one label for each of the 2 examples"),
    ("InfogainLoss", "", [(2, 3), (2,)], "the infogain matrix is missing"),
    ("InfogainLoss", "", [(2, 3), (2,), (3, 2)], "infogain matrix must have 3 x 3 elements"),
    ("InfogainLoss", "", [(2, 3), (2, 2), (3, 3)], "number of labels must match number of predictions"),
    ("InfogainLoss", "loss_param { normalize: true }", [(2, 3), (2,), (3, 3)], "normalize is deprecated"),
    ("InfogainLoss", 'infogain_loss_param { source: "nowhere" }', [(2, 3), (2,)], "nowhere.*no such file"),
    ("SigmoidCrossEntropyLoss", "", [(3, 4), (3, 5)], "same number of elements"),
    ("Embed", "embed_param { num_output: 3 }", [(5,)], "input_dim must be positive"),
    ("Embed", "embed_param { input_dim: 3 }", [(5,)], "num_output must be positive"),
    ("ArgMax", "argmax_param { top_k: 7 }", [(2, 2, 3)], "top_k must be between 1 and 6"),
    ("ArgMax", "argmax_param { top_k: 0 }", [(2, 3)], "top_k must be between 1 and 3"),
    ("ArgMax", "argmax_param { axis: 1 top_k: 4 }", [(2, 3, 4)], "top_k must be between 1 and 3"),
    ("ArgMax", "argmax_param { axis: -4 }", [(2, 3, 4)], "axis -4 is out of range"),
    ("BatchReindex", "", [(5, 3), (2, 2)], "must have one axis"),
    ("Crop", "", [(2, 3, 4, 4), (2, 3, 5, 4)], "does not fit along axis 2"),
    (
        "Crop",
        "crop_param { offset: 1 offset: 2 offset: 3 }",
        [(2, 3, 4, 4), (2, 3, 2, 2)],
        "one for each of the 2 cropped axes, not 3",
    ),
    ("Crop", "crop_param { offset: 3 }", [(2, 3, 4, 4), (2, 3, 2, 2)], "offset 3 plus size 2 exceeds 4"),
    ("Crop", "", [(2, 3, 4, 4), (2, 3)], "bottom 1 needs 4 axes"),
    ("Flatten", "flatten_param { axis: 3 end_axis: 1 }", [(2, 3, 4, 5)], "axis 3 must not be after end_axis 1"),
    ("Flatten", "flatten_param { end_axis: 4 }", [(2, 3, 4, 5)], "end_axis 4 is out of range"),
    ("Reshape", "reshape_param { shape { dim: -1 dim: -1 } }", [(2, 3)], "only one -1"),
    ("Reshape", "reshape_param { shape { dim: 2 dim: 3 dim: 0 } }", [(2, 3)], "copies axis 2"),
    ("Reshape", "reshape_param { shape { dim: 4 dim: -1 } }", [(2, 3)], "axes, 4, must divide 6"),
    ("Reshape", "reshape_param { shape { dim: 4 dim: 2 } }", [(2, 3)], "must have as many elements"),
    ("Reshape", "reshape_param { shape { dim: -2 } }", [(2, 3)], "0 to copy and -1 to infer"),
    ("Reshape", "reshape_param { axis: 1 num_axes: 2 }", [(2, 3)], "extend past the last axis"),
    ("Reshape", "reshape_param { axis: 3 }", [(2, 3)], "axis 3 is out of range"),
    ("Reshape", "reshape_param { num_axes: -2 }", [(2, 3)], "num_axes must be 0 or more"),
    ("Slice", "slice_param { axis: 1 slice_dim: 0 }", [(2, 3)], "either axis or slice_dim, not both"),
    ("Slice", "slice_param { slice_point: 1 }", [(2, 3)], "needs 0 slice_points for 1 top, not 1"),
    ("Tile", "", [(2, 3)], "tiles must be set"),
    ("Reduction", "reduction_param { operation: TOPK }", [(2, 3)], "operation TOPK is not supported"),
    ("Im2col", "", [(2, 3, 4, 4)], "kernel_size .* must be set"),
    ("Im2col", "convolution_param { kernel_size: 2 axis: -1 }", [(2, 3, 4)], "needs spatial axes"),
    ("Im2col", "convolution_param { kernel_size: 5 }", [(2, 3, 4, 4)], "kernel does not fit"),
    ("Deconvolution", "convolution_param { kernel_size: 2 }", [(2, 3, 4, 4)], "num_output must be positive"),
    (
        "Deconvolution",
        "convolution_param { num_output: 2 kernel_size: 2 pad: 3 }",
        [(1, 2, 3, 3)],
        "the top would be empty",
    ),
    (
        "Deconvolution",
        "convolution_param { num_output: 3 kernel_size: 2 group: 2 }",
        [(1, 2, 3, 3)],
        "multiples of group",
    ),
    ("Pooling", "pooling_param { kernel_size: 2 pool: STOCHASTIC pad: 1 }", [(1, 1, 4, 4)], "does not support padding"),
    ("Pooling", "pooling_param { kernel_size: 2 pool: AVE_TF }", [(1, 1, 4, 4)], "pool: AVE_TF is not supported"),
    ("SPP", "", [(1, 1, 4, 4)], "pyramid_height must be set"),
    ("SPP", "spp_param { pyramid_height: 3 }", [(1, 1, 5, 5)], r"pad \(2, 2\) must be less than kernel \(2, 2\)"),
    ("SPP", "spp_param { pyramid_height: 4000000000 }", [(1, 1, 5, 5)], "at most 3 levels"),
    ("SPP", "spp_param { pyramid_height: 1 }", [(2, 3, 4)], "needs a bottom with 4 axes"),
    ("LSTM", "", [(4, 2, 3), (4, 2)], "num_output must be positive"),
    ("LSTM", "recurrent_param { num_output: 3 }", [(4, 2, 3), (4, 3)], r"bottom 1 must have shape \(4, 2\)"),
    ("LSTM", "recurrent_param { num_output: 3 }", [(4, 2), (4, 2)], "at least 3 axes"),
    (
        "LSTM",
        "recurrent_param { num_output: 3 }",
        [(4, 2, 3), (4, 2), (3, 3)],
        r"x_static, must have shape \(2, \.\.\.\)",
    ),
    ("LSTM", "recurrent_param { num_output: 3 }", [(4, 2, 3), (4, 2), (2, 3), (2, 3)], "needs 2 bottoms, or 3"),
    ("RNN", "recurrent_param { num_output: 3 expose_hidden: true }", [(4, 2, 3), (4, 2)], "needs 3 bottoms, or 4"),
    (
        "RNN",
        "recurrent_param { num_output: 3 expose_hidden: true }",
        [(4, 2, 3), (4, 2), (1, 2, 3)],
        "needs 2 tops, not 1",
    ),
]


INVALID_LAYERS_WITH_TOPS = [
    ("Slice", "", [(2, 5)], 2, "must divide axis 1"),
    ("Slice", "slice_param { slice_point: 3 slice_point: 3 }", [(2, 5)], 3, "slice_point must be increasing numbers"),
    ("Slice", "slice_param { slice_point: 0 }", [(2, 5)], 2, "slice_point must be increasing numbers"),
    ("Slice", "slice_param { slice_point: 6 }", [(2, 5)], 2, "slice_point must be increasing numbers"),
    ("LSTMUnit", "", [(2, 3, 4), (2, 3, 16), (2, 3)], 2, "bottom 0, the cell"),
    ("LSTMUnit", "", [(1, 3, 4), (1, 3, 12), (1, 3)], 2, r"bottom 1, the gates, must have shape \(1, 3, 16\)"),
    ("LSTMUnit", "", [(1, 3, 4), (1, 3, 16), (3, 1)], 2, "bottom 2, cont"),
    (
        "LSTM",
        "recurrent_param { num_output: 3 expose_hidden: true }",
        [(4, 2, 5), (4, 2), (1, 2, 3), (1, 2, 4)],
        3,
        r"bottom 3 must have the shape of the state, \(1, 2, 3\), not \(1, 2, 4\)",
    ),
    ("Pooling", "pooling_param { kernel_size: 2 pool: STOCHASTIC }", [(1, 1, 4, 4)], 2, "only MAX"),
]


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"), INVALID_LAYERS, ids=[f"{r[0]}-{r[3]}" for r in INVALID_LAYERS]
)
def test_invalid_layer_is_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(GraphError, match=message) as exc_info:
        Net(net_text(layer_type, text, shapes))
    assert f"layer 'layer' ({layer_type})" in str(exc_info.value)


@pytest.mark.parametrize(("layer_type", "text", "shapes", "tops", "message"), INVALID_LAYERS_WITH_TOPS)
def test_invalid_layer_with_several_tops_is_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], tops: int, message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        Net(net_text(layer_type, text, shapes, tops))

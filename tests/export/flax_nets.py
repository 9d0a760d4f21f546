"""Nets that are exported as flax source."""

from caffejax import Net
from caffejax.export import InferenceModel
from export.random_params import draw_variables

# one layer after an input of the shape: its type, and the rest of it
LAYERS: dict[str, tuple[tuple[int, ...], str]] = {
    "conv": ((2, 3, 7, 6), 'type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 }'),
    "conv, odd": (
        (2, 4, 9, 8),
        'type: "Convolution" convolution_param { num_output: 6 group: 2 kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1'
        " pad_h: 0 pad_w: 2 dilation: 2 bias_term: false }",
    ),
    "conv, kernel larger than its input": (
        (2, 2, 3, 3),
        'type: "Convolution" convolution_param { num_output: 2 kernel_size: 4 stride: 2 }',
    ),
    "conv, one axis": ((2, 3, 9), 'type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 stride: 2 }'),
    "conv, three axes": ((1, 2, 4, 5, 4), 'type: "Convolution" convolution_param { num_output: 3 kernel_size: 3 }'),
    "depthwise": (
        (2, 4, 6, 6),
        'type: "ConvolutionDepthwise" convolution_param { num_output: 4 kernel_size: 3 pad: 1 }',
    ),
    "deconv": (
        (2, 3, 4, 5),
        'type: "Deconvolution" convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 dilation: 2 }',
    ),
    "deconv, groups": (
        (2, 4, 4, 5),
        'type: "Deconvolution" convolution_param { num_output: 6 group: 2 kernel_h: 4 kernel_w: 3 stride: 2 pad: 1 }',
    ),
    "conv 3-D": (
        (2, 3, 4, 7, 6),
        'type: "Convolution3D" convolution_param { num_output: 4 kernel_size: 3 kernel_depth: 2 stride: 2 pad: 1 '
        "temporal_stride: 2 temporal_pad: 1 }",
    ),
    "conv of axes": (
        (2, 4, 3, 5, 6),
        'type: "NdConvolution" convolution_param { num_output: 6 group: 2 kernel_shape { dim: 2 dim: 3 dim: 1 } '
        "pad_shape { dim: 1 dim: 0 dim: 0 } }",
    ),
    "deconv 3-D": (
        (2, 3, 2, 4, 5),
        'type: "Deconvolution3D" convolution_param { num_output: 4 kernel_size: 4 kernel_depth: 3 stride: 2 pad: 1 }',
    ),
    "max 3-D": ((2, 3, 3, 7, 8), 'type: "Pooling3D" pooling_param { kernel_size: 2 kernel_depth: 2 stride: 2 }'),
    "max 3-D, whole": ((2, 3, 2, 4, 4), 'type: "Pooling3D" pooling_param { kernel_size: 4 kernel_depth: 2 }'),
    "ave 3-D": (
        (2, 3, 4, 6, 8),
        'type: "Pooling3D" pooling_param { pool: AVE kernel_size: 3 kernel_depth: 3 stride: 2 pad: 1 }',
    ),
    "ave of axes": (
        (2, 3, 4, 6, 5),
        'type: "NdPooling" pooling_param { pool: AVE kernel_shape { dim: 2 dim: 3 dim: 2 } '
        "stride_shape { dim: 2 dim: 2 dim: 2 } pad_shape { dim: 0 dim: 1 dim: 0 } }",
    ),
    "fc": ((2, 3, 4, 5), 'type: "InnerProduct" inner_product_param { num_output: 6 }'),
    "fc, transposed": (
        (2, 7),
        'type: "InnerProduct" inner_product_param { num_output: 6 transpose: true bias_term: false }',
    ),
    "fc, axis 2": ((2, 3, 4, 5), 'type: "InnerProduct" inner_product_param { num_output: 6 axis: 2 }'),
    "max": ((2, 3, 7, 8), 'type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }'),
    "max, padded": ((2, 3, 6, 8), 'type: "Pooling" pooling_param { kernel_size: 3 stride: 2 pad: 1 }'),
    "max, windows of padding": ((2, 3, 3, 3), 'type: "Pooling" pooling_param { kernel_size: 2 stride: 1 pad: 1 }'),
    "ave": ((2, 3, 7, 8), 'type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 }'),
    "ave, padded": ((2, 3, 6, 8), 'type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }'),
    "ave, odd": (
        (2, 3, 9, 8),
        'type: "Pooling" pooling_param { pool: AVE kernel_h: 3 kernel_w: 2 stride: 2 pad_h: 2 pad_w: 1 }',
    ),
    "max, global": ((2, 3, 5, 4), 'type: "Pooling" pooling_param { global_pooling: true }'),
    "ave, floor": (
        (2, 3, 8, 8),
        'type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 round_mode: FLOOR }',
    ),
    "leaky": ((2, 3, 4), 'type: "ReLU" relu_param { negative_slope: 0.1 }'),
    "prelu": ((2, 3, 4, 5), 'type: "PReLU"'),
    "prelu, shared": ((2, 3, 4, 5), 'type: "PReLU" prelu_param { channel_shared: true }'),
    "elu": ((2, 5), 'type: "ELU" elu_param { alpha: 0.5 }'),
    "sigmoid": ((2, 5), 'type: "Sigmoid"'),
    "tanh": ((2, 5), 'type: "TanH"'),
    "bnll": ((2, 5), 'type: "BNLL"'),
    "abs": ((2, 5), 'type: "AbsVal"'),
    "relu6": ((2, 5), 'type: "ReLU6"'),
    "swish": ((2, 5), 'type: "Swish" swish_param { beta: 1.5 }'),
    "hard swish": ((2, 50), 'type: "HardSwish"'),
    "hard sigmoid": ((2, 50), 'type: "HardSigmoid"'),
    "mish": ((2, 5), 'type: "Mish"'),
    "clip": ((2, 5), 'type: "Clip" clip_param { min: -0.5 max: 0.25 }'),
    "clip, min above max": ((2, 5), 'type: "Clip" clip_param { min: 0.5 max: -0.25 }'),
    "threshold": ((2, 5), 'type: "Threshold" threshold_param { threshold: 0.1 }'),
    "power": ((2, 5), 'type: "Power" power_param { power: 2 scale: -0.5 shift: 3 }'),
    "power, constant": ((2, 5), 'type: "Power" power_param { power: 3 scale: 0 shift: 0.5 }'),
    "exp": ((2, 5), 'type: "Exp" exp_param { base: 2 shift: 1 }'),
    "log": ((2, 5), 'type: "Log" log_param { scale: 0.1 shift: 5 base: 10 }'),
    "scale": ((2, 3, 4, 5), 'type: "Scale" scale_param { bias_term: true }'),
    "scale, two axes": ((2, 3, 4, 5), 'type: "Scale" scale_param { axis: 1 num_axes: 2 }'),
    "scale, last axis": ((2, 3, 4, 5), 'type: "Scale" scale_param { axis: 3 num_axes: 1 }'),
    "scale, one number": ((2, 3, 4, 5), 'type: "Scale" scale_param { num_axes: 0 }'),
    "bias": ((2, 3, 4, 5), 'type: "Bias"'),
    "batch norm": ((2, 3, 4, 5), 'type: "BatchNorm" batch_norm_param { eps: 0.001 }'),
    "batch norm, fixed": ((2, 3), 'type: "BatchNorm" batch_norm_param { use_global_stats: true }'),
    "batch norm, NVIDIA's": ((2, 3, 4, 5), 'type: "BatchNorm" batch_norm_param { scale_bias: true eps: 1e-8 }'),
    "bn": ((2, 3, 4, 5), 'type: "BN" bn_param { momentum: 0.9 slope_filler { value: 1 } }'),
    "lrn": ((2, 7, 4, 5), 'type: "LRN" lrn_param { local_size: 3 alpha: 0.5 beta: 0.6 k: 2 }'),
    "lrn, within": ((2, 3, 6, 5), 'type: "LRN" lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }'),
    "mvn": ((2, 3, 6, 5), 'type: "MVN"'),
    "mvn, across": ((2, 3, 6, 5), 'type: "MVN" mvn_param { across_channels: true }'),
    "mvn, mean": ((2, 3, 6, 5), 'type: "MVN" mvn_param { normalize_variance: false }'),
    "normalize": ((2, 3, 6, 5), 'type: "Normalize" norm_param { across_spatial: false channel_shared: false }'),
    "normalize, whole": ((2, 3, 6, 5), 'type: "Normalize" norm_param { }'),
    "features of length 1": ((2, 7), 'type: "Normalize"'),
    "places of length 1": ((2, 7, 3, 2), 'type: "Normalize"'),
    "distance": ((2, 3, 4, 5), 'type: "InnerDistance" inner_distance_param { num_output: 6 }'),
    "distance, L1": ((2, 7), 'type: "InnerDistance" inner_distance_param { num_output: 6 distance_type: "L1" }'),
    "flatten": ((2, 3, 4, 5), 'type: "Flatten"'),
    "flatten, middle": ((2, 3, 4, 5), 'type: "Flatten" flatten_param { axis: 2 end_axis: 3 }'),
    "reshape": ((2, 6, 4, 5), 'type: "Reshape" reshape_param { shape { dim: 0 dim: 3 dim: -1 dim: 4 } }'),
    "permute": ((2, 3, 4, 5), 'type: "Permute" permute_param { order: 0 order: 3 order: 1 order: 2 }'),
    "shuffle": ((2, 6, 4, 5), 'type: "ShuffleChannel" shuffle_channel_param { group: 3 }'),
    "tile": ((2, 3, 4, 5), 'type: "Tile" tile_param { axis: 1 tiles: 2 }'),
    "flip": ((2, 3, 4, 5), 'type: "Flip" flip_param { flip_height: true }'),
    "softmax": ((2, 3, 4, 5), 'type: "Softmax"'),
    "softmax, other axis": ((2, 3, 4, 5), 'type: "Softmax" softmax_param { axis: 2 }'),
    "reduction": ((2, 3, 4, 5), 'type: "Reduction" reduction_param { operation: MEAN axis: 2 coeff: 3 }'),
    "argmax": ((2, 5, 4, 3), 'type: "ArgMax" argmax_param { axis: 1 }'),
    "interp": ((2, 3, 4, 5), 'type: "Interp" interp_param { height: 7 width: 12 }'),
    "interp, cropped": ((2, 3, 9, 9), 'type: "Interp" interp_param { zoom_factor: 2 pad_beg: -1 pad_end: -2 }'),
    "upsample": ((2, 3, 4, 5), 'type: "Upsample" upsample_param { scale: 2 }'),
    "padding": ((2, 3, 4, 5), 'type: "Padding" padding_param { pad_beg: 1 pad_end: 2 }'),
    "dropout": ((2, 5), 'type: "Dropout" dropout_param { dropout_ratio: 0.3 scale_train: false }'),
}


def make_one_layer_net(name: str) -> str:
    """A net of one of the layers."""
    shape, text = LAYERS[name]
    dims = " ".join(f"dim: {n}" for n in shape)
    net_text = f'layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ {dims} }} }} }}'
    return f'{net_text} layer {{ name: "layer" bottom: "data" top: "top" {text} }}'


def input_layer(*shape: int, name: str = "data") -> str:
    """An input."""
    dims = " ".join(f"dim: {n}" for n in shape)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}'


def layer(layer_type: str, name: str, bottoms: str, tops: str, settings: str = "") -> str:
    """A layer; bottoms and tops are separated by spaces."""
    blob_fields = [f'bottom: "{b}"' for b in bottoms.split()] + [f'top: "{t}"' for t in tops.split()]
    return f'layer {{ name: "{name}" type: "{layer_type}" {" ".join(blob_fields)} {settings} }}'


SHARED = 'param { name: "w" } param { name: "c" }'


def make_residual_net(blocks: int, channels: int = 4) -> str:
    """Blocks of convolution, normalisation and a sum, between a first convolution and a classifier."""
    settings = f"convolution_param {{ num_output: {channels} kernel_size: 3 pad: 1 bias_term: false }}"
    layers = [
        'name: "Tiny ResNet"',
        input_layer(2, 3, 8, 8),
        layer("Convolution", "conv1", "data", "conv1", settings),
    ]
    for k in range(blocks):
        previous = f"res{k - 1}" if k else "conv1"
        layers += [
            layer("Convolution", f"res{k}_a", previous, f"res{k}_a", settings),
            layer("BatchNorm", f"bn{k}_a", f"res{k}_a", f"res{k}_a"),
            layer("Scale", f"scale{k}_a", f"res{k}_a", f"res{k}_a", "scale_param { bias_term: true }"),
            layer("ReLU", f"relu{k}_a", f"res{k}_a", f"res{k}_a"),
            layer("Convolution", f"res{k}_b", f"res{k}_a", f"res{k}_b", settings),
            layer("Eltwise", f"res{k}", f"{previous} res{k}_b", f"res{k}"),
            layer("ReLU", f"relu{k}", f"res{k}", f"res{k}"),
        ]
    layers += [
        layer("Pooling", "pool", f"res{blocks - 1}", "pool", "pooling_param { pool: AVE kernel_size: 4 stride: 4 }"),
        layer("Dropout", "drop", "pool", "pool"),
        layer("InnerProduct", "fc", "pool", "fc", "inner_product_param { num_output: 5 }"),
        layer("Softmax", "prob", "fc", "prob"),
    ]
    return "\n".join(layers)


def join_layers(*layers: str) -> str:
    return "\n".join(layers)


# several layers, for what they do together
NETS: dict[str, str] = {
    "flatten, then fc": join_layers(
        input_layer(2, 3, 4, 5),
        layer("Flatten", "flat", "data", "flat"),
        layer("ReLU", "relu", "flat", "flat"),
        layer("InnerProduct", "ip", "flat", "ip", "inner_product_param { num_output: 3 }"),
        layer("Concat", "both", "ip flat", "both"),
    ),
    "interp to the size of a second bottom": join_layers(
        input_layer(2, 3, 4, 5),
        layer("Pooling", "pool", "data", "pool", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"),
        layer("Interp", "up", "pool data", "up"),
        layer("Eltwise", "sum", "up data", "sum"),
    ),
    "two bottoms": join_layers(
        input_layer(2, 3, 4, 5),
        input_layer(2, 3, name="factor"),
        input_layer(2, 3, 4, 5, name="other"),
        layer("Scale", "scale", "data factor", "scaled", "scale_param { axis: 0 }"),
        layer("Axpy", "axpy", "factor scaled other", "axpy"),
        layer("Eltwise", "sum", "axpy other data", "sum", "eltwise_param { coeff: 1 coeff: -0.5 coeff: -1 }"),
        layer("Eltwise", "product", "sum data", "product", "eltwise_param { operation: PROD }"),
        layer("Eltwise", "most", "product data sum", "most", "eltwise_param { operation: MAX }"),
        layer("Bias", "bias", "most factor", "biased", "bias_param { axis: 0 }"),
    ),
    "cut and put together": join_layers(
        input_layer(2, 6, 4, 5),
        layer("Slice", "halves", "data", "a b"),
        layer("Slice", "parts", "a", "c d", "slice_param { axis: 2 slice_point: 1 }"),
        layer("Concat", "concat", "d c", "e", "concat_param { axis: 2 }"),
        layer("Concat", "cat", "b e a", "f"),
        layer("Crop", "crop", "f c", "g", "crop_param { axis: 2 offset: 1 offset: 0 }"),
    ),
    "orders": join_layers(
        input_layer(2, 6, 4, 5),
        layer("Permute", "permute", "data", "p", "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
        layer("Flatten", "flat", "p", "flat"),
        layer("Reshape", "rows", "flat", "rows", "reshape_param { shape { dim: 0 dim: -1 dim: 3 } }"),
        layer("Softmax", "prob", "rows", "prob", "softmax_param { axis: 2 }"),
        layer("Flatten", "again", "prob", "again"),
        layer("Reshape", "back", "again", "q", "reshape_param { shape { dim: 0 dim: 4 dim: 5 dim: 6 } }"),
        layer("InnerProduct", "ip", "p", "ip", "inner_product_param { num_output: 3 }"),
        layer("Eltwise", "sum", "p q", "sum"),
        layer("Convolution", "conv", "sum", "conv", "convolution_param { num_output: 2 kernel_size: 1 }"),
    ),
    "shared": join_layers(
        input_layer(2, 3, name="a"),
        input_layer(2, 3, name="b"),
        *(
            layer("InnerProduct", f"f{n}", n, f"f{n}", f"{SHARED} inner_product_param {{ num_output: 4 }}")
            for n in "ab"
        ),
    ),
    "the largest of equal numbers": join_layers(
        input_layer(2, 5, 4, 3),
        layer("Threshold", "step", "data", "step"),
        layer("ArgMax", "last", "step", "last", "argmax_param { axis: 1 }"),
    ),
    "distance to another bottom": join_layers(
        input_layer(2, 3, 4, 5),
        layer("Flatten", "flat", "data", "flat"),
        layer("Normalize", "norm", "flat", "norm"),
        layer("Parameter", "centers", "", "centers", "parameter_param { shape { dim: 4 dim: 60 } }"),
        layer("InnerDistance", "distance", "norm centers", "distance"),
        layer("InnerDistance", "apart", "data centers", "apart"),
    ),
    "product with other bottoms": join_layers(
        input_layer(2, 3, 4, 5),
        layer("Parameter", "w", "", "weight", "parameter_param { shape { dim: 4 dim: 60 } }"),
        layer("Parameter", "v", "", "wide", "parameter_param { shape { dim: 60 dim: 3 } }"),
        layer("Parameter", "b", "", "bias", "parameter_param { shape { dim: 4 } }"),
        layer("InnerProduct", "f", "data weight bias", "f"),
        layer("InnerProduct", "g", "data weight", "g"),
        layer("InnerProduct", "h", "data wide", "h", "inner_product_param { transpose: true bias_term: false }"),
    ),
    "back to where maxima were": join_layers(
        input_layer(2, 3, 7, 8),
        layer("Pooling", "p", "data", "p pm", "pooling_param { kernel_size: 2 stride: 2 }"),
        layer("BN", "bn", "p", "bn", "bn_param { shift_filler { value: 0 } }"),
        layer("Upsample", "u", "bn pm", "u", "upsample_param { upsample_h: 7 upsample_w: 8 }"),
        layer("BN", "fixed", "u", "v", "bn_param { bn_mode: INFERENCE }"),
        layer("BN", "in_place", "v", "v", "bn_param { bn_mode: INFERENCE }"),
        layer("Pooling", "q", "v", "q qm", "pooling_param { kernel_size: 3 stride: 2 pad: 1 }"),
        layer("Unpooling", "w", "q qm", "w", "unpooling_param { unpool_h: 7 unpool_w: 8 }"),
    ),
    "places of equal maxima": join_layers(
        input_layer(2, 3, 7, 8),
        layer("Threshold", "step", "data", "step"),
        layer(
            "Pooling", "p", "step", "p places", "pooling_param { kernel_h: 3 kernel_w: 2 stride: 2 pad_h: 1 pad_w: 0 }"
        ),
    ),
    "labels for training": join_layers(
        input_layer(2, 3),
        input_layer(2, name="label"),
        layer(
            "LabelSpecificRescale", "rescale", "data label", "a", "label_specific_rescale_param { positive_weight: 3 }"
        ),
        layer("LabelSpecificAdd", "add", "a label", "b", "label_specific_add_param { bias: -0.3 }"),
        layer("Power", "power", "b", "c", "power_param { scale: 2 }"),
    ),
    "passed on": join_layers(
        input_layer(2, 3, 4, 5),
        input_layer(2, 3, name="other"),
        layer("Gather", "gather", "data other", "a b"),
        layer("ReLU", "relu", "a", "c"),
        layer("TanH", "tanh", "b", "d"),
    ),
    "nothing to do": join_layers(input_layer(2, 3), layer("Split", "split", "data", "a")),
    "residual": make_residual_net(2),
    "residual, in a list": make_residual_net(6),
}


def make_subject(text: str) -> InferenceModel:
    """A net of that text with numbers in it."""
    net = Net(text)
    return InferenceModel(net.for_inference(), draw_variables(net))

"""The cases of the suite: layers of every registered type, and the nets in `configs/`.

Layers of forks' types are in tests/forks/fork_cases, a file for each family.
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from case import BATCH, Case, Shape, layer_case

from caffejax.core.layers import type_of
from caffejax.core.layers.packages import list_own_packages
from caffejax.core.schema import read_net

FOLDER = Path(__file__).parent
CONFIGS = FOLDER.parents[2] / "configs"
FORKS = FOLDER.parents[1] / "forks"


def convolution(param: str, *shape: int, name: str) -> Case:
    return layer_case("Convolution", f"convolution_param {{ {param} }}", (BATCH, *shape), name=name)


def pooling(param: str, *shape: int, name: str, **options: Any) -> Case:
    return layer_case("Pooling", f"pooling_param {{ {param} }}", (BATCH, *shape), name=name, **options)


def config(name: str, phase: Literal["TRAIN", "TEST"], size: int, channels: int = 3) -> Case:
    """Return the case of a net of `configs/` for smaller images, with an eighth of the filters."""
    text = (CONFIGS / name / "train_val.prototxt").read_text()
    text = re.sub(r'layer \{[^\n]*type: "Input"[^\n]*\n', "", text)
    text = re.sub(r"(num_output|group): (\d+)", lambda m: f"{m[1]}: {max(int(m[2]) // 8, min(int(m[2]), 2))}", text)
    input_shapes: dict[str, Shape] = {"data": (BATCH, channels, size, size)}
    if phase == "TRAIN":
        input_shapes["label"] = (BATCH,)
    return Case(
        f"{name}_{phase}", text, input_shapes, phase, random="Dropout" in text and phase == "TRAIN", is_net=True
    )


FUSED_LAYERS = """
  layer { name: "conv" type: "Convolution" bottom: "b0" top: "conv"
    convolution_param { num_output: 4 kernel_size: 3 pad: 1 bias_term: false } }
  layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "conv" }
  layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
  layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
"""
IMAGE: Shape = (BATCH, 3, 5, 6)
MATRIX: Shape = (BATCH, 5)
LABELS: Shape = (BATCH,)
GAUSSIAN_FILLER = 'weight_filler { type: "gaussian" std: 1 }'

LAYER_CASES = [
    layer_case("AbsVal", "", MATRIX),
    layer_case("Accuracy", "accuracy_param { top_k: 2 }", MATRIX, LABELS, classes=5),
    layer_case("ArgMax", "argmax_param { top_k: 2 }", MATRIX),
    layer_case("BNLL", "", MATRIX),
    layer_case("BatchNorm", "", IMAGE, name="train"),
    layer_case("BatchNorm", "", IMAGE, name="test", phase="TEST"),
    layer_case("BatchReindex", "", MATRIX, (4,)),
    layer_case("Bias", "bias_param { filler { value: 0.5 } }", IMAGE),
    layer_case("Bias", "", IMAGE, (3,), name="bottom"),
    layer_case("Clip", "clip_param { min: -0.5 max: 0.7 }", MATRIX),
    layer_case("Concat", "", IMAGE, (BATCH, 2, 5, 6)),
    layer_case("ContrastiveLoss", "contrastive_loss_param { margin: 3 }", MATRIX, MATRIX, LABELS),
    convolution("num_output: 4 kernel_size: 3 pad: 1", 3, 6, 7, name="plain"),
    convolution("num_output: 4 kernel_size: 1", 3, 5, 6, name="pointwise"),
    convolution("num_output: 4 kernel_size: 3 stride: 2 pad: 1 group: 4", 4, 7, 6, name="depthwise"),
    convolution("num_output: 6 kernel_size: 3 group: 2 bias_term: false", 4, 6, 5, name="grouped"),
    convolution("num_output: 3 kernel_size: 2 stride: 2 dilation: 2 pad: 1", 2, 5, 6, 4, name="strided_dilated_3d"),
    convolution("num_output: 3 kernel_size: 3 stride: 2", 2, 9, name="one_d"),
    Case("Convolution_BatchNorm_Scale_ReLU_train", FUSED_LAYERS, {"b0": (BATCH, 3, 6, 5)}),
    Case("Convolution_BatchNorm_Scale_ReLU_test", FUSED_LAYERS, {"b0": (BATCH, 3, 6, 5)}, "TEST"),
    layer_case("Crop", "crop_param { axis: 2 offset: 1 }", IMAGE, (BATCH, 3, 3, 4)),
    layer_case(
        "Data",
        f'data_param {{ source: "{CONFIGS / "digits" / "digits_test_lmdb"}" batch_size: ROWS backend: LMDB }}',
        tops=2,
    ),
    layer_case("Deconvolution", "convolution_param { num_output: 4 kernel_size: 3 stride: 2 pad: 1 }", IMAGE),
    layer_case("Deconvolution", "convolution_param { num_output: 6 kernel_size: 2 group: 3 }", IMAGE, name="grouped"),
    layer_case("Dropout", "", IMAGE, name="train", random=True),
    layer_case("Dropout", "", IMAGE, name="test", phase="TEST"),
    layer_case("DummyData", 'dummy_data_param { shape { dim: 3 } data_filler { type: "gaussian" } }', random=True),
    layer_case("ELU", "elu_param { alpha: 0.5 }", MATRIX),
    layer_case("Eltwise", "eltwise_param { coeff: 2 coeff: -1 }", IMAGE, IMAGE, name="sum"),
    layer_case("Eltwise", "eltwise_param { operation: PROD }", IMAGE, IMAGE, IMAGE, name="prod"),
    layer_case("Eltwise", "eltwise_param { operation: MAX }", IMAGE, IMAGE, name="max"),
    layer_case("Embed", "embed_param { num_output: 3 input_dim: 5 }", (BATCH, 4), classes=5),
    layer_case("EuclideanLoss", "", MATRIX, MATRIX),
    layer_case("Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }", MATRIX),
    layer_case("Filter", "", MATRIX, LABELS),
    layer_case("Flatten", "", IMAGE),
    layer_case("HDF5Output", 'hdf5_output_param { file_name: "suite.h5" }', IMAGE, LABELS, tops=0),
    layer_case("HingeLoss", "hinge_loss_param { norm: L2 }", MATRIX, LABELS, classes=5),
    layer_case("Im2col", "convolution_param { kernel_size: 3 stride: 2 pad: 1 }", IMAGE),
    layer_case("InfogainLoss", "", MATRIX, LABELS, (1, 1, 5, 5), classes=2),
    layer_case("InnerProduct", "inner_product_param { num_output: 4 }", IMAGE),
    layer_case("InnerProduct", "inner_product_param { num_output: 4 transpose: true }", MATRIX, name="transposed"),
    layer_case("LRN", "lrn_param { local_size: 3 alpha: 0.5 }", IMAGE, name="across"),
    layer_case("LRN", "lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }", IMAGE, name="within"),
    layer_case("LSTM", f"recurrent_param {{ num_output: 3 {GAUSSIAN_FILLER} }}", (4, BATCH, 5), (4, BATCH)),
    layer_case("LSTMUnit", "", (1, BATCH, 3), (1, BATCH, 12), (1, BATCH), tops=2),
    layer_case("Log", "log_param { base: 2 }", MATRIX, distribution="positive"),
    layer_case("MVN", "", IMAGE),
    layer_case("MultinomialLogisticLoss", "", MATRIX, LABELS, distribution="probabilities", classes=5),
    layer_case("PReLU", "", IMAGE),
    layer_case("Parameter", "parameter_param { shape { dim: 3 dim: 4 } }"),
    pooling("pool: MAX kernel_size: 3 stride: 2 pad: 1", 3, 7, 6, name="max"),
    pooling("pool: AVE kernel_size: 3 stride: 2 pad: 1", 3, 7, 6, name="ave"),
    pooling("pool: MAX kernel_size: 2 stride: 2", 3, 6, 5, name="mask", tops=2),
    pooling("pool: AVE global_pooling: true", 3, 5, 6, name="global_ave"),
    pooling("pool: MAX global_pooling: true", 3, 5, 6, name="global_max"),
    pooling(
        "pool: STOCHASTIC kernel_size: 2 stride: 2", 3, 6, 5, name="stochastic", distribution="positive", random=True
    ),
    layer_case("Power", "power_param { power: 2 scale: 0.5 shift: 1 }", MATRIX),
    layer_case("Python", 'python_param { module: "cases" layer: "cube" }', MATRIX, name="traced"),
    layer_case("Python", 'python_param { module: "cases" layer: "Cube" }', MATRIX, name="host"),
    layer_case("RNN", f"recurrent_param {{ num_output: 3 {GAUSSIAN_FILLER} }}", (4, BATCH, 5), (4, BATCH)),
    layer_case("ReLU", "relu_param { negative_slope: 0.1 }", IMAGE),
    layer_case("Reduction", "reduction_param { axis: 1 operation: SUMSQ }", IMAGE, name="rows"),
    layer_case("Reduction", "reduction_param { operation: MEAN }", IMAGE, name="all"),
    layer_case("Reshape", "reshape_param { shape { dim: 0 dim: 5 dim: -1 } }", IMAGE),
    layer_case("SPP", "spp_param { pyramid_height: 2 pool: MAX }", IMAGE, name="max"),
    layer_case("SPP", "spp_param { pyramid_height: 2 pool: AVE }", IMAGE, name="ave"),
    layer_case("Scale", "scale_param { bias_term: true }", IMAGE),
    layer_case("Scale", "", IMAGE, (3,), name="bottom"),
    layer_case("Sigmoid", "", MATRIX),
    layer_case("SigmoidCrossEntropyLoss", "loss_param { ignore_label: 1 }", MATRIX, MATRIX),
    layer_case("Silence", "", MATRIX, tops=0),
    layer_case("Slice", "slice_param { slice_point: 1 }", IMAGE, tops=2),
    layer_case("Softmax", "", IMAGE),
    layer_case("SoftmaxWithLoss", "", MATRIX, LABELS, classes=5),
    layer_case("SoftmaxWithLoss", "loss_param { ignore_label: 1 }", IMAGE, (BATCH, 5, 6), name="ignore", classes=3),
    layer_case("Split", "", MATRIX, tops=2),
    layer_case("Swish", "swish_param { beta: 2 }", MATRIX),
    layer_case("TanH", "", MATRIX),
    layer_case("Threshold", "", MATRIX),
    layer_case("Tile", "tile_param { tiles: 2 }", IMAGE),
]

FORK_CASES: list[Case] = []
if FORKS.is_dir() and list_own_packages():  # core is tested without them, too
    sys.path.append(str(FORKS))
    for _family in sorted(module.name for module in iter_modules([str(FORKS / "fork_cases")])):
        FORK_CASES += import_module(f"fork_cases.{_family}").LAYER_CASES

# the first of each type of forks, or variant of one, is asked everything, the others about their gradients
_first_cases: dict[str, Case] = {}
for _case in FORK_CASES:
    _type = type_of(read_net(_case.prototxt(2)).layer[-1])
    _key = _case.name if _type.name == "Python" else f"{_type.name} {_type.docs.origin}"
    _first_cases.setdefault(_key, _case)
EXTRA_FORK_CASES = [case for case in FORK_CASES if case not in _first_cases.values()]
LAYER_CASES += _first_cases.values()

# nets that are run, and nets that are traced and lowered, which takes long enough
COMPILED_NETS = [
    config("lenet", "TRAIN", 16, channels=1),
    config("lenet", "TEST", 16, channels=1),
    config("cifar10_full", "TRAIN", 16),
]
LOWERED_NETS = [
    config("squeezenet", "TRAIN", 35),
    config("mobilenet", "TRAIN", 64),
    config("resnet50", "TRAIN", 64),
    config("googlenet", "TRAIN", 64),
    config("caffenet", "TRAIN", 67),
]


def cube(x: Any) -> Any:
    """A traceable Python layer."""
    return jnp.power(x, 3)


class Cube:
    """A Python layer that runs on the host."""

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = bottom[0].data ** 3

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        bottom[0].diff[...] = 3 * np.square(bottom[0].data) * top[0].diff

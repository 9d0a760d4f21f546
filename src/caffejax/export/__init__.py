"""Export of nets to StableHLO, ONNX and flax source."""

from .export_weights import load_export_weights, zero_weight_warnings
from .inference_model import BatchError, InferenceModel, make_inference_model
from .stablehlo import PLATFORMS, export_stablehlo, require_package, write_stablehlo
from .uint8_input import Uint8Preprocessing, caffe_channel_order, data_layer_preprocessing, find_image_input

__all__ = [
    "PLATFORMS",
    "BatchError",
    "InferenceModel",
    "Uint8Preprocessing",
    "caffe_channel_order",
    "data_layer_preprocessing",
    "export_stablehlo",
    "find_image_input",
    "load_export_weights",
    "make_inference_model",
    "require_package",
    "write_stablehlo",
    "zero_weight_warnings",
]

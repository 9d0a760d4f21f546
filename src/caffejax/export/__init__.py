"""Export of nets to StableHLO, ONNX and flax source."""

from .export_weights import find_zero_weights, load_export_weights
from .inference_model import BatchError, InferenceModel, make_inference_model
from .stablehlo import PLATFORMS, export_stablehlo, require_package, write_stablehlo
from .uint8_input import Uint8Preprocessing, caffe_channel_order, find_image_input, read_data_layer_preprocessing

__all__ = [
    "PLATFORMS",
    "BatchError",
    "InferenceModel",
    "Uint8Preprocessing",
    "caffe_channel_order",
    "export_stablehlo",
    "find_image_input",
    "find_zero_weights",
    "load_export_weights",
    "make_inference_model",
    "read_data_layer_preprocessing",
    "require_package",
    "write_stablehlo",
]

"""Export of nets to StableHLO, ONNX and flax source."""

from .export_weights import load_export_weights, zero_weight_warnings
from .inference_model import BatchError, InferenceModel, make_inference_model
from .preprocessing import Preprocessing, caffe_channel_order, data_layer_preprocessing, find_image_input
from .stablehlo import PLATFORMS, export_stablehlo, require_package, write_stablehlo

__all__ = [
    "PLATFORMS",
    "BatchError",
    "InferenceModel",
    "Preprocessing",
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

"""Export of nets to StableHLO, ONNX and flax source."""

from .export_weights import load_export_weights, zero_weight_warnings
from .inference_model import BatchError, Subject, make_subject
from .preprocessing import Preprocessing, colour_order, data_layer_preprocessing, image_input
from .stablehlo import PLATFORMS, export_stablehlo, require_package, write_stablehlo

__all__ = [
    "PLATFORMS",
    "BatchError",
    "Preprocessing",
    "Subject",
    "colour_order",
    "data_layer_preprocessing",
    "export_stablehlo",
    "image_input",
    "load_export_weights",
    "make_subject",
    "require_package",
    "write_stablehlo",
    "zero_weight_warnings",
]

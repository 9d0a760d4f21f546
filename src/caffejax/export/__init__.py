"""Take a net anywhere: as StableHLO, as ONNX, as flax source."""

from .inference_model import BatchError, Subject, subject_of
from .preprocessing import Preprocessing, colour_order, image_input, of_data_layer
from .stablehlo import PLATFORMS, export_stablehlo, require_package, write_stablehlo
from .weights import weights_of, zeros

__all__ = [
    "PLATFORMS",
    "BatchError",
    "Preprocessing",
    "Subject",
    "colour_order",
    "export_stablehlo",
    "image_input",
    "of_data_layer",
    "require_package",
    "subject_of",
    "weights_of",
    "write_stablehlo",
    "zeros",
]

"""Take a net anywhere: as StableHLO, as ONNX, as flax source."""

from .batch import BatchError
from .extras import require_package
from .preprocessing import Preprocessing, colour_order, image_input, of_data_layer
from .stablehlo import PLATFORMS, export_stablehlo, write_stablehlo
from .subject import Subject, subject_of
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

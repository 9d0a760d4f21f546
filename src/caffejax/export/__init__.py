"""Take a net anywhere: as StableHLO, as ONNX, as flax source."""

from .batch import BatchError
from .stablehlo import PLATFORMS, export_stablehlo, write_stablehlo
from .subject import Subject, subject_of
from .weights import weights_of

__all__ = [
    "PLATFORMS",
    "BatchError",
    "Subject",
    "export_stablehlo",
    "subject_of",
    "weights_of",
    "write_stablehlo",
]

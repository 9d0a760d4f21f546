"""Take a net anywhere: as StableHLO, as ONNX, as flax source."""

from .subject import Subject, subject_of

__all__ = ["Subject", "subject_of"]

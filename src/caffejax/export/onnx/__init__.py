"""A net as an ONNX model, through the package `onnx`."""

from .assembling import Preprocess
from .writing import OPSETS, export_onnx, write_onnx

__all__ = ["OPSETS", "Preprocess", "export_onnx", "write_onnx"]

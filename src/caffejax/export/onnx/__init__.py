"""A net as an ONNX model, through the package `onnx`.

Raises:
    CaffejaxError: when it is imported without that package.
"""

from ..extras import require_package

require_package("onnx", "writes models")

from .writing import OPSET, OPSETS, export_onnx, write_onnx  # noqa: E402

__all__ = ["OPSET", "OPSETS", "export_onnx", "write_onnx"]

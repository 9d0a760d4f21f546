"""Export to ONNX models with the package `onnx`.

Raises:
    CaffejaxError: on import, if the package is missing.
"""

from ..stablehlo import require_package

require_package("onnx", "writes models")

from .build_model import get_shapes  # noqa: E402
from .save_onnx import DEFAULT_OPSET, SUPPORTED_OPSETS, export_onnx, write_onnx  # noqa: E402

__all__ = ["DEFAULT_OPSET", "SUPPORTED_OPSETS", "export_onnx", "get_shapes", "write_onnx"]

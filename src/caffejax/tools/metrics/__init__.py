"""Callbacks that record training as JSON lines or for TensorBoard."""

from .json_lines import JsonLines, convert_outputs
from .tensorboard import TensorBoard

__all__ = ["JsonLines", "TensorBoard", "convert_outputs"]

"""Callbacks that record training as JSON lines or for TensorBoard."""

from .json_lines import JsonLines
from .tensorboard import TensorBoard

__all__ = ["JsonLines", "TensorBoard"]

"""Callbacks that record training as JSON lines or for TensorBoard."""

from .json_lines import JsonLines, plain_outputs
from .tensorboard import TensorBoard

__all__ = ["JsonLines", "TensorBoard", "plain_outputs"]

"""What records training while it goes on: JSON lines and TensorBoard; and the curves that are drawn of it."""

from .json_lines import JsonLines
from .tensorboard import TensorBoard

__all__ = ["JsonLines", "TensorBoard"]

"""Export to flax source code that reads like handwritten code, and runs and trains without caffejax."""

from .emit_context import channels_last_shape
from .save_flax import check_folder, write_flax

__all__ = ["channels_last_shape", "check_folder", "write_flax"]

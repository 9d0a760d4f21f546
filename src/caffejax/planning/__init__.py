"""What a net becomes on an accelerator that need not be there: compiled for it, and counted."""

from .compiling import plan
from .program import Program, program_of
from .result import Plan
from .scaling import Scaled
from .targets import Target, target_of

__all__ = ["Plan", "Program", "Scaled", "Target", "plan", "program_of", "target_of"]

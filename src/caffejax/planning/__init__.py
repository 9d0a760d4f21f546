"""What a net becomes on an accelerator that need not be there: compiled for it, and counted."""

from .compiling import Plan, plan
from .program import Program, program_of
from .targets import Target, target_of

__all__ = ["Plan", "Program", "Target", "plan", "program_of", "target_of"]

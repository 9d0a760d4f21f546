"""What a net becomes on an accelerator that need not be there: compiled for it, and counted."""

from .hardware import Target, target_of
from .hlo import Program, program_of
from .planner import Plan, Scaled, plan

__all__ = ["Plan", "Program", "Scaled", "Target", "plan", "program_of", "target_of"]

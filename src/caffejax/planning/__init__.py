"""Compilation of nets for accelerators that this machine does not have, with estimates of memory and step time."""

from .hardware import Target, target_of
from .hlo import Program, program_of
from .planner import Plan, Scaled, plan

__all__ = ["Plan", "Program", "Scaled", "Target", "plan", "program_of", "target_of"]

"""Compilation of nets for accelerators that this machine does not have, with estimates of memory and step time."""

from .hardware import Target, target_of
from .hlo import Program, program_of
from .planner import Plan, ScalingEstimate, plan

__all__ = ["Plan", "Program", "ScalingEstimate", "Target", "plan", "program_of", "target_of"]

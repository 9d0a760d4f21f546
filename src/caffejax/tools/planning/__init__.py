"""Compilation of nets for accelerators that this machine does not have, with estimates of memory and step time."""

from .hardware import Target, parse_target
from .hlo import ProgramStats, get_compiled_stats
from .planner import Plan, ScalingEstimate, plan

__all__ = ["Plan", "ProgramStats", "ScalingEstimate", "Target", "get_compiled_stats", "parse_target", "plan"]

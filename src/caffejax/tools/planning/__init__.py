"""Compilation of nets for accelerators that this machine does not have, with estimates of memory and step time."""

from .data_rate import DataRate, estimate_data_rate
from .hardware import Target, parse_target
from .hlo import ProgramStats, get_compiled_stats
from .planner import Plan, ScalingEstimate, plan

__all__ = [
    "DataRate",
    "Plan",
    "ProgramStats",
    "ScalingEstimate",
    "Target",
    "estimate_data_rate",
    "get_compiled_stats",
    "parse_target",
    "plan",
]

"""Schedules of a graph's layers, the passes that transform schedules, and the interpreter that runs them."""

from .interpreter import PassInputs, PassOutputs, Values, VariableTrees, compute_part, run_parts, run_schedule
from .rematerialize import run_part
from .schedule import Part, Schedule, Step, make_part, make_schedule, plan, split_by_layer

__all__ = [
    "Part",
    "PassInputs",
    "PassOutputs",
    "Schedule",
    "Step",
    "Values",
    "VariableTrees",
    "compute_part",
    "make_part",
    "make_schedule",
    "plan",
    "run_part",
    "run_parts",
    "run_schedule",
    "split_by_layer",
]

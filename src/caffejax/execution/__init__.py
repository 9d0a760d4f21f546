"""Schedules of a graph's layers, the passes that transform schedules, and the interpreter that runs them."""

from .interpreter import PassInputs, PassOutputs, Trees, Values, compute, run, run_parts
from .rematerialize import run_part
from .schedule import Part, Schedule, Step, make_part, make_schedule, plan, split_by_layer

__all__ = [
    "Part",
    "PassInputs",
    "PassOutputs",
    "Schedule",
    "Step",
    "Trees",
    "Values",
    "compute",
    "make_part",
    "make_schedule",
    "plan",
    "run",
    "run_part",
    "run_parts",
    "split_by_layer",
]

"""Schedules of a graph's layers, the passes that transform schedules, and the interpreter that runs them."""

from .interpreter import PassInputs, PassOutputs, Values, VariableTrees, compute_part, iterate_parts, run_schedule
from .rematerialize import compute_part_with_remat
from .schedule import LayerSchedule, Part, Step, make_part, make_unfused_schedule, schedule_layers, split_by_layer

__all__ = [
    "LayerSchedule",
    "Part",
    "PassInputs",
    "PassOutputs",
    "Step",
    "Values",
    "VariableTrees",
    "compute_part",
    "compute_part_with_remat",
    "iterate_parts",
    "make_part",
    "make_unfused_schedule",
    "run_schedule",
    "schedule_layers",
    "split_by_layer",
]

"""Tools that inspect a net: features, memory, timing, index checks, debug info, non-finite search."""

from .debug_info import DebugInfo
from .find_nonfinite import Culprit, find_culprit, not_finite
from .index_check import IndexCheck, check_indices
from .intermediates import features
from .memory_report import CompiledMemory, MemoryReport, compiled_memory, memory_report, net_sizes
from .timing import LayerTime, Timer, mean_times

__all__ = [
    "CompiledMemory",
    "Culprit",
    "DebugInfo",
    "IndexCheck",
    "LayerTime",
    "MemoryReport",
    "Timer",
    "check_indices",
    "compiled_memory",
    "features",
    "find_culprit",
    "mean_times",
    "memory_report",
    "net_sizes",
    "not_finite",
]

"""Tools that inspect a net: features, memory, timing, index checks, debug info, non-finite search."""

from .debug_info import DebugInfo
from .find_nonfinite import NonFinite, find_nonfinite, find_nonfinite_variable
from .index_check import IndexCheck, check_indices
from .intermediates import features
from .memory_report import CompiledMemory, MemoryReport, compiled_memory, memory_report, net_sizes
from .timing import LayerTime, Timer, mean_times

__all__ = [
    "CompiledMemory",
    "DebugInfo",
    "IndexCheck",
    "LayerTime",
    "MemoryReport",
    "NonFinite",
    "Timer",
    "check_indices",
    "compiled_memory",
    "features",
    "find_nonfinite",
    "find_nonfinite_variable",
    "mean_times",
    "memory_report",
    "net_sizes",
]

"""Tools that inspect a net: features, memory, timing, index checks, debug info, non-finite search."""

from .debug_info import DebugInfo
from .find_nonfinite import NonFinite, find_nonfinite, find_nonfinite_variable
from .index_check import IndexCheck, check_indices
from .intermediates import extract_features
from .memory_report import CompiledMemory, MemoryReport, count_elements, report_compiled_memory, report_memory
from .timing import LayerTime, Timer, average_times

__all__ = [
    "CompiledMemory",
    "DebugInfo",
    "IndexCheck",
    "LayerTime",
    "MemoryReport",
    "NonFinite",
    "Timer",
    "average_times",
    "check_indices",
    "count_elements",
    "extract_features",
    "find_nonfinite",
    "find_nonfinite_variable",
    "report_compiled_memory",
    "report_memory",
]

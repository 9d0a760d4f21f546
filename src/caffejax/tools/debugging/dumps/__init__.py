"""Dumps of all arrays of one pass of a net: recording, files, comparison by layer, and plots of errors."""

from .compare_dumps import ATOL, RTOL, compare_dumps
from .comparison_report import Comparison, Distance, Row, compute_distance, draw_errors
from .dump import Dump, DumpedLayer, read_dump, read_inputs, write_dump
from .record_dump import record_dump, replay_dump

__all__ = [
    "ATOL",
    "RTOL",
    "Comparison",
    "Distance",
    "Dump",
    "DumpedLayer",
    "Row",
    "compare_dumps",
    "compute_distance",
    "draw_errors",
    "read_dump",
    "read_inputs",
    "record_dump",
    "replay_dump",
    "write_dump",
]

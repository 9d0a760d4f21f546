"""Logs of training runs, Caffe's, ours and JSON lines, as tables."""

from .drawing import draw_runs
from .figures import new_figure, write_figure
from .reading import parse_log, read_log, read_logs
from .tables import Log, Row, write_csv

__all__ = [
    "Log",
    "Row",
    "draw_runs",
    "new_figure",
    "parse_log",
    "read_log",
    "read_logs",
    "write_csv",
    "write_figure",
]

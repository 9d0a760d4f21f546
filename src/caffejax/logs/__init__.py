"""Logs of training runs as tables: Caffe's logs, caffejax's logs, and JSON lines."""

from .log_parser import Log, Row, json_values, parse_log, read_log, read_logs, write_csv
from .log_plot import draw_runs, new_figure, write_figure

__all__ = [
    "Log",
    "Row",
    "draw_runs",
    "json_values",
    "new_figure",
    "parse_log",
    "read_log",
    "read_logs",
    "write_csv",
    "write_figure",
]

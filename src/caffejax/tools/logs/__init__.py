"""Logs of training runs as tables: Caffe's logs, caffejax's logs, and JSON lines."""

from .log_parser import Log, Row, parse_log, read_log, read_logs, to_json_values, write_csv
from .log_plot import draw_runs, make_figure, write_figure

__all__ = [
    "Log",
    "Row",
    "draw_runs",
    "make_figure",
    "parse_log",
    "read_log",
    "read_logs",
    "to_json_values",
    "write_csv",
    "write_figure",
]

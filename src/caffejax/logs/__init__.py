"""Logs of training runs, Caffe's, ours and JSON lines, as tables."""

from .reading import parse_log, read_log
from .tables import Log, Row, write_csv

__all__ = ["Log", "Row", "parse_log", "read_log", "write_csv"]

"""Dumps of a net's numbers: collected, written and read, compared layer by layer, drawn."""

from .collect import collect
from .compare import ATOL, RTOL, compare
from .comparison import Comparison, Row
from .dump import Dump, DumpedLayer
from .files import read_dump, read_inputs, write_dump
from .measure import Distance, distance
from .picture import draw_errors
from .replay import replay

__all__ = [
    "ATOL",
    "RTOL",
    "Comparison",
    "Distance",
    "Dump",
    "DumpedLayer",
    "Row",
    "collect",
    "compare",
    "distance",
    "draw_errors",
    "read_dump",
    "read_inputs",
    "replay",
    "write_dump",
]

"""Gradient checks: comparison of autodiff, the hand-written Backward and finite differences."""

from .check_gradients import check_gradients
from .report import Report, Row, WorstError

__all__ = ["Report", "Row", "WorstError", "check_gradients"]

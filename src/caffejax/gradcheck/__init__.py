"""Gradients derived in every way there is: autodiff of forward, the hand-written Backward, finite differences."""

from .check import check_gradients
from .report import Report, Row, Worst

__all__ = ["Report", "Row", "Worst", "check_gradients"]

"""Gradients derived in every way there is: autodiff of forward, the hand-written Backward, finite differences."""

from .check_gradients import Report, Row, Worst, check_gradients

__all__ = ["Report", "Row", "Worst", "check_gradients"]

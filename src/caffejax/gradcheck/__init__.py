"""Gradient checks: comparison of autodiff, the hand-written Backward and finite differences."""

from .check_gradients import Report, Row, WorstError, check_gradients

__all__ = ["Report", "Row", "WorstError", "check_gradients"]

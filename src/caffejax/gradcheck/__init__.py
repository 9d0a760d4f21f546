"""Gradient checks: comparison of autodiff, the hand-written Backward and finite differences."""

from .check_gradients import Report, Row, Worst, check_gradients

__all__ = ["Report", "Row", "Worst", "check_gradients"]

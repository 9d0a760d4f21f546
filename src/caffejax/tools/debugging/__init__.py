"""Timing of layers, pictures of blobs and weights, dumps of all values and their comparison."""

from .timing import LayerTime, Timer, average_times

__all__ = ["LayerTime", "Timer", "average_times"]

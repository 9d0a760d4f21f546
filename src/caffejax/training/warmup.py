"""Rates that training begins with in forks, before its policy: NVIDIA's `rampup_interval`, Intel's `warmup_iter`."""

from __future__ import annotations

from typing import Any

import numpy as np

_f32 = np.float32


def beginning(p: Any, iteration: int) -> np.float32 | None:
    """Return the rate of an iteration with which a fork lets training begin; None if it is over."""
    if iteration < p.rampup_interval:  # a parabola
        part = _f32(iteration) / _f32(p.rampup_interval)
        return _f32(_f32(p.rampup_lr) + (_f32(p.base_lr) - _f32(p.rampup_lr)) * part * part)
    if iteration < p.warmup_iter:  # a line
        left = p.warmup_iter - iteration
        return _f32((_f32(iteration) * _f32(p.base_lr) + _f32(left) * _f32(p.warmup_start_lr)) / _f32(p.warmup_iter))
    return None

"""The policy by which the rate falls when the loss no longer does."""

from __future__ import annotations

from typing import Any

import numpy as np

from .warmup import beginning

_f32 = np.float32


class Plateau:
    """SSD's policy `plateau`: the rate falls when the smoothed loss has not for `plateau_winsize` iterations.

    Called with an iteration it gives the rate of now. The fork looks at the loss up to the iteration under way; here it
    is up to the one before, as rates are needed before the losses are known.
    """

    def __init__(self, param: Any) -> None:
        self._param = param
        self.state: dict[str, Any] = {"step": 0, "minimum": float(np.finfo(np.float32).max), "last_event": 0}

    def note(self, iteration: int, smoothed_loss: float) -> None:
        """Take in the smoothed loss before an iteration."""
        state, windows = self.state, self._param.plateau_winsize
        if smoothed_loss < state["minimum"]:
            state.update(minimum=smoothed_loss, last_event=iteration)
        if state["step"] < len(windows) and iteration >= state["last_event"] + windows[state["step"]]:
            state.update(step=state["step"] + 1, last_event=iteration)

    def __call__(self, iteration: int) -> np.float32:
        """Return the rate of now, as that of an iteration."""
        p, begun = self._param, beginning(self._param, iteration)
        rate = _f32(_f32(p.base_lr) * _f32(float(p.gamma) ** self.state["step"])) if begun is None else begun
        return max(rate, _f32(p.min_lr))

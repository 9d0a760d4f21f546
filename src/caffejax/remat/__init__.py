"""Recomputation in place of memory: which layers of a net are run twice, and running them so.

Training keeps what the backward pass will read. Of a group of consecutive layers run under `remat` only what crosses
its ends is kept; the backward pass runs the group's layers once more and then has the rest.
"""

from __future__ import annotations

from typing import Literal, get_args

from .plan import Plan
from .running import Recomputing

Remat = Literal["none", "auto"]
CHOICES: tuple[Remat, ...] = get_args(Remat)

__all__ = ["CHOICES", "Plan", "Recomputing", "Remat"]

"""Recomputation in place of memory: which layers of a net are run twice, and running them so.

Training keeps what the backward pass will read. Of a group of consecutive layers that is recomputed only what crosses
its ends is kept; the backward pass runs the group's layers once more and then has the rest.
"""

from __future__ import annotations

from typing import Literal, get_args

Remat = Literal["none", "auto"]
CHOICES: tuple[Remat, ...] = get_args(Remat)

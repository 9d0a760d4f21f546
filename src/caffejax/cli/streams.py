"""Standard streams that a process was started without, as with `2>&-`."""

from __future__ import annotations

import os
import sys


def fill() -> None:
    """Open /dev/null for each that is closed: the next files would take their numbers, and get what is meant for them.

    Call it before any file is opened.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)

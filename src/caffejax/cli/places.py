"""Whether a command's file can stand where it is to: asked before anything is computed."""

from __future__ import annotations

import os

from ..atomic import check_place
from ..errors import CaffejaxError


def check_out(out: str, *read: str | None) -> None:
    """Check that a file can be written there, and would not take the place of one that the command reads.

    Raises:
        CaffejaxError: if not.
    """
    place = check_place(out)
    if any(path is not None and os.path.realpath(path) == str(place) for path in read):
        raise CaffejaxError(f"{out}: what is written would take the place of what is read; --out names another file")

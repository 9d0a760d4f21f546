"""A net's page, in a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..atomic import replacing
from ..options import Reading
from .page import page
from .seen import SeenNet, see
from .told import told


def page_of(seen: SeenNet) -> bytes:
    """Return the page of a net: one file of HTML, which needs no network."""
    return page(told(seen))


def write_page(
    file: str | os.PathLike[str],
    out: str | os.PathLike[str],
    level: int = 0,
    stages: Sequence[str] = (),
    reading: Reading = Reading(),
) -> SeenNet:
    """Write the page of a net's file; return what is seen on it. A net that is wrong is drawn with its problems.

    Args:
        file: a prototxt.
        out: the page, `.html`.
        level, stages: of the states to show it in.
        reading: how its data is read, where it is there.

    Raises:
        SchemaError: if there is no such prototxt, or it is no text.
        CaffejaxError: if the page cannot be written.
    """
    seen = see(Path(file), level, stages, reading)
    content = page_of(seen)
    with replacing(out) as page_file:
        page_file.write(content)
    return seen

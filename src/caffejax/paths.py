"""Paths that stand in files."""

from __future__ import annotations

import os
from pathlib import Path


def find(name: str, folder: Path | None) -> Path:
    """Find a path as Caffe does, from the working directory; if nothing is there, from the naming file's folder."""
    given = Path(os.path.expanduser(name))
    beside = folder / given if folder is not None else given
    return beside if beside.exists() and not given.exists() else given

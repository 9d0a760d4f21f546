"""Figures of matplotlib, which is an extra: made without its global state, and written whole or not at all."""

from __future__ import annotations

import os
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

from ..atomic import replacing
from ..errors import CaffejaxError


def new_figure(**settings: Any) -> Any:
    """Return an empty matplotlib Figure.

    Raises:
        CaffejaxError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CaffejaxError("plots need matplotlib: pip install 'caffejax[plot]'") from error
    return Figure(**settings)


def write_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure in the format that the name's end says.

    Raises:
        CaffejaxError: if there is no such format, or the file cannot be written.
    """
    picture = BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # of a name, which the font does not have
            figure.savefig(picture, format=Path(path).suffix[1:] or None)
    except ValueError as error:
        raise CaffejaxError(f"{path}: {error}") from error
    with replacing(path) as file:
        file.write(picture.getvalue())

"""Whether a picture can be written as its name says: asked before anything is computed."""

from __future__ import annotations

from pathlib import Path

from ..atomic import check_place
from ..errors import CaffejaxError


def check_figure(path: str) -> None:
    """Check that matplotlib writes files with such names, and that there is such a folder.

    Raises:
        CaffejaxError: if not, or if it is not installed.
    """
    check_place(path)
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise CaffejaxError("pictures need matplotlib: pip install 'caffejax[plot]'") from error
    suffix, known = Path(path).suffix[1:].lower(), FigureCanvasBase.get_supported_filetypes()
    if suffix not in ("", *known):
        formats = ", ".join(f".{name}" for name in sorted(known))
        raise CaffejaxError(f"{path}: '.{suffix}' is no format of pictures; known are {formats}")


def check_image(path: str) -> None:
    """Check that OpenCV writes files with such names, and that there is such a folder.

    Raises:
        CaffejaxError: if not.
    """
    import numpy as np

    from ..debugging.visualize import encoded
    from ..errors import located

    check_place(path)
    with located(file=path):
        encoded(np.zeros((1, 1), np.uint8), Path(path).suffix)

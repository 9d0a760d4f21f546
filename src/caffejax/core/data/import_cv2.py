"""The import of OpenCV (`cv2`), after which LD_LIBRARY_PATH is restored.

The import changes this environment variable, and child processes would inherit the change.
"""

from __future__ import annotations

import os

_VARIABLE = "LD_LIBRARY_PATH"
_original_value = os.environ.get(_VARIABLE)

import cv2  # noqa: E402

if _original_value is not None:
    os.environ[_VARIABLE] = _original_value
else:
    os.environ.pop(_VARIABLE, None)

__all__ = ["cv2"]

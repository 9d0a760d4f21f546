"""The import of OpenCV (`cv2`), after which LD_LIBRARY_PATH is restored.

The import changes this environment variable, and child processes would inherit the change.
"""

from __future__ import annotations

import os

_NAME = "LD_LIBRARY_PATH"
_before = os.environ.get(_NAME)

import cv2  # noqa: E402

if _before is not None:
    os.environ[_NAME] = _before
else:
    os.environ.pop(_NAME, None)

__all__ = ["cv2"]

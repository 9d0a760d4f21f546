"""OpenCV (`cv2`), imported without a change of LD_LIBRARY_PATH.

Importing cv2 changes this environment variable, which child processes would inherit.
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

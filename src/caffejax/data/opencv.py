"""OpenCV, imported without its change of LD_LIBRARY_PATH, which child processes would inherit."""

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

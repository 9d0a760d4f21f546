"""OpenCV 4's interface to nets, `cv2.dnn`, for Caffe's models, which OpenCV 5 no longer reads.

    import caffejax.dnn as dnn

    net = dnn.readNetFromCaffe("deploy.prototxt", "net.caffemodel")
    net.setInput(dnn.blobFromImage(image, 1.0, (300, 300), (104, 177, 123)))
    detections = net.forward()

`install()` puts these functions and classes into `cv2.dnn`, for unchanged scripts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .custom_layers import registerLayer, unregisterLayer
from .models import ClassificationModel, DetectionModel, KeypointsModel, Model, SegmentationModel
from .net import CONSTANTS, Layer, Net
from .opencv_errors import add_opencv_error
from .read_models import is_caffe, readNet, readNetFromCaffe

__all__ = [
    "ClassificationModel",
    "DetectionModel",
    "KeypointsModel",
    "Layer",
    "Model",
    "Net",
    "SegmentationModel",
    "install",
    "readNet",
    "readNetFromCaffe",
    "registerLayer",
    "unregisterLayer",
]


def install() -> None:
    """Let `cv2.dnn` read Caffe's models with caffejax until the process ends. Further calls have no effect.

    `readNetFromCaffe` is replaced by this module's function. `readNet` and the model classes are replaced by functions
    that use this module for Caffe's files and this module's nets, and OpenCV for everything else. Constants of OpenCV 4
    are added. Layers that `cv2.dnn_registerLayer` registers from then on are also used in Caffe's models. Errors of
    this module are also `cv2.error`.
    """
    from ..core.data.import_cv2 import cv2

    if getattr(cv2.dnn, "readNetFromCaffe", None) is readNetFromCaffe:
        return
    setattr(cv2.dnn, "readNetFromCaffe", readNetFromCaffe)  # noqa: B010  OpenCV 5 has no such name
    cv2.dnn.readNet = _dispatch_caffe(readNet, cv2.dnn.readNet)
    for model in (Model, ClassificationModel, DetectionModel, KeypointsModel, SegmentationModel):
        name = model.__name__
        choose = _dispatch_caffe(model, getattr(cv2.dnn, name))
        setattr(cv2.dnn, name, choose)
        setattr(cv2, f"dnn_{name}", choose)
    for function in (registerLayer, unregisterLayer):
        name = f"dnn_{function.__name__}"
        setattr(cv2, name, _call_both(function, getattr(cv2, name)))
    add_opencv_error(cv2.error)
    for name, value in CONSTANTS.items():
        if not hasattr(cv2.dnn, name):
            setattr(cv2.dnn, name, value)


def _dispatch_caffe(function: Callable[..., Any], fallback: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `function` for Caffe's files and nets of this module, and otherwise `fallback`."""

    @functools.wraps(fallback)
    def choose(*args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        selected = function if is_caffe(*values) or any(isinstance(v, Net) for v in values) else fallback
        return selected(*args, **kwargs)

    return choose


def _call_both(function: Callable[..., Any], opencv_function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `function`, and then OpenCV's with the same arguments."""

    @functools.wraps(opencv_function)
    def call(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)
        opencv_function(*args, **kwargs)

    return call


def __getattr__(name: str) -> Any:
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name.startswith("_"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        from ..core.data.import_cv2 import cv2
    except ImportError as error:
        raise AttributeError(f"'{name}' is not in '{__name__}', and OpenCV cannot be imported: {error}") from error
    return getattr(cv2.dnn, name)  # OpenCV's functions, such as blobFromImage

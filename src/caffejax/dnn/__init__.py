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

from .models import ClassificationModel, DetectionModel, KeypointsModel, Model, SegmentationModel
from .net import Layer, Net
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
]

DNN_BACKEND_DEFAULT, DNN_BACKEND_HALIDE, DNN_BACKEND_INFERENCE_ENGINE, DNN_BACKEND_OPENCV = range(4)
DNN_BACKEND_VKCOM, DNN_BACKEND_CUDA, DNN_BACKEND_WEBNN, DNN_BACKEND_TIMVX, DNN_BACKEND_CANN = range(4, 9)
DNN_TARGET_CPU, DNN_TARGET_OPENCL, DNN_TARGET_OPENCL_FP16, DNN_TARGET_MYRIAD, DNN_TARGET_VULKAN = range(5)
DNN_TARGET_FPGA, DNN_TARGET_CUDA, DNN_TARGET_CUDA_FP16, DNN_TARGET_HDDL, DNN_TARGET_NPU = range(5, 10)
DNN_TARGET_CPU_FP16 = 10


def install() -> None:
    """Let `cv2.dnn` read Caffe's models with caffejax until the process ends. Further calls have no effect.

    `readNetFromCaffe` is replaced by this module's function. `readNet` and the model classes are replaced by functions
    that use this module for Caffe's files and this module's nets, and OpenCV for everything else. Constants of OpenCV 4
    are added.
    """
    from ..data.import_cv2 import cv2

    if getattr(cv2.dnn, "readNetFromCaffe", None) is readNetFromCaffe:
        return
    setattr(cv2.dnn, "readNetFromCaffe", readNetFromCaffe)  # noqa: B010  OpenCV 5 has no such name
    cv2.dnn.readNet = _dispatch_caffe(readNet, cv2.dnn.readNet)
    for model in (Model, ClassificationModel, DetectionModel, KeypointsModel, SegmentationModel):
        name = model.__name__
        choose = _dispatch_caffe(model, getattr(cv2.dnn, name))
        setattr(cv2.dnn, name, choose)
        setattr(cv2, f"dnn_{name}", choose)
    for name, value in globals().items():
        if name.startswith("DNN_") and not hasattr(cv2.dnn, name):
            setattr(cv2.dnn, name, value)


def _dispatch_caffe(function: Callable[..., Any], fallback: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `function` for Caffe's files and nets of this module, and otherwise `fallback`."""

    @functools.wraps(fallback)
    def choose(*args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        selected = function if is_caffe(*values) or any(isinstance(v, Net) for v in values) else fallback
        return selected(*args, **kwargs)

    return choose


def __getattr__(name: str) -> Any:
    if name.startswith(("NMSBoxes", "blobFromImage", "imagesFromBlob")):  # OpenCV's functions and their variants
        from ..data.import_cv2 import cv2

        return getattr(cv2.dnn, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

"""OpenCV's model classes: a net with the preprocessing of its images, and results that are easy to use."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.errors import CaffejaxError, describe_type
from .net import Net, as_array, to_names, to_numbers
from .nodes import get_rules
from .opencv_errors import methods_raise_opencv_errors
from .read_models import readNet

Array = np.ndarray


@methods_raise_opencv_errors
class Model:
    """A net that takes OpenCV's images: uint8 (height, width, channels) with channels B, G, R.

    Args:
        model: a net, or the path of a .caffemodel or a prototxt.
        config: the path of the prototxt if `model` is a .caffemodel, or of the .caffemodel if `model` is a prototxt.
        network: a net, instead of `model`.
    """

    def __init__(self, model: Any = None, config: str = "", *, network: Net | None = None) -> None:
        net = model if network is None else network
        if net is None:
            raise CaffejaxError(f"{type(self).__name__} takes a net, or the paths of a .caffemodel and a prototxt")
        self._net = net if isinstance(net, Net) else readNet(net, config)
        self._outputs: list[str] | None = None
        self._size = self._net._get_input_size()
        self._mean: tuple[float, ...] = ()
        self._scale: tuple[float, ...] = (1.0,) * 4
        self._swap_rb = self._crop = False

    def setInputParams(
        self, scale: float = 1.0, size: Any = (0, 0), mean: Any = (), swapRB: bool = False, crop: bool = False
    ) -> None:
        """Set the preprocessing: `scale * (resized image - mean)`.

        Args:
            scale: the factor, a number or one number for each channel.
            size: width and height of the net's input.
            mean: up to four numbers, in the order of the channels after `swapRB`.
            swapRB: whether to swap the first and the last channel.
            crop: whether to keep the aspect ratio and crop at the center, instead of stretching the image.
        """
        self.setInputScale(scale).setInputSize(size).setInputMean(mean).setInputSwapRB(swapRB).setInputCrop(crop)

    def setInputSize(self, size: Any = None, height: int | None = None, *, width: int | None = None) -> Model:
        """Set width and height of the net's input, as a pair or as two numbers."""
        size = size if width is None else width
        try:
            width, height = size if height is None else (size, height)
            self._size = int(width), int(height)
        except (TypeError, ValueError) as error:
            raise CaffejaxError(
                f"the input size must be a pair (width, height), or width and height as two arguments, not {size!r}"
            ) from error
        return self

    def setInputMean(self, mean: Any) -> Model:
        """Set the numbers that are subtracted from the channels."""
        self._mean = tuple(to_numbers("mean", () if mean is None else mean).ravel().tolist())
        return self

    def setInputScale(self, scale: Any) -> Model:
        """Set the factor by which pixel values are multiplied: one number, or one number for each channel."""
        factors = np.ravel(scale).astype(float) if to_numbers("scale", scale).size else np.ones(1)
        self._scale = tuple(factors) if len(factors) > 1 else (float(factors[0]),) * 4
        return self

    def setInputSwapRB(self, swapRB: bool) -> Model:
        """Set whether the first and the last channel are swapped."""
        self._swap_rb = bool(swapRB)
        return self

    def setInputCrop(self, crop: bool) -> Model:
        """Set whether images are cropped to the aspect ratio of the input, instead of stretched."""
        self._crop = bool(crop)
        return self

    def setOutputNames(self, outNames: Any) -> Model:
        """Select the layers whose tops `predict` returns. The default is all layers whose tops no other layer reads."""
        self._outputs = to_names("setOutputNames", outNames)
        return self

    def setPreferableBackend(self, backendId: int) -> Model:
        """Select the backend, like `Net.setPreferableBackend`."""
        self._net.setPreferableBackend(backendId)
        return self

    def setPreferableTarget(self, targetId: int) -> Model:
        """Select the device, like `Net.setPreferableTarget`."""
        self._net.setPreferableTarget(targetId)
        return self

    def enableWinograd(self, useWinograd: bool) -> Model:
        """Accept the setting, which has no effect."""
        return self

    def predict(self, frame: Array, outs: Any = None) -> tuple[Array, ...]:
        """Return the tops of the selected layers for an image.

        Args:
            frame: the image.
            outs: ignored.
        """
        from ..core.data.import_cv2 import cv2

        frame = _check_image(frame)
        if min(self._size) < 1:
            raise CaffejaxError("the net has no input size; call setInputSize((width, height))")
        try:
            settings = cv2.dnn.Image2BlobParams()
            settings.scalefactor, settings.size, settings.mean = self._scale, self._size, self._mean
            settings.swapRB = self._swap_rb
            if self._crop:
                settings.paddingmode = cv2.dnn.DNN_PMODE_CROP_CENTER
            blob = cv2.dnn.blobFromImageWithParams(frame, settings)
        except cv2.error as error:
            reason = str(error).strip().replace("\n", " ")
            raise CaffejaxError(
                f"an image of shape {frame.shape} and type {frame.dtype} cannot be an input, with size {self._size}, "
                f"mean {self._mean} and scale {self._scale}: {reason}"
            ) from error
        self._net.setInput(blob)
        if self._has_im_info():
            width, height = self._size
            self._net.setInput(np.array([[height, width, 1.6]]), "im_info")
        outputs = self._net.getUnconnectedOutLayersNames() if self._outputs is None else self._outputs
        result: tuple[Array, ...] = self._net.forward(outputs)
        return result

    def _has_im_info(self) -> bool:
        return self._net.getLayer(0).outputNameToIndex("im_info") != -1

    def _predict_single(self, frame: Array) -> Array:
        outputs = self.predict(frame)
        if len(outputs) != 1:
            names = ", ".join(self._outputs or self._net.getUnconnectedOutLayersNames())
            raise CaffejaxError(f"{type(self).__name__} takes a net with one output, not {names}; call setOutputNames")
        return outputs[0]


@methods_raise_opencv_errors
class ClassificationModel(Model):
    """A net that computes a score for each class."""

    _softmax = False

    def setEnableSoftmaxPostProcessing(self, enable: bool) -> ClassificationModel:
        """Set whether `classify` applies a softmax to the scores."""
        self._softmax = bool(enable)
        return self

    def getEnableSoftmaxPostProcessing(self) -> bool:
        """Return whether `classify` applies a softmax to the scores."""
        return self._softmax

    def classify(self, frame: Array) -> tuple[int, float]:
        """Return the number of the best class, and its score."""
        scores = self._predict_single(frame).ravel()
        if self._softmax:
            scores = np.exp(scores - scores.max())
            scores /= scores.sum()
        best = int(scores.argmax())
        return best, float(scores[best])


@methods_raise_opencv_errors
class SegmentationModel(Model):
    """A net that computes class scores for each cell, (1, classes, height, width)."""

    def segment(self, frame: Array, mask: Any = None) -> Array:
        """Return the best class of each cell of the scores, uint8 (height, width)."""
        return self._predict_single(frame)[0].argmax(0).astype(np.uint8)


@methods_raise_opencv_errors
class KeypointsModel(Model):
    """A net that computes a map for each keypoint and one for the background, or the keypoints' coordinates."""

    def estimate(self, frame: Array, thresh: float = 0.5) -> Array:
        """Return x and y of each keypoint in the image, float32 (keypoints, 2).

        Args:
            frame: the image.
            thresh: the score that a keypoint's map must exceed; other keypoints are (-1, -1).
        """
        output = self._predict_single(frame)
        if output.ndim != 4:
            return output[0, :, :2].copy()
        maps, frame = output[0, :-1], _check_image(frame)
        rows, columns = np.unravel_index(maps.reshape(len(maps), -1).argmax(1), maps.shape[1:])
        scale = np.array([frame.shape[1] / maps.shape[2], frame.shape[0] / maps.shape[1]], np.float32)
        points = np.stack([columns, rows], 1).astype(np.float32) * scale
        points[maps.reshape(len(maps), -1).max(1) <= thresh] = -1
        return points


@methods_raise_opencv_errors
class DetectionModel(Model):
    """A net that ends with DetectionOutput."""

    _nms_across_classes = False

    def setNmsAcrossClasses(self, value: bool) -> DetectionModel:
        """Store whether boxes of different classes suppress each other.

        The value has no effect, because DetectionOutput has already suppressed overlapping boxes.
        """
        self._nms_across_classes = bool(value)
        return self

    def getNmsAcrossClasses(self) -> bool:
        """Return the value of the last `setNmsAcrossClasses`. It has no effect."""
        return self._nms_across_classes

    def detect(self, frame: Array, confThreshold: float = 0.5, nmsThreshold: float = 0.0) -> tuple[Any, Any, Any]:
        """Return classes, confidences, and boxes in pixels of the image.

        Args:
            frame: the image.
            confThreshold: the minimum confidence of a detection.
            nmsThreshold: ignored, because DetectionOutput has already suppressed overlapping boxes.

        Returns:
            The classes, int32 (n,), the confidences, float32 (n,), and the boxes, int32 (n, 4), with left, top, width
            and height in each row. If nothing is detected, the result is three empty tuples.
        """
        kind = self._net.getLayer(self._net.getLayerNames()[-1]).type
        if not get_rules(kind).has_detections:
            raise CaffejaxError(f"DetectionModel takes a net whose last layer is a DetectionOutput, not {kind}")
        frame = _check_image(frame)
        height, width = frame.shape[:2]
        if self._has_im_info():
            width, height = self._size
        rows = np.concatenate([output.reshape(-1, 7) for output in self.predict(frame)])
        rows = rows[rows[:, 2] >= np.float32(confThreshold)]
        if not len(rows):
            return (), (), ()
        boxes = _scale_boxes(rows[:, 3:], np.ones(4, np.float32))
        scaled_boxes = _scale_boxes(rows[:, 3:], np.array([width, height, width, height], np.float32))
        boxes = np.where(np.any(boxes[:, 2:] <= 2, axis=1, keepdims=True), scaled_boxes, boxes)
        corners = np.clip(boxes[:, :2], 0, [width - 1, height - 1])
        sizes = np.maximum(1, np.minimum(boxes[:, 2:], [width, height] - corners))
        return rows[:, 1].astype(np.int32), rows[:, 2].copy(), np.concatenate([corners, sizes], 1).astype(np.int32)


def _check_image(frame: Any) -> Array:
    """Return an image as an array.

    Raises:
        CaffejaxError: if the value is not an image, such as None, which `cv2.imread` returns if it cannot read a file.
    """
    image = as_array(frame)
    if image.ndim not in (2, 3) or not image.size or image.dtype.kind not in "fiub":
        hint = "; cv2.imread returns None if it cannot read the file" if frame is None else ""
        kind = f"an array of shape {image.shape}" if isinstance(frame, np.ndarray) else describe_type(frame)
        raise CaffejaxError(f"expected an image, an array (height, width, channels), not {kind}{hint}")
    return image


def _scale_boxes(corners: Array, scale: Array) -> Array:
    """Scale the corners of boxes and truncate them to integers; return left, top, width and height of each box."""
    with np.errstate(over="ignore", invalid="ignore"):  # of untrained nets, corners may be huge or NaN
        corners = (corners * scale).astype(np.int32)
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2] + 1], 1)

"""Conversion of images to and from a net's inputs, and of arrays to and from Caffe's messages.

Images are float32 arrays (H, W, K) in 0..1 with channels in the order R, G, B, as in scikit-image. Inputs of a net are
(K, H, W), usually with channels B, G, R in 0..255. A `Transformer` converts between the two.
"""

from __future__ import annotations

import importlib
import math
import operator
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import numpy as np

from ..base.errors import ArgumentValueError, DataError, UnknownAttributeError, is_integer, locate_errors
from ..base.paths import read_bytes
from ..core.data.image_decoding import decode_image, decode_pixels
from ..core.data.import_cv2 import cv2
from ..core.schema import caffe_pb2, parse_binary
from ..core.schema.blob_proto import decode_raw_data
from . import _global_state
from ._arguments import (
    as_array,
    as_dims,
    as_image,
    as_instance,
    as_integer,
    as_list,
    as_message,
    as_number,
    as_path,
    convert,
)
from ._fork_files import find_in_fork
from ._old_names import IO_NAMES

__all__ = [
    "Transformer",
    "array_to_blobproto",
    "array_to_datum",
    "arraylist_to_blobprotovector_str",
    "blobproto_to_array",
    "blobprotovector_str_to_arraylist",
    "datum_to_array",
    "flip_image",
    "load_image",
    "oversample",
    "resize_image",
]

_LUMINANCE = np.array([0.2125, 0.7154, 0.0721])  # weights of R, G, B, the same as in scikit-image


def blobproto_to_array(blob: Any, return_diff: bool = False) -> np.ndarray:
    """Return the data in a BlobProto, or its diff if `return_diff`, as a float64 array.

    The old fields num, channels, height and width result in a shape with four axes.

    Raises:
        ValueError: if the shape does not fit the number of values.
    """
    blob = as_message(blob, "BlobProto")
    name = "diff" if return_diff else "data"
    values = getattr(blob, name) or getattr(blob, f"double_{name}")
    if not values and f"raw_{name}" in blob.DESCRIPTOR.fields_by_name and blob.HasField(f"raw_{name}"):
        raw_type = getattr(blob, f"raw_{name}_type") if blob.HasField(f"raw_{name}_type") else None
        values = decode_raw_data(getattr(blob, f"raw_{name}"), raw_type)
    is_old = any(blob.HasField(axis) for axis in ("num", "channels", "height", "width"))
    shape = (blob.num, blob.channels, blob.height, blob.width) if is_old else tuple(blob.shape.dim)
    if math.prod(shape) != len(values):
        raise ArgumentValueError(f"the BlobProto has shape {shape}, but {len(values)} values")
    return np.array(values, np.float64).reshape(shape)


def array_to_blobproto(arr: np.ndarray, diff: np.ndarray | None = None) -> caffe_pb2.BlobProto:
    """Return a BlobProto with an array of any shape and optionally a diff of the same shape, stored as float32."""
    arr = as_array(arr, "arr")
    blob = caffe_pb2.BlobProto()
    blob.shape.dim.extend(arr.shape)
    blob.data.extend(np.ravel(arr).astype(float))
    if diff is not None:
        if (diff := as_array(diff, "diff")).shape != arr.shape:
            raise ArgumentValueError(f"diff must have the shape of arr, {arr.shape}, not {diff.shape}")
        blob.diff.extend(np.ravel(diff).astype(float))
    return blob


def arraylist_to_blobprotovector_str(arraylist: Iterable[np.ndarray]) -> bytes:
    """Return arrays as a serialised BlobProtoVector."""
    return caffe_pb2.BlobProtoVector(
        blobs=[array_to_blobproto(arr) for arr in as_list(arraylist, "arraylist")]
    ).SerializeToString()


def blobprotovector_str_to_arraylist(str: bytes) -> list[np.ndarray]:
    """Return the arrays in a serialised BlobProtoVector."""
    return [
        blobproto_to_array(blob)
        for blob in parse_binary(as_instance(str, bytes, "the message"), caffe_pb2.BlobProtoVector).blobs
    ]


def array_to_datum(arr: np.ndarray, label: int | None = None) -> caffe_pb2.Datum:
    """Return a Datum with an image (K, H, W), stored as bytes if it is uint8 and otherwise as floats.

    Raises:
        ValueError: if the array does not have three axes.
    """
    arr = as_array(arr, "arr", dtype=None)
    if arr.ndim != 3:
        raise ArgumentValueError(f"Incorrect array shape: a Datum takes (channels, height, width), not {arr.shape}")
    datum = caffe_pb2.Datum(channels=arr.shape[0], height=arr.shape[1], width=arr.shape[2])
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(np.ravel(arr).astype(float))
    if label is not None:
        datum.label = as_integer(label, "label")
    return datum


def datum_to_array(datum: Any) -> np.ndarray:
    """Return the image (K, H, W) in a Datum: uint8 for bytes, float64 for floats.

    A compressed image is decoded to uint8 with channels B, G, R.
    """
    datum = as_message(datum, "Datum")
    if datum.encoded:
        return decode_image(datum.data, max_pixels=_global_state.make_config().max_image_pixels)
    shape = datum.channels, datum.height, datum.width
    if math.prod(shape) != (len(datum.data) or len(datum.float_data)):
        raise ArgumentValueError(
            f"the Datum has shape {shape}, but {len(datum.data)} bytes and {len(datum.float_data)} floats"
        )
    if datum.data:
        return np.frombuffer(datum.data, np.uint8).reshape(shape).copy()
    return np.array(datum.float_data, np.float64).reshape(shape)


def load_image(filename: str | os.PathLike[str] | IO[bytes], color: bool = True) -> np.ndarray:
    """Read an image file.

    Args:
        filename: a JPEG, PNG or other file that OpenCV reads, or a file object in binary mode, which is read from its
            current position. Transparency is dropped.
        color: if True, return three channels, also for gray images. If False, return one channel, which is a sum of R,
            G and B with scikit-image's weights.

    Returns:
        float32 in 0..1, (H, W, 3) with channels R, G, B, or (H, W, 1): the bytes divided by 255.

    Raises:
        DataError: for a file that does not exist, is not an image, is truncated (which scikit-image refuses, too), or
            has more pixels than `set_limits` allows.
    """
    if not hasattr(filename, "read"):
        as_path(filename, "filename")
    with locate_errors(file=str(getattr(filename, "name", filename) if hasattr(filename, "read") else filename)):
        content = read_bytes(filename, DataError) if isinstance(filename, str | os.PathLike) else filename.read()
        if not isinstance(content, bytes):
            raise DataError("the file is opened as text; open it in binary mode, as in open(name, 'rb')")
        pixels = decode_pixels(content, max_pixels=_global_state.make_config().max_image_pixels)
    scale = np.iinfo(pixels.dtype).max if pixels.dtype.kind in "iu" else 1
    image = np.atleast_3d(pixels).astype(np.float64) / scale
    image = image[:, :, 2::-1] if image.shape[2] >= 3 else image[:, :, :1]  # B, G, R and alpha to R, G, B
    if color:
        image = np.broadcast_to(image, (*image.shape[:2], 3))
    elif image.shape[2] == 3:
        image = (image @ _LUMINANCE)[:, :, np.newaxis]
    return np.ascontiguousarray(image, np.float32)


def flip_image(im: np.ndarray, scale: float, is_flow: bool) -> np.ndarray:
    """Mirror an image, as in the fork for activity recognition (LRCN).

    Args:
        im: (H, W, K).
        scale: the largest value of the image, such as 1 or 255.
        is_flow: True for an image of optical flow, whose first channel, the flow in x, becomes `scale` minus its value.

    Returns:
        The mirror image.
    """
    flipped = np.array(as_image(im))[:, ::-1]
    scale = as_number(scale, "scale")
    if is_flow:
        flipped[:, :, 0] = scale - flipped[:, :, 0]
    return flipped


def oversample(images: Sequence[np.ndarray], crop_dims: Sequence[int] | np.ndarray, flow: bool = False) -> np.ndarray:
    """Crop each image at its four corners and its center, and mirror the five crops.

    Args:
        images: images of the same shape (H, W, K).
        crop_dims: height and width of the crops.
        flow: True for images of optical flow in 0..1, whose first channel is 1 minus its value in the mirror images.

    Returns:
        The crops, float32 (10 N, *crop_dims, K). For each image they are top left, top right, bottom left, bottom
        right and center, then the mirror images in the same order.

    Raises:
        ValueError: if there are no images, their shapes differ, or they are smaller than the crops.
    """
    images = [as_image(image) for image in as_list(images, "images")]
    shapes = {image.shape for image in images}
    if len(shapes) != 1:
        raise ArgumentValueError(
            f"images must have one shape (height, width, channels), not {', '.join(map(str, sorted(shapes))) or 'none'}"
        )
    (height, width, channels), (h, w) = next(iter(shapes)), as_dims(crop_dims, "crop_dims")
    if h > height or w > width:
        raise ArgumentValueError(f"images of {height} x {width} cannot be cropped to {h} x {w}")
    bottom, right = height - h, width - w
    corners = [(0, 0), (0, right), (bottom, 0), (bottom, right), (bottom // 2, right // 2)]
    crops = np.empty((len(images), 10, h, w, channels), np.float32)
    for image, out in zip(images, crops, strict=True):
        for i, (y, x) in enumerate(corners):
            out[i] = image[y : y + h, x : x + w]
        out[5:] = out[:5, :, ::-1]
    if flow:
        crops[:, 5:, :, :, 0] = 1 - crops[:, 5:, :, :, 0]
    return crops.reshape(-1, *crops.shape[2:])


class Transformer:
    """Converts images to a net's inputs, and inputs back to images.

    Images are resized to the input's height and width. The other steps are applied only if they were set, in this
    order: transpose, swap channels, multiply by raw_scale, subtract the mean, multiply by input_scale.

    Args:
        inputs: the shape of each input: `{"data": (10, 3, 227, 227)}`.
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]) -> None:
        self.inputs = convert(
            inputs,
            "inputs",
            "a dict of shapes, such as {'data': net.blobs['data'].shape}",
            lambda inputs: {name: tuple(map(operator.index, shape)) for name, shape in inputs.items()},
        )
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, Any] = {}
        self.mean: dict[str, np.ndarray] = {}
        self.input_scale: dict[str, Any] = {}
        self.is_flow: dict[str, bool] = {}

    def preprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """Convert an image (H, W, K) to a new float32 array for input `in_`.

        Raises:
            ValueError: if the net has no such input.
        """
        dims = self._shape(in_)[2:]
        image = np.array(as_array(data, "the image"))
        if image.shape[:2] != dims:
            image = resize_image(image, dims)
        if in_ in self.transpose:
            image = image.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            image = image[list(self.channel_swap[in_])]
        if in_ in self.raw_scale:
            image *= self.raw_scale[in_]
        if in_ in self.mean:
            image -= self.mean[in_]
        if in_ in self.input_scale:
            image *= self.input_scale[in_]
        return image

    def deprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """Convert an input (K, H, W) back to an image: invert all steps of `preprocess` except resizing.

        Raises:
            ValueError: if the net has no such input.
        """
        axes = len(self._shape(in_)) - 1
        image = np.array(as_array(data, "data", dtype=None))
        if in_ in self.transpose or in_ in self.channel_swap:
            if image.ndim < axes or image.size != math.prod(image.shape[-axes:]):
                raise ArgumentValueError(f"data must have {axes} axes, not shape {image.shape}")
            image = image.reshape(image.shape[-axes:])  # a batch of one loses its first axis
        else:
            image = image.squeeze()
        if in_ in self.input_scale:
            image /= self.input_scale[in_]
        if in_ in self.mean:
            image = image + self.mean[in_].astype(image.dtype)
        if in_ in self.raw_scale:
            image /= self.raw_scale[in_]
        if in_ in self.channel_swap:
            image = image[np.argsort(self.channel_swap[in_])]
        if in_ in self.transpose:
            image = image.transpose(np.argsort(self.transpose[in_]))
        return image

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of axes: (2, 0, 1) converts (H, W, K) to (K, H, W)."""
        axes, order = len(self._shape(in_)) - 1, _as_order(order)
        if sorted(order) != list(range(axes)) and len(order) == axes:
            raise ArgumentValueError(f"Transpose order must have each axis, 0 to {axes - 1}, once, not {order}")
        if len(order) != axes:
            raise ArgumentValueError("Transpose order needs to have the same number of dimensions as the input.")
        self.transpose[in_] = order

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of channels: (2, 1, 0) converts R, G, B to B, G, R. Channels must be the first axis."""
        channels, order = self._shape(in_)[1], _as_order(order)
        if len(order) == channels and not all(0 <= i < channels for i in order):
            raise ArgumentValueError(f"Channel swap must have indices of channels, 0 to {channels - 1}, not {order}")
        if len(order) != channels:
            raise ArgumentValueError("Channel swap needs to have the same number of dimensions as the input channels.")
        self.channel_swap[in_] = order

    def set_raw_scale(self, in_: str, scale: Any) -> None:
        """Set the factor that is applied before the mean is subtracted: 255 for nets trained on bytes."""
        self._set_scale(self.raw_scale, in_, scale)

    def set_mean(self, in_: str, mean: np.ndarray) -> None:
        """Set the mean to subtract: one value per channel (K,), or an image (K, H, W), which is resized to the input.

        Raises:
            ValueError: if the mean and the input have different numbers of channels.
        """
        shape = self._shape(in_)
        mean = as_array(mean, "the mean", dtype=None)
        if mean.ndim == 1:
            mean = mean[:, np.newaxis, np.newaxis]
        elif mean.ndim == 2:
            mean = mean[np.newaxis]
        if mean.ndim != 3:
            raise ArgumentValueError(f"Mean shape invalid: the mean must have 1, 2 or 3 axes, not shape {mean.shape}")
        if mean.shape[0] != shape[1]:
            raise ArgumentValueError(
                f"Mean channels incompatible with input: the mean has {mean.shape[0]} channels, but the input has "
                f"{shape[1]}"
            )
        if mean.shape[1:] not in ((1, 1), shape[2:]):
            mean = resize_image(mean.transpose(1, 2, 0), shape[2:]).transpose(2, 0, 1)
        self.mean[in_] = mean

    def set_input_scale(self, in_: str, scale: Any) -> None:
        """Set the factor that is applied after the mean is subtracted."""
        self._set_scale(self.input_scale, in_, scale)

    def _set_scale(self, scales: dict[str, Any], in_: str, scale: Any) -> None:
        """Store a factor: a number, or an array that broadcasts to the input; None removes it, as in Caffe."""
        shape = self._shape(in_)[1:]
        if scale is None:
            scales.pop(in_, None)
            return
        array = as_array(scale, "scale", dtype=None)
        if array.ndim > len(shape) or any(
            n not in (1, m) for n, m in zip(array.shape[::-1], shape[::-1], strict=False)
        ):
            raise ArgumentValueError(f"scale has shape {array.shape}, which does not broadcast to the input's {shape}")
        scales[in_] = scale

    def set_is_flow(self, in_: str, is_flow: bool) -> None:
        """Store whether the input takes images of optical flow, as in the fork for activity recognition (LRCN).

        `preprocess` does not depend on it; `flip_image` and `oversample` take it as an argument.
        """
        self._shape(in_)
        self.is_flow[in_] = is_flow

    def _shape(self, in_: str) -> tuple[int, ...]:
        if not isinstance(in_, str) or in_ not in self.inputs:
            raise ArgumentValueError(f"{in_} is not one of the net inputs: {', '.join(self.inputs)}")
        return self.inputs[in_]


def _as_order(order: Any) -> list[int]:
    return convert(order, "the order", "a list of indices, such as (2, 0, 1)", lambda o: list(map(operator.index, o)))


def resize_image(im: np.ndarray, new_dims: Sequence[int], interp_order: int = 1) -> np.ndarray:
    """Resize an image without smoothing it first.

    As in Caffe, there are two methods. Images with one or three channels are resized like `skimage.transform.resize`
    with mode "constant" and anti_aliasing=False: pixels are areas, and the image is padded with its smallest value,
    which is visible at the edges of enlarged images. Other images are resized like `scipy.ndimage.zoom`: the centres of
    the outermost pixels stay in place. Results agree with these libraries to rounding (1e-6 of the range of values).
    The exception is order 0, where either of two equally near pixels may be chosen. Above order 1, the results are the
    same as in current scikit-image, which differs from the versions that Caffe used.

    Args:
        im: (H, W, K).
        new_dims: height and width.
        interp_order: 0 for the nearest pixel, 1 for linear, up to 5 for splines.

    Returns:
        (*new_dims, K), float32.
    """
    im = as_image(im)
    if not is_integer(interp_order) or interp_order not in range(6):
        raise ArgumentValueError(f"interp_order must be 0 to 5, not {interp_order}")
    height, width = as_dims(new_dims, "new_dims")
    im = np.asarray(im, im.dtype if im.dtype in (np.float32, np.float64) else np.float32)
    low, high = im.min(), im.max()
    if im.shape[2] not in (1, 3):
        resized = _zoom(im, (height, width), interp_order, grid_mode=False)
    elif not high > low:
        resized = np.full((height, width, im.shape[2]), low)
    elif interp_order == 0:
        resized = im[_find_nearest(height, im.shape[0])[:, np.newaxis], _find_nearest(width, im.shape[1])]
    elif interp_order == 1:
        inner = cv2.resize(im - low, (width, height), interpolation=cv2.INTER_LINEAR)
        edges = np.outer(_compute_coverage(height, im.shape[0]), _compute_coverage(width, im.shape[1])).astype(im.dtype)
        resized = inner.reshape(height, width, -1) * edges[:, :, np.newaxis] + low
    else:
        resized = _zoom((im - low) / (high - low), (height, width), interp_order, grid_mode=True)
        resized = resized.clip(0, 1) * (high - low) + low
    return resized.astype(np.float32)


def __getattr__(name: str) -> Any:
    """Return `skimage`, skimage's `resize` or scipy's `zoom`: Caffe's module imports them, and scripts may use them.

    Other names come from the `caffe/io.py` of a fork on Python's path.
    """
    if name in IO_NAMES:
        raise UnknownAttributeError(f"module '{__name__}' has no attribute '{name}'; {IO_NAMES[name]}")
    if name not in _IMPORTS:
        return find_in_fork(__name__, name)
    module, _, attribute = _IMPORTS[name].partition(":")
    value = importlib.import_module(module)
    return getattr(value, attribute) if attribute else sys.modules[name]


_IMPORTS = {"skimage": "skimage.io", "resize": "skimage.transform:resize", "zoom": "scipy.ndimage:zoom"}


def _find_centers(new: int, old: int) -> np.ndarray:
    """Return the centres of `new` pixels in coordinates of `old` pixels, (new,)."""
    return (np.arange(new) + 0.5) * (old / new) - 0.5


def _find_nearest(new: int, old: int) -> np.ndarray:
    return np.floor(_find_centers(new, old) + 0.5).astype(int).clip(0, old - 1)


def _compute_coverage(new: int, old: int) -> np.ndarray:
    """Return the sum of the interpolation weights for pixels inside the image, for each new pixel, (new,)."""
    centers = _find_centers(new, old)
    return 1 - np.maximum(np.maximum(-centers, centers - (old - 1)), 0)


def _zoom(im: np.ndarray, dims: tuple[int, int], order: int, grid_mode: bool) -> np.ndarray:
    from scipy.ndimage import zoom  # jax requires scipy, so it is installed

    factors = (dims[0] / im.shape[0], dims[1] / im.shape[1], 1)
    mode = "grid-constant" if grid_mode else "constant"
    return zoom(im, factors, order=order, mode=mode, grid_mode=grid_mode)


def make_transformer(
    name: str,
    shape: Sequence[int],
    mean: np.ndarray | None = None,
    input_scale: float | None = None,
    raw_scale: float | None = None,
    channel_swap: Sequence[int] | None = None,
) -> Transformer:
    """Return a transformer that converts images (H, W, K) to the input with this name and shape.

    A step whose argument is None is skipped. The other arguments are the same as in the methods of `Transformer`.

    Raises:
        ValueError: if `mean` or `channel_swap` does not fit the input.
    """
    channel_swap = None if channel_swap is None else _as_order(channel_swap)
    if channel_swap is not None and tuple(shape[1:2]) != (len(channel_swap),):
        swap = ",".join(map(str, channel_swap))
        example_swap = ",".join(map(str, reversed(range(shape[1])))) if len(shape) > 1 and shape[1] <= 4 else ""
        example = f", such as {example_swap}" * bool(example_swap)
        raise ArgumentValueError(
            f"channel_swap {swap} does not fit '{name}' of shape {tuple(shape)}: give one index per channel{example}"
        )
    transformer = Transformer({name: shape})
    transformer.set_transpose(name, (2, 0, 1))
    if mean is not None:
        transformer.set_mean(name, mean)
    if input_scale is not None:
        transformer.set_input_scale(name, input_scale)
    if raw_scale is not None:
        transformer.set_raw_scale(name, raw_scale)
    if channel_swap is not None:
        transformer.set_channel_swap(name, channel_swap)
    return transformer


def center_crops(images: np.ndarray, dims: Sequence[int] | np.ndarray) -> np.ndarray:
    """Crop images at their centres: (N, H, W, K) to (N, *dims, K).

    Raises:
        ValueError: if the images are smaller than `dims`.
    """
    (height, width), (h, w) = images.shape[1:3], dims
    if h > height or w > width:
        raise ArgumentValueError(f"images of {height} x {width} cannot be cropped to {h} x {w}")
    top, left = (height - h) // 2, (width - w) // 2
    return images[:, top : top + h, left : left + w]

"""Flow files, and the Datums of image pairs with a flow that FlowNet 2's convert_imageset_and_flow stores."""

from __future__ import annotations

import re
from struct import unpack_from

import numpy as np

from ...base.errors import DataError, locate_errors
from ...base.paths import read_bytes
from ...core.data.image_decoding import read_image
from ...core.schema.caffe_pb2 import Datum
from .custom_data import FLOW_SCALE, UNKNOWN_FLOW

_PFM_HEADER = re.compile(rb"PF\s+(\d{1,9})\s+(\d{1,9})\s+([-+.\deE]{1,30})\s")
_NUM_CHANNELS = 9  # of two images, a flow and occlusions


def read_flow(path: str) -> np.ndarray:
    """Read a flow, float32 (2, H, W), from a .flo file, or from the first two of three channels of a .pfm file.

    Raises:
        DataError: if the file cannot be read, has another format, or is truncated. The message names it.
    """
    data = read_bytes(path, DataError)
    with locate_errors(file=path):
        if path.lower().endswith(".pfm"):
            if not (match := _PFM_HEADER.match(data)):
                raise DataError("is not a .pfm file of three channels, which begins with PF")
            width, height, channels, start = int(match[1]), int(match[2]), 3, match.end()
            dtype = "<f4" if match[3].startswith(b"-") else ">f4"
        else:
            if len(data) < 12 or not data.startswith(b"PIEH"):
                raise DataError("is not a .flo file, which begins with PIEH")
            width, height = unpack_from("<ii", data, 4)
            channels, start, dtype = 2, 12, "<f4"
        num_values = width * height * channels
        if min(width, height) < 1 or len(data) - start < 4 * num_values:
            raise DataError(f"its header announces {height} x {width} pixels, but {len(data) - start} bytes follow")
        values = np.frombuffer(data, dtype, num_values, start).reshape(height, width, channels)
        values = values[::-1] if channels == 3 else values  # the rows of a .pfm file begin at the bottom
        return values[..., :2].transpose(2, 0, 1).astype(np.float32)


def encode_flow_datum(first: str, second: str, flow: str, occlusions: str, max_pixels: int) -> bytes:
    """Serialize two images, their flow and their occlusions as a Datum with 9 channels, for CustomData.

    Flows are rounded toward zero to 1/32 pixel. Those that are not finite or do not fit 16 bits become unknown.

    Args:
        first, second: the images' files.
        flow: the flow's file, or "" for zeros.
        occlusions: the file of an image whose pixels are not 0 where the flow is occluded, or "" for none.
        max_pixels: the largest number of pixels of an image.

    Raises:
        DataError: if a file cannot be read, or differs in size from the first image. The message names it.
    """
    images = [read_image(path, max_pixels=max_pixels) for path in (first, second)]
    size = images[0].shape[1:]
    displacement = read_flow(flow) if flow else np.zeros((2, *size), np.float32)
    is_occluded = np.zeros((1, *size), bool)
    if occlusions:
        is_occluded = read_image(occlusions, color=False, max_pixels=max_pixels) > 0
    for path, array in ((second, images[1]), (flow, displacement), (occlusions, is_occluded)):
        if array.shape[1:] != size:
            sizes = [f"{height} x {width}" for height, width in (array.shape[1:], size)]
            raise DataError(f"{path} has {sizes[0]} pixels, but the first image {first} has {sizes[1]}")
    with np.errstate(over="ignore", invalid="ignore"):  # large values become infinite; NaN may be signalling
        units = np.trunc(displacement * np.float32(FLOW_SCALE))
    fits = (units >= -UNKNOWN_FLOW - 1) & (units < UNKNOWN_FLOW)  # False for NaN
    parts = (*images, np.where(fits, units, UNKNOWN_FLOW).astype("<i2"), np.packbits(is_occluded, bitorder="little"))
    data = b"".join(part.tobytes() for part in parts)
    height, width = size
    return Datum(channels=_NUM_CHANNELS, height=height, width=width, label=0, data=data).SerializeToString()

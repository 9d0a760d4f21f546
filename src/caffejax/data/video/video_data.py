"""The VideoData layers of C3D and of temporal segment networks."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...errors import DataError
from ...layers.context import Site
from ...layers.data_source import Look, Tops
from ...layers.registry import register
from ...layers.types import LayerDocs, LayerType, Signature
from ..data_layer import DataLayer
from ..image_batches import Examples, ImageBatches
from ..image_data import check_list_param
from ..prefetch import Batch, Batches
from ..transform import Normalize
from .tsn_segments import CROP_SETTINGS, SegmentDataset
from .video_examples import ClipDataset

_CHANNELS = 3
_LIST = ("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "new_length", "root_folder")
_SEGMENTS = ("num_segments", "modality", "name_pattern")
_OF_CLIPS = ("use_image", "use_temporal_jitter", "sampling_rate", "show_data")
_OF_SSD = ("video_type", "device_id", "video_file", "skip_frames")
_KNOWN = {
    "image_data_param": {*_LIST, *_OF_CLIPS, "scale", "mean_file", "mean_value", "crop_size", "mirror", "is_color"},
    "video_data_param": {
        *(*_LIST, *_OF_CLIPS, "max_sampling_rate", "use_sampling_rate_jitter", "use_multiple_label", "num_of_labels"),
    },
    "segments": {*_LIST, *_SEGMENTS},
}


class ClipBatches(ImageBatches[Any]):
    """Batches of clips, (N, C, length, h, w), from images (C * length, h, w). Arguments as for `ImageBatches`.

    Args:
        length: the number of frames of a clip.
    """

    def __init__(self, *args: Any, length: int) -> None:
        super().__init__(*args)
        self._length = length

    def probe(self, n_tops: int) -> Look:
        """Read the first clip for the shapes of the tops."""
        look = super().probe(n_tops)
        assert isinstance(look.finish, Normalize)
        mean, scale = look.finish.mean, look.finish.scale
        if len(mean) > 1:
            mean = mean.reshape(_clip_shape(mean.shape, self._length))
        return look._replace(finish=Normalize(mean, scale))

    def _assemble(self, examples: Examples[Any], start: int) -> Batch:
        batch = super()._assemble(examples, start)
        images, *labels = batch.arrays
        return batch._replace(arrays=(images.reshape(_clip_shape(images.shape, self._length)), *labels))


class VideoDataLayer(DataLayer):
    """Batches of the videos that a list names: clips (N, 3, length, h, w), or segments (N, channels, h, w).

    C3D's clips are `new_length` frames, each `sampling_rate` after the one before, of a video file, or with `use_image`
    of a folder of 000001.jpg and so on. A line of the list is a name, the first frame and a label; with
    `use_temporal_jitter` the first frame is drawn, and the line has the number of frames instead, or nothing for a
    file. With `num_segments`, `modality` or `name_pattern` it is the layer of temporal segment networks, whose list has
    folders, numbers of frames and labels: the channels of all frames of all segments are in order.
    """

    def probe(self) -> Look:
        """Check the settings and all videos of the list, and read the first one."""
        return self._batches().probe(len(self.layer.top))

    def open(self, tops: Tops) -> Batches:
        """Open the list."""
        return self._batches(tops)

    def _batches(self, tops: Tops = ()) -> ImageBatches[Any]:
        kind, param = _parse_settings(self.layer)
        if kind == "segments":
            segments = SegmentDataset(self.site, self.rng)
            return ImageBatches(_with_transform(self.site, kind, param), segments, param.batch_size, self.rng, tops)
        clips, site = ClipDataset(self.site, param, self.rng), _with_transform(self.site, kind, param)
        return ClipBatches(site, clips, param.batch_size, self.rng, tops, length=param.new_length)


register(
    LayerType(
        Signature("VideoData", bottoms=0, tops=(1, 2), param="video_data_param"),
        VideoDataLayer.source(),
        docs=LayerDocs(
            origin="C3D, yjxiong/caffe",
            restrictions="The SSD fork's, which plays a video or a camera, is refused. A clip that cannot be read "
            "is an error, as other bad examples are; C3D leaves it out in TRAIN. With use_image and "
            "use_temporal_jitter clips begin in TEST with 000001.jpg; C3D looks for 000000.jpg. No recorded case.",
        ),
    )
)


def layer_kind(layer: Any) -> tuple[str, Any]:
    """Return the fork of a VideoData layer, as a key of `_KNOWN`, and the layer's parameters."""
    if layer.HasField("image_data_param") and not layer.HasField("video_data_param"):
        return "image_data_param", layer.image_data_param
    param = layer.video_data_param
    return ("segments" if any(param.HasField(field) for field in _SEGMENTS) else "video_data_param"), param


def video_shape(layer: Any, height: int, width: int) -> tuple[int, ...]:
    """Return the shape of one video of that size in a layer's first top."""
    kind, param = layer_kind(layer)
    if kind != "segments":
        return _CHANNELS, param.new_length, height, width
    each = 2 if param.Modality.Name(param.modality) == "FLOW" else _CHANNELS
    return param.num_segments * param.new_length * each, height, width


def _parse_settings(layer: Any) -> tuple[str, Any]:
    """Check the settings of a layer, and return its fork and parameters as `layer_kind` does."""
    kind, param = layer_kind(layer)
    name = "image_data_param" if kind == "image_data_param" else "video_data_param"
    if any(layer.video_data_param.HasField(field) for field in _OF_SSD):
        raise DataError("the SSD fork's VideoData, which plays a video or a camera, is not supported")
    check_list_param(param, name, _KNOWN[kind])
    positive = ("new_length", "num_segments" if kind == "segments" else "sampling_rate")
    for field in (*positive, "max_sampling_rate", "num_of_labels"):
        if getattr(param, field, 1) < 1:
            raise DataError(f"{name}.{field} must be 1 or more")
    return kind, param


def _with_transform(site: Site, kind: str, param: Any) -> Site:
    """Return the site with a transform_param for images with the channels of all frames."""
    layer = type(site.layer)()
    layer.CopyFrom(site.layer)
    t = layer.transform_param
    if kind == "image_data_param":
        for name in ("scale", "mean_file", "crop_size", "mirror"):
            if param.HasField(name):
                setattr(t, name, getattr(param, name))
        if param.HasField("mean_value"):
            t.mean_value.append(param.mean_value)
    means = list(t.mean_value)
    if kind == "segments":
        for name in CROP_SETTINGS:
            t.ClearField(name)
        channels = video_shape(layer, 0, 0)[0]
        spread = means * (channels // max(len(means), 1))
    else:
        channels, spread = _CHANNELS, [mean for mean in means for _ in range(param.new_length)]
    if len(means) > 1:
        if channels % len(means) if kind == "segments" else len(means) != channels:
            raise DataError(f"there are {len(means)} mean_value for {channels} channels: give one, or one for each")
        t.mean_value[:] = spread
    return dataclasses.replace(site, layer=layer)


def _clip_shape(shape: tuple[int, ...], length: int) -> tuple[int, ...]:
    *before, channels, height, width = shape
    return (*before, channels // length, length, height, width)

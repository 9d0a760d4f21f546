"""The VideoData layers of C3D and of temporal segment networks, their lists of videos and C3D's clips."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....base.errors import DataError, Problem, check_all, locate_errors, raise_if_any
from ....base.human_readable import format_shape
from ....core.data.data_layer import DataLayer, scalar_label_shapes
from ....core.data.image_batches import Examples, ImageBatches, Label
from ....core.data.image_data import FileListDataset, check_list_param
from ....core.data.image_decoding import BadImageError, check_pixel_count, read_image, resize
from ....core.data.image_list import find_files, get_search_folders, read_names, truncate_problems
from ....core.data.import_cv2 import cv2
from ....core.data.prefetch import Batch, Batches
from ....core.data.sampling import CounterRng
from ....core.data.transform import Normalize, check_transform
from ....core.layers.context import LayerDefinition
from ....core.layers.data_source import SourceSpec, TopSpecs
from ....core.layers.declaration import register

_INTEGER = re.compile(r"[+-]?\d{1,9}")


@dataclass(frozen=True)
class VideoList:
    """A list of videos.

    Attributes:
        names: the videos' names as in the file.
        numbers: the number between a name and its labels: the first frame of a clip, or the number of frames; 0 if the
            line has no number.
        labels: the labels of each video.
    """

    names: list[str]
    numbers: list[int]
    labels: list[list[int]]


def read_videos(file: Path, *, has_numbers: bool, has_multiple_labels: bool = False) -> VideoList:
    """Read a list of videos.

    Args:
        file: the list.
        has_numbers: whether lines have a number between the name and the labels.
        has_multiple_labels: whether lines may have several labels, separated by commas.

    Raises:
        DataError: if the file cannot be read or is empty, or lines are malformed. The message names each such line.
    """
    videos, problems = VideoList([], [], []), []
    line_format = (
        "a name, " + ("an integer, " if has_numbers else "") + ("labels" if has_multiple_labels else "a label")
    )
    for line_number, line in enumerate(read_names(file), 1):
        name, *fields = line.split()
        labels = fields[-1].split(",") if has_multiple_labels and fields else fields[-1:]
        numbers = fields[:-1]
        if len(fields) != 1 + has_numbers or not all(map(_INTEGER.fullmatch, (*numbers, *labels))):
            problems.append(Problem(f"'{line}' is not {line_format}, with spaces between them", str(file), line_number))
            continue
        videos.names.append(name)
        videos.numbers.append(int(numbers[0]) if has_numbers else 0)
        videos.labels.append([int(label) for label in labels])
    if problems:
        raise DataError(truncate_problems(problems))
    return videos


class VideoDataset(FileListDataset[Label]):
    """The videos of a list as examples."""

    item_name = "video"


class ClipDataset(VideoDataset[Any]):
    """The clips of a list as images (3 * length, H, W): the blue channels of all frames, then the green, then the red.

    Args:
        definition: the layer's definition.
        param: its parameters.
        rng: the source of the order and of the first frame of each clip.

    Raises:
        DataError: if the list, or a video that it names, is missing or malformed.
    """

    def __init__(self, definition: LayerDefinition, param: Any, rng: CounterRng) -> None:
        self._param, self._rng, self._training = param, rng, definition.training
        self._max_pixels = definition.config.max_image_pixels
        has_multiple_labels = bool(getattr(param, "use_multiple_label", False))
        file = definition.path(param.source)
        videos = read_videos(
            file, has_numbers=param.use_image or not param.use_temporal_jitter, has_multiple_labels=has_multiple_labels
        )
        paths = find_files(file, videos.names, param.root_folder, get_search_folders(definition, file), "video")
        self._numbers = videos.numbers
        self._labels = [self._one_hot(labels) if has_multiple_labels else labels[0] for labels in videos.labels]
        super().__init__(paths, param, rng)

    def _one_hot(self, labels: list[int]) -> np.ndarray:
        """Return an array, float32 (num_of_labels,), that is 1 at each of the labels and 0 elsewhere."""
        n = self._param.num_of_labels
        if not all(0 <= label < n for label in labels):
            raise DataError(f"the list has labels {labels}, which must be below num_of_labels {n}")
        return np.isin(np.arange(n), labels).astype(np.float32)

    def read_example(self, n: int, i: int) -> tuple[np.ndarray, Any]:
        """Read the clip and the label of the video on line i."""
        param, rng = self._param, self._rng.generator(n)
        step = param.sampling_rate
        if getattr(param, "use_sampling_rate_jitter", False):
            step = int(rng.integers(param.max_sampling_rate)) + 1
        length, path = param.new_length, self._paths[i]
        if not param.use_image:
            first_frame = None if param.use_temporal_jitter else self._numbers[i]
            frames = _read_frames(path, first_frame, length, step, rng, self._max_pixels)
        else:
            first_number = self._numbers[i]
            if param.use_temporal_jitter:  # frames count from 1
                num_frames = self._numbers[i]
                last_start = num_frames - length * step
                if last_start < 0:
                    raise BadImageError(Problem(f"has {num_frames} frames, but {length * step} are needed", path))
                first_number = int(rng.integers(last_start + 1)) + 1 if self._training else 1
            frame_numbers = range(first_number, first_number + length * step, step)
            frame_paths = [os.path.join(path, f"{frame_number:06d}.jpg") for frame_number in frame_numbers]
            frames = [read_image(file, max_pixels=self._max_pixels) for file in frame_paths]
        resized_frames = [resize(frame, param.new_height, param.new_width, self._max_pixels) for frame in frames]
        if len({frame.shape for frame in resized_frames}) > 1:
            raise BadImageError(Problem("has frames of several sizes; set new_height and new_width", path))
        return np.stack(resized_frames, axis=1).reshape(-1, *resized_frames[0].shape[1:]), self._labels[i]


def _read_frames(
    path: str, first_frame: int | None, length: int, step: int, rng: np.random.Generator, max_pixels: int
) -> list[np.ndarray]:
    """Read `length` frames (3, H, W) of a video file, `step` frames apart.

    All frames from the start of the file are decoded, because seeking does not work in all files. If `first_frame` is
    None, the first frame is selected at random.
    """
    capture = cv2.VideoCapture(path)
    try:
        if not capture.isOpened():
            raise BadImageError(Problem("is not a video that OpenCV can read", path))
        height, width = (int(capture.get(side)) for side in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH))
        with locate_errors(file=path):
            check_pixel_count(height, width, max_pixels)
        if first_frame is None:
            num_frames = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
            if num_frames < length * step:
                raise BadImageError(Problem(f"has {num_frames} frames, but {length * step} are needed", path))
            first_frame = int(rng.integers(num_frames - length * step + 1))
        frames: list[np.ndarray] = []
        for frame_index in range(first_frame + (length - 1) * step + 1):
            if not capture.grab():
                raise BadImageError(Problem(f"has {frame_index} frames, too few to start at frame {first_frame}", path))
            if frame_index >= first_frame and (frame_index - first_frame) % step == 0:
                frames.append(capture.retrieve()[1].transpose(2, 0, 1))
        return frames
    finally:
        capture.release()


_CHANNELS = 3
_LIST_FIELDS = (
    *("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "new_length", "root_folder"),
)
_SEGMENT_FIELDS = ("num_segments", "modality", "name_pattern")
_CLIP_FIELDS = ("use_image", "use_temporal_jitter", "sampling_rate", "show_data")
_SSD_FIELDS = ("video_type", "device_id", "video_file", "skip_frames")
_SUPPORTED_FIELDS = {
    "image_data_param": {
        *(*_LIST_FIELDS, *_CLIP_FIELDS),
        *("scale", "mean_file", "mean_value", "crop_size", "mirror", "is_color"),
    },
    "video_data_param": {
        *(*_LIST_FIELDS, *_CLIP_FIELDS),
        *("max_sampling_rate", "use_sampling_rate_jitter", "use_multiple_label", "num_of_labels"),
    },
    "segments": {*_LIST_FIELDS, *_SEGMENT_FIELDS},
}


class ClipBatches(ImageBatches[Any]):
    """Batches of clips, (N, C, length, h, w), made of images (C * length, h, w).

    Args:
        *args: the arguments of `ImageBatches`.
        length: the number of frames of a clip.
    """

    def __init__(self, *args: Any, length: int) -> None:
        super().__init__(*args)
        self._length = length

    def probe(self, n_tops: int) -> SourceSpec:
        """Read the first clip to determine the shapes of the tops."""
        spec = super().probe(n_tops)
        assert isinstance(spec.device_transform, Normalize)
        mean, scale = spec.device_transform.mean, spec.device_transform.scale
        if len(mean) > 1:
            mean = mean.reshape(_clip_shape(mean.shape, self._length))
        return spec._replace(device_transform=Normalize(mean, scale))

    def _assemble(self, examples: Examples[Any], start: int) -> Batch:
        batch = super()._assemble(examples, start)
        images, *labels = batch.arrays
        return batch._replace(arrays=(images.reshape(_clip_shape(images.shape, self._length)), *labels))


class VideoDataLayer(DataLayer):
    """Batches of the videos that a list names: clips (N, 3, length, h, w), or segments (N, channels, h, w).

    A clip of C3D consists of `new_length` frames, `sampling_rate` frames apart, of a video file or, with `use_image`,
    of a folder that contains 000001.jpg and so on. Each line of the list has a name, the first frame and a label. With
    `use_temporal_jitter`, the first frame is selected at random. The line then has the number of frames instead of the
    first frame, or no number for a video file.

    With `num_segments`, `modality` or `name_pattern`, the layer is the VideoData layer of temporal segment networks.
    Each line of its list has a folder, the number of frames and a label. The first top contains the channels of all
    frames of all segments, in order.
    """

    label_shapes = staticmethod(scalar_label_shapes)

    def check_settings(self) -> None:
        """Check the message of the layer's kind, and transform_param."""
        _check_settings(self.layer_param)
        kind, param = classify_layer(self.layer_param)
        definition = _move_to_transform(self.definition, kind, param)
        check_all(
            lambda: check_transform(definition),
            lambda: check_segments(self.definition) if kind == "segments" else None,
        )

    @staticmethod
    def image_size(layer: Any) -> tuple[int, int] | None:
        """Return the size of the crop in image_data_param, which other types do not read."""
        size = layer.image_data_param.crop_size
        return (size, size) if size else None

    def open(self, tops: TopSpecs) -> Batches:
        """Read the list, and check all its videos."""
        kind, param = classify_layer(self.layer_param)
        definition = _move_to_transform(self.definition, kind, param)
        if kind == "segments":
            segments = SegmentDataset(self.definition, self.rng)
            return ImageBatches(definition, segments, param.batch_size, self.rng, tops)
        clips = ClipDataset(self.definition, param, self.rng)
        return ClipBatches(definition, clips, param.batch_size, self.rng, tops, length=param.new_length)


def video_shape(layer: Any, height: int, width: int) -> tuple[int, ...]:
    """Return the shape of one video in a layer's first top, for frames of the given height and width."""
    kind, param = classify_layer(layer)
    if kind != "segments":
        return _CHANNELS, param.new_length, height, width
    n_channels = 2 if param.Modality.Name(param.modality) == "FLOW" else _CHANNELS
    return param.num_segments * param.new_length * n_channels, height, width


register(
    "VideoData",
    dataclasses.replace(VideoDataLayer.implementation(), example_shape=video_shape),
    bottoms=0,
    tops=(1, 2),
    param="video_data_param",
    further_params=("image_data_param",),
    fork_settings=tuple(sorted((*_CLIP_FIELDS, "new_length", "mean_value"))),
    origin="C3D, yjxiong/caffe",
    restrictions="The VideoData layer of the SSD fork, which reads a video or a camera, is refused. A clip that "
    "cannot be read is an error, like other bad examples; C3D omits it in TRAIN. With use_image and "
    "use_temporal_jitter, clips begin in TEST with 000001.jpg; C3D looks for 000000.jpg. No recorded case.",
)


def classify_layer(layer: Any) -> tuple[str, Any]:
    """Return the kind of a VideoData layer and its parameter message.

    The kind is "segments" for temporal segment networks, "video_data_param" or "image_data_param" for C3D's two forms.
    """
    if layer.HasField("image_data_param") and not layer.HasField("video_data_param"):
        return "image_data_param", layer.image_data_param
    param = layer.video_data_param
    return ("segments" if any(param.HasField(field) for field in _SEGMENT_FIELDS) else "video_data_param"), param


def _check_settings(layer: Any) -> None:
    kind, param = classify_layer(layer)
    param_name = "image_data_param" if kind == "image_data_param" else "video_data_param"
    if any(layer.video_data_param.HasField(field) for field in _SSD_FIELDS):
        raise DataError("the SSD fork's VideoData, which reads a video or a camera, is not supported")
    positive_fields = ("new_length", "num_segments" if kind == "segments" else "sampling_rate")
    problems = [
        f"{param_name}.{field} must be 1 or more, not {getattr(param, field)}"
        for field in (*positive_fields, "max_sampling_rate", "num_of_labels")
        if getattr(param, field, 1) < 1
    ]
    check_all(
        lambda: check_list_param(param, param_name, _SUPPORTED_FIELDS[kind]),
        lambda: raise_if_any(DataError, problems),
    )


def _move_to_transform(definition: LayerDefinition, kind: str, param: Any) -> LayerDefinition:
    """Return the definition with a transform_param that has one mean_value, or one for each channel of every frame.

    C3D's settings in image_data_param are moved to transform_param. Settings of crops are removed for segments, because
    `make_crop` crops them.
    """
    layer = type(definition.layer)()
    layer.CopyFrom(definition.layer)
    t = layer.transform_param
    if kind == "image_data_param":
        for name in ("scale", "mean_file", "crop_size", "mirror"):
            if param.HasField(name):
                setattr(t, name, getattr(param, name))
        if param.HasField("mean_value"):
            t.mean_value.append(param.mean_value)
    means = list(t.mean_value)
    if kind == "segments":
        for name in CROP_FIELDS:
            t.ClearField(name)
        channels = video_shape(layer, 0, 0)[0]
        expanded_means = means * (channels // max(len(means), 1))
    else:
        channels, expanded_means = _CHANNELS, [mean for mean in means for _ in range(param.new_length)]
    if len(means) > 1:
        if channels % len(means) if kind == "segments" else len(means) != channels:
            raise DataError(
                f"mean_value is set {len(means)} times, but there are {channels} channels; set it once, or once "
                "for each channel"
            )
        t.mean_value[:] = expanded_means
    return dataclasses.replace(definition, layer=layer)


def _clip_shape(shape: tuple[int, ...], length: int) -> tuple[int, ...]:
    *leading, channels, height, width = shape
    return (*leading, channels // length, length, height, width)


_NAME_PATTERNS = {"RGB": "image_%04d.jpg", "FLOW": "flow_%c_%04d.jpg"}


class SegmentDataset(VideoDataset[int]):
    """The videos in a list. Each is one image whose channels are the channels of its sampled frames, in order.

    A video is divided into `num_segments` segments of equal length. From each segment, `new_length` consecutive frames
    are read, at a random position in TRAIN and in the middle otherwise. Optical flow has two frames, x and y, of one
    channel each.

    Args:
        definition: the layer's definition.
        rng: the source of the order and of the first frame of each segment.

    Raises:
        DataError: if the list, or a folder that it names, is missing or malformed.
    """

    def __init__(self, definition: LayerDefinition, rng: CounterRng) -> None:
        param = self._param = definition.layer.video_data_param
        self._rng, self._training = rng, definition.training
        self._max_pixels = definition.config.max_image_pixels
        self._crop = make_crop(definition)
        self._is_flow, self._pattern = _read_name_pattern(param)
        file = definition.path(param.source)
        videos = read_videos(file, has_numbers=True)
        paths = find_files(
            file, videos.names, param.root_folder, get_search_folders(definition, file), "folder of frames"
        )
        self._lengths = videos.numbers
        self._labels = [labels[0] for labels in videos.labels]
        super().__init__(paths, param, rng)

    def read_example(self, n: int, i: int) -> tuple[np.ndarray, int]:
        """Read the frames (C, H, W) and the label of the video on line i."""
        param, rng = self._param, self._rng.generator(n)
        read_arguments = not self._is_flow, param.new_height, param.new_width, self._max_pixels
        frames = [
            read_image(os.path.join(self._paths[i], name), *read_arguments)
            for offset in self._sample_offsets(self._lengths[i], rng)
            for frame_number in range(offset + 1, offset + param.new_length + 1)
            for name in (
                [_format_name(self._pattern, (axis, frame_number)) for axis in "xy"]
                if self._is_flow
                else [_format_name(self._pattern, (frame_number,))]
            )
        ]
        if len({frame.shape for frame in frames}) > 1:
            problem = Problem("has frames of several sizes; set new_height and new_width", self._paths[i])
            raise BadImageError(problem)
        return self._crop(np.concatenate(frames), rng), self._labels[i]

    def _sample_offsets(self, num_frames: int, rng: np.random.Generator) -> list[int]:
        """Return the number of frames before the first frame of each segment."""
        num_segments, num_segment_frames = self._param.num_segments, self._param.new_length
        segment_length = num_frames // num_segments
        if segment_length < num_segment_frames:
            return [1] * num_segments  # as in the fork, also for videos of a single frame
        n_starts = segment_length - num_segment_frames + 1
        return [
            int(rng.integers(n_starts) if self._training else n_starts // 2) + k * segment_length
            for k in range(num_segments)
        ]


def _read_name_pattern(param: Any) -> tuple[bool, str]:
    """Return whether the frames are optical flow, and the pattern of their names."""
    modality = param.Modality.Name(param.modality)
    return modality == "FLOW", param.name_pattern or _NAME_PATTERNS[modality]


def _format_name(pattern: str, values: tuple[Any, ...]) -> str:
    try:
        return pattern % values
    except (TypeError, ValueError) as error:
        required_fields = "%c for the flow's axis and %d" if len(values) > 1 else "%d"
        raise DataError(f"name_pattern '{pattern}' must have {required_fields} for the frame's number") from error


def check_segments(definition: LayerDefinition) -> None:
    """Check the pattern of the names of frames, and the settings of crops.

    Raises:
        DataError: if they are invalid. The message lists all problems.
    """
    is_flow, pattern = _read_name_pattern(definition.layer.video_data_param)
    check_all(lambda: _format_name(pattern, ("x", 0) if is_flow else (0,)), lambda: make_crop(definition))


_RATIOS = (1.0, 0.875, 0.75, 0.66)
# positions of crops in quarters of the free space: corners and center; then the positions of more_fix_crop
_CROP_POSITIONS = ((0, 0), (0, 4), (4, 0), (4, 4), (2, 2))
_EXTRA_CROP_POSITIONS = ((0, 2), (4, 2), (2, 0), (2, 4), (1, 1), (1, 3), (3, 1), (3, 3))

CROP_FIELDS = (
    "crop_size",
    "mirror",
    "multi_scale",
    "fix_crop",
    "more_fix_crop",
    "max_distort",
    "scale_ratios",
    "is_flow",
)


def make_crop(definition: LayerDefinition) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Return a function that crops and mirrors an image (C, H, W) by the settings in transform_param.

    In TRAIN, crops are at random positions or, with `fix_crop`, at one of a few fixed positions. With `multi_scale`,
    the height and width of a crop are fractions (`scale_ratios`) of the image's shorter side, and the crop is resized
    to crop_size. The positions of the two fractions in the list `scale_ratios` differ by at most `max_distort`. In
    TEST, the crop is in the center. With `is_flow`, each value `v` in a mirrored frame of horizontal flow becomes
    `255 - v`.
    """
    p, training = definition.layer.transform_param, definition.training
    ratios = [np.float32(r) for r in p.scale_ratios or _RATIOS]
    if not all(0 < r <= 1 for r in ratios):
        raise DataError(f"transform_param.scale_ratios must be above 0 and at most 1: {list(p.scale_ratios)}")
    if p.multi_scale and not p.crop_size:
        raise DataError("transform_param has multi_scale, which needs a crop_size")
    if p.original_image:
        raise DataError("transform_param.original_image is not supported")
    if p.mean_file and p.crop_size:
        raise DataError(
            "transform_param has both mean_file and crop_size, which cannot be combined here; set mean_value instead"
        )

    def crop_image(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if p.crop_size:
            image = _crop(p, ratios, image, rng if training else None)
        if p.mirror and rng.integers(2):
            image = image[:, :, ::-1]
            if p.is_flow:
                image = image.copy()
                image[::2] = 255 - image[::2]
        return image

    return crop_image


def _crop(p: Any, ratios: list[np.float32], image: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    size, extent = (p.crop_size, p.crop_size), image.shape[1:]
    if min(extent) < p.crop_size:
        raise DataError(f"is {format_shape(image.shape)} (CxHxW), smaller than crop_size {p.crop_size}")
    if rng is not None and p.multi_scale:
        sides = [int(min(extent) * ratio) for ratio in ratios]
        sides = [p.crop_size if abs(side - p.crop_size) < 3 else side for side in sides]
        pairs = [(h, w) for i, h in enumerate(sides) for j, w in enumerate(sides) if abs(i - j) <= p.max_distort]
        size = pairs[rng.integers(len(pairs))]
    margins = [n - side for n, side in zip(extent, size, strict=True)]
    if rng is None:
        row, column = (n // 2 for n in margins)
    elif p.fix_crop:
        positions = _CROP_POSITIONS + _EXTRA_CROP_POSITIONS if p.more_fix_crop else _CROP_POSITIONS
        row, column = (n // 4 * q for n, q in zip(margins, positions[rng.integers(len(positions))], strict=True))
    else:
        row, column = (int(rng.integers(n + 1)) for n in margins)
    crop = image[:, row : row + size[0], column : column + size[1]]
    if size == (p.crop_size, p.crop_size):
        return crop
    # one channel at a time, because OpenCV supports at most 512 channels
    return np.concatenate([resize(channel[None], p.crop_size, p.crop_size) for channel in crop])

"""The CustomData layer of FlowNet 2: slices of the channels of a database, such as two images and their flow."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count as count_up
from itertools import pairwise
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from ...base.errors import DataError, Problem, check_all, raise_if_any
from ...base.human_readable import format_shape
from ...base.paths import read_bytes
from ...core.data.data_layer import DataLayer
from ...core.data.database import Record, RecordDataset, check_data_param
from ...core.data.image_batches import Examples, ImageBatches
from ...core.data.image_decoding import BadImageError
from ...core.data.prefetch import Batch, Batches
from ...core.data.sampling import CounterRng
from ...core.data.transform import check_transform
from ...core.layers.context import LayerDefinition, Shape
from ...core.layers.data_source import TopSpecs
from ...core.layers.declaration import register
from ...core.schema.caffe_pb2 import DataParameter, Datum

FLOW_SCALE = 32  # stored units of a pixel
UNKNOWN_FLOW = 32767  # stored for NaN
_UINT8, _FLOW, _BOOL = DataParameter.UINT8, DataParameter.UINT16FLOW, DataParameter.BOOL1
_FIELDS = (
    *("slice_point", "encoding", "subtract", "preselection_file", "preselection_label", "range_start", "range_end"),
    *("rand_permute", "rand_permute_order", "rand_permute_seed"),
)


def shuffle(order: Sequence[int], seed: int) -> list[int]:
    """Return a sequence in the random order that the fork gives it with a seed, on Linux.

    A test net must leave out the records that a training net reads, so their order is the fork's. It is that of GNU's
    std::random_shuffle with glibc's rand.

    Args:
        order: the sequence.
        seed: the argument of srand, 1 to 2**32 - 1.
    """
    shuffled = list(order)
    for i, number in zip(range(1, len(shuffled)), _rand(seed), strict=False):
        j = number % (i + 1)
        shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
    return shuffled


def _rand(seed: int) -> Iterator[int]:
    """Yield the numbers of glibc's rand() after srand(seed): an additive generator over 31 words."""
    word = seed - (seed >> 31 << 32)  # as int32
    words = deque([word], maxlen=31)
    for _ in range(30):
        word = 16807 * word % (2**31 - 1)
        words.append(word)
    words.rotate(-3)
    for n in count_up():
        words.append((words[0] + words[-3]) % 2**32)
        if n >= 310:  # the first numbers are discarded
            yield words[-1] >> 1


class SlicedDataset(RecordDataset[int]):
    """The selected Datums of a layer's database, in the order of its settings, with the mean subtracted and scaled.

    Args:
        definition: the layer's definition.
        rng: the source of a random order that rand_permute_seed does not determine.

    Raises:
        DataError: if the database or the preselection_file cannot be read, or no record is selected.
    """

    def __init__(self, definition: LayerDefinition, rng: CounterRng) -> None:
        super().__init__(definition, rng)
        self._param = definition.layer.data_param
        self._order = self._select_records(definition, rng)

    def __len__(self) -> int:
        """Return the number of selected records."""
        return len(self._order)

    def _select_records(self, definition: LayerDefinition, rng: CounterRng) -> list[int]:
        param = self._param
        order = list(range(len(self._records)))
        if param.preselection_file:
            path = definition.path(param.preselection_file)
            labels = read_bytes(path, DataError).split()
            if len(labels) != len(order):
                message = f"has {len(labels)} labels, but the database {self._records.path} has {len(order)} records"
                raise DataError(Problem(message, str(path)))
            order = [i for i in order if labels[i] == b"%d" % param.preselection_label]
            if not order:
                message = f"has no label {param.preselection_label}, which is the preselection_label"
                raise DataError(Problem(message, str(path)))
        last = len(order) - 1
        start = min(max(param.range_start, 0), last)
        end = param.range_end if 0 <= param.range_end <= last else last
        if end < start:
            raise DataError(f"data_param.range_end {param.range_end} is before range_start {param.range_start}")
        seed = param.rand_permute_seed or 1 + rng.random_integer(2**31 - 1)
        if param.rand_permute and param.rand_permute_order == DataParameter.FIRST_PERMUTE_THEN_RANGE:
            return shuffle(order, seed)[start : end + 1]
        order = order[start : end + 1]
        return shuffle(order, seed) if param.rand_permute else order

    def _record_index(self, n: int) -> int:
        return self._order[n % len(self._order)]

    def read_records(self, start: int, count: int) -> list[Record]:
        """Read the records of `count` examples from example `start` on."""
        return [self._records[self._record_index(n)] for n in range(start, start + count)]

    def decode(self, value: bytes) -> tuple[np.ndarray, int]:
        """Return the values in a Datum, float32 (C, H, W), after mean and scale, and its label."""
        try:
            datum = Datum.FromString(value)
        except DecodeError as error:
            raise BadImageError("is not a Datum, or is damaged") from error
        values = decode_slices(datum, self._param.slice_point, self._param.encoding)
        subtract = np.array(self._param.subtract, np.float32)
        if len(subtract) > len(values):
            raise DataError(f"has {len(values)} channels, but data_param.subtract is set {len(subtract)} times")
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are kept, as in Caffe
            values[: len(subtract)] -= subtract[:, None, None]
            values *= np.float32(self._param.scale)
        return values, datum.label


def decode_slices(datum: Datum, slice_points: Sequence[int], encodings: Sequence[int]) -> np.ndarray:
    """Return the values of a Datum, float32 (C, H, W).

    Args:
        datum: the Datum, with `float_data`, or with the bytes of all slices in `data`, one after the other.
        slice_points: the first channel of each slice after the first.
        encodings: the encoding of each slice, or of the first slices; the others are UINT8.

    Raises:
        BadImageError: if the Datum does not fit the slices. The message lacks the name of the record.
    """
    shape = channels, height, width = datum.channels, datum.height, datum.width
    if min(shape) < 1 or datum.encoded:
        raise BadImageError(
            f"has shape {shape} (channels, height, width){' and a compressed image' * datum.encoded}; CustomData needs "
            "uncompressed values, as convert_imageset_and_flow writes them"
        )
    if slice_points and slice_points[-1] >= channels:
        raise BadImageError(
            f"has {channels} channels, but data_param.slice_point is {list(slice_points)}; the last one must be less"
        )
    pixels = height * width
    if len(datum.float_data):
        if encodings or len(datum.float_data) != channels * pixels:
            raise BadImageError(
                f"has {len(datum.float_data)} values in float_data; without data_param.encoding {format_shape(shape)} "
                "values would fit"
            )
        return np.array(datum.float_data, np.float32).reshape(shape)
    counts = [b - a for a, b in pairwise((0, *slice_points, channels))]
    kinds = [*encodings, *[_UINT8] * len(counts)][: len(counts)]
    if any(kind == _BOOL and count != 1 for kind, count in zip(kinds, counts, strict=True)):
        raise BadImageError(f"has slices of {counts} channels, but a slice with encoding BOOL1 must have 1")
    bytes_of_kind: dict[int, int] = {_UINT8: pixels, _FLOW: 2 * pixels, _BOOL: -(-pixels // 8)}
    sizes = [count * bytes_of_kind[kind] for kind, count in zip(kinds, counts, strict=True)]
    if len(datum.data) != sum(sizes):
        names = ", ".join(DataParameter.CHANNELENCODING.Name(kind) for kind in kinds)
        raise BadImageError(
            f"has {len(datum.data)} bytes of data, but its slices of {counts} channels of {height} x {width} pixels "
            f"with the encodings {names} need {sum(sizes)}; check data_param.slice_point and encoding"
        )
    values = np.empty((channels, pixels), np.float32)
    offset = channel = 0
    for kind, count, size in zip(kinds, counts, sizes, strict=True):
        data, out = np.frombuffer(datum.data, np.uint8, size, offset), values[channel : channel + count]
        if kind == _FLOW:
            stored = data.view("<i2").reshape(count, pixels)
            np.divide(stored, np.float32(FLOW_SCALE), out=out, dtype=np.float32)
            out[stored == UNKNOWN_FLOW] = np.nan
        elif kind == _BOOL:
            out[0] = np.unpackbits(data, count=pixels, bitorder="little")
        else:
            out[...] = data.reshape(count, pixels)
        offset, channel = offset + size, channel + count
    return values.reshape(shape)


class SlicedBatches(ImageBatches[int]):
    """Batches of the slices of Datums, and of their labels; see `ImageBatches`."""

    def __init__(self, definition: LayerDefinition, dataset: SlicedDataset, rng: CounterRng, tops: TopSpecs) -> None:
        super().__init__(definition, dataset, definition.layer.data_param.batch_size, rng, tops)
        self._slice_points = tuple(definition.layer.data_param.slice_point)

    def _assemble(self, examples: Examples[int], start: int) -> Batch:
        channels, *_ = self._check_equal_shapes(examples)
        slices = pairwise((0, *self._slice_points, channels))
        tops = [np.stack([values[a:b] for values in examples.images]) for a, b in slices]
        labels = np.array(examples.labels, np.float32).reshape(-1, 1, 1, 1)
        return Batch((*tops, labels)[: len(self.tops)], examples.warnings)


class CustomDataLayer(DataLayer):
    """Batches of slices of the channels of Datums: two images, their flow and occlusions, for example.

    `slice_point` divides the channels among the tops, (N, channels, H, W), and `encoding` states how each slice is
    stored: bytes, flows in 1/32 pixel (32767 becomes NaN), or a bit for each pixel. A further top has the labels,
    (N, 1, 1, 1). `preselection_file`, `range_start` and `range_end` select records. With `rand_permute` they are read
    in a random order, the same in each epoch; with a `rand_permute_seed` it is the fork's.
    """

    def check_settings(self) -> None:
        """Check data_param. There must be no transform_param."""
        check_all(
            lambda: check_data_param(self.definition, _FIELDS),
            lambda: check_transform(self.definition, supported_fields=()),
            lambda: raise_if_any(DataError, self._list_problems()),
        )

    def _list_problems(self) -> Iterator[str]:
        param, num_tops = self.layer_param.data_param, len(self.layer_param.top)
        num_slices = len(param.slice_point) + 1
        if not all(a < b for a, b in pairwise((0, *param.slice_point))):
            yield f"data_param.slice_point must increase from 1 on, not {list(param.slice_point)}"
        if num_tops not in (num_slices, num_slices + 1):
            yield f"has {num_tops} tops, but needs one for each of {num_slices} slices, and at most one more for labels"
        if len(param.encoding) > num_slices:
            yield f"data_param.encoding is set {len(param.encoding)} times, but there are {num_slices} slices"
        if param.preselection_file and not param.HasField("preselection_label"):
            yield "data_param has a preselection_file, but no preselection_label"
        if param.mean_file:
            yield "data_param.mean_file is not supported by CustomData; set subtract for each channel"
        if not math.isfinite(param.scale):
            yield f"data_param.scale must be finite, not {param.scale}"
        for name in ("crop_size", "mirror", "rand_skip"):
            if getattr(param, name):
                yield f"data_param.{name} is not a setting of CustomData; the fork ends with an error, too"

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape] | None:
        """Return the shapes of the tops after the first, or None if the last slice may have any number of channels."""
        param = layer.data_param
        counts = [b - a for a, b in pairwise(param.slice_point)]
        if param.slice_point:
            last = param.encoding[len(param.slice_point)] if len(param.encoding) > len(param.slice_point) else _UINT8
            if last == _UINT8:
                return None
            counts.append(2 if last == _FLOW else 1)
        return [*((batch_size, count, height, width) for count in counts), (batch_size, 1, 1, 1)]

    def open(self, tops: TopSpecs) -> Batches:
        """Open the database."""
        return SlicedBatches(self.definition, SlicedDataset(self.definition, self.rng), self.rng, tops)


def _example_shape(layer: Any, height: int, width: int) -> Shape:
    points = layer.data_param.slice_point
    return (points[0] if points else 3), height, width


register(
    "CustomData",
    replace(CustomDataLayer.implementation(), example_shape=_example_shape),
    bottoms=0,
    tops=(1, None),
    param="data_param",
    fork_settings=_FIELDS,
    origin="FlowNet 2",
    restrictions="Records are counted in the order of their keys, which the fork takes for their numbers. mean_file, "
    "block_size and permute_every_iter are not supported.",
)

"""The Data layer, and the reading of LMDB and LevelDB records that other layers share."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import numpy as np

from ...base.databases import LevelDb, Lmdb, PutFn, leveldb_writer, lmdb_writer
from ...base.errors import DataError, Problem, check_all, raise_if_any
from ...base.host_memory import count_available_cores
from ...base.paths import suggest_sibling
from ..layers.context import LayerDefinition
from ..layers.data_source import SourceSpec, TopSpecs
from ..layers.declaration import register
from ..schema import caffe_pb2
from .data_identity import checksum_bytes
from .data_layer import DataLayer, list_source_problems, refuse_unsupported, scalar_label_shapes
from .image_batches import ImageBatches, ImageDataset, Label
from .image_decoding import COLOR, GRAY, UNCHANGED, DatumReader, is_compressed
from .prefetch import Batches
from .sampling import CounterRng, IndexSampler
from .transform import check_transform

Record = tuple[bytes, bytes]  # key, value
Result = TypeVar("Result")

_NUM_COMPARED = 16  # records that represent a database, and its last one
Records = Lmdb | LevelDb  # (key, value) records, indexed by position in key order
READERS: Mapping[str, type[Records]] = {"lmdb": Lmdb, "leveldb": LevelDb}
Writer = Callable[[str | os.PathLike[str]], AbstractContextManager[PutFn]]
WRITERS: Mapping[str, Writer] = {"lmdb": lmdb_writer, "leveldb": leveldb_writer}

_SUPPORTED_FIELDS = (
    *("source", "batch_size", "backend", "rand_skip", "prefetch"),
    *("scale", "mean_file", "crop_size", "mirror", "force_encoded_color"),  # in old files; Caffe ignores them here
)


class RecordDataset(ImageDataset[Label]):
    """The records of a layer's database as examples, repeated endlessly.

    Args:
        definition: the layer's definition.
        rng: the source of the number of records that rand_skip skips at the start, and of a random order.
        max_examples: the number of examples that will be read, or None for all records. A LevelDB reads only the keys
            that are needed.
        shuffle: whether each epoch has a different random order, if all records are read.

    Attributes:
        decode_mode: how compressed images are decoded; see `read_datum`.
        max_pixels: the largest number of pixels of a compressed image.

    Raises:
        DataError: if the database cannot be read.
    """

    def __init__(
        self, definition: LayerDefinition, rng: CounterRng, max_examples: int | None = None, *, shuffle: bool = False
    ) -> None:
        param, transform_param = definition.layer.data_param, definition.layer.transform_param
        self.decode_mode = COLOR if transform_param.force_color else GRAY if transform_param.force_gray else UNCHANGED
        self.max_pixels = definition.config.max_image_pixels
        backend, path = caffe_pb2.DataParameter.DB.Name(param.backend).lower(), definition.path(param.source)
        if not os.path.lexists(path):
            net_note = f" of {definition.file}" if definition.file else ""
            message = (
                f"no such folder, but it is the source in phase {definition.phase}{net_note}; a database is a folder, "
                f"as written by convert_imageset -backend {backend}{suggest_sibling(path)}"
            )
            raise DataError(Problem(message, str(path)))
        records = READERS[backend](path)
        num_skipped = rng.random_integer(param.rand_skip) if param.rand_skip else 0
        self._records = records if max_examples is None else records.head(num_skipped + max_examples)
        self._num_skipped = num_skipped % len(self._records)  # opens the database without reading a record
        self._shuffle = shuffle and max_examples is None
        self._sampler = IndexSampler(len(self._records), rng, shuffle=self._shuffle)

    @abstractmethod
    def decode(self, value: bytes) -> tuple[np.ndarray, Label]:
        """Return the image (C, H, W) and the label that a record's value contains."""

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._records)

    def read(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[Label]]:
        """Read consecutive examples; see `ImageDataset.read`."""
        return self.decode_records(self.read_records(start, count))

    def read_records(self, start: int, count: int) -> list[Record]:
        """Read the records of `count` examples from example `start` on."""
        if self._shuffle:
            return [self._records[self._record_index(n)] for n in range(start, start + count)]
        records: list[Record] = []
        index = self._record_index(start)
        while (num_remaining := count - len(records)) > 0:
            records += self._records.read_range(index, min(num_remaining, len(self._records) - index))
            index = 0
        return records

    def checksum(self) -> int:
        """Return a checksum of the keys and values of records all over the database."""
        step = max(1, len(self) // _NUM_COMPARED)
        records = [*range(0, len(self), step), len(self) - 1]
        return checksum_bytes(part for index in records for part in self._records[index])

    def decode_records(self, records: Sequence[Record]) -> tuple[Sequence[np.ndarray], Sequence[Label]]:
        """Decode records to their images (C, H, W) and labels."""
        images, labels = zip(*[self.apply(self.decode, record) for record in records], strict=True)
        return images, labels

    def apply(self, function: Callable[[bytes], Result], record: Record) -> Result:
        """Return `function(value)` for a record's value. If this raises a `DataError`, add the record's key to it."""
        key, value = record
        try:
            return function(value)
        except DataError as error:
            raise self._add_record_key(key, error) from error

    def locate_error(self, n: int, error: DataError) -> DataError:
        """Return `error` with the key of example n in its message."""
        return self._add_record_key(self._records[self._record_index(n)][0], error)

    def close(self) -> None:
        """Close the database. The next read opens it again."""
        self._records.close()

    def _record_index(self, n: int) -> int:
        return self._sampler[self._num_skipped + n]

    def _add_record_key(self, key: bytes, error: DataError) -> DataError:
        key_text = key.decode("utf-8", "backslashreplace")
        return type(error)(Problem(f"record '{key_text}' {error}", file=str(self._records.path)))


def check_data_param(definition: LayerDefinition, extra_fields: Iterable[str] = ()) -> None:
    """Check the settings of a layer's data_param. `extra_fields` are supported, too.

    Raises:
        DataError: if the source or the batch size is missing, or a setting is not supported. The message lists all
            problems.
    """
    param = definition.layer.data_param

    def list_problems() -> Iterator[str]:
        yield from list_source_problems(param, "data_param", "the database's folder")
        if param.backend == caffe_pb2.DataParameter.IMAGEDB:
            yield f"{param.source} is in MyCaffe's SQL database, which is not supported; write it to an LMDB"

    check_all(
        lambda: raise_if_any(DataError, list_problems()),
        lambda: refuse_unsupported(param, "data_param", (*_SUPPORTED_FIELDS, *extra_fields)),
        lambda: definition.path(param.source),
    )


class DatumDataset(RecordDataset[int]):
    """The Datums in a layer's database as examples. See `RecordDataset` for the arguments."""

    def __init__(
        self, definition: LayerDefinition, rng: CounterRng, max_examples: int | None = None, *, shuffle: bool = False
    ) -> None:
        super().__init__(definition, rng, max_examples, shuffle=shuffle)
        self._reader = DatumReader(self.decode_mode, self.max_pixels)

    def decode(self, value: bytes) -> tuple[np.ndarray, int]:
        """Return the image and the label in a Datum."""
        return self._reader.read(value)

    def count_threads(self) -> int:
        """Return the number of cores if the first record is compressed, otherwise 1."""
        # decoding releases Python's lock; copying raw data is too fast to gain from threads
        return count_available_cores() if is_compressed(self._records[self._record_index(0)][1]) else 1

    def read(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[int]]:
        """Read consecutive examples; see `ImageDataset.read`."""
        records = self.read_records(start, count)
        images_and_labels = self._reader.read_same_layout([value for _, value in records])
        return self.decode_records(records) if images_and_labels is None else images_and_labels  # type: ignore[return-value]


class DatabaseLayer(DataLayer):
    """Batches of Datums from an LMDB or LevelDB. `prefetch` batches are read ahead."""

    any_shape = True
    label_shapes = staticmethod(scalar_label_shapes)
    batches_class: type[ImageBatches[int]] = ImageBatches
    data_fields: tuple[str, ...] = ()
    transform_fields: tuple[str, ...] = ()

    def check_settings(self) -> None:
        """Check data_param and transform_param, which may also have `data_fields` and `transform_fields`."""
        check_all(
            lambda: check_data_param(self.definition, self.data_fields),
            lambda: check_transform(self.definition, self.transform_fields),
        )

    def probe(self) -> SourceSpec:
        """Read the first record. Later keys of a LevelDB are not read."""
        num_needed = 1 + self.layer_param.data_param.batch_size if self.definition.config.skip_bad else 1
        dataset = DatumDataset(self.definition, self.rng, num_needed)
        return self.make_batches(dataset, ()).probe(len(self.layer_param.top))

    def open(self, tops: TopSpecs) -> Batches:
        """Open the database."""
        return self.make_batches(DatumDataset(self.definition, self.rng), tops)

    def make_batches(self, dataset: DatumDataset, tops: TopSpecs) -> ImageBatches[int]:
        """Return the batches of a data set."""
        return self.batches_class(self.definition, dataset, self.layer_param.data_param.batch_size, self.rng, tops)


DATA = register("Data", DatabaseLayer.implementation(), bottoms=0, tops=(1, 2), param="data_param")

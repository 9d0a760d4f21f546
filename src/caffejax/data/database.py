"""The Data layer, and the reading of LMDB and LevelDB records that other layers share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np

from ..errors import DataError, Problem
from ..layers.context import Site
from ..layers.registry import register
from ..layers.source import Look, Tops
from ..layers.types import LayerTraits, LayerType, Signature
from ..schema import caffe_pb2
from .common import CounterRng, refuse_unsupported
from .data_layer import prefetch_depth, reads_batches
from .folder import Put
from .image_batches import LabelledBatches, look_at_images
from .image_decoding import AS_STORED, COLOUR, GREY, DatumReader, is_compressed
from .leveldb import LevelDb, leveldb_writer
from .lmdb import Lmdb, lmdb_writer
from .prefetch import Batches, available_cores


class Records(Protocol):
    """A database: (key, value) by position, in the order of the keys. Several threads may read at once."""

    path: Path

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[bytes, bytes]: ...

    def read_range(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        """Read that many records from number `start` on, not beyond the last."""
        ...

    def head(self, count: int) -> Records:
        """Return a reader of the first `count` records, or of more; it reads no more keys than it needs for these."""
        ...

    def close(self) -> None:
        """Let go of the files."""
        ...


READERS: Mapping[str, Callable[[str | os.PathLike[str]], Records]] = {"lmdb": Lmdb, "leveldb": LevelDb}
WRITERS: Mapping[str, Callable[[str | os.PathLike[str]], AbstractContextManager[Put]]] = {
    "lmdb": lmdb_writer,
    "leveldb": leveldb_writer,
}


# The second line is what old files say and Caffe ignores here; the third is how forks read, not what.
_KNOWN = {"source", "batch_size", "backend", "rand_skip", "prefetch"} | {
    *("scale", "mean_file", "crop_size", "mirror", "force_encoded_color"),
    *("threads", "parser_threads", "disk_reader_threads", "cache", "precache", "verbose"),
}


Label = TypeVar("Label")
Found = TypeVar("Found")
Record = tuple[bytes, bytes]


class RecordExamples(Generic[Label]):
    """The records of a database as examples, round and round.

    Args:
        records: the database.
        read: makes an image (C, H, W) and its label of a record's value.
        skip: how many records to leave out at the start.

    Raises:
        DataError: if the database cannot be read.
    """

    def __init__(self, records: Records, read: Callable[[bytes], tuple[np.ndarray, Label]], skip: int) -> None:
        self._records = records
        self._read = read
        self._first = skip % len(records)  # opens the database, and reads no record

    @property
    def first(self) -> bytes:
        """The value of the first record."""
        return self._records[self._index(0)][1]

    def __len__(self) -> int:
        """Return how many records there are before they come again."""
        return len(self._records)

    def records(self, start: int, count: int) -> list[Record]:
        """Return the records of that many examples."""
        records: list[Record] = []
        at = self._index(start)
        while (left := count - len(records)) > 0:
            records += self._records.read_range(at, min(left, len(self._records) - at))
            at = 0
        return records

    def examples(self, records: Sequence[Record]) -> tuple[Sequence[np.ndarray], Sequence[Label]]:
        """Return the images and the labels of records."""
        images, labels = zip(*[self.read_one(record, self._read) for record in records], strict=True)
        return images, labels

    def read_range(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[Label]]:
        """Return the images and the labels of that many examples."""
        return self.examples(self.records(start, count))

    def read_one(self, record: Record, read: Callable[[bytes], Found]) -> Found:
        """Read a record's value; errors name its key."""
        key, value = record
        try:
            return read(value)
        except DataError as error:
            raise self._named(key, error) from error

    def error(self, n: int, error: DataError) -> DataError:
        """Return the error with the record's key."""
        return self._named(self._records[self._index(n)][0], error)

    def close(self) -> None:
        """Close the database. Reading on opens it again."""
        self._records.close()

    def _index(self, n: int) -> int:
        return (self._first + n) % len(self._records)

    def _named(self, key: bytes, error: DataError) -> DataError:
        name = key.decode("utf-8", "backslashreplace")
        return type(error)(Problem(f"record '{name}' {error}", file=str(self._records.path)))


def check_data_param(site: Site) -> None:
    """Check a layer's data_param.

    Raises:
        DataError: if it names no source, has no batch size, or wants what is not supported.
    """
    param = site.layer.data_param
    if not param.source:
        raise DataError("data_param has no source; name the database's folder")
    if param.batch_size < 1:
        raise DataError("data_param.batch_size must be 1 or more")
    refuse_unsupported(param, "data_param", _KNOWN)


def open_records(site: Site, rng: CounterRng, enough: int | None = None) -> tuple[Records, int, int, int]:
    """Open a layer's database; if only so many examples will be read as are `enough`, no further than these need.

    Returns:
        The database, what becomes of compressed images and how many pixels they may have (see `read_datum`), and how
        many records to skip.
    """
    param, transform_param = site.layer.data_param, site.layer.transform_param
    decode = COLOUR if transform_param.force_color else GREY if transform_param.force_gray else AS_STORED
    records = READERS[caffe_pb2.DataParameter.DB.Name(param.backend).lower()](site.path(param.source))
    skip = rng.below(param.rand_skip) if param.rand_skip else 0
    return records if enough is None else records.head(skip + enough), decode, site.reading.max_image_pixels, skip


class DatumExamples(RecordExamples[int]):
    """The Datums in a database, round and round.

    Args:
        records: the database.
        decode, max_pixels: what becomes of compressed images, see `read_datum`.
        skip: how many records to leave out at the start.

    Raises:
        DataError: if the database cannot be read.
    """

    def __init__(self, records: Records, decode: int, max_pixels: int, skip: int) -> None:
        self._reader = DatumReader(decode, max_pixels)
        super().__init__(records, self._reader, skip)

    def count_threads(self) -> int:
        """Return how many threads can read faster than one: all, if the first record is compressed."""
        # decoding runs in OpenCV, outside of Python's lock; the rest is too little to share
        return available_cores() if is_compressed(self.first) else 1

    def read_range(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[int]]:
        """Return the images and the labels of that many examples."""
        records = self.records(start, count)
        return self._reader.alike([value for _, value in records]) or self.examples(records)  # type: ignore[return-value]


def look_at_data(site: Site) -> Look:
    """Look at a Data layer's settings and the first record of its database. Of a LevelDB, no later keys are read."""
    check_data_param(site)
    rng = CounterRng(site.reading.seed, site.layer.name)
    enough = 1 + site.layer.data_param.batch_size if site.reading.skip_bad else 1
    return look_at_images(site, _open_examples(site, rng, enough), site.layer.data_param.batch_size, rng)


def open_data(site: Site, tops: Tops) -> Batches:
    """Open a Data layer's LMDB or LevelDB; `prefetch` batches are read ahead."""
    rng = CounterRng(site.reading.seed, site.layer.name)
    return LabelledBatches(site, _open_examples(site, rng), site.layer.data_param.batch_size, rng, tops)


def _open_examples(site: Site, rng: CounterRng, enough: int | None = None) -> DatumExamples:
    """Open the database; if only so many examples will be read as are `enough`, no further than these need."""
    return DatumExamples(*open_records(site, rng, enough))


register(
    LayerType(
        Signature("Data", bottoms=0, tops=(1, 2), param="data_param"),
        reads_batches(look_at_data, open_data, prefetch_depth),
        traits=LayerTraits(),
    )
)

"""What layers share that read databases: the records, round and round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from ..errors import DataError, Problem
from ..layers.context import Site
from ..schema import caffe_pb2
from .datum import AS_STORED, COLOUR, GREY
from .fields import refuse_unsupported
from .records import READERS, Records
from .rng import CounterRng

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

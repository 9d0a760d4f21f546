"""The Data layer: batches of Datums from a database."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import DataError, Problem
from ..layers.context import Site
from ..layers.label import Label
from ..layers.registry import register
from ..layers.source import Look, Tops
from ..layers.types import Facts, LayerType, Signature
from ..schema import caffe_pb2
from .datum import AS_STORED, COLOUR, GREY, DatumReader, is_compressed
from .fields import refuse_unsupported
from .labelled import LabelledBatches, look_at_images
from .pipeline import Batches, available_cores
from .reads import prefetch_depth, reads_batches
from .records import READERS, Records
from .rng import CounterRng

# The second line is what old files say and Caffe ignores here; the third is how forks read, not what.
_KNOWN = {"source", "batch_size", "backend", "rand_skip", "prefetch"} | {
    *("scale", "mean_file", "crop_size", "mirror", "force_encoded_color"),
    *("threads", "parser_threads", "disk_reader_threads", "cache", "precache", "verbose"),
}


class DatumExamples:
    """The Datums in a database, round and round.

    Args:
        records: the database.
        decode: what becomes of compressed images, see `read_datum`.
        skip: how many records to leave out at the start.

    Raises:
        DataError: if the database cannot be read.
    """

    def __init__(self, records: Records, decode: int, skip: int) -> None:
        self._records = records
        self._reader = DatumReader(decode)
        self._first = skip % len(records)  # opens the database, and reads no record

    def count_threads(self) -> int:
        """Return how many threads can read faster than one: all, if the first record is compressed."""
        # decoding runs in OpenCV, outside of Python's lock; the rest is too little to share
        return available_cores() if is_compressed(self._records[self._index(0)][1]) else 1

    def read_range(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[int]]:
        """Return the images and the labels of that many examples."""
        records: list[tuple[bytes, bytes]] = []
        at = self._index(start)
        while (left := count - len(records)) > 0:
            records += self._records.read_range(at, min(left, len(self._records) - at))
            at = 0
        alike = self._reader.alike([value for _, value in records])
        return alike or tuple(zip(*[self._example(*record) for record in records], strict=True))

    def error(self, n: int, error: DataError) -> DataError:
        """Return the error with the record's key."""
        return self._named(self._records[self._index(n)][0], error)

    def close(self) -> None:
        """Close the database. Reading on opens it again."""
        self._records.close()

    def _index(self, n: int) -> int:
        return (self._first + n) % len(self._records)

    def _example(self, key: bytes, value: bytes) -> tuple[np.ndarray, int]:
        try:
            return self._reader(value)
        except DataError as error:
            raise self._named(key, error) from error

    def _named(self, key: bytes, error: DataError) -> DataError:
        name = key.decode("utf-8", "backslashreplace")
        return type(error)(Problem(f"record '{name}' {error}", file=str(self._records.path)))


def look_at_data(site: Site) -> Look:
    """Look at a Data layer's settings and the first record of its database. Of a LevelDB, no later keys are read."""
    param = site.layer.data_param
    if not param.source:
        raise DataError("data_param has no source; name the database's folder")
    if param.batch_size < 1:
        raise DataError("data_param.batch_size must be 1 or more")
    refuse_unsupported(param, "data_param", _KNOWN)
    rng = CounterRng(site.reading.seed, site.layer.name)
    enough = 1 + param.batch_size if site.reading.skip_bad else 1
    return look_at_images(site, _open_examples(site, rng, enough), param.batch_size, rng)


def open_data(site: Site, tops: Tops) -> Batches:
    """Open a Data layer's LMDB or LevelDB; `prefetch` batches are read ahead."""
    rng = CounterRng(site.reading.seed, site.layer.name)
    return LabelledBatches(site, _open_examples(site, rng), site.layer.data_param.batch_size, rng, tops)


def _open_examples(site: Site, rng: CounterRng, enough: int | None = None) -> DatumExamples:
    """Open the database; if only so many examples will be read as are `enough`, no further than these need."""
    param, transform_param = site.layer.data_param, site.layer.transform_param
    decode = COLOUR if transform_param.force_color else GREY if transform_param.force_gray else AS_STORED
    records = READERS[caffe_pb2.DataParameter.DB.Name(param.backend).lower()](site.path(param.source))
    skip = rng.below(param.rand_skip) if param.rand_skip else 0
    return DatumExamples(records if enough is None else records.head(skip + enough), decode, skip)


register(
    LayerType(
        Signature("Data", bottoms=0, tops=(1, 2), param="data_param"),
        reads_batches(look_at_data, open_data, prefetch_depth),
        facts=Facts(label=Label(edge=lambda layer: f"Batch {layer.data_param.batch_size}")),
    )
)

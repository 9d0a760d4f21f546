"""The Data layer: batches of Datums from a database."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..layers.context import Site
from ..layers.label import Label
from ..layers.registry import register
from ..layers.source import Look, Tops
from ..layers.types import Facts, LayerType, Signature
from .datum import DatumReader, is_compressed
from .examples import RecordExamples, check_data_param, open_records
from .labelled import LabelledBatches, look_at_images
from .pipeline import Batches, available_cores
from .reads import prefetch_depth, reads_batches
from .records import Records
from .rng import CounterRng


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
        facts=Facts(label=Label(edge=lambda layer: f"Batch {layer.data_param.batch_size}")),
    )
)

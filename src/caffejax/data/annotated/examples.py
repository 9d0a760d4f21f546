"""The AnnotatedDatums in a database as examples."""

from __future__ import annotations

import functools

import numpy as np

from ..datum import BadImageError, image_of
from ..examples import RecordExamples
from ..pipeline import available_cores
from ..records import Records
from .datum import Annotated, annotated, parse


class AnnotatedExamples(RecordExamples[Annotated]):
    """The AnnotatedDatums in a database, round and round.

    Args:
        records: the database.
        decode, max_pixels: what becomes of compressed images, see `read_datum`.
        skip: how many records to leave out at the start.

    Raises:
        DataError: if the database cannot be read.
    """

    def __init__(self, records: Records, decode: int, max_pixels: int, skip: int) -> None:
        super().__init__(records, functools.partial(_read, decode=decode, max_pixels=max_pixels), skip)

    def count_threads(self) -> int:
        """Return how many threads can read faster than one: decoding runs outside of Python's lock."""
        return available_cores()

    def annotations(self, count: int, skip_bad: bool) -> list[Annotated]:
        """Return what the first records hold besides images, of at most that many. No image is decoded."""
        found = []
        for record in self.records(0, min(count, len(self._records))):
            try:
                found.append(self.read_one(record, lambda value: annotated(parse(value))))
            except BadImageError:
                if not skip_bad:
                    raise
        return found


def _read(data: bytes, decode: int, max_pixels: int) -> tuple[np.ndarray, Annotated]:
    message = parse(data)
    return image_of(message.datum, decode, max_pixels), annotated(message)

"""The Data layer: batches of Datums from a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from ..errors import DataError, Problem, located
from ..layers.context import Context, Source
from ..layers.registry import register_source
from ..schema import caffe_pb2
from .datum import AS_STORED, COLOUR, GREY, DatumReader, is_compressed
from .draws import Draws
from .fields import refuse_others
from .lmdb import Lmdb
from .pipeline import Batch, Pipeline, cores
from .shapes import by, top
from .transform import Transform, finish

# The second line is what old files say and Caffe ignores here; the third is how forks read, not what.
_KNOWN = {"source", "batch_size", "backend", "rand_skip", "prefetch"} | {
    *("scale", "mean_file", "crop_size", "mirror", "force_encoded_color"),
    *("threads", "parser_threads", "disk_reader_threads", "cache", "precache", "verbose"),
}


class Records(Protocol):
    """A database: (key, value) by position."""

    path: Path

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[bytes, bytes]: ...

    def run(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        """That many records from number `start` on; not beyond the last."""
        ...

    def close(self) -> None:
        """Lets go of the files."""
        ...


class DatumBatches:
    """Batches of the Datums in a database, round and round.

    Tops are the images, float32 (N, C, h, w), and if the layer has two, the labels, float32 (N,). The first
    image of a batch decides the batch's shape.

    Raises:
        DataError: if the database cannot be read, or its first image does not fit the layer.
    """

    def __init__(self, ctx: Context, records: Records) -> None:
        param = ctx.layer.data_param
        transform_param = ctx.layer.transform_param
        draws = Draws(ctx.seed, ctx.layer.name)
        self._ctx = ctx
        self._records = records
        self.batch_size: int = param.batch_size
        self._transform = Transform(ctx, draws)
        self._parse = DatumReader(
            COLOUR if transform_param.force_color else GREY if transform_param.force_gray else AS_STORED
        )
        self._skip = draws.below(param.rand_skip) if param.rand_skip else 0
        first = self._records[self._index(0)]
        image, _ = self._image(first)
        # decoding runs in OpenCV, outside of Python's lock; the rest is too little to share
        self.threads = cores() if is_compressed(first[1]) else 1
        tops = top(self.batch_size, *self._shape([image], 0)), top(self.batch_size)
        self.tops = tops[: ctx.n_tops]

    def read(self, start: int) -> Batch:
        """The batch from example `start` on.

        Raises:
            DataError: naming the record that cannot be read or has another shape than the batch's first.
        """
        with located(layer=self._ctx.layer.name, layer_type=self._ctx.type.name):
            examples = [self._image(record) for record in self._run(start)]
            images = [image for image, _ in examples]
            self._shape(images, start)
            batch = self._transform(images, start)
        return (batch, np.array([label for _, label in examples], np.float32))[: len(self.tops)]

    def close(self) -> None:
        """Closes the database; reading on opens it again."""
        self._records.close()

    def _index(self, n: int) -> int:
        return (self._skip + n) % len(self._records)

    def _run(self, start: int) -> Iterator[tuple[bytes, bytes]]:
        """The batch's records, round and round."""
        at, left = self._index(start), self.batch_size
        while left:
            count = min(left, len(self._records) - at)
            yield from self._records.run(at, count)
            at, left = 0, left - count

    def _image(self, record: tuple[bytes, bytes]) -> tuple[np.ndarray, int]:
        key, value = record
        try:
            return self._parse(value)
        except DataError as error:
            raise self._record_error(key, error) from error

    def _shape(self, images: list[np.ndarray], start: int) -> tuple[int, ...]:
        """The shape (C, h, w) that all images of a batch come out with."""
        shape: tuple[int, ...] = ()
        seen: tuple[int, ...] = ()
        for n, image in enumerate(images, start):
            if image.shape == seen:
                continue
            try:
                own = self._transform.shape(image.shape)
                if own != (shape or own):
                    raise DataError(
                        f"comes out as {by(own)} (CxHxW), the batch's first as {by(shape)}: "
                        "a batch needs one shape; crop_size, force_color or batch_size: 1 may give it"
                    )
            except DataError as error:
                key, _ = self._records[self._index(n)]
                raise self._record_error(key, error) from error
            shape, seen = own, image.shape
        return shape

    def _record_error(self, key: bytes, error: DataError) -> DataError:
        name = key.decode("utf-8", "backslashreplace")
        return DataError(Problem(f"record '{name}' {error}", file=str(self._records.path)))


@register_source(
    "Data", tops=(1, 2), param="data_param", finish=finish, restrictions="reads LMDB; backend LEVELDB not supported yet"
)
def open_data(ctx: Context) -> Source:
    """Opens a Data layer's database, read ahead by `prefetch` batches."""
    param = ctx.layer.data_param
    with located(layer=ctx.layer.name, layer_type=ctx.type.name):
        if not param.source:
            raise DataError("data_param has no source; name the LMDB's folder")
        if param.batch_size < 1:
            raise DataError("data_param.batch_size must be 1 or more")
        refuse_others(param, "data_param", _KNOWN)
        path = ctx.path(param.source)
        if param.backend == caffe_pb2.DataParameter.LEVELDB:
            _refuse_leveldb(path)
        return Pipeline(DatumBatches(ctx, Lmdb(path)), param.prefetch, ctx.workers)


def _refuse_leveldb(path: Path) -> None:
    if (path / "data.mdb").is_file():
        message = "is an LMDB, but the layer's backend is LEVELDB, which is the default; set backend: LMDB"
    elif path.is_dir():
        message = "LevelDB is not supported yet; convert_imageset -backend lmdb makes an LMDB of the same images"
    else:
        message = "no such folder"
    raise DataError(Problem(message, file=str(path)))

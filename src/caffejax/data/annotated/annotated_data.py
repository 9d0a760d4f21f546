"""The AnnotatedData layer of the SSD fork."""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import Sequence
from contextlib import closing

import jax
import numpy as np

from ...errors import DataError, located
from ...layers.context import Site
from ...layers.registry import register
from ...layers.source import Look, Tops
from ...layers.types import LayerDocs, LayerType, Signature
from ...schema.caffe_pb2 import AnnotatedDatum
from ..common import CounterRng, float32_top, refuse_unsupported
from ..data_layer import prefetch_depth, reads_batches
from ..database import RecordExamples, Records, check_data_param, open_records
from ..image_batches import GoodExamples, batch_shape
from ..image_decoding import BadImageError, image_of
from ..prefetch import Batch, Batches, available_cores
from ..transform import Transform, read_mean
from .annotated_datum import Annotated, annotated, parse
from .annotated_image import CLASS, Picture
from .annotation_files import read_label_map
from .augmentation import FOLLOWED, Augment, Prepared

COLUMNS = 8  # image, class, instance, xmin, ymin, xmax, ymax, difficult
PADDING = -1
_RARELY = 4  # standard deviations; how rarely a batch has more boxes than was thought enough


def enough_rows(boxes: Sequence[int], batch_size: int) -> int:
    """Return a number of rows that is enough for nearly all batches, a power of two.

    Args:
        boxes: how many some images have.
        batch_size: how many images make a batch.
    """
    some = list(boxes) or [0]
    wanted = batch_size * np.mean(some) + _RARELY * math.sqrt(batch_size) * np.std(some)
    return _power_of_two(math.ceil(wanted))


def label_rows(objects: Sequence[np.ndarray], least: int) -> np.ndarray:
    """Return the label top: float32 (1, 1, G, 8).

    A net is compiled for each G. So G is `least`, or the first power of two that is enough. Rows that are not needed
    hold -1 only, as in Caffe the one row of a batch without any box, and layers that take labels skip them.

    Args:
        objects: of each image, as `Picture` has them.
        least: how many rows to make at least.
    """
    count = sum(map(len, objects))
    label = np.full((1, 1, max(least, _power_of_two(count)), COLUMNS), PADDING, np.float32)
    if count:
        label[0, 0, :count, 0] = np.repeat(np.arange(len(objects)), [len(o) for o in objects])
        label[0, 0, :count, 1:] = np.concatenate(objects)
    return label


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


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


COUNTED = 128  # records whose boxes are counted


class AnnotatedBatches:
    """Batches of images with boxes, changed at random as the layer says.

    Tops are the images, (N, C, h, w), and if the layer has two, the label: of boxes `label_rows`, and of a database
    whose first record has no type of annotation the images' labels, float32 (N,). What example n gives follows from n
    and the seed.

    Args:
        site: the layer.
        examples: the images and their boxes.
        rng: what decides over all that is random.
        tops: what the look has shown; none while it looks.

    Raises:
        DataError: with all that is wrong with the settings.
    """

    def __init__(self, site: Site, examples: AnnotatedExamples, rng: CounterRng, tops: Tops = ()) -> None:
        param = site.layer.annotated_data_param
        self.tops = tops
        self.batch_size: int = site.layer.data_param.batch_size
        self._layer = {"layer": site.layer.name, "layer_type": site.layer.type}  # for errors
        self._examples = examples
        self._skip_bad = site.reading.skip_bad
        self._good = GoodExamples(examples, self.batch_size, self._skip_bad)
        self._rng = rng
        self._transform = Transform(site, rng, also=FOLLOWED)
        self._augment = Augment(site, read_mean(site).values.reshape(-1))
        self._any_type = param.HasField("anno_type")

    @property
    def threads(self) -> int:
        """How many threads can read faster than one: decoding and most of the rest run outside of Python's lock."""
        return available_cores()

    def look(self) -> Look:
        """Read the first image for the tops' shapes, and count the boxes of some more."""
        size, some = self.batch_size, self._examples.annotations(COUNTED, self._skip_bad)
        boxed = self._any_type or bool(some and some[0].type is not None)
        boxes = [len(record.objects) for record in some]
        label = float32_top(*label_rows([], enough_rows(boxes, size)).shape) if boxed else float32_top(size)
        self.tops = (label, label)
        image = self._read(0, 1).arrays[0]
        shape = (size, *image.shape[1:])
        given = jax.ShapeDtypeStruct(shape, image.dtype), label
        return Look((float32_top(*shape), label), self._transform.finish, given)

    @property
    def examples(self) -> int:
        """How many examples there are before they come again."""
        return len(self._examples)

    def read(self, start: int) -> Batch:
        """Read the batch from example `start` on.

        Raises:
            DataError: naming the example that cannot be read, or has another shape or annotation than the others.
        """
        with located(**self._layer):
            return self._read(start, self.batch_size)

    def close(self) -> None:
        """Close the database. Reading on opens it again."""
        self._examples.close()

    def _read(self, start: int, count: int) -> Batch:
        given = self._good.read_range(start, count)
        prepared = []
        for i, (n, image, record) in enumerate(zip(given.numbers, given.images, given.labels, strict=True)):
            try:
                prepared.append(self._prepare(image, record, self._rng.generator(start + i)))
            except DataError as error:
                raise self._examples.error(n, error) from error
        images = [p.picture.image.transpose(2, 0, 1) for p in prepared]
        batch_shape(given._replace(images=images), self._examples, self._transform)
        cuts = self._transform.draw(images, start)
        arrays = (self._transform.cut(images, cuts),)
        if len(self.tops) == 1:
            return Batch(arrays, given.warnings)
        if not self._boxed:
            labels = np.array([record.label for record in given.labels], np.float32)
            return Batch((*arrays, labels), given.warnings)
        windows = self._transform.windows(images, cuts)
        objects = [self._augment.after(*one) for one in zip(prepared, windows, cuts.flips.tolist(), strict=True)]
        return Batch((*arrays, label_rows(objects, self.tops[1].shape[2])), given.warnings)

    @property
    def _boxed(self) -> bool:
        return len(self.tops) == 2 and len(self.tops[1].shape) == 4

    def _prepare(self, image: np.ndarray, record: Annotated, rng: np.random.Generator) -> Prepared:
        if self._boxed and not self._any_type and record.type != AnnotatedDatum.BBOX:
            type_ = "none" if record.type is None else AnnotatedDatum.AnnotationType.Name(record.type)
            raise DataError(f"has annotations of type {type_}, not BBOX; annotated_data_param.anno_type overrides that")
        return self._augment(Picture(image.transpose(1, 2, 0), record.objects), rng, record.compressed)


log = logging.getLogger("caffejax.data")

_KNOWN = {"batch_sampler", "label_map_file", "anno_type"}


def look_at_annotated_data(site: Site) -> Look:
    """Look at an AnnotatedData layer's settings and the first records of its database."""
    param = site.layer.annotated_data_param
    check_data_param(site)
    refuse_unsupported(param, "annotated_data_param", _KNOWN)
    if param.anno_type != AnnotatedDatum.BBOX:
        raise DataError("annotated_data_param.anno_type must be BBOX; others are not supported")
    enough = max(COUNTED, 1 + site.layer.data_param.batch_size)
    with closing(_open_examples(site, enough)) as examples:
        _check_classes(site, examples)
        look = AnnotatedBatches(site, examples, _rng(site)).look()
    n = len(site.layer.top)
    return Look(look.tops[:n], look.finish, look.given[:n] if look.given else None)


def open_annotated_data(site: Site, tops: Tops) -> Batches:
    """Open an AnnotatedData layer's LMDB or LevelDB of images with boxes, one row of the label for each box.

    Rows of the label are padded with -1 to a power of two.
    """
    return AnnotatedBatches(site, _open_examples(site), _rng(site), tops)


def _check_classes(site: Site, examples: AnnotatedExamples) -> None:
    """Check that the label map, if it is there, has the classes of the first records. (The fork never reads it.)"""
    name = site.layer.annotated_data_param.label_map_file
    if not name:
        return
    path = site.path(name)
    if not os.path.exists(path):
        log.warning("layer '%s': there is no label map '%s', so classes are not checked", site.layer.name, name)
        return
    known = set(read_label_map(path).values())
    found = {
        int(c) for record in examples.annotations(COUNTED, site.reading.skip_bad) for c in record.objects[:, CLASS]
    }
    if found - known:
        classes = ", ".join(map(str, sorted(found - known)))
        raise DataError(f"the database has objects of classes that label map {path} does not have: {classes}")


def _open_examples(site: Site, enough: int | None = None) -> AnnotatedExamples:
    return AnnotatedExamples(*open_records(site, _rng(site), enough))


def _rng(site: Site) -> CounterRng:
    return CounterRng(site.reading.seed, site.layer.name)


register(
    LayerType(
        Signature("AnnotatedData", bottoms=0, tops=(1, 2), param="annotated_data_param"),
        reads_batches(look_at_annotated_data, open_annotated_data, prefetch_depth),
        docs=LayerDocs(
            origin="SSD",
            restrictions="Boxes are the only annotations. In training, the fork keeps what it distorts, expands or "
            "samples as JPEG in between; here this is done in TEST only.",
        ),
    )
)

"""Batches of images with boxes."""

from __future__ import annotations

import jax
import numpy as np

from ...errors import DataError, located
from ...layers.context import Site
from ...layers.source import Look, Tops
from ...schema.caffe_pb2 import AnnotatedDatum
from ..labelled import GoodExamples, batch_shape
from ..mean import read_mean
from ..pipeline import Batch, available_cores
from ..rng import CounterRng
from ..shapes import float32_top
from ..transform import Transform
from .augment import FOLLOWED, Augment, Prepared
from .datum import Annotated
from .examples import AnnotatedExamples
from .labels import enough_rows, label_rows
from .picture import Picture

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

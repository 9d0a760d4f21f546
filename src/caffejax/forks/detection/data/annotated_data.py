"""The AnnotatedData layer of the SSD fork: batches of images with boxes, from a database of AnnotatedDatums."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import jax
import numpy as np

from ....base.errors import DataError, check_all, raise_if_any
from ....core.data.data_layer import DataLayer, float32_top, refuse_unsupported
from ....core.data.database import RecordDataset, check_data_param
from ....core.data.image_batches import Examples, ImageBatches
from ....core.data.image_decoding import BadImageError, decode_datum
from ....core.data.prefetch import Batch, Batches
from ....core.data.sampling import CounterRng
from ....core.data.transform import Transform, check_transform, read_mean
from ....core.layers.context import LayerDefinition, Shape
from ....core.layers.data_source import SourceSpec, TopSpecs
from ....core.layers.declaration import register
from ....core.schema.caffe_pb2 import AnnotatedDatum
from .annotated_datum import Annotations, parse_annotated_datum, read_annotations
from .annotated_image import CLASS, AnnotatedImage
from .annotation_files import read_label_map
from .ssd_augmentation import (
    TRANSFORM_FIELDS,
    Augmentation,
    AugmentedImage,
    augmentation_problems,
    describe_ignored_limits,
)

log = logging.getLogger("caffejax.data")

NUM_LABEL_COLUMNS = 8  # image, class, instance, xmin, ymin, xmax, ymax, difficult
PADDING = -1
_NUM_STDDEVS = 4  # standard deviations above the mean number of boxes of a batch


def choose_num_rows(box_counts: Sequence[int], batch_size: int) -> int:
    """Return the number of label rows, a power of two, that is sufficient for nearly all batches.

    It is the mean number of boxes in a batch plus four standard deviations, rounded up.

    Args:
        box_counts: the number of boxes of each image in a sample.
        batch_size: the number of images in a batch.
    """
    counts = list(box_counts) or [0]
    return _next_power_of_two(
        math.ceil(batch_size * np.mean(counts) + _NUM_STDDEVS * math.sqrt(batch_size) * np.std(counts))
    )


def make_label_top(objects: Sequence[np.ndarray], min_rows: int) -> np.ndarray:
    """Return the label top, float32 (1, 1, G, 8), with a row for each object of the batch.

    The columns are image, class, instance, xmin, ymin, xmax, ymax and difficult. G is `min_rows` or, if the batch has
    more objects, the smallest power of two with enough rows, because the net is compiled for each G. Rows of padding
    are -1, like the single row that Caffe returns for a batch without boxes. Layers that take labels skip these rows.

    Args:
        objects: the objects of each image, (G, 7); see `AnnotatedImage`.
        min_rows: the smallest number of rows, a power of two.
    """
    num_objects = sum(map(len, objects))
    label = np.full((1, 1, max(min_rows, _next_power_of_two(num_objects)), NUM_LABEL_COLUMNS), PADDING, np.float32)
    if num_objects:
        label[0, 0, :num_objects, 0] = np.repeat(np.arange(len(objects)), [len(o) for o in objects])
        label[0, 0, :num_objects, 1:] = np.concatenate(objects)
    return label


def _next_power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


class AnnotatedDataset(RecordDataset[Annotations]):
    """The AnnotatedDatums in a layer's database. See `RecordDataset` for the arguments."""

    def decode(self, value: bytes) -> tuple[np.ndarray, Annotations]:
        """Return the image and the annotations in a serialized AnnotatedDatum."""
        message = parse_annotated_datum(value)
        return decode_datum(message.datum, self.decode_mode, self.max_pixels), read_annotations(message)

    def read_first_annotations(self, max_records: int, skip_bad: bool) -> list[Annotations]:
        """Return the annotations of the first records, at most `max_records`. No image is decoded."""
        first_annotations = []
        for record in self.read_records(0, min(max_records, len(self))):
            try:
                first_annotations.append(
                    self.apply(lambda value: read_annotations(parse_annotated_datum(value)), record)
                )
            except BadImageError:
                if not skip_bad:
                    raise
        return first_annotations


NUM_COUNTED_RECORDS = 128  # records whose boxes are counted


class AnnotatedBatches(ImageBatches[Annotations]):
    """Batches of images with boxes, augmented by the layer's settings.

    The tops are the images (N, C, h, w) and, optionally, the labels: the rows of `make_label_top` for boxes, or float32
    (N,) image labels if the first record of the database has no annotation type. Example n depends only on n and the
    seed.

    Args:
        definition: the layer's definition.
        dataset: the images and their boxes.
        rng: the source of all random choices.
        tops: the shape and dtype of each top, as `probe` returned them.

    Raises:
        DataError: if settings are invalid. The message lists all problems.
    """

    def __init__(
        self, definition: LayerDefinition, dataset: AnnotatedDataset, rng: CounterRng, tops: TopSpecs = ()
    ) -> None:
        transform = Transform(definition, rng, TRANSFORM_FIELDS)
        super().__init__(definition, dataset, definition.layer.data_param.batch_size, rng, tops, transform)
        self._read_first_annotations = dataset.read_first_annotations
        self._augment = Augmentation(definition, read_mean(definition).values.reshape(-1))
        self._ignores_type = definition.layer.annotated_data_param.HasField("anno_type")

    def probe(self, n_tops: int) -> SourceSpec:
        """Read the first image to determine the shapes of the tops, and count the boxes of the first records."""
        size, first_annotations = self.batch_size, self._read_first_annotations(NUM_COUNTED_RECORDS, self._skip_bad)
        has_boxes = self._ignores_type or bool(first_annotations and first_annotations[0].type is not None)
        num_rows = choose_num_rows([len(annotations.objects) for annotations in first_annotations], size)
        label = float32_top(*make_label_top([], num_rows).shape) if has_boxes else float32_top(size)
        self.tops = (label, label)
        image = self._assemble(self._read_examples(0, 1), 0).arrays[0]
        shape = (size, *image.shape[1:])
        host_specs = jax.ShapeDtypeStruct(shape, image.dtype), label
        padded_tops = (1,) if has_boxes and n_tops > 1 else ()
        return SourceSpec(
            (float32_top(*shape), label)[:n_tops], self._transform.device_transform, host_specs[:n_tops], padded_tops
        )

    def _assemble(self, examples: Examples[Annotations], start: int) -> Batch:
        augmented_images = []
        for i, (n, image, label) in enumerate(zip(examples.indices, examples.images, examples.labels, strict=True)):
            try:
                augmented_images.append(self._augment_example(image, label, self._rng.generator(start + i)))
            except DataError as error:
                raise self._dataset.locate_error(n, error) from error
        images = [item.image.pixels.transpose(2, 0, 1) for item in augmented_images]
        self._check_equal_shapes(examples._replace(images=images))
        crops = self._transform.sample_crops(images, start)
        # the fork mirrors compressed images after it has found the pixel of the mean for the place in the top
        is_encoded = np.array([annotations.encoded for annotations in examples.labels])
        crops = crops._replace(mean_flips=crops.flips & ~is_encoded)
        pixels = self._transform.apply(images, crops)
        if len(self.tops) == 1:
            return Batch((pixels,), examples.warnings)
        if not self._has_boxes:
            labels = np.array([label.label for label in examples.labels], np.float32)
            return Batch((pixels, labels), examples.warnings)
        windows = self._transform.windows(images, crops)
        objects = [
            self._augment.visible_objects(*item)
            for item in zip(augmented_images, windows, crops.flips.tolist(), strict=True)
        ]
        return Batch((pixels, make_label_top(objects, self.tops[1].shape[2])), examples.warnings)

    @property
    def _has_boxes(self) -> bool:
        return len(self.tops) == 2 and len(self.tops[1].shape) == 4

    def _augment_example(self, image: np.ndarray, annotations: Annotations, rng: np.random.Generator) -> AugmentedImage:
        if self._has_boxes and not self._ignores_type and annotations.type != AnnotatedDatum.BBOX:
            type_name = "none" if annotations.type is None else AnnotatedDatum.AnnotationType.Name(annotations.type)
            raise DataError(
                f"has annotations of type {type_name}, not BBOX; annotated_data_param.anno_type overrides the type"
            )
        return self._augment(AnnotatedImage(image.transpose(1, 2, 0), annotations.objects), rng, annotations.encoded)


class AnnotatedDataLayer(DataLayer):
    """Batches of images with boxes from an LMDB or LevelDB. The label has a row for each box.

    The label is padded with rows of -1 to a power of two.
    """

    supported_fields = ("batch_sampler", "label_map_file", "anno_type")

    def check_settings(self) -> None:
        """Check data_param, annotated_data_param and transform_param."""
        param, transform_param = self.layer_param.annotated_data_param, self.layer_param.transform_param
        problems = list(augmentation_problems(transform_param, param.batch_sampler))
        if param.anno_type != AnnotatedDatum.BBOX:
            problems.append("annotated_data_param.anno_type must be BBOX; other types are not supported")
        check_all(
            lambda: check_data_param(self.definition, ["shuffle"]),
            lambda: refuse_unsupported(param, "annotated_data_param", self.supported_fields),
            lambda: check_transform(self.definition, TRANSFORM_FIELDS),
            lambda: raise_if_any(DataError, problems),
        )

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape]:
        """Return the shape of a label with few boxes; the number of boxes is in the source alone."""
        return [(1, 1, 8, 8)]

    def probe(self) -> SourceSpec:
        """Read the first records."""
        param = self.layer_param.annotated_data_param
        for message in describe_ignored_limits(param.batch_sampler):
            log.warning("layer '%s': %s", self.layer_param.name, message)
        num_records = max(NUM_COUNTED_RECORDS, 1 + self.layer_param.data_param.batch_size)
        with closing(AnnotatedDataset(self.definition, self.rng, num_records)) as dataset:
            self._check_classes(dataset)
            return AnnotatedBatches(self.definition, dataset, self.rng).probe(len(self.layer_param.top))

    def open(self, tops: TopSpecs) -> Batches:
        """Open the database."""
        shuffle = self.layer_param.data_param.shuffle
        dataset = AnnotatedDataset(self.definition, self.rng, shuffle=shuffle)
        return AnnotatedBatches(self.definition, dataset, self.rng, tops)

    def _check_classes(self, dataset: AnnotatedDataset) -> None:
        """Check that the label map, if its file exists, has the classes of the first records.

        The SSD fork ignores the map.
        """
        name = self.layer_param.annotated_data_param.label_map_file
        if not name:
            return
        path = self.definition.path(name)
        if not os.path.exists(path):
            log.warning(
                "layer '%s': there is no label map '%s', so classes are not checked", self.layer_param.name, name
            )
            return
        mapped_classes = set(read_label_map(path).values())
        first_annotations = dataset.read_first_annotations(NUM_COUNTED_RECORDS, self.definition.config.skip_bad)
        unknown_classes = {
            int(c) for annotations in first_annotations for c in annotations.objects[:, CLASS]
        } - mapped_classes
        if unknown_classes:
            classes_text = ", ".join(map(str, sorted(unknown_classes)))
            raise DataError(f"the database has objects of classes that label map {path} does not have: {classes_text}")


register(
    "AnnotatedData",
    AnnotatedDataLayer.implementation(),
    bottoms=0,
    tops=(1, 2),
    param="annotated_data_param",
    further_params=("data_param",),
    origin="SSD",
    restrictions="Boxes are the only annotations. In training, the fork compresses images to JPEG after "
    "distortion, expansion and sampling; here this is done in TEST only. Images that are stored uncompressed are "
    "changed like others; the fork does not resize them, leaves out their noise and distortion, and expands them "
    "with pixels of 32.",
)

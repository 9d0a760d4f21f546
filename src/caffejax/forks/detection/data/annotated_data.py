"""The AnnotatedData layer of the SSD fork: batches of images with boxes, from a database of AnnotatedDatums."""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

import jax
import numpy as np

from ....base.errors import DataError, check_all, raise_if_any
from ....base.paths import find_file
from ....core.data.data_layer import DataLayer, float32_top, refuse_unsupported
from ....core.data.database import RecordDataset, check_data_param
from ....core.data.image_batches import Examples
from ....core.data.image_decoding import GRAY, BadImageError, decode_datum, decode_pixels
from ....core.data.prefetch import Batch, Batches
from ....core.data.sampling import CounterRng
from ....core.data.transform import check_transform, read_mean
from ....core.layers.context import LayerDefinition, Shape
from ....core.layers.data_source import SourceSpec, TopSpecs
from ....core.layers.declaration import register
from ....core.schema.caffe_pb2 import AnnotatedDatum
from ...general.augmented_batches import AugmentedBatches
from .annotated_datum import Annotations, parse_annotated_datum, read_annotations
from .annotated_image import BOX, CLASS, DIFFICULT, AnnotatedImage
from .annotation_files import read_label_map
from .segmentation_labels import (
    SEGMENTATION_FIELDS,
    make_segmentation,
    read_pixel_classes,
    segmentation_problems,
    segmentation_size,
)
from .ssd_augmentation import (
    TRANSFORM_FIELDS,
    Augmentation,
    AugmentedImage,
    augmentation_problems,
    describe_ignored_limits,
    read_jitter,
)

log = logging.getLogger("caffejax.data")

NUM_LABEL_COLUMNS = 8  # image, class, instance, xmin, ymin, xmax, ymax, difficult
PADDING = -1
_NUM_YOLO_ROWS = 300  # of the label of an image
_NUM_BATCHES_OF_SIZE = 10  # that have the same one of several resize_param
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


def make_yolo_label(objects: Sequence[np.ndarray], *, with_difficult: bool) -> np.ndarray:
    """Return YOLO's label top, float32 (N, 1, 300, 5): class - 1, center and sides of each object, then zeros.

    Args:
        objects: the objects of each image, (G, 7); see `AnnotatedImage`. The first 300 count.
        with_difficult: whether difficult objects count.
    """
    label = np.zeros((len(objects), 1, _NUM_YOLO_ROWS, 5), np.float32)
    for rows, image_objects in zip(label[:, 0], objects, strict=True):
        counted = image_objects if with_difficult else image_objects[image_objects[:, DIFFICULT] == 0]
        counted = counted[:_NUM_YOLO_ROWS]
        boxes = counted[:, BOX]
        rows[: len(counted), 0] = counted[:, CLASS] - 1
        rows[: len(counted), 1:3] = (boxes[:, :2] + boxes[:, 2:]) / 2
        rows[: len(counted), 3:] = boxes[:, 2:] - boxes[:, :2]
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


BOX_TYPES = AnnotatedDatum.BBOX, AnnotatedDatum.BBOXandSeg
NUM_COUNTED_RECORDS = 128  # records whose boxes are counted


class Parts(NamedTuple):
    """The parts of a batch's images that are in its first top.

    Attributes:
        images: the augmented images.
        windows: the crop of each, float32 (N, 4), relative to the image.
        flips: whether each crop is mirrored.
    """

    images: Sequence[AugmentedImage]
    windows: np.ndarray
    flips: Sequence[bool]


class AnnotatedBatches(AugmentedBatches[Annotations]):
    """Batches of images with boxes, augmented by the layer's settings.

    The tops are the images (N, C, h, w) and, optionally, the labels: the rows of `make_label_top` for boxes, or float32
    (N,) image labels if the first record of the database has no annotation type. A third top has the segmentations.
    Example n depends only on n and the seed.

    Args:
        definition: the layer's definition.
        dataset: the images and their boxes.
        rng: the source of all random choices.
        tops: the shape and dtype of each top, as `probe` returned them.

    Attributes:
        annotation_types: the types of annotation that the layer reads.

    Raises:
        DataError: if settings are invalid. The message lists all problems.
    """

    annotation_types: tuple[int, ...] = BOX_TYPES

    def __init__(
        self, definition: LayerDefinition, dataset: AnnotatedDataset, rng: CounterRng, tops: TopSpecs = ()
    ) -> None:
        super().__init__(definition, dataset, definition.layer.data_param.batch_size, rng, tops)
        self._read_first_annotations = dataset.read_first_annotations
        self._augment = Augmentation(definition, read_mean(definition).values.reshape(-1))
        self._param = param = definition.layer.annotated_data_param
        self._ignores_type = param.HasField("anno_type")
        self._is_yolo = param.yolo_data_type == 1
        self._with_difficult = param.train_diffcult
        self._max_pixels = definition.config.max_image_pixels
        has_classes = len(definition.layer.top) > 2 and not param.single_class
        self._pixel_classes = read_pixel_classes(definition.path(param.label_map_file)) if has_classes else None

    def probe(self, n_tops: int) -> SourceSpec:
        """Read the first image to determine the shapes of the tops, and count the boxes of the first records."""
        size = self.batch_size
        label = self.find_label_top(self._read_first_annotations(NUM_COUNTED_RECORDS, self._skip_bad))
        self.tops = (label,) * n_tops
        image, *others = self._assemble(self._read_examples(0, 1), 0).arrays
        segmentations = [float32_top(size, *array.shape[1:]) for array in others[1:]]
        further_tops = (label, *segmentations)[: n_tops - 1]
        shape = (size, *image.shape[1:])
        host_specs = jax.ShapeDtypeStruct(shape, image.dtype), *further_tops
        padded_tops = (1,) if n_tops > 1 and label.shape[3:] == (NUM_LABEL_COLUMNS,) else ()
        tops = float32_top(*shape), *further_tops
        return SourceSpec(tops, self._transform.device_transform, host_specs, padded_tops)

    def find_label_top(self, first_annotations: Sequence[Annotations]) -> jax.ShapeDtypeStruct:
        """Return the shape of the label top, which the first records determine."""
        if not (self._ignores_type or (first_annotations and first_annotations[0].type is not None)):
            return float32_top(self.batch_size)
        if self._is_yolo:
            return float32_top(self.batch_size, 1, _NUM_YOLO_ROWS, 5)
        num_rows = choose_num_rows([len(annotations.objects) for annotations in first_annotations], self.batch_size)
        return float32_top(*make_label_top([], num_rows).shape)

    def _assemble(self, examples: Examples[Annotations], start: int) -> Batch:
        group = start // self.batch_size // _NUM_BATCHES_OF_SIZE
        size_index = self._augment.choose_size(self._rng.random_integer(1 << 30, 1, group) / (1 << 30))
        augment = functools.partial(self._augment_example, size_index=size_index)
        augmented_images = self._change_examples(augment, examples, start)
        images = [item.image.pixels.transpose(2, 0, 1) for item in augmented_images]
        self._check_equal_shapes(examples._replace(images=images))
        crops = self._transform.sample_crops(images, start)
        # the fork mirrors compressed images after it has found the pixel of the mean for the place in the top
        is_encoded = np.array([annotations.encoded for annotations in examples.labels])
        crops = crops._replace(mean_flips=crops.flips & ~is_encoded)
        pixels = self._transform.apply(images, crops)
        makers = (self.make_label, self._make_segmentation)[: len(self.tops) - 1]
        parts = Parts(augmented_images, self._transform.windows(images, crops), crops.flips.tolist())
        return Batch((pixels, *(make(examples, parts) for make in makers)), examples.warnings)

    def make_label(self, examples: Examples[Annotations], parts: Parts) -> np.ndarray:
        """Return the label top of a batch."""
        if not self._has_boxes:
            return np.array([label.label for label in examples.labels], np.float32)
        objects = [self._augment.visible_objects(*part) for part in zip(*parts, strict=True)]
        if self._is_yolo:
            return make_yolo_label(objects, with_difficult=self._with_difficult)
        return make_label_top(objects, self.tops[1].shape[2])

    def _make_segmentation(self, examples: Examples[Annotations], parts: Parts) -> np.ndarray:
        """Return the third top, float32 (N, C, h, w): the fraction of each pixel that each class covers."""
        maps = []
        for n, label, image, flip in zip(examples.indices, examples.labels, parts.images, parts.flips, strict=True):
            with self._locate_errors(n):
                size = segmentation_size(self._param, *image.image.pixels.shape[:2])
                segmentation = self.draw_segmentation(label, image.window, size)
            maps.append(segmentation[..., ::-1] if flip else segmentation)
        return np.stack(maps)

    def draw_segmentation(self, annotations: Annotations, window: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """Return the segmentation of a window of an image, float32 (C, h, w); see `make_segmentation`."""
        if not annotations.segmentation:
            raise BadImageError("has no seg_label, which the third top needs; convert_annoset writes it")
        pixels = decode_pixels(annotations.segmentation, GRAY, self._max_pixels)
        return make_segmentation(pixels, window, size, self._pixel_classes)

    @property
    def _has_boxes(self) -> bool:
        return len(self.tops) > 1 and len(self.tops[1].shape) == 4

    def _augment_example(
        self, image: np.ndarray, annotations: Annotations, rng: np.random.Generator, size_index: int
    ) -> AugmentedImage:
        if self._has_boxes and not self._ignores_type and annotations.type not in self.annotation_types:
            name_of = AnnotatedDatum.AnnotationType.Name
            type_name = "none" if annotations.type is None else name_of(annotations.type)
            raise DataError(
                f"has annotations of type {type_name}, not {' or '.join(map(name_of, self.annotation_types))}; "
                "annotated_data_param.anno_type overrides the type"
            )
        annotated_image = AnnotatedImage(image.transpose(1, 2, 0), annotations.objects)
        return self._augment(annotated_image, rng, annotations.encoded, size_index)


class AnnotatedDataLayer(DataLayer):
    """Batches of images with boxes from an LMDB or LevelDB. The label has a row for each box.

    The label is padded with rows of -1 to a power of two. With MobileNet-YOLO's `yolo_data_type: 1` it has 300 rows
    (class - 1, x, y, width, height) for each image, and without samplers images are cropped by `yolo_data_jitter`. Of
    several `resize_param`, one is drawn by `prob` for each ten batches. A third top of MobileNet-YOLO has the
    segmentation (N, classes, h, w): the fraction of each pixel that each class covers.
    """

    supported_fields: tuple[str, ...] = (
        *("batch_sampler", "label_map_file", "anno_type"),
        *("yolo_data_type", "yolo_data_jitter", "train_diffcult", *SEGMENTATION_FIELDS),
    )
    batches_class = AnnotatedBatches

    def check_settings(self) -> None:
        """Check data_param, annotated_data_param and transform_param."""
        param, transform_param = self.layer_param.annotated_data_param, self.layer_param.transform_param
        problems = list(augmentation_problems(transform_param, param.batch_sampler))
        if param.anno_type not in (types := self.batches_class.annotation_types) and param.HasField("anno_type"):
            names = " or ".join(map(AnnotatedDatum.AnnotationType.Name, types))
            problems.append(f"annotated_data_param.anno_type must be {names}; other types are not supported")
        if param.yolo_data_type not in (0, 1):
            problems.append(f"annotated_data_param.yolo_data_type must be 0 or 1, not {param.yolo_data_type}")
        if not 0 <= (jitter := read_jitter(param)) < 1:
            problems.append(f"annotated_data_param.yolo_data_jitter must be at least 0 and below 1, not {jitter:g}")
        check_all(
            lambda: check_data_param(self.definition, ["shuffle"]),
            lambda: refuse_unsupported(param, "annotated_data_param", self.supported_fields),
            lambda: check_transform(self.definition, TRANSFORM_FIELDS),
            lambda: raise_if_any(DataError, problems),
            lambda: raise_if_any(DataError, segmentation_problems(self.layer_param)),
        )

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape]:
        """Return the shape of a label with few boxes; the number of boxes is in the source alone.

        The shape of the third top follows if it has one class, or if the label map exists in the working directory.
        """
        param = layer.annotated_data_param
        label = (batch_size, 1, _NUM_YOLO_ROWS, 5) if param.yolo_data_type == 1 else (1, 1, 8, 8)
        map_path = find_file(param.label_map_file, None)
        if len(layer.top) < 3 or not (param.single_class or os.path.exists(map_path)):
            return [label]
        num_classes = 1 if param.single_class else int(read_pixel_classes(map_path).max())
        return [label, (batch_size, num_classes, *segmentation_size(param, height, width))]

    def probe(self) -> SourceSpec:
        """Read the first records."""
        param = self.layer_param.annotated_data_param
        for message in describe_ignored_limits(param.batch_sampler):
            log.warning("layer '%s': %s", self.layer_param.name, message)
        num_records = max(NUM_COUNTED_RECORDS, 1 + self.layer_param.data_param.batch_size)
        with closing(AnnotatedDataset(self.definition, self.rng, num_records)) as dataset:
            self._check_classes(dataset)
            return self.batches_class(self.definition, dataset, self.rng).probe(len(self.layer_param.top))

    def open(self, tops: TopSpecs) -> Batches:
        """Open the database."""
        shuffle = self.layer_param.data_param.shuffle
        dataset = AnnotatedDataset(self.definition, self.rng, shuffle=shuffle)
        return self.batches_class(self.definition, dataset, self.rng, tops)

    def _check_classes(self, dataset: AnnotatedDataset) -> None:
        """Check that the label map, if its file exists, has the classes of the first records.

        The SSD fork ignores the map.
        """
        name = self.layer_param.annotated_data_param.label_map_file
        if not name or len(self.layer_param.top) > 2:  # the map is that of the third top
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
    tops=(1, 3),
    param="annotated_data_param",
    further_params=("data_param",),
    origin="SSD",
    restrictions="Segmentations refuse expand_param and crops, with which the fork leaves them where they were; an "
    "item's `label` is the value of its pixels, in the fork its position. In training, the "
    "fork compresses images to JPEG after "
    "distortion, expansion and sampling; here this is done in TEST only. Images that are stored uncompressed are "
    "changed like others; the fork does not resize them, leaves out their noise and distortion, and expands them "
    "with pixels of 32.",
)

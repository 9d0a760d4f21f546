"""The BoxData layer of caffe-yolo: images with boxes from a database, and labels of the cells of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from ...base.errors import DataError, check_all, raise_if_any
from ...core.data.data_layer import DataLayer
from ...core.data.database import RecordDataset, check_data_param
from ...core.data.image_batches import Examples
from ...core.data.image_decoding import BadImageError, decode_datum, resize
from ...core.data.prefetch import Batch, Batches
from ...core.data.sampling import CounterRng
from ...core.data.transform import check_transform
from ...core.layers.context import LayerDefinition, Shape
from ...core.layers.data_source import SourceSpec, TopSpecs
from ...core.layers.declaration import register
from ...core.schema.caffe_pb2 import Datum
from ..general.augmented_batches import AugmentedBatches

_CLASS, _DIFFICULT, _CENTER, _BOX = 0, 1, slice(2, 4), slice(2, 6)
_VALUES_PER_OBJECT = 6
_VALUES_PER_CELL = 7
_DEFAULT_SIDE = 7  # cells
_MAX_SIDE = 1000  # cells
_MAX_VALUE = 1e9  # of an object; products with the sides of images and grids fit int64
_MAX_REDUCTION = 30  # percent of the sides that a crop is shorter than the image, exclusive
_MAX_TRIALS = 1000  # crops that show the center of no object
_TRANSFORM_FIELDS = ("scale", "mean_file", "mean_value", "force_color", "force_gray")


class BoxDataset(RecordDataset[np.ndarray]):
    """The Datums that convert_box_data of the fork writes. See `RecordDataset` for the arguments.

    The label of an example are its objects, float32 (n, 6): class, difficult, and the center (x, y), width and height
    as fractions of the image.
    """

    def decode(self, value: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Return the image and the objects in a Datum."""
        try:
            datum = Datum.FromString(value)
        except DecodeError as error:
            raise BadImageError("is not a Datum, or is damaged") from error
        objects = np.array(datum.float_data, np.float32)
        if not datum.encoded or not len(objects) or len(objects) % _VALUES_PER_OBJECT:
            state = "a compressed" if datum.encoded else "an uncompressed"
            raise BadImageError(
                f"has {state} image and {len(objects)} values in float_data; BoxData needs a compressed image, and "
                "class, difficult, x, y, width and height of one object or more"
            )
        objects = objects.reshape(-1, _VALUES_PER_OBJECT)
        if not ((np.abs(objects) < _MAX_VALUE).all() and (objects[:, (_CLASS, 2, 3)] >= 0).all()):
            raise BadImageError(
                f"has an object with a negative class or center, or a value that is not finite and below {_MAX_VALUE:g}"
            )
        return decode_datum(datum, self.decode_mode, self.max_pixels), objects


def crop_at_random(
    image: np.ndarray, objects: np.ndarray, rng: np.random.Generator, max_pixels: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a random part of an image, in the size of the image, and the objects whose centers it shows.

    Args:
        image: (C, H, W).
        objects: (n, 6); see `BoxDataset`.
        rng: the source of the random choices.
        max_pixels: the largest number of pixels of an image.

    Returns:
        The part, and its objects. If all of many parts show no center, the image is returned unchanged.
    """
    image_size = np.array(image.shape[:0:-1])  # width, height
    pixels = (objects[:, _BOX] * np.tile(image_size, 2).astype(np.float32)).astype(np.int64)
    centers = pixels[:, :2]
    for _ in range(_MAX_TRIALS):
        scale = np.float32(1 - rng.integers(_MAX_REDUCTION) / 100)
        size = (image_size.astype(np.float32) * scale).astype(np.int64) - 1
        if size.min() < 1:
            break
        origin = rng.integers(image_size - size)
        is_visible = ((centers >= origin) & (centers < origin + size)).all(axis=1)
        if not is_visible.any():
            continue
        visible_objects = objects[is_visible]
        moved_boxes = pixels[is_visible] - np.append(origin, [0, 0])
        visible_objects[:, _BOX] = moved_boxes.astype(np.float32) / np.tile(size, 2).astype(np.float32)
        (left, top), (right, bottom) = origin, origin + size
        height, width = image.shape[1:]
        return resize(image[:, top:bottom, left:right], height, width, max_pixels), visible_objects
    return image, objects


def make_cell_label(objects: np.ndarray, side: int) -> np.ndarray:
    """Return the label of the cells of a grid, float32 (7 * side * side,).

    It has four parts, each with the values of all cells, row by row: whether the object is difficult, whether there is
    an object, its class or -1, and its center (x, y), width and height. An object is in the cell with its center; a
    later object replaces an earlier one.

    Args:
        objects: (n, 6); see `BoxDataset`.
        side: the number of rows and columns of the grid.
    """
    num_cells = side * side
    label = np.zeros(_VALUES_PER_CELL * num_cells, np.float32)
    difficult, is_object, classes = label[: 3 * num_cells].reshape(3, num_cells)
    classes[:] = -1
    column, row = np.minimum(np.floor(objects[:, _CENTER] * np.float32(side)).astype(np.int64), side - 1).T
    cells = row * side + column
    difficult[cells], is_object[cells], classes[cells] = objects[:, _DIFFICULT], 1, objects[:, _CLASS]
    label[3 * num_cells :].reshape(num_cells, 4)[cells] = objects[:, _BOX]
    return label


class BoxBatches(AugmentedBatches[np.ndarray]):
    """Batches of images, (N, C, H, W), and a label top for each number of cells, float32 (N, 7 * side * side).

    Args:
        definition: the layer's definition.
        dataset: the images and their objects.
        rng: the source of all random choices.
        tops: the shape and dtype of each top, as `probe` returned them.
    """

    def __init__(self, definition: LayerDefinition, dataset: BoxDataset, rng: CounterRng, tops: TopSpecs = ()) -> None:
        super().__init__(definition, dataset, definition.layer.data_param.batch_size, rng, tops)
        self._sides = list_sides(definition.layer)
        self._training, self._max_pixels = definition.training, definition.config.max_image_pixels

    def _assemble(self, examples: Examples[np.ndarray], start: int) -> Batch:
        images, objects = examples.images, examples.labels
        if self._training and len(self.tops) > 1:

            def crop(image: np.ndarray, objects: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
                return crop_at_random(image, objects, rng, self._max_pixels)

            images, objects = zip(*self._change_examples(crop, examples, start), strict=True)
        self._check_equal_shapes(examples._replace(images=images))
        labels = (np.stack([make_cell_label(x, side) for x in objects]) for side in self._sides)
        return Batch((self._transform(images, start), *labels)[: len(self.tops)], examples.warnings)


def list_sides(layer: Any) -> list[int]:
    """Return the number of rows and columns of each label top of a LayerParameter."""
    return list(layer.data_param.side) or [_DEFAULT_SIDE]


class BoxDataLayer(DataLayer):
    """Batches of images with boxes from an LMDB or LevelDB that the fork's convert_box_data has written.

    Each `side` has a label top with the objects of side x side cells, (N, 7 * side * side): whether the object whose
    center is in the cell is difficult, for all cells, then whether there is an object, then its class or -1, then its
    x, y, width and height as fractions of the image. In TRAIN a random part of each image is enlarged to its size.
    """

    def check_settings(self) -> None:
        """Check data_param and transform_param."""
        check_all(
            lambda: check_data_param(self.definition, ["side"]),
            lambda: check_transform(self.definition, supported_fields=_TRANSFORM_FIELDS),
            lambda: raise_if_any(DataError, self._list_problems()),
        )

    def _list_problems(self) -> Iterator[str]:
        sides, num_tops = list_sides(self.layer_param), len(self.layer_param.top)
        if not all(1 <= side <= _MAX_SIDE for side in sides):
            yield f"data_param.side must be 1 to {_MAX_SIDE}, not {sides}"
        if num_tops not in (1, 1 + len(sides)):
            yield f"needs a top for images, and one for each of the {len(sides)} data_param.side, but has {num_tops}"

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape]:
        """Return the shapes of the label tops."""
        return [(batch_size, _VALUES_PER_CELL * side * side) for side in list_sides(layer)]

    def probe(self) -> SourceSpec:
        """Read the first record."""
        num_needed = 1 + self.layer_param.data_param.batch_size if self.definition.config.skip_bad else 1
        dataset = BoxDataset(self.definition, self.rng, num_needed)
        return BoxBatches(self.definition, dataset, self.rng).probe(len(self.layer_param.top))

    def open(self, tops: TopSpecs) -> Batches:
        """Open the database."""
        return BoxBatches(self.definition, BoxDataset(self.definition, self.rng), self.rng, tops)


register(
    "BoxData",
    BoxDataLayer.implementation(),
    bottoms=0,
    tops=(1, None),
    param="data_param",
    fork_settings=("side",),
    origin="caffe-yolo",
    restrictions="Settings to mirror and crop are refused: in the fork they change the images, but not the boxes.",
)

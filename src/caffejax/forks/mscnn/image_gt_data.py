"""The ImageGtData layer of MS-CNN: batches of images with maps of labels, for several sizes of objects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import DataError, Problem, check_all, raise_if_any
from ...core.data.data_identity import checksum_arrays
from ...core.data.data_layer import DataLayer, float32_top, list_source_problems, refuse_unsupported
from ...core.data.image_batches import Examples, ImageDataset
from ...core.data.image_decoding import read_image
from ...core.data.image_list import find_files, get_search_folders
from ...core.data.import_cv2 import cv2
from ...core.data.prefetch import Batch, Batches
from ...core.data.sampling import CounterRng, IndexSampler
from ...core.data.transform import check_transform
from ...core.layers.context import LayerDefinition, Shape
from ...core.layers.data_source import SourceSpec, TopSpecs
from ...core.layers.declaration import register
from ...core.schema.caffe_pb2 import ImageGtDataParameter
from ..detection.boxes import overlaps
from ..detection.data.annotated_data import choose_num_rows
from ..general.augmented_batches import AugmentedBatches
from ..general.window_files import ReadIntegers, read_window_file

_PARAM = "image_gt_data_param"
_MAX_SIDE = 32767  # pixels; OpenCV's limit
_MIN_FALLBACK_OVERLAP = 0.2  # of an object that no cell detects with its best cell, to be detected nevertheless
_EXCLUDED_COVERAGE = 0.4  # from this fraction of a cell's box on, regions of no interest exclude the cell
_MAX_NOISE = 10  # pixels by which the position of the crop varies
_WHASPECT_STEP = 0.05
_NO_BOX = (0, 1, 1, 2, 2, 1, 1)  # the row of a batch without boxes


class Windows(NamedTuple):
    """The boxes of an image, in pixels.

    Attributes:
        boxes: float32 (n, 4), x1, y1, x2, y2 of each object.
        labels: (n,), the class of each object, above 0.
        is_ignored: bool (n,), True for objects that count neither as objects nor as background.
        excluded: float32 (m, 4), regions of no interest.
    """

    boxes: np.ndarray
    labels: np.ndarray
    is_ignored: np.ndarray
    excluded: np.ndarray

    def move(self, factors: Sequence[float], offsets: Sequence[float]) -> Windows:
        """Return the windows, scaled and then shifted in x and y."""
        factor, offset = (np.tile(np.asarray(x, np.float32), 2) for x in (factors, offsets))
        return self._replace(boxes=self.boxes * factor + offset, excluded=self.excluded * factor + offset)

    def mirror(self, width: int) -> Windows:
        """Return the windows in the image of this width, flipped left to right."""
        flipped = (np.stack([width - x[:, 2], x[:, 1], width - x[:, 0], x[:, 3]], axis=1) for x in self._boxes)
        return self._replace(boxes=next(flipped), excluded=next(flipped))

    @property
    def _boxes(self) -> tuple[np.ndarray, np.ndarray]:
        return self.boxes, self.excluded


class ListedImage(NamedTuple):
    """An image of a window file: its path, its shape (channels, height, width) there, and its boxes."""

    path: str
    shape: tuple[int, int, int]
    windows: Windows


def read_images(path: Path) -> list[ListedImage]:
    """Read a window file.

    The words of an image after its path are: channels, height and width; the number of boxes and for each of them
    class, ignore, x1, y1, x2 and y2; the number of regions of no interest and for each of them x1, y1, x2, y2.

    Raises:
        DataError: if the file cannot be read, is empty, or has another form.
    """

    def read_image_entry(name: str, read_integers: ReadIntegers) -> ListedImage:
        channels, height, width = read_integers(3)
        (count,) = read_integers(1)
        boxes = np.array(read_integers(6 * count), np.float32).reshape(-1, 6)
        (count,) = read_integers(1)
        excluded = np.array(read_integers(4 * count), np.float32).reshape(-1, 4)
        if np.any(boxes[:, 0] <= 0):
            raise ValueError("a class is not above 0")
        if min(channels, height, width) < 1:
            raise ValueError(f"the shape {channels} x {height} x {width} is not positive")
        windows = Windows(boxes[:, 2:], boxes[:, 0], boxes[:, 1] != 0, excluded)
        return ListedImage(name, (channels, height, width), windows)

    return read_window_file(path, read_image_entry)


class WindowFileDataset(ImageDataset[Windows]):
    """The images of a window file. Images with objects occur `fg_img_multiple` times in an epoch.

    Attributes:
        size: height and width of the last image, as the file has them. Without a crop, the top has this size.
        box_counts: the number of boxes of each image.

    Raises:
        DataError: if the window file, or an image that it names, is missing or malformed.
    """

    def __init__(self, definition: LayerDefinition, rng: CounterRng) -> None:
        param = definition.layer.image_gt_data_param
        self._max_pixels = definition.config.max_image_pixels
        file = definition.path(param.source)
        images = read_images(file)
        folders = get_search_folders(definition, file)
        paths = find_files(file, [image.path for image in images], param.root_folder, folders)
        self._files = [
            (path, image.windows)
            for path, image in zip(paths, images, strict=True)
            for _ in range(1 if image.windows.is_ignored.all() else param.fg_img_multiple)
        ]
        if not self._files:
            raise DataError(Problem(f"{_PARAM}.fg_img_multiple is 0, so no image is left", str(file)))
        self.size = images[-1].shape[1:]
        self.box_counts = [len(windows.boxes) for _, windows in self._files]
        self._sampler = IndexSampler(len(self._files), rng, shuffle=param.shuffle)

    def __len__(self) -> int:
        """Return the number of images in an epoch."""
        return len(self._files)

    def read(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[Windows]]:
        """Read consecutive examples; see `ImageDataset.read`."""
        files = [self._files[self._sampler[n]] for n in range(start, start + count)]
        images = [read_image(path, color=True, max_pixels=self._max_pixels) for path, _ in files]
        return images, [windows for _, windows in files]

    def locate_error(self, n: int, error: DataError) -> DataError:
        """Return `error` with the path of example n in its message."""
        return DataError(f"image '{self._files[self._sampler[n]][0]}' {error}")

    def checksum(self) -> int:
        """Return a checksum of the first and the last image, and of their boxes."""
        examples = [self.read(n, 1) for n in (0, len(self) - 1)]
        return checksum_arrays(array for images, windows in examples for array in (*images, windows[0].boxes))


class LabelGrid(NamedTuple):
    """The cells of a label map: their distance in pixels, and height and width of the boxes that they detect."""

    rate: int
    field_height: int
    field_width: int

    def count_cells(self, pixels: float) -> int:
        """Return the number of cells along a number of pixels."""
        return _round(pixels / self.rate)

    def make_boxes(self, height: int, width: int) -> np.ndarray:
        """Return the box of each cell, float32 (height, width, 4)."""
        y, x = (((np.arange(n) + 0.5) * self.rate).astype(np.float32) for n in (height, width))
        half_sides = np.array([self.field_width, self.field_height], np.float32) / 2
        centers = np.stack(np.broadcast_arrays(x, y[:, None]), axis=-1)
        return np.concatenate([centers - half_sides, centers + half_sides], axis=-1)


def _round(x: float) -> int:
    """Round to the nearest integer; halves are rounded away from zero, as by C's `round`."""
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


class Placement(NamedTuple):
    """The place of an image in the top: the row and column in the image and in the top, and the copied size."""

    source: tuple[int, int]
    target: tuple[int, int]
    size: tuple[int, int]


def make_label_maps(
    param: ImageGtDataParameter, windows: Windows, size: tuple[int, int], placement: Placement
) -> list[np.ndarray]:
    """Return the label map of each grid, float32 (6, rows, columns): label, x, y, width and height, and overlap.

    A cell whose box overlaps an object by more than fg_threshold has its label (0 if it is ignored) and its box, center
    and sides in pixels. An object that no cell has gets the cell in its middle, in the grid with its largest overlap.
    The overlap is 1 in cells that do not count: beyond the image, and in regions of no interest.

    Args:
        param: the settings.
        windows: the boxes, in pixels of the top.
        size: height and width of the top.
        placement: the place of the image in the top.
    """
    boxes, num_boxes = windows.boxes, len(windows.boxes)
    values = np.stack(
        [
            np.where(windows.is_ignored, 0, windows.labels),
            (boxes[:, 0] + boxes[:, 2]) / 2,
            (boxes[:, 1] + boxes[:, 3]) / 2,
            boxes[:, 2] - boxes[:, 0],
            boxes[:, 3] - boxes[:, 1],
        ]
    ).astype(np.float32)
    is_detected = np.zeros(num_boxes, bool)
    best_overlap, best_grid = np.zeros(num_boxes, np.float32), np.zeros(num_boxes, int)
    maps, grids = [], list_grids(param)
    for i, grid in enumerate(grids):
        height, width = (grid.count_cells(n) for n in size)
        labels = np.zeros((6, height, width), np.float32)
        cell_boxes = grid.make_boxes(height, width)
        counts = np.zeros((height, width), bool)
        (top, left), (rows, columns) = (map(grid.count_cells, x) for x in (placement.target, placement.size))
        counts[top : top + rows, left : left + columns] = True
        coverage = overlaps(cell_boxes[:, :, None], windows.excluded, divisor="first").sum(axis=2)
        counts &= coverage < np.float32(_EXCLUDED_COVERAGE)
        if num_boxes:
            overlap = np.where(counts[..., None], overlaps(boxes, cell_boxes[:, :, None]), 0).astype(np.float32)
            nearest, largest = overlap.argmax(axis=2), overlap.max(axis=2)
            detects = largest > np.float32(param.fg_threshold)
            labels[:5, detects] = values[:, nearest[detects]]
            is_detected[nearest[detects]] = True
            labels[5] = largest
            grid_overlap = overlap.max(axis=(0, 1))
            best_grid[grid_overlap > best_overlap] = i
            best_overlap = np.maximum(best_overlap, grid_overlap)
        labels[5, ~counts] = 1
        maps.append(labels)
    is_missed = ~is_detected & ~windows.is_ignored & (best_overlap >= np.float32(_MIN_FALLBACK_OVERLAP))
    for index in np.flatnonzero(is_missed):
        labels, rate = maps[best_grid[index]], grids[best_grid[index]].rate
        column, row = (
            min(max(math.floor(values[1 + axis, index] / rate), 0), labels.shape[2 - axis] - 1) for axis in range(2)
        )
        if labels[0, row, column] <= 0:
            labels[:5, row, column] = values[:, index]
    return maps


def list_grids(param: ImageGtDataParameter) -> list[LabelGrid]:
    """Return the grid of each label map."""
    return [LabelGrid(*grid) for grid in zip(param.downsample_rate, param.field_h, param.field_w, strict=True)]


def ignore_invalid(param: ImageGtDataParameter, windows: Windows, size: tuple[int, int]) -> Windows:
    """Return the windows, in which objects with a center beyond the top, or that are too small, are ignored."""
    boxes = windows.boxes
    centers, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2] + 1
    is_outside = ((centers < 0) | (centers >= np.array(size[::-1]))).any(axis=1)
    is_small = (sides < np.array([param.min_gt_width, param.min_gt_height], np.float32)).any(axis=1)
    return windows._replace(is_ignored=windows.is_ignored | is_outside | is_small)


class Augmentation:
    """Random changes of an image and its boxes: mirroring, size, and the position of the crop.

    Args:
        definition: the layer's definition.
        size: height and width of the top.
    """

    def __init__(self, definition: LayerDefinition, size: tuple[int, int]) -> None:
        self._param = definition.layer.image_gt_data_param
        self._mirror: bool = definition.layer.transform_param.mirror
        self._size = size

    def __call__(
        self, image: np.ndarray, windows: Windows, rng: np.random.Generator
    ) -> tuple[np.ndarray, Windows, Placement]:
        """Return an image (3, H, W) as (H, W, 3), its windows in pixels of the top, and its place in the top."""
        param, (height, width), image = self._param, self._size, image.transpose(1, 2, 0)
        if self._mirror and rng.integers(2):
            image, windows = image[:, ::-1], windows.mirror(image.shape[1])
        if param.HasField("resize_width") and param.HasField("resize_height"):
            factors = [
                np.float32(param.resize_width) / image.shape[1],
                np.float32(param.resize_height) / image.shape[0],
            ]
            image, windows = _resize(image, param.resize_height, param.resize_width), windows.move(factors, (0, 0))
        num_boxes = len(windows.boxes)
        if num_boxes:
            selected = windows.boxes[rng.integers(num_boxes)]
            center = (selected[:2] + selected[2:]) / 2
        else:
            center = np.array(
                [
                    rng.integers(n - crop + 1) + crop / 2 if n >= crop else n / 2
                    for n, crop in ((image.shape[1], width), (image.shape[0], height))
                ],
                np.float32,
            )
        factors = [1.0, 1.0]
        if self._has_random_scale and num_boxes and rng.integers(2):
            factors = _choose_factors(param, selected[2:] - selected[:2], rng)
        if factors != [1.0, 1.0]:
            if max(factors) > 1.5:  # only the part that may be seen is enlarged
                corner, (crop_width, crop_height) = _crop_around(image, center, factors)
                image = image[corner[1] : corner[1] + crop_height, corner[0] : corner[0] + crop_width]
                center, windows = center - np.array(corner, np.float32), windows.move((1, 1), [-x for x in corner])
            image = _resize(image, *(_round(n * f) for n, f in zip(image.shape, reversed(factors), strict=False)))
            windows = windows.move(factors, (0, 0))
        noise = rng.integers(-_MAX_NOISE, _MAX_NOISE, 2)
        columns, rows = (
            _place(image.shape[1 - axis], (width, height)[axis], float(center[axis]) * factors[axis], int(noise[axis]))
            for axis in range(2)
        )
        placement = Placement(*((row, column) for row, column in zip(rows, columns, strict=True)))
        offsets = [a - b for a, b in zip(reversed(placement.target), reversed(placement.source), strict=True)]
        return image, windows.move((1, 1), offsets), placement

    @property
    def _has_random_scale(self) -> bool:
        param = self._param
        return param.do_multiple_scale and param.HasField("min_scale") and param.HasField("max_scale")


def _resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    height, width = max(height, 1), max(width, 1)
    if max(height, width) > _MAX_SIDE:
        raise DataError(f"would be resized to {height} x {width} pixels, more than OpenCV's limit of {_MAX_SIDE}")
    if image.shape[:2] == (height, width):
        return image
    resized: np.ndarray = cv2.resize(np.ascontiguousarray(image), (width, height), interpolation=cv2.INTER_LINEAR)
    return resized


def _choose_factors(param: ImageGtDataParameter, sides: np.ndarray, rng: np.random.Generator) -> list[float]:
    """Return random factors of the image's width and height, which change the size of a box by half octaves.

    Args:
        param: the settings.
        sides: width and height of the box.
        rng: the source of the random choices.
    """
    width, height = (float(x) for x in sides)
    octaves = np.arange(_round(2 * math.log2(param.max_scale / param.min_scale) + 1)) / 2
    area, field_areas = width * height, (param.min_scale * 2**octaves) ** 2
    ratios = np.minimum(area, field_areas) / np.maximum(area, field_areas)
    factor = float(2 ** (octaves[rng.integers(len(octaves))] - octaves[ratios.argmax()]))
    factors = [factor, factor]
    has_aspect = param.HasField("min_whaspect") and param.HasField("max_whaspect")
    if has_aspect and rng.integers(2):
        num_aspects = _round((param.max_whaspect - param.min_whaspect) / _WHASPECT_STEP)
        aspect = rng.integers(num_aspects) * _WHASPECT_STEP + param.min_whaspect
        multiplier = aspect / (width / height) if width > 0 and height > 0 else 1.0
        changes_width = rng.integers(2)
        side = width * factor * multiplier if changes_width else height * factor / multiplier
        if param.min_scale * 0.8 <= side <= param.max_scale * 1.2:
            factors = [factor * multiplier, factor] if changes_width else [factor, factor / multiplier]
    return factors


def _crop_around(
    image: np.ndarray, center: np.ndarray, factors: Sequence[float]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return corner (x, y) and size (width, height) of the part that is resized, 1.2 times what will be seen."""
    corner, sizes = [], []
    for n, middle, factor in zip(image.shape[1::-1], center, factors, strict=True):
        size = min(max(_round(1.2 * n / factor), 1), n)
        start = max(_round(float(middle) - size * 0.5), 0)
        corner.append(start - max(start + size - n, 0))
        sizes.append(size)
    return (corner[0], corner[1]), (sizes[0], sizes[1])


def _place(length: int, crop: int, center: float, noise: int) -> tuple[int, int, int]:
    """Return where an image begins in the image and in the top along an axis, and how many pixels are copied.

    Args:
        length: the length of the image.
        crop: the length of the top.
        center: the middle of the crop, in pixels of the image.
        noise: a shift in pixels.
    """
    if length < crop:
        return 0, min(max(_round((crop - length) / 2) + noise, 0), crop - length), length
    start = _round(center) + noise - _round(crop / 2)
    return min(max(start, 0), length - crop), 0, crop


class ImageGtBatches(AugmentedBatches[Windows]):
    """Batches of images, label maps and boxes.

    Args:
        definition: the layer's definition.
        dataset: the images.
        rng: the source of all random choices.
        tops: the shape and dtype of each top, as `probe` returned them.

    Raises:
        DataError: if the crop is larger than the images, or its sides do not fit the label maps.
    """

    def __init__(
        self, definition: LayerDefinition, dataset: WindowFileDataset, rng: CounterRng, tops: TopSpecs = ()
    ) -> None:
        self._param = definition.layer.image_gt_data_param
        super().__init__(definition, dataset, self._param.batch_size, rng, tops)
        self._size = find_top_size(self._param, dataset.size)
        self._box_counts = dataset.box_counts
        self._augment = Augmentation(definition, self._size)
        self._mean = np.array(list(definition.layer.transform_param.mean_value) or [0], np.float32)

    def probe(self, n_tops: int) -> SourceSpec:
        """Return the shapes of the tops."""
        shapes = [(self.batch_size, 3, *self._size), *label_shapes(self._param, self.batch_size, *self._size)]
        padded_tops: tuple[int, ...] = ()
        if self._param.output_gt_boxes:
            shapes.append((choose_num_rows(self._box_counts, self.batch_size), 7, 1, 1))
            padded_tops = (len(shapes) - 1,)
        if n_tops != len(shapes):
            boxes_note = " and boxes" if padded_tops else ""
            maps = len(self._param.downsample_rate)
            raise DataError(f"needs {len(shapes)} tops, for data, {maps} label maps{boxes_note}, but has {n_tops}")
        self.tops = tuple(float32_top(*shape) for shape in shapes)
        self.close()
        return SourceSpec(self.tops, padded_tops=padded_tops)

    def _assemble(self, examples: Examples[Windows], start: int) -> Batch:
        data = np.zeros((len(examples.images), 3, *self._size), np.float32)
        maps: list[list[np.ndarray]] = []
        rows: list[np.ndarray] = []
        changed_examples = self._change_examples(self._augment, examples, start)
        for i, (pixels, windows, placement) in enumerate(changed_examples):
            (y, x), (top, left), (height, width) = placement
            copied = pixels[y : y + height, x : x + width].astype(np.float32)
            changed = (copied - self._mean) * np.float32(self._param.scale)
            data[i, :, top : top + height, left : left + width] = changed.transpose(2, 0, 1)
            windows = ignore_invalid(self._param, windows, self._size)
            maps.append(make_label_maps(self._param, windows, self._size, placement))
            columns = np.full(len(windows.boxes), i), *windows.boxes.T, windows.labels, windows.is_ignored
            rows.append(np.stack(columns, axis=1))
        tops = [data, *(np.stack(grid_maps) for grid_maps in zip(*maps, strict=True))]
        if self._param.output_gt_boxes:
            boxes = np.concatenate(rows)
            boxes = boxes if len(boxes) else np.array([_NO_BOX])
            num_rows = max(self.tops[-1].shape[0], choose_num_rows([len(boxes)], 1))
            padded = np.full((num_rows, 7, 1, 1), -1, np.float32)
            padded[: len(boxes), :, 0, 0] = boxes
            tops.append(padded)
        return Batch(tuple(tops), examples.warnings)


def find_top_size(param: ImageGtDataParameter, image_size: tuple[int, ...]) -> tuple[int, int]:
    """Return height and width of the top, for images of `image_size`.

    Raises:
        DataError: if the crop is larger than the images, or a side has no whole number of cells.
    """
    height, width = image_size
    if param.HasField("resize_width") and param.HasField("resize_height"):
        height, width = param.resize_height, param.resize_width
    sizes = []
    has_crop = param.HasField("crop_width") and param.HasField("crop_height")
    for name, crop, n in (("crop_height", param.crop_height, height), ("crop_width", param.crop_width, width)):
        if has_crop and crop > n:
            raise DataError(f"{_PARAM}.{name} is {crop}, more than the {n} pixels of the images")
        sizes.append(crop if has_crop and crop else n)
    for grid in list_grids(param):
        for size in sizes:
            if grid.count_cells(size) != size // grid.rate or size < grid.rate:
                raise DataError(
                    f"the side of {size} pixels does not fit {_PARAM}.downsample_rate {grid.rate}; set crop_height and "
                    "crop_width to multiples of the rates"
                )
    return sizes[0], sizes[1]


def label_shapes(param: ImageGtDataParameter, batch_size: int, height: int, width: int) -> list[tuple[int, ...]]:
    """Return the shapes of the label maps."""
    return [(batch_size, 6, height // rate, width // rate) for rate in param.downsample_rate if rate]


class ImageGtDataLayer(DataLayer):
    """Batches of images with label maps for objects of several sizes, and optionally with the objects' boxes.

    The tops are the images, a map (N, 6, h, w) for each `downsample_rate`, and with `output_gt_boxes` the boxes of all
    images (boxes, 7, 1, 1), rows image, x1, y1, x2, y2, label, ignored. A map has the label of each cell, x and y of
    its object's center, the object's width and height in pixels, and the overlap of the cell's box of `field_h` x
    `field_w` pixels with an object. `source` lists the images with their boxes, as MS-CNN's scripts write it.
    """

    supported_fields = tuple(ImageGtDataParameter.DESCRIPTOR.fields_by_name)

    def check_settings(self) -> None:
        """Check image_gt_data_param and transform_param."""
        param = self.layer_param.image_gt_data_param
        check_all(
            lambda: raise_if_any(DataError, _list_problems(param)),
            lambda: refuse_unsupported(param, _PARAM, self.supported_fields),
            lambda: check_transform(self.definition, supported_fields=("mirror", "mean_value")),
            lambda: raise_if_any(DataError, _list_mean_problems(self.layer_param.transform_param)),
            lambda: self.definition.path(param.source),
        )

    @staticmethod
    def image_size(layer: Any) -> tuple[int, int] | None:
        """Return the size that the settings state."""
        param = layer.image_gt_data_param
        sizes = (param.crop_height, param.crop_width), (param.resize_height, param.resize_width)
        return next(((height, width) for height, width in sizes if height and width), None)

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape]:
        """Return the shapes of the label maps, and of a few boxes."""
        param = layer.image_gt_data_param
        boxes = [(8, 7, 1, 1)] if param.output_gt_boxes else []
        return [*label_shapes(param, batch_size, height, width), *boxes]

    def open(self, tops: TopSpecs) -> Batches:
        """Read the window file. All missing images are reported at once."""
        return ImageGtBatches(self.definition, WindowFileDataset(self.definition, self.rng), self.rng, tops)


def _list_problems(param: ImageGtDataParameter) -> Iterator[str]:
    yield from list_source_problems(param, _PARAM, "a window file")
    if param.coord_num != 4:
        yield f"{_PARAM}.coord_num must be 4, not {param.coord_num}"
    counts = {name: len(getattr(param, name)) for name in ("downsample_rate", "field_h", "field_w")}
    if len(set(counts.values())) > 1 or not counts["downsample_rate"]:
        yield f"{_PARAM} needs equal numbers of downsample_rate, field_h and field_w, at least one, not {counts}"
    if not all(param.downsample_rate):
        yield f"{_PARAM}.downsample_rate must be above 0, not {list(param.downsample_rate)}"
    for a, b in (("resize_height", "resize_width"), ("crop_height", "crop_width"), ("min_scale", "max_scale")):
        if param.HasField(a) != param.HasField(b):
            yield f"{_PARAM} has only one of {a} and {b}; set both or none"
    if param.HasField("min_scale") and not 0 < param.min_scale <= param.max_scale:
        yield f"{_PARAM} needs 0 < min_scale <= max_scale, not {param.min_scale} and {param.max_scale}"
    aspects = param.min_whaspect, param.max_whaspect
    if param.HasField("min_whaspect") and not 0 < aspects[0] <= aspects[1] - _WHASPECT_STEP / 2 < math.inf:
        limits = f"{_WHASPECT_STEP} apart, not {aspects[0]:g}, {aspects[1]:g}"
        yield f"{_PARAM} needs 0 < min_whaspect < max_whaspect, {limits}"


def _list_mean_problems(param: Any) -> Iterator[str]:
    if len(param.mean_value) not in (0, 1, 3):
        yield f"transform_param.mean_value must be set once, or 3 times, not {len(param.mean_value)} times"


register(
    "ImageGtData",
    ImageGtDataLayer.implementation(),
    bottoms=0,
    tops=(2, None),
    param=_PARAM,
    origin="MS-CNN",
)

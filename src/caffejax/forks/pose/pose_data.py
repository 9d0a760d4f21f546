"""The CPMData layers of OpenPose's training and of convolutional pose machines: people with maps of their joints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import DataError, check_all, raise_if_any
from ...base.human_readable import format_shape
from ...core.data.data_layer import DataLayer, float32_top, refuse_unsupported
from ...core.data.database import DatumDataset, check_data_param
from ...core.data.image_batches import Examples
from ...core.data.import_cv2 import cv2
from ...core.data.prefetch import Batch, Batches
from ...core.data.sampling import CounterRng
from ...core.layers.context import LayerDefinition, Shape
from ...core.layers.data_source import SourceSpec, TopSpecs
from ...core.layers.declaration import register
from ..general.augmented_batches import AugmentedBatches

CHANNELS = 6  # blue, green, red, the people, the mask of labelled pixels, the mask of all people
_CENTERED_CHANNELS = 4  # of convolutional pose machines: blue, green, red, the people
_PEOPLE_CHANNEL, _MASK_CHANNEL = 3, 4
_HIDDEN, _OUTSIDE, _UNLABELLED = 0, 2, 3  # a joint's visibility; 1 is visible, and joints from 2 on are not in the maps
_MAX_COORDINATE = 1_000_000  # pixels
_GRAY = 128  # the level of pixels outside of the image
_MAX_PARTS = 1000  # maps of joints
_MAX_EXPONENT = 4.6052  # the exponent at which a joint's map falls to 1 %
_LIMB_STRIDE = np.float32(0.125)  # the fork divides by 8, independent of the stride
_SUPPORTED_FIELDS = {
    *("stride", "max_rotate_degree", "crop_size_x", "crop_size_y", "scale_prob", "scale_min", "scale_max", "flip_prob"),
    *("target_dist", "center_perterb_max", "sigma", "do_clahe", "clahe_tile_size", "clahe_clip_limit", "gray"),
    *("num_parts", "np_in_lmdb", "aug_way", "put_gaussian", "sigma_center", "transform_body_joint"),
    # without effect in the fork
    *("scale", "mirror", "mean_file", "mean_value", "scale_cvg", "max_cvg_len", "min_cvg_len", "opaque_coverage"),
    *("coverage", "bbox_norm_factor", "img_header", "force_color", "force_gray", "num_total_augs"),
    *("visualize", "visualize_label"),  # the fork writes pictures
}


class Skeleton(NamedTuple):
    """The joints and limbs that the target maps show.

    Attributes:
        source_joints: for each joint, two joints of the database, counted from 0. The joint is their midpoint.
        limbs: pairs of joints, counted from 0.
        mirror_pairs: pairs of joints that are exchanged when an image is mirrored.
        num_database_joints: the number of joints that the database must have.
        has_unlabelled: whether a visibility of 3 marks a joint that is not labelled. Otherwise it marks a visible
            joint.
    """

    source_joints: np.ndarray
    limbs: np.ndarray
    mirror_pairs: np.ndarray
    num_database_joints: int
    has_unlabelled: bool


def _make_skeleton(first: str, second: str, limbs: str, mirror_pairs: str, has_unlabelled: bool) -> Skeleton:
    source_joints = np.array([first.split(), second.split()], int)
    limb_joints, pairs = (np.array([pair.split("-") for pair in text.split()], int) for text in (limbs, mirror_pairs))
    return Skeleton(source_joints, limb_joints, pairs, int(source_joints.max()) + 1, has_unlabelled)


SKELETONS = {  # by num_parts, the number of maps: one for each joint, and two for each limb
    56: _make_skeleton(  # COCO
        "0 5 6 8 10 5 7 9 12 14 16 11 13 15 2 1 4 3",
        "0 6 6 8 10 5 7 9 12 14 16 11 13 15 2 1 4 3",
        "1-8 8-9 9-10 1-11 11-12 12-13 1-2 2-3 3-4 2-16 1-5 5-6 6-7 5-17 1-0 0-14 0-15 14-16 15-17",
        "2-5 3-6 4-7 8-11 9-12 10-13 14-15 16-17",
        has_unlabelled=True,
    ),
    43: _make_skeleton(  # MPI
        "9 8 12 11 10 13 14 15 2 1 0 3 4 5 7",
        "9 8 12 11 10 13 14 15 2 1 0 3 4 5 6",
        "0-1 1-2 2-3 3-4 1-5 5-6 6-7 1-14 14-8 8-9 9-10 14-11 11-12 12-13",
        "2-5 3-6 4-7 8-11 9-12 10-13",
        has_unlabelled=False,
    ),
}


_NO_LIMBS = np.zeros((0, 2), int)


def _make_joint_order(joints: Sequence[int], second_joints: Sequence[int], mirror_pairs: str) -> Skeleton:
    pairs = np.array([pair.split("-") for pair in mirror_pairs.split()], int).reshape(-1, 2)
    return Skeleton(np.array([joints, second_joints]), _NO_LIMBS, pairs, max(*joints, *second_joints) + 1, False)


_MPI_JOINTS = (9, 8, 12, 11, 10, 13, 14, 15, 2, 1, 0, 3, 4, 5)
_MPI_PAIRS = "2-5 3-6 4-7 8-11 9-12 10-13"
_CENTER_SKELETONS = {  # of convolutional pose machines, by num_parts, the number of joints
    14: _make_joint_order(_MPI_JOINTS, _MPI_JOINTS, _MPI_PAIRS),
    28: _make_joint_order(  # with points between joints
        (*_MPI_JOINTS, 7, 6, 9, 8, 12, 11, 8, 13, 14, 2, 1, 3, 4, 6),
        (*_MPI_JOINTS, 7, 6, 8, 12, 11, 10, 13, 14, 15, 1, 0, 4, 5, 7),
        f"{_MPI_PAIRS} 17-20 18-21 19-22 23-25 24-26",
    ),
}


def find_skeleton(param: Any) -> Skeleton:
    """Return the joints and limbs that the maps of a CPMTransformationParameter show.

    In convolutional pose machines joints are in the order of the database if num_parts is neither 14 nor 28, or without
    transform_body_joint.
    """
    n = param.num_parts
    if n in SKELETONS:
        return SKELETONS[n]
    if n in _CENTER_SKELETONS and param.transform_body_joint:
        return _CENTER_SKELETONS[n]
    pairs = "0-3 1-4 2-5 6-7" if n == 9 and param.transform_body_joint else ""
    return _make_joint_order(range(n), range(n), pairs)


class Pose(NamedTuple):
    """The people in an image. Crops are centered on the first person.

    Attributes:
        center: the center (x, y) of the first person in pixels, float32 (2,).
        scale: the first person's height divided by the height of the net's input.
        joints: the position (x, y) of each joint of each person in pixels, float32 (P, J, 2).
        visibility: the visibility of the joints, int (P, J).
    """

    center: np.ndarray
    scale: float
    joints: np.ndarray
    visibility: np.ndarray


def read_pose(rows: np.ndarray, num_database_joints: int, *, has_unlabelled: bool = True) -> Pose:
    """Read the channel of a record that describes the people, in the form that OpenPose's genLMDB.py writes.

    Args:
        rows: uint8 (H, W).
        num_database_joints: the number of joints of a person.
        has_unlabelled: whether a visibility of 3 marks a joint of the first person that is not labelled.

    Raises:
        DataError: if the channel is too small, a position is not finite or too large, or the scale is not positive and
            finite.
    """
    if rows.shape[0] < 8 or rows.shape[1] < max(15, 4 * num_database_joints):
        raise DataError(
            f"is {rows.shape[0]} x {rows.shape[1]} (HxW), too small to describe {num_database_joints} joints"
        )
    num_others = int(rows[2, 1])
    if rows.shape[0] < (min_rows := 9 + 4 * num_others if num_others else 8):
        raise DataError(f"has {rows.shape[0]} rows, but a record with {num_others} other people needs {min_rows} rows")

    def read_floats(row: int, count: int) -> np.ndarray:
        return np.frombuffer(rows[row, : 4 * count].tobytes(), "<f4")

    start_rows = [5, *(9 + num_others + 3 * n for n in range(num_others))]
    coordinates = [[read_floats(row + axis, num_database_joints) for axis in (0, 1)] for row in start_rows]
    with np.errstate(invalid="ignore"):  # NaN, which is refused below, may be signalling
        joints = np.array(coordinates).transpose(0, 2, 1) - 1
        center = read_floats(3, 2) - np.float32(1)
    flags = np.array([read_floats(row + 2, num_database_joints) for row in start_rows])
    (height, width), scale = read_floats(1, 2), float(read_floats(4, 1)[0])
    largest = np.abs(np.append(joints.ravel(), center)).max()
    if not (largest <= _MAX_COORDINATE and 0 < scale < math.inf):
        raise DataError(
            f"has joints or a center up to {largest:g} pixels from the origin (the limit is {_MAX_COORDINATE}), and "
            f"the scale {scale:g} (it must be positive and finite)"
        )
    is_outside = (joints < 0).any(2) | (joints >= (width, height)).any(2)
    visibility = np.where(is_outside, _OUTSIDE, np.where(flags == 0, _HIDDEN, 1))
    if has_unlabelled:
        visibility[0][flags[0] == _UNLABELLED] = _UNLABELLED  # of the first person only
    return Pose(center, scale, joints, visibility)


def select_joints(pose: Pose, skeleton: Skeleton) -> Pose:
    """Return the pose with the joints of a skeleton instead of those in the database."""
    first, second = skeleton.source_joints
    first_visible, second_visible = pose.visibility[:, first], pose.visibility[:, second]
    visibility = ((first_visible != 0) & (second_visible != 0)).astype(int)
    for flag in (_UNLABELLED, _OUTSIDE) if skeleton.has_unlabelled else (_OUTSIDE,):
        visibility[(first_visible == flag) | (second_visible == flag)] = flag
    return pose._replace(joints=(pose.joints[:, first] + pose.joints[:, second]) / 2, visibility=visibility)


def draw_maps(pose: Pose, skeleton: Skeleton, grid: tuple[int, int], stride: int, sigma: float) -> np.ndarray:
    """Return the maps of limbs, joints and the background, float32 (2 * limbs + joints + 1, *grid).

    The two maps of a limb contain its direction (x, y) in the cells that are at most one cell from the line between its
    joints; a later person overwrites an earlier one. The map of a joint is a Gaussian, summed over people and limited
    to 1. The background is 1 minus the maximum over all joints.

    Args:
        pose: the people, in pixels of the image.
        skeleton: the joints and limbs.
        grid: height and width of the maps.
        stride: the side of a cell, in pixels.
        sigma: the standard deviation of the Gaussians, in pixels.
    """
    rows, columns = (np.arange(side, dtype=np.float32) for side in grid)
    limbs = np.zeros((len(skeleton.limbs), 2, *grid), np.float32)
    for maps, pair in zip(limbs, skeleton.limbs, strict=True):
        for points, visibility in zip(pose.joints[:, pair], pose.visibility[:, pair], strict=True):
            if (visibility < _OUTSIDE).all():
                _draw_limb(maps, points * _LIMB_STRIDE, rows[:, None], columns)
    return np.concatenate([limbs.reshape(-1, *grid), draw_joint_maps(pose, grid, stride, sigma)])


def draw_joint_maps(pose: Pose, grid: tuple[int, int], stride: int, sigma: float) -> np.ndarray:
    """Return the maps of joints and the background, float32 (joints + 1, *grid); see `draw_maps`."""
    joints = np.zeros((pose.joints.shape[1], *grid), np.float32)
    for points, visibility in zip(pose.joints, pose.visibility, strict=True):
        for n in np.flatnonzero(visibility < _OUTSIDE):
            joints[n] = np.minimum(joints[n] + _draw_gaussian(points[n], grid, stride, sigma), 1)
    background = np.maximum(1 - joints.max(0, keepdims=True), 0)
    return np.concatenate([joints, background])


def _draw_gaussian(point: np.ndarray, grid: tuple[int, int], stride: int, sigma: float) -> np.ndarray:
    rows, columns = (np.arange(side, dtype=np.float32) for side in grid)
    offset, (x, y) = np.float32(stride / 2 - 0.5), point
    squared_distance = (columns * stride + offset - x) ** 2 + (rows[:, None] * stride + offset - y) ** 2
    exponent = squared_distance / 2 / sigma**2
    return np.where(exponent > _MAX_EXPONENT, 0, np.exp(-exponent))


def _draw_limb(maps: np.ndarray, points: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
    """Write the direction (x, y) of a limb into the cells within one cell of the line between its ends.

    The ends of the limb, `points`, are in units of cells.
    """
    start, end = points
    length = np.hypot(*(end - start))
    if length == 0:
        return
    x, y = (end - start) / length
    low, high = _round(points.min(0) - 1), _round(points.max(0) + 1)
    is_near = np.abs((columns - start[0]) * y - (rows - start[1]) * x) <= 1
    is_near &= (columns >= low[0]) & (columns < high[0]) & (rows >= low[1]) & (rows < high[1])
    maps[0][is_near], maps[1][is_near] = x, y


def _round(values: np.ndarray) -> np.ndarray:
    """Round half away from zero, as C does."""
    return np.trunc(values + np.copysign(np.float32(0.5), values))


class PoseExample(NamedTuple):
    """An image (H, W, 3), its mask (H, W) and its people."""

    image: np.ndarray
    mask: np.ndarray
    pose: Pose


class PoseBatches(AugmentedBatches[int]):
    """Batches of images and maps, which in TRAIN are scaled, rotated, cropped and mirrored at random.

    The tops are images, float32 (N, 6, H, W), with zeros in the last three channels, and labels, float32
    (N, 2 * (num_parts + 1), H / stride, W / stride): the weights of all maps, then the maps of limbs, joints and
    background.

    Args:
        definition: the layer's definition.
        dataset: the records.
        tops: the shape and dtype of each top, as `probe` returned them.

    Raises:
        DataError: if a setting is invalid or not supported.
    """

    def __init__(self, definition: LayerDefinition, dataset: DatumDataset, tops: TopSpecs = ()) -> None:
        rng = CounterRng(definition.config.seed, definition.layer.name)
        super().__init__(definition, dataset, definition.layer.data_param.batch_size, rng, tops)
        self._param: Any = definition.layer.cpm_transform_param
        self._training, self._max_pixels = definition.training, definition.config.max_image_pixels
        self._skeleton = find_skeleton(self._param)

    def probe(self, n_tops: int) -> SourceSpec:
        """Read the first record to determine the shapes of the tops."""
        self.tops = (float32_top(1),) * n_tops
        with closing(self):
            arrays = self._assemble(self._read_examples(0, 1), 0).arrays
        return SourceSpec(tuple(float32_top(self.batch_size, *array.shape[1:]) for array in arrays))

    def _assemble(self, examples: Examples[int], start: int) -> Batch:
        first_shape: tuple[int, ...] = ()

        def change(record: np.ndarray, _: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
            nonlocal first_shape
            image, label = self._make_arrays(record, rng)
            first_shape = first_shape or image.shape
            if image.shape != first_shape:
                sizes = [format_shape(shape[1:]) for shape in (image.shape, first_shape)]
                raise DataError(
                    f"is {sizes[0]} (HxW), but the batch's first image is {sizes[1]}; in TEST use batch_size: 1"
                )
            return image, label

        images, labels = zip(*self._change_examples(change, examples, start), strict=True)
        return Batch((np.stack(images), np.stack(labels))[: len(self.tops)], examples.warnings)

    def _make_arrays(self, record: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the image and the label of a record."""
        param, stride = self._param, self._param.stride
        if record.shape[0] != CHANNELS or record.dtype != np.uint8:
            raise DataError(f"has {record.shape[0]} channels of {record.dtype}; CPMData needs {CHANNELS} of uint8")
        pose = select_joints(read_pose(record[_PEOPLE_CHANNEL], param.np_in_lmdb), self._skeleton)
        pixels = _change_colors(np.ascontiguousarray(record[:3].transpose(1, 2, 0)), param)
        example = PoseExample(pixels, np.ascontiguousarray(record[_MASK_CHANNEL]), pose)
        if self._training:
            example = self._augment(example, rng)
        height, width = example.mask.shape
        grid = height // stride, width // stride
        if min(grid) < 1:
            raise DataError(f"is {height} x {width} (HxW), but both sides must be at least stride {stride}")
        small_mask = cv2.resize(example.mask, None, fx=1 / stride, fy=1 / stride, interpolation=cv2.INTER_CUBIC)
        label = np.zeros((2 * (param.num_parts + 1), *grid), np.float32)
        label[: param.num_parts + 1] = small_mask[: grid[0], : grid[1]].astype(np.float32) / 255
        joints = np.flatnonzero(example.pose.visibility[0] == _UNLABELLED)
        label[joints] = 0  # the maps with the joints' numbers, as in the fork, although these are maps of limbs
        label[param.num_parts + 1 :] = draw_maps(example.pose, self._skeleton, grid, stride, param.sigma)
        image = np.zeros((CHANNELS, height, width), np.float32)
        image[:3] = (example.image.transpose(2, 0, 1).astype(np.float32) - 128) / 256
        return image, label

    def _augment(self, example: PoseExample, rng: np.random.Generator) -> PoseExample:
        param, factor = self._param, 1.0
        if rng.random() <= param.scale_prob:
            factor = param.scale_min + (param.scale_max - param.scale_min) * rng.random()
        example = self._scale(example, param.target_dist / example.pose.scale * factor)
        example = _rotate(example, (rng.random() - 0.5) * 2 * param.max_rotate_degree)
        shift = np.trunc((rng.random(2) - 0.5) * 2 * param.center_perterb_max)
        example = _crop(example, (param.crop_size_y, param.crop_size_x), shift.astype(np.float32))
        return self._mirror(example) if rng.random() <= param.flip_prob else example

    def _scale(self, example: PoseExample, scale: float) -> PoseExample:
        image, mask, pose = example
        height, width = (round(side * scale) for side in mask.shape)
        # after rotation, each side has at most the length of the diagonal
        if not (height > 0 < width and height**2 + width**2 <= self._max_pixels):
            raise DataError(
                f"would be scaled to {height} x {width} (HxW), because the first person's scale is {pose.scale:g}; "
                f"both sides must be positive, and the squared diagonal at most {self._max_pixels} (--max_image_pixels)"
            )
        image, mask = (cv2.resize(a, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC) for a in (image, mask))
        factor = np.float32(scale)
        return PoseExample(image, mask, pose._replace(center=pose.center * factor, joints=pose.joints * factor))

    def _mirror(self, example: PoseExample) -> PoseExample:
        image, mask, pose = example
        joints = pose.joints.copy()
        joints[..., 0] = mask.shape[1] - 1 - joints[..., 0]
        joint_order = np.arange(joints.shape[1])
        left, right = self._skeleton.mirror_pairs.T
        joint_order[left], joint_order[right] = right, left
        mirrored_pose = pose._replace(joints=joints[:, joint_order], visibility=pose.visibility[:, joint_order])
        return PoseExample(np.ascontiguousarray(image[:, ::-1]), np.ascontiguousarray(mask[:, ::-1]), mirrored_pose)


class CenteredPoseBatches(PoseBatches):
    """The batches of convolutional pose machines, whose records have no masks.

    The tops are images, float32 (N, 4, H, W), with a Gaussian at the first person's center in the last channel, and
    labels, float32 (N, 2 * (num_parts + 1), H / stride, W / stride): the maps of joints and of the background of the
    first person, then the maps of all people.
    """

    def _make_arrays(self, record: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        param, stride = self._param, self._param.stride
        if record.shape[0] != _CENTERED_CHANNELS or record.dtype != np.uint8:
            raise DataError(
                f"has {record.shape[0]} channels of {record.dtype}; CPMData with num_parts {param.num_parts} needs "
                f"{_CENTERED_CHANNELS} of uint8"
            )
        pose = read_pose(record[_PEOPLE_CHANNEL], param.np_in_lmdb, has_unlabelled=False)
        pixels = _change_colors(np.ascontiguousarray(record[:3].transpose(1, 2, 0)), param)
        no_mask = np.zeros(pixels.shape[:2], np.uint8)
        example = PoseExample(pixels, no_mask, select_joints(pose, self._skeleton))
        if self._training:
            example = self._augment(example, rng)
        height, width = example.image.shape[:2]
        grid = height // stride, width // stride
        if min(grid) < 1:
            raise DataError(f"is {height} x {width} (HxW), but both sides must be at least stride {stride}")
        first_person = example.pose._replace(joints=example.pose.joints[:1], visibility=example.pose.visibility[:1])
        label = np.concatenate(
            [draw_joint_maps(p, grid, stride, param.sigma) for p in (first_person, example.pose)]
        ).astype(np.float32)
        image = (example.image.transpose(2, 0, 1).astype(np.float32) - 128) / 256
        if param.put_gaussian:
            center_map = _draw_gaussian(example.pose.center, (height, width), 1, param.sigma_center)
            image = np.concatenate([image, center_map[None].astype(np.float32)])
        return image, label


def _change_colors(image: np.ndarray, param: Any) -> np.ndarray:
    if param.do_clahe:
        tiles = (int(param.clahe_tile_size),) * 2
        lab = cv2.cvtColor(image, cv2.COLOR_BGR2Lab)
        lab[..., 0] = cv2.createCLAHE(int(param.clahe_clip_limit), tiles).apply(lab[..., 0])
        image = cv2.cvtColor(lab, cv2.COLOR_Lab2BGR)
    if param.gray == 1:
        image = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    return image


def _rotate(example: PoseExample, degrees: float) -> PoseExample:
    """Rotate an image counterclockwise. The result contains the complete image."""
    image, mask, pose = example
    height, width = mask.shape
    center = width / 2, height / 2
    matrix = cv2.getRotationMatrix2D(center, degrees, 1)
    corners = cv2.boxPoints((center, (width, height), degrees))
    size = (np.ceil(corners.max(0)) - np.floor(corners.min(0))).astype(int) + 1
    matrix[:, 2] += size / 2 - center
    sizes: Sequence[int] = size.tolist()

    def warp(array: np.ndarray, border: Sequence[int]) -> np.ndarray:
        return cv2.warpAffine(array, matrix, sizes, flags=cv2.INTER_CUBIC, borderValue=border)

    def move(points: np.ndarray) -> np.ndarray:
        return (points @ matrix[:, :2].T + matrix[:, 2]).astype(np.float32)

    rotated_pose = pose._replace(center=move(pose.center), joints=move(pose.joints))
    return PoseExample(warp(image, [_GRAY] * 3), warp(mask, [255]), rotated_pose)


def _crop(example: PoseExample, size: tuple[int, int], shift: np.ndarray) -> PoseExample:
    """Crop an image to a height and width around the first person's center, moved by `shift` (x, y)."""
    image, mask, pose = example
    origin = np.rint(pose.center + shift) - np.array([size[1] // 2, size[0] // 2], np.float32)
    (left, top), (height, width) = origin.astype(int).tolist(), mask.shape
    pixels = np.full((*size, 3), _GRAY, np.uint8)
    weights = np.full(size, 255, np.uint8)
    rows, columns = slice(max(top, 0), min(top + size[0], height)), slice(max(left, 0), min(left + size[1], width))
    if rows.start < rows.stop and columns.start < columns.stop:
        window = slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left)
        pixels[window], weights[window] = image[rows, columns], mask[rows, columns]
    return PoseExample(pixels, weights, pose._replace(center=pose.center - origin, joints=pose.joints - origin))


class CPMDataLayer(DataLayer):
    """Batches of images of people, and of weights and maps of their limbs and joints, from a database.

    With num_parts 56 or 43 (OpenPose) records have six channels: the image, a description of the people, and masks of
    labelled pixels and of all people. The label has weights for all maps, then the maps: two for each limb, one for
    each joint, and the background.

    With other num_parts (convolutional pose machines) records have four channels: the image and the description. The
    image's fourth channel is a Gaussian at the first person's center. The label has a map for each joint and the
    background for the first person, then the same for all people. Prototxts of this project set cpmdata_param and
    transform_param instead of data_param and cpm_transform_param.
    """

    def check_settings(self) -> None:
        """Check data_param and cpm_transform_param."""
        param = self.layer_param.cpm_transform_param
        check_all(
            lambda: check_data_param(self.definition, ["shuffle"]),
            lambda: refuse_unsupported(param, "cpm_transform_param", _SUPPORTED_FIELDS),
            lambda: raise_if_any(DataError, self._list_problems()),
        )

    def _list_problems(self) -> list[str]:
        param = self.layer_param.cpm_transform_param
        problems = []
        if not 0 < param.num_parts <= _MAX_PARTS:
            return [f"cpm_transform_param.num_parts must be from 1 to {_MAX_PARTS}, not {param.num_parts}"]
        skeleton = find_skeleton(param)
        if param.num_parts in SKELETONS and not param.transform_body_joint:
            problems.append("transform_body_joint must be true with num_parts 56 and 43")
        if param.np_in_lmdb < skeleton.num_database_joints:
            problems.append(f"np_in_lmdb is {param.np_in_lmdb}, but the joints need {skeleton.num_database_joints}")
        if param.aug_way != "rand":
            problems.append(f"aug_way is '{param.aug_way}'; only 'rand' is supported")
        sizes = ("stride", "crop_size_x", "crop_size_y", "sigma", "sigma_center", "target_dist")
        problems += [f"{name} must be positive" for name in sizes if not getattr(param, name) > 0]
        floats = [(field.name, value) for field, value in param.ListFields() if isinstance(value, float)]
        problems += [f"{name} is {value}, but must be finite" for name, value in floats if not math.isfinite(value)]
        if param.clahe_tile_size < 1:
            problems.append(f"clahe_tile_size must be 1 or more, not {param.clahe_tile_size}")
        if param.crop_size_x * param.crop_size_y > self.definition.config.max_image_pixels:
            size, limit = f"{param.crop_size_x} x {param.crop_size_y}", self.definition.config.max_image_pixels
            problems.append(f"crop_size_x and crop_size_y are {size}, more than {limit} pixels (--max_image_pixels)")
        return [f"cpm_transform_param.{problem}" for problem in problems]

    @staticmethod
    def image_size(layer: Any) -> tuple[int, int] | None:
        """Return the size of the crop."""
        param = layer.cpm_transform_param
        return (param.crop_size_y, param.crop_size_x) if param.crop_size_y and param.crop_size_x else None

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape]:
        """Return the shape of the weights and maps, for images of the given height and width."""
        param = layer.cpm_transform_param
        stride = param.stride or 1
        return [(batch_size, 2 * (param.num_parts + 1), height // stride, width // stride)]

    def probe(self) -> SourceSpec:
        """Read the first record."""
        dataset = DatumDataset(self.definition, self.rng, 1)
        return self._batches_type(self.definition, dataset).probe(len(self.layer_param.top))

    def open(self, tops: TopSpecs) -> Batches:
        """Open the database."""
        shuffle = self.layer_param.data_param.shuffle
        return self._batches_type(self.definition, DatumDataset(self.definition, self.rng, shuffle=shuffle), tops)

    @property
    def _batches_type(self) -> type[PoseBatches]:
        has_limbs = self.layer_param.cpm_transform_param.num_parts in SKELETONS
        return PoseBatches if has_limbs else CenteredPoseBatches


def _example_shape(layer: Any, height: int, width: int) -> Shape:
    param = layer.cpm_transform_param
    channels = CHANNELS if param.num_parts in SKELETONS else 3 + int(param.put_gaussian)
    return channels, height, width


register(
    "CPMData",
    replace(CPMDataLayer.implementation(), example_shape=_example_shape),
    bottoms=0,
    tops=(1, 2),
    param="cpm_transform_param",
    further_params=("data_param",),
    origin="OpenPose's training, convolutional pose machines",
    restrictions="Tables of augmentations are not supported. In TEST, "
    "where the fork crashes, the tops are the complete image and its maps.",
)

"""CPMData: maps of joints and limbs, and augmentation that moves people with their images."""

import itertools
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffejax.base.databases import write_lmdb
from caffejax.base.errors import CaffejaxError, DataError
from caffejax.core.schema.caffe_pb2 import Datum

HEIGHT, WIDTH = 56, 72
NECK = 1  # the center of both shoulders, joints 5 and 6 of the database
JOINT_COUNTS = {56: (17, 18, 19), 43: (16, 15, 14)}  # joints in the database, joints and limbs in the maps


def make_record(
    people: np.ndarray, visibility: np.ndarray, center: tuple[float, float] = (37, 29), scale: float = 0.5
) -> Datum:
    """Return a record as the project's genLMDB.py writes it; people are (P, J, 2) in pixels, counted from 0."""
    rows = np.zeros((HEIGHT, WIDTH), np.uint8)

    def write(row: int, *numbers: float, column: int = 0) -> None:
        data = struct.pack(f"<{len(numbers)}f", *numbers)
        rows[row, column : column + len(data)] = np.frombuffer(data, np.uint8)

    num_other_people = len(people) - 1
    rows[0, :4] = np.frombuffer(b"COCO", np.uint8)
    write(1, HEIGHT, WIDTH)
    rows[2, 1] = num_other_people
    write(3, center[0] + 1, center[1] + 1)
    write(4, scale)
    for n, (joints, flags) in enumerate(zip(people + 1, visibility, strict=True)):
        first_row = 5 if n == 0 else 9 + num_other_people + 3 * (n - 1)
        for row, numbers in enumerate((*joints.T, flags)):
            write(first_row + row, *numbers)
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (3, HEIGHT, WIDTH), np.uint8)
    mask = np.full((HEIGHT, WIDTH), 255, np.uint8)
    mask[:, : WIDTH // 2] = 0
    channels = np.stack([*image, rows, mask, mask])
    return Datum(channels=6, height=HEIGHT, width=WIDTH, data=channels.tobytes())


def make_centered_record(people: np.ndarray, visibility: np.ndarray, **options: Any) -> Datum:
    """Return a record of convolutional pose machines, which has the image and the people."""
    channels = np.frombuffer(make_record(people, visibility, **options).data, np.uint8).reshape(6, HEIGHT, WIDTH)[:4]
    return Datum(channels=4, height=HEIGHT, width=WIDTH, data=channels.tobytes())


def centered_net_text(folder: Path, settings: str) -> str:
    """Return a net as the project's genProto.py writes it."""
    return f"""layer {{ name: "d" type: "CPMData" top: "data" top: "label"
      cpmdata_param {{ source: "{folder / "db"}" backend: LMDB batch_size: 1 }}
      transform_param {{ stride: 8 {settings} }} }}"""


def net_text(folder: Path, num_parts: int, extra_settings: str = "", batch_size: int = 1) -> str:
    settings = {"num_parts:": str(num_parts), "np_in_lmdb:": str(JOINT_COUNTS[num_parts][0]), "stride:": "8"}
    tokens = extra_settings.split()
    settings |= dict(zip(tokens[::2], tokens[1::2], strict=True))
    return f"""layer {{ name: "d" type: "CPMData" top: "data" top: "label"
      data_param {{ source: "{folder / "db"}" backend: LMDB batch_size: {batch_size} }}
      cpm_transform_param {{ {" ".join(map(" ".join, settings.items()))} }} }}"""


def make_people(num_parts: int, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(num_parts)
    joints = rng.uniform((0, 0), (WIDTH - 1, HEIGHT - 1), (count, JOINT_COUNTS[num_parts][0], 2)).astype(np.float32)
    return joints, rng.integers(0, 2, joints.shape[:2])


def expected_gaussian(points: list[np.ndarray], row: int, column: int, sigma: float) -> float:
    total = 0.0
    for x, y in points:
        squared_distance = (column * 8 + 3.5 - x) ** 2 + (row * 8 + 3.5 - y) ** 2
        if squared_distance / (2 * sigma**2) <= math.log(100):
            total = min(1, total + math.exp(-squared_distance / (2 * sigma**2)))
    return total


def expected_direction(limbs: list[tuple[np.ndarray, np.ndarray]], row: int, column: int) -> tuple[float, float]:
    """Return the direction of the last limb that is at most one cell away from this cell, by geometry."""
    result = (0.0, 0.0)
    for start, end in limbs:
        (x1, y1), (x2, y2) = start / 8, end / 8
        length = math.hypot(x2 - x1, y2 - y1)
        distance = abs((column - x1) * (y2 - y1) - (row - y1) * (x2 - x1)) / length
        is_near = all(
            math.floor(min(a, b) - 0.5) <= n < math.floor(max(a, b) + 1.5)
            for a, b, n in ((x1, x2, column), (y1, y2, row))
        )
        if distance <= 1 and is_near:
            result = (x2 - x1) / length, (y2 - y1) / length
    return result


@pytest.mark.parametrize("num_parts", JOINT_COUNTS)
def test_maps_equal_their_definition(tmp_path: Path, open_source: Any, num_parts: int) -> None:
    joints, visibility = make_people(num_parts)
    joints[1, 5] = (WIDTH, 3)  # outside
    write_lmdb(tmp_path / "db", [(b"0", make_record(joints, visibility).SerializeToString())])
    data, label = next(open_source(net_text(tmp_path, num_parts, "sigma: 9")))
    n_joints, n_limbs = JOINT_COUNTS[num_parts][1:]
    assert data.shape == (1, 6, HEIGHT, WIDTH)
    assert label.shape == (1, 2 * (num_parts + 1), HEIGHT // 8, WIDTH // 8)
    weights, limb_maps, joint_maps, background = np.split(
        label[0], np.cumsum([num_parts + 1, 2 * n_limbs, n_joints]), axis=0
    )
    assert (weights == weights[0]).all()
    assert (weights[0][:, :4] == 0).all()
    assert (weights[0][:, 5:] == 1).all()
    # the neck and the nose, or the head's top, are in the databases at these places
    if num_parts == 56:
        source_joints = {0: (0, 0), NECK: (5, 6), 2: (6, 6), 4: (10, 10), 14: (2, 2), 17: (3, 3)}
        limb_ends = {0: (1, 8), 6: (1, 2), 14: (1, 0)}
        source_joints[8] = (12, 12)
    else:
        source_joints = {0: (9, 9), NECK: (8, 8), 2: (12, 12), 14: (7, 6), 8: (2, 2)}
        limb_ends = {0: (0, 1), 4: (1, 5), 7: (1, 14), 8: (14, 8)}
        source_joints[5] = (13, 13)
    is_outside = np.zeros(visibility.shape, bool)
    is_outside[1, 5] = True
    positions = {n: (joints[:, a] + joints[:, b]) / 2 for n, (a, b) in source_joints.items()}
    is_inside = {n: ~(is_outside[:, a] | is_outside[:, b]) for n, (a, b) in source_joints.items()}
    for row, column in np.ndindex(HEIGHT // 8, WIDTH // 8):
        for n in source_joints:
            expected = expected_gaussian(list(positions[n][is_inside[n]]), row, column, 9)
            assert joint_maps[n, row, column] == pytest.approx(expected, abs=1e-5)
        for n, (a, b) in limb_ends.items():
            both_inside = is_inside[a] & is_inside[b]
            expected = expected_direction(
                list(zip(positions[a][both_inside], positions[b][both_inside], strict=True)), row, column
            )
            assert limb_maps[2 * n : 2 * n + 2, row, column] == pytest.approx(expected, abs=1e-5)
        assert background[0, row, column] == pytest.approx(1 - joint_maps[:, row, column].max(), abs=1e-6)
    image = np.frombuffer(make_record(joints, visibility).data, np.uint8).reshape(6, HEIGHT, WIDTH)[:3]
    np.testing.assert_array_equal(data[0, :3], (image.astype(np.float32) - 128) / 256)
    assert (data[0, 3:] == 0).all()


def test_joints_without_labels_have_no_weight(tmp_path: Path, open_source: Any) -> None:
    joints, visibility = make_people(56)
    visibility[:, [0, 1]] = 3  # of the database: joints 0 and 15 of the maps
    write_lmdb(tmp_path / "db", [(b"0", make_record(joints, visibility).SerializeToString())])
    _, label = next(open_source(net_text(tmp_path, 56, "sigma: 9")))
    assert [n for n in range(57) if not label[0, n].any()] == [0, 15]
    expected = [
        expected_gaussian([joints[1, 0]], row, column, 9) for row, column in np.ndindex(HEIGHT // 8, WIDTH // 8)
    ]
    np.testing.assert_allclose(label[0, 57 + 38].ravel(), expected, atol=1e-5)  # of others, 3 is visible


FIXED_AUGMENTATION = (
    "scale_prob: 0 max_rotate_degree: 0 center_perterb_max: 0 crop_size_x: 64 crop_size_y: 48 sigma: 3 "
)


@pytest.mark.parametrize("flip", [0, 1])
@pytest.mark.parametrize("scale", [1, 2])
def test_people_move_with_the_image(tmp_path: Path, open_source: Any, flip: int, scale: int) -> None:
    """The first person's center comes to the center of the crop; left and right change places in a mirror."""
    joints, visibility = make_people(56, 1)
    joints[:], visibility[:] = (-9, -9), 1  # nowhere
    joints[0, 6], joints[0, 10] = (37 + 8, 29), (37, 29 + 4)  # right shoulder and wrist
    datum = make_record(joints, visibility)
    write_lmdb(tmp_path / "db", [(b"0", datum.SerializeToString())])
    settings = FIXED_AUGMENTATION + f"target_dist: {0.5 * scale} flip_prob: {1 if flip else -1}"
    data, label = next(open_source(net_text(tmp_path, 56, settings), "TRAIN"))
    assert (data.shape, label.shape) == ((1, 6, 48, 64), (1, 114, 6, 8))
    joint_maps = label[0, 95:113]
    shoulder, wrist = (5, 7) if flip else (2, 4)
    assert {n for n in range(18) if joint_maps[n].any()} == {shoulder, wrist}
    for n, (x, y) in (shoulder, (8 * scale, 0)), (wrist, (0, 4 * scale)):
        # rotation, even by 0 degrees, adds half a pixel; the center, 37.5 or 74.5, is rounded to the even number
        position = np.array([32 + x, 24 + y]) + (-0.5 if scale == 1 else 0.5)
        position[0] = 63 - position[0] if flip else position[0]
        expected = [expected_gaussian([position], row, column, 3) for row, column in np.ndindex(6, 8)]
        np.testing.assert_allclose(joint_maps[n].ravel(), expected, atol=1e-4)


def test_augmentation_depends_on_the_seed_and_the_example(tmp_path: Path, open_source: Any) -> None:
    joints, visibility = make_people(56, 1)
    datum = make_record(joints, visibility, scale=1).SerializeToString()
    write_lmdb(tmp_path / "db", [(b"%d" % n, datum) for n in range(3)])
    text = net_text(tmp_path, 56, "max_rotate_degree: 40 scale_prob: 1 scale_min: 0.5 target_dist: 0.6", 2)
    first_source, second_source, other_source = (open_source(text, "TRAIN", seed=seed) for seed in (1, 1, 2))
    first_label, second_label, other_label = next(first_source)[1], next(second_source)[1], next(other_source)[1]
    np.testing.assert_array_equal(first_label, second_label)
    assert (first_label != other_label).any()
    assert (first_label[0] != first_label[1]).any()
    assert first_label.shape == (2, 114, 46, 46)
    assert np.abs(first_label).max() <= 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("num_parts: 14", "CPMData with num_parts 14 needs 4 of uint8"),
        ("np_in_lmdb: 16", "np_in_lmdb is 16, but the joints need 17"),
        ('aug_way: "table"', "only 'rand'"),
        ("transform_body_joint: false", "transform_body_joint must be true with num_parts 56 and 43"),
        ("crop_size: 3", "crop_size is not supported"),
        ("stride: 0", "stride must be positive"),
        ("stride: 60", "must be at least stride 60"),
        ("scale_max: nan", "scale_max is nan"),
        ("target_dist: 1e30 crop_size_x: 8", "would be scaled to"),
        ("crop_size_x: 4000000000 crop_size_y: 4000000000", "4000000000 x 4000000000, more than 178956970 pixels"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, open_source: Any, settings: str, message: str) -> None:
    write_lmdb(tmp_path / "db", [(b"0", make_record(*make_people(56)).SerializeToString())])
    with pytest.raises(DataError, match=message):
        open_source(net_text(tmp_path, 56, settings), "TRAIN" if "target_dist" in settings else "TEST")


def test_damaged_records_are_named(tmp_path: Path, open_source: Any) -> None:
    joints, visibility = make_people(56)
    invalid_joints = joints.copy()
    invalid_joints[0, 0, 0] = np.nan
    begin = 3 * HEIGHT * WIDTH + 5 * WIDTH
    signalling = make_record(joints, visibility)
    signalling_content = bytearray(signalling.data)
    signalling_content[begin : begin + 4] = struct.pack("<I", 0x7F800001)
    signalling.data = bytes(signalling_content)
    crowd_datum = make_record(joints, visibility)
    content = bytearray(crowd_datum.data)
    content[3 * HEIGHT * WIDTH + 2 * WIDTH + 1] = 200
    crowd_datum.data = bytes(content)
    small_datum = Datum(channels=6, height=60, width=60, data=bytes(6 * 60 * 60))
    for i, (datum, message) in enumerate(
        [
            (make_record(invalid_joints, visibility), "joints or a center up to .* and the scale"),
            (make_record(joints, visibility, scale=0), "joints or a center up to .* and the scale"),
            (signalling, "joints or a center up to nan pixels"),
            (crowd_datum, "200 other people needs 809"),
            (small_datum, "too small to describe 17 joints"),
            (Datum(channels=5, height=9, width=80, data=bytes(5 * 9 * 80)), "has 5 channels of uint8"),
        ]
    ):
        folder = tmp_path / str(i)
        folder.mkdir()
        write_lmdb(folder / "db", [(b"key", datum.SerializeToString())])
        with pytest.raises(DataError, match=f"record 'key' .*{message}"):
            open_source(net_text(folder, 56))


# of convolutional pose machines: each joint's two joints of the database, by the project's order of joints
CENTERED_JOINTS = {
    14: [(9, 9), (8, 8), (12, 12), (11, 11), (10, 10), (13, 13), (14, 14), (15, 15), (2, 2), (1, 1), (0, 0), (3, 3),
         (4, 4), (5, 5)],
    28: [(9, 9), (8, 8), (12, 12), (11, 11), (10, 10), (13, 13), (14, 14), (15, 15), (2, 2), (1, 1), (0, 0), (3, 3),
         (4, 4), (5, 5), (7, 7), (6, 6), (9, 8), (8, 12), (12, 11), (11, 10), (8, 13), (13, 14), (14, 15), (2, 1),
         (1, 0), (3, 4), (4, 5), (6, 7)],
    9: [(n, n) for n in range(9)],
}  # fmt: skip
CENTERED_MIRROR = {  # right and left joints, counted from 1 as in the project
    14: ([3, 4, 5, 9, 10, 11], [6, 7, 8, 12, 13, 14]),
    28: ([3, 4, 5, 9, 10, 11, 18, 19, 20, 24, 25], [6, 7, 8, 12, 13, 14, 21, 22, 23, 26, 27]),
    9: ([1, 2, 3, 7], [4, 5, 6, 8]),
}


def expected_joint_maps(
    people: list[np.ndarray], visible: list[np.ndarray], order: list[int], sigma: float, size: tuple[int, int]
) -> np.ndarray:
    """Return the maps of joints and background of some people, whose joints are shown in this order."""
    maps = np.zeros((len(order) + 1, size[0] // 8, size[1] // 8))
    for k, n in enumerate(order):
        points = [joints[n] for joints, shown in zip(people, visible, strict=True) if shown[n]]
        for row, column in np.ndindex(maps.shape[1:]):
            maps[k, row, column] = expected_gaussian(points, row, column, sigma)
    maps[-1] = 1 - maps[:-1].max(0)
    return maps


@pytest.mark.parametrize("flip", [None, 0, 1])
@pytest.mark.parametrize("num_parts", CENTERED_JOINTS)
def test_records_of_convolutional_pose_machines(
    tmp_path: Path, open_source: Any, num_parts: int, flip: int | None
) -> None:
    joints, visibility = make_people(43, count=3)
    joints[1, 13], joints[0, 11], visibility[0, 9] = (WIDTH, 3), (-1, 2), 3  # two outside; 3 is a visible joint
    record = make_centered_record(joints, visibility, center=(37, 29), scale=0.5)
    write_lmdb(tmp_path / "db", [(b"0", record.SerializeToString())])
    augmentation = f"""scale_prob: 0 max_rotate_degree: 0 center_perterb_max: 0 target_dist: 0.5 flip_prob: {flip or 0}
        crop_size_x: 40 crop_size_y: 32"""
    text = f"num_parts: {num_parts} np_in_lmdb: 16 sigma: 7 sigma_center: 5 {augmentation}"
    net = centered_net_text(tmp_path, text)
    data, label = next(open_source(net, "TEST" if flip is None else "TRAIN"))
    first, second = (np.array(joint_pair) for joint_pair in zip(*CENTERED_JOINTS[num_parts], strict=True))
    is_outside = ((joints < 0) | (joints >= (WIDTH, HEIGHT))).any(2)
    points, center, size = (joints[:, first] + joints[:, second]) / 2, np.array([37, 29.0]), (HEIGHT, WIDTH)
    image = np.frombuffer(record.data, np.uint8).reshape(4, HEIGHT, WIDTH)[:3]
    order = list(range(len(first)))
    if flip is not None:  # rotation by 0 degrees shifts by half a pixel, or by none
        image, size = data[0, :3], (32, 40)
        origin = center - (20, 16)
        points, center = points - origin, center - origin
    if flip:
        points[..., 0], center[0] = 39 - points[..., 0], 39 - center[0]
        for a, b in zip(*CENTERED_MIRROR[num_parts], strict=True):
            order[a - 1], order[b - 1] = b - 1, a - 1
    assert data.shape == (1, 4, *size)
    if flip is None:
        np.testing.assert_array_equal(data[0, :3], (image.astype(np.float32) - 128) / 256)
    shown = ~(is_outside[:, first] | is_outside[:, second])
    shift = find_shift(data[0, 3], center, 5)
    assert np.abs(shift).max() <= (0 if flip is None else 0.5)
    expected = np.concatenate(
        [expected_joint_maps(list(points[:n] + shift), list(shown[:n]), order, 7, size) for n in (1, 3)]
    )
    np.testing.assert_allclose(label[0], expected, atol=1e-5)


def find_shift(center_map: np.ndarray, center: np.ndarray, sigma: float) -> np.ndarray:
    """Check that a map is a Gaussian at most half a pixel from a center; return the distance (x, y) in pixels."""
    rows, columns = np.indices(center_map.shape)
    for x, y in itertools.product((0, -0.5, 0.5), repeat=2):
        exponent = ((columns - center[0] - x) ** 2 + (rows - center[1] - y) ** 2) / 2 / sigma**2
        if np.allclose(center_map, np.where(exponent > math.log(100), 0, np.exp(-exponent)), atol=1e-5):
            return np.array([x, y])
    raise AssertionError("the fourth channel is no Gaussian at the center")


def test_joints_of_the_database_and_images_without_a_center_map(tmp_path: Path, open_source: Any) -> None:
    joints, visibility = make_people(43, count=1)
    write_lmdb(tmp_path / "db", [(b"0", make_centered_record(joints, visibility).SerializeToString())])
    text = "num_parts: 14 np_in_lmdb: 16 transform_body_joint: false put_gaussian: false"
    data, label = next(open_source(centered_net_text(tmp_path, text)))
    assert data.shape == (1, 3, HEIGHT, WIDTH)
    expected = expected_joint_maps(list(joints), [np.ones(16, bool)], list(range(14)), 7, (HEIGHT, WIDTH))
    np.testing.assert_allclose(label[0], np.concatenate([expected, expected]), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("num_parts: 0", "num_parts must be from 1 to 1000, not 0"),
        ("num_parts: 20 np_in_lmdb: 16", "np_in_lmdb is 16, but the joints need 20"),
        ("num_parts: 14 sigma_center: 0", "sigma_center must be positive"),
        ("num_parts: 56 np_in_lmdb: 17", "has 4 channels of uint8; CPMData needs 6"),
        ("num_parts: 14 max_smooth: 3", "setting transform_param.max_smooth is not one of CPMData's"),
        ("num_parts: 14 } data_param { batch_size: 1", "cpmdata_param and data_param cannot be set together"),
    ],
)
def test_invalid_settings_of_convolutional_pose_machines_are_refused(
    tmp_path: Path, open_source: Any, settings: str, message: str
) -> None:
    write_lmdb(tmp_path / "db", [(b"0", make_centered_record(*make_people(43)).SerializeToString())])
    with pytest.raises(CaffejaxError, match=message):
        open_source(centered_net_text(tmp_path, settings))

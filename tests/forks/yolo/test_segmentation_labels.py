"""The third top of AnnotatedData, the segmentation, and LaneData, beside the loops of MobileNet-YOLO."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from caffejax.base.databases import write_lmdb
from caffejax.base.errors import DataError
from caffejax.core.schema.caffe_pb2 import AnnotatedDatum, Datum

SIDE, NUM_IMAGES = 64, 4
MAP = """
item { name: "sky" label: 0 label_id: 0 } item { name: "road" label: 7 label_id: 1 }
item { name: "car" label: 20 label_id: 2 } item { name: "bus" label: 21 label_id: 2 }
"""
PIXELS = (0, 7, 20, 21, 200)
RESIZE = f"resize_param {{ height: {SIDE} width: {SIDE} interp_mode: NEAREST }}"


def encode(pixels: np.ndarray) -> bytes:
    return cv2.imencode(".png", pixels)[1].tobytes()


def make_record(i: int, **fields: Any) -> AnnotatedDatum:
    """An image whose blue channel is its segmentation, which has half its size, with a box, and type BBOXandSeg."""
    rng = np.random.default_rng(i)
    labels = np.kron(rng.choice(PIXELS, (8, 8)), np.ones((4, 4))).astype(np.uint8)
    image = np.repeat(np.kron(labels, np.ones((2, 2), np.uint8))[..., None], 3, 2)
    datum = Datum(encoded=True, data=encode(image), **{"seg_label": encode(labels), **fields})
    datum.height, datum.width, datum.channels = *image.shape[:2], 3
    message = AnnotatedDatum(datum=datum, type=AnnotatedDatum.BBOXandSeg)
    box = message.annotation_group.add(group_label=1).annotation.add().bbox
    box.xmin, box.ymin, box.xmax, box.ymax = 0.25, 0.25, 0.75, 0.75
    return message


def write(folder: Path, records: list[AnnotatedDatum]) -> str:
    write_lmdb(folder / "db", [(b"%d" % i, record.SerializeToString()) for i, record in enumerate(records)])
    (folder / "map").write_text(MAP)
    return str(folder / "db")


def layer_text(source: Any, annotated: str = "", transform: str = RESIZE, layer_type: str = "AnnotatedData") -> str:
    return f"""layer {{ name: "d" type: "{layer_type}" top: "data" top: "label" top: "seg"
        transform_param {{ {transform} }} data_param {{ source: "{source}" backend: LMDB batch_size: {NUM_IMAGES} }}
        annotated_data_param {{ {annotated} }} }}"""


def shrink(mask: np.ndarray, n: int) -> np.ndarray:
    """The means of blocks of n x n pixels, rounded as OpenCV does: to the nearest integer."""
    means = mask.reshape(mask.shape[0] // n, n, mask.shape[1] // n, n).astype(np.float64).mean(axis=(1, 3))
    return np.rint(means)


def test_a_pixel_has_the_fraction_that_each_class_covers(tmp_path: Path, open_source: Any) -> None:
    source = write(tmp_path, [make_record(i) for i in range(NUM_IMAGES)])
    batches = open_source(
        layer_text(source, f'single_class: false seg_scales: 8 label_map_file: "{tmp_path}/map"'), "TEST"
    )
    assert [top.shape for top in batches.tops] == [(4, 3, SIDE, SIDE), (1, 1, 4, 8), (4, 2, 8, 8)]
    _, label, seg = next(batches)
    np.testing.assert_allclose(label[0, 0, :4, 3:7], 0.25 + np.array([[0, 0, 0.5, 0.5]] * 4))
    for i, classes in enumerate(seg):
        labels = cv2.imdecode(np.frombuffer(make_record(i).datum.seg_label, np.uint8), cv2.IMREAD_GRAYSCALE)
        for n, values in ((0, [7]), (1, [20, 21])):
            table = np.zeros(256, np.uint8)
            table[values] = 255
            np.testing.assert_allclose(classes[n], shrink(cv2.LUT(labels, table), 4) / 255, atol=1e-6)


def test_a_single_class_is_where_the_mean_is_above_100(tmp_path: Path, open_source: Any) -> None:
    source = write(tmp_path, [make_record(i) for i in range(NUM_IMAGES)])
    seg = next(open_source(layer_text(source, "seg_resize_width: 16 seg_resize_height: 8"), "TEST"))[2]
    assert seg.shape == (4, 1, 8, 16)
    labels = [
        cv2.imdecode(np.frombuffer(make_record(i).datum.seg_label, np.uint8), cv2.IMREAD_GRAYSCALE) for i in range(4)
    ]
    means = [x.reshape(8, 4, 16, 2).mean(axis=(1, 3)) for x in labels]
    np.testing.assert_array_equal(seg[:, 0], np.rint(means) > 100)


@pytest.mark.parametrize(
    "augment", ["yolo_data_type: 1 yolo_data_jitter: 0.5", "batch_sampler { sampler { min_scale: 0.5 } }"]
)
def test_the_segmentation_moves_with_the_image(augment: str, tmp_path: Path, open_source: Any) -> None:
    """The image shows its segmentation, so that both agree but at edges, where pixels are mixed."""
    source = write(tmp_path, [make_record(i) for i in range(NUM_IMAGES)])
    text = layer_text(
        source,
        f'single_class: false seg_scales: 4 label_map_file: "{tmp_path}/map" {augment}',
        f"mirror: true {RESIZE}",
    )
    batches = open_source(text, "TRAIN", seed=1)
    agreements = []
    for _ in range(4):
        data, _, seg = map(np.asarray, next(batches))
        for image, classes in zip(data, seg, strict=True):
            shown = np.stack([image[0] == 7, (image[0] == 20) | (image[0] == 21)])
            expected = shown.reshape(2, 16, 4, 16, 4).mean(axis=(2, 4))
            agreements.append(np.mean(np.abs(classes - expected) < 0.4))
    assert min(agreements) > 0.8  # crops begin at whole pixels, which are larger in the segmentation
    assert np.mean(agreements) > 0.95


def test_several_sizes_have_segmentations_of_their_sizes(tmp_path: Path, open_source: Any) -> None:
    source = write(tmp_path, [make_record(i) for i in range(NUM_IMAGES)])
    sizes = " ".join(f"resize_param {{ prob: {p} height: {n} width: {n} }}" for n, p in ((64, 0.497), (96, 0.5)))
    batches = open_source(layer_text(source, "seg_scales: 8", sizes), "TRAIN", seed=3)
    shapes = {(data.shape[2], seg.shape[2]) for data, _, seg in (next(batches) for _ in range(40))}
    assert shapes == {(64, 8), (96, 12)}


LANES = [[(0.2, 0.1), (0.3, 0.5), (0.3, 0.9)], [(-2.0, 0.1), (0.8, 0.5), (0.6, 0.75), (1.2, 0.9)]]


def make_lanes(lanes: list[list[tuple[float, float]]]) -> AnnotatedDatum:
    message = make_record(0)
    message.type = AnnotatedDatum.LANE
    del message.annotation_group[:]
    for nodes in lanes:
        group = message.annotation_group.add()
        for x, y in nodes:
            node = group.annotation.add().lanes
            node.x, node.y = x, y
    return message


def reference_lanes(lanes: list[list[tuple[float, float]]], size: int) -> tuple[np.ndarray, np.ndarray]:
    """MobileNet-YOLO's loop over nodes, for the whole image."""
    label, canvas = np.zeros((5, 64, 3), np.float32), np.zeros((size, size), np.uint8)
    label[..., 2] = -1
    for i, nodes in enumerate(lanes):
        last: tuple[float, float] | None = None
        for j in range(len(nodes)):
            x, y = nodes[len(nodes) - 1 - j]
            is_inside = 0 <= x <= 1 and 0 <= y <= 1
            label[i, j] = x, y, i if is_inside else -1
            if is_inside:
                if last is not None:
                    cv2.line(canvas, (int(x * size), int(y * size)), (int(last[0] * size), int(last[1] * size)), 255, 1)
                last = x, y
    return label, canvas / 255


@pytest.mark.parametrize("mirror", [False, True])
def test_lanes_equal_the_loop(mirror: bool, tmp_path: Path, open_source: Any) -> None:
    source = write(tmp_path, [make_lanes(LANES)])
    text = layer_text(source, "seg_scales: 4", f"{'mirror: true' if mirror else ''} {RESIZE}", "LaneData")
    batches = open_source(text, "TRAIN", seed=2)
    assert [top.shape for top in batches.tops] == [(4, 3, SIDE, SIDE), (4, 5, 64, 3), (4, 1, 16, 16)]
    _, label, seg = (np.concatenate(arrays) for arrays in zip(*(next(batches) for _ in range(3)), strict=True))
    expected, canvas = reference_lanes(LANES, 16)
    assert canvas.sum() > 15
    is_flipped = [not np.array_equal(image[0], canvas) for image in seg]
    assert set(is_flipped) == ({False, True} if mirror else {False})
    for rows, image, flip in zip(label, seg, is_flipped, strict=True):
        np.testing.assert_array_equal(image[0], canvas[:, ::-1] if flip else canvas)
        nodes = expected.copy()
        nodes[:, :, 0] = np.where(np.any(expected[..., :2] != 0, axis=-1) & flip, 1 - nodes[:, :, 0], nodes[:, :, 0])
        np.testing.assert_allclose(rows, nodes, atol=1e-6)


def test_lanes_are_cropped_with_the_image(tmp_path: Path, open_source: Any) -> None:
    """The crop's sides follow from the nodes of the first lane, whose distances are known."""
    batches = open_source(
        layer_text(write(tmp_path, [make_lanes(LANES)]), "yolo_data_type: 1 seg_scales: 2", RESIZE, "LaneData"), "TRAIN"
    )
    _, label, seg = next(batches)
    scales = []
    for rows, image in zip(label, seg, strict=True):
        x_scale, y_scale = (rows[0, 0, :2] - rows[0, 2, :2]) / [0.1, 0.8]
        assert 1 <= x_scale < 1.5
        assert 1 <= y_scale < 1.5
        scales += [x_scale, y_scale]
        for x, y, lane in rows.reshape(-1, 3):
            column, row = int(x * 32), int(y * 32)
            if lane >= 0 and column < 32 and row < 32:
                assert image[0, row, column] == 1
    assert max(scales) > 1.05


BAD_MAP = 'item { name: "x" label: 256 label_id: 1 } item { name: "y" label: 1 } item { name: "z" label: 1 }'


@pytest.mark.parametrize(
    ("annotated", "transform", "message"),
    [
        ("single_class: false", RESIZE, "label_map_file must name the classes"),
        ("seg_scales: 0", RESIZE, "seg_scales must be 1 or more"),
        ("seg_scales: 65", RESIZE, "record '0' becomes 64x64 .*, smaller than annotated_data_param.seg_scales"),
        ("seg_resize_width: 9", RESIZE, "seg_resize_width 9 and seg_resize_height 0; both must be positive"),
        ("", f"crop_size: 9 {RESIZE}", "a crop, which would not move the segmentation"),
        ("", f"expand_param {{ prob: 1 }} {RESIZE}", "expand_param would not move the segmentation"),
        ("", "resize_param { height: 9 width: 9 resize_mode: FIT_SMALL_SIZE }", "resize_mode must be WARP"),
        ('single_class: false label_map_file: "bad"', RESIZE, "bad: .*item 'x' has label 256"),
        ('single_class: false label_map_file: "bad"', RESIZE, "bad: .*label 1 occurs twice"),
        ('single_class: false label_map_file: "empty"', RESIZE, "empty: .*no item has a label_id above 0"),
        ('single_class: false label_map_file: "junk"', RESIZE, "junk: .*is not a map of pixels to classes"),
        (
            'single_class: false label_map_file: "bytes"',
            RESIZE,
            "bytes: .*classes: 'utf-8' codec can't decode byte 0xff",
        ),
        ('single_class: false label_map_file: "none"', RESIZE, "none: .*[Nn]o such file"),
    ],
)
def test_invalid_settings_are_refused(
    annotated: str, transform: str, message: str, tmp_path: Path, open_source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name, text in (("bad", BAD_MAP), ("empty", 'item { name: "x" label: 1 }'), ("junk", "item {")):
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        open_source(layer_text(write(tmp_path, [make_record(0)]), annotated, transform))


@pytest.mark.parametrize(
    ("record", "layer_type", "message"),
    [
        (lambda: make_record(0, seg_label=b""), "AnnotatedData", "record '0' has no seg_label"),
        (
            lambda: make_record(0, seg_label=b"junk"),
            "AnnotatedData",
            "record '0' its image of 4 bytes cannot be decoded",
        ),
        (lambda: make_record(0), "LaneData", "record '0' has annotations of type BBOXandSeg, not LANE"),
        (lambda: make_lanes([[(float("nan"), 0)]]), "LaneData", r"invalid node of a lane \(nan, 0\)"),
    ],
)
def test_invalid_records_are_named(
    record: Callable[[], AnnotatedDatum], layer_type: str, message: str, tmp_path: Path, open_source: Any
) -> None:
    with pytest.raises(DataError, match=message):
        open_source(layer_text(write(tmp_path, [record()]), layer_type=layer_type))


def test_the_fields_number_is_that_of_the_fork() -> None:
    assert Datum.DESCRIPTOR.fields_by_name["seg_label"].number == 8

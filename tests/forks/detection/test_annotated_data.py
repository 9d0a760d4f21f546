"""AnnotatedData beyond the recorded cases: random steps, label padding, and invalid settings and records."""

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffejax.base.databases import write_lmdb
from caffejax.base.errors import DataError
from caffejax.core.layers.row_padding import strip_padding
from caffejax.core.schema import caffe_pb2
from caffejax.forks.detection.data.annotated_data import choose_num_rows, make_label_top, make_yolo_label
from caffejax.forks.detection.data.annotated_datum import write_annotated
from caffejax.forks.detection.data.ssd_augmentation import jitter_window

COLORS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)
RANDOM_SAMPLER = "sampler { min_scale: 0.2 min_aspect_ratio: 0.5 max_aspect_ratio: 2 } max_sample: 1"


def make_image(i: int) -> tuple[np.ndarray, np.ndarray]:
    """A black image with three coloured rectangles, and boxes that say where they are."""
    rng = np.random.default_rng(i)
    image = np.zeros((90 + i, 120 - i, 3), np.uint8)
    h, w = image.shape[:2]
    objects = []
    for n, color in enumerate(COLORS):
        x1, y1 = 40 * n + rng.integers(8), rng.integers(5, 40)
        x2, y2 = min(w, x1 + rng.integers(16, 28)), y1 + rng.integers(20, 45)
        image[y1:y2, x1:x2] = color
        objects.append([n + 1, 0, x1 / w, y1 / h, x2 / w, y2 / h, n == 2])
    return image, np.array(objects, np.float32)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("annotated") / "db"
    write_annotated(path, map(make_image, range(7)))
    return path


def layer_text(
    source: Any, transform: str = "", annotated: str = "", data: str = "", tops: str = 'top: "data" top: "label"'
) -> str:
    return f"""layer {{ name: "d" type: "AnnotatedData" {tops} transform_param {{ {transform} }}
        data_param {{ source: "{source}" backend: LMDB batch_size: 4 }}
        annotated_data_param {{ {annotated} }} }}"""


SIZE = "resize_param { height: 100 width: 100 interp_mode: NEAREST }"
RANDOM_TRANSFORMS = {
    "mirror": f"mirror: true {SIZE}",
    "crop": f"crop_h: 60 crop_w: 80 mirror: true {SIZE}",
    "expand": f"{SIZE} expand_param {{ max_expand_ratio: 2 }}",
    "sample": SIZE,
    "pad": "resize_param { height: 100 width: 160 resize_mode: FIT_LARGE_SIZE_AND_PAD interp_mode: NEAREST }",
}


@pytest.mark.parametrize("name", RANDOM_TRANSFORMS)
def test_boxes_move_with_their_objects(database, open_source, name):
    """The middle of every box that the net sees has the object's colour, and the pixels just outside do not."""
    sampler = "batch_sampler { sampler { min_scale: 0.6 min_aspect_ratio: 0.8 } }" if name == "sample" else ""
    source = open_source(layer_text(database, RANDOM_TRANSFORMS[name], sampler), "TRAIN", seed=5)
    num_checked_boxes = 0
    for _ in range(4):
        data, label = next(source)
        for image, label_class, _, x1, y1, x2, y2, difficult in strip_padding(label)[0, 0]:
            pixels = data[int(image)].transpose(1, 2, 0)
            h, w = pixels.shape[:2]
            left, top, right, bottom = x1 * w, y1 * h, x2 * w, y2 * h
            if right - left < 8 or bottom - top < 8:
                continue
            num_checked_boxes += 1
            assert difficult == (label_class == 3)
            inner_pixels = pixels[int(top + 3) : int(bottom - 3), int(left + 3) : int(right - 3)]
            assert (inner_pixels == COLORS[int(label_class) - 1]).all()
            outer_pixels = pixels[max(0, int(top) - 2) : int(bottom) + 3, max(0, int(left) - 2) : int(right) + 3]
            has_color = (outer_pixels == COLORS[int(label_class) - 1]).all(axis=2)
            assert has_color.sum() <= (right - left + 4) * (bottom - top + 4)
    assert num_checked_boxes > 20


def test_augmentation_depends_only_on_example_and_seed(database, open_source):
    transform = f"mirror: true {SIZE} expand_param {{ max_expand_ratio: 3 }} crop_size: 90 " + (
        "distort_param { brightness_prob: 0.5 brightness_delta: 32 hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 "
        "saturation_lower: 0.5 saturation_upper: 1.5 contrast_prob: 0.5 contrast_lower: 0.5 contrast_upper: 1.5 "
        "random_order_prob: 0.5 }"
    )
    net = layer_text(
        database, transform, f"batch_sampler {{ {RANDOM_SAMPLER} sample_constraint {{ min_jaccard_overlap: 0.3 }} }}"
    )
    batches = [next(source) for source in [open_source(net, "TRAIN", seed=1)] for _ in range(4)]
    option_sets: tuple[dict[str, int], ...] = {"seed": 1}, {"seed": 2}, {"seed": 1, "workers": 1}
    resumed_source, other_source, worker_source = (open_source(net, "TRAIN", **options) for options in option_sets)
    resumed_source.set_state({"examples": 8})
    worker_source.set_state({"examples": 4})
    for expected, result in [
        (batches[2], next(resumed_source)),
        (batches[1], next(worker_source)),
        (batches[2], next(worker_source)),
    ]:
        for a, b in zip(expected, result, strict=True):
            np.testing.assert_array_equal(a, b)
    assert not np.array_equal(batches[0][0], next(other_source)[0])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 6))
def test_padded_rows_come_last(counts, exponent):
    objects = [np.arange(7 * num_objects, dtype=np.float32).reshape(num_objects, 7) for num_objects in counts]
    label, num_objects = make_label_top(objects, 2**exponent), sum(counts)
    num_rows = label.shape[2]
    assert label.shape == (1, 1, num_rows, 8)
    assert num_rows & (num_rows - 1) == 0
    assert num_rows == 2**exponent or num_rows < 2 * num_objects
    assert (label[0, 0, num_objects:] == -1).all()
    np.testing.assert_array_equal(label[0, 0, :num_objects, 1:], np.concatenate(objects))
    np.testing.assert_array_equal(label[0, 0, :num_objects, 0], np.repeat(np.arange(len(counts)), counts))


def test_the_probe_reserves_rows_for_nearly_all_batches(database, open_source):
    assert choose_num_rows([3] * 7, 4) == 16
    assert choose_num_rows([0, 0], 4) == 1
    box_counts = np.random.default_rng(0).poisson(2.5, 10_000)
    num_rows = choose_num_rows(box_counts[:128].tolist(), 32)
    assert num_rows == 128
    assert box_counts[:9984].reshape(-1, 32).sum(axis=1).max() <= num_rows
    source = open_source(layer_text(database, SIZE))
    assert [top.shape for top in source.tops] == [(4, 3, 100, 100), (1, 1, 16, 8)]
    assert next(source)[1].shape == (1, 1, 16, 8)


def test_one_top_has_no_boxes_and_records_without_a_type_have_labels(open_source, tmp_path):
    image = cv2.imencode(".png", make_image(0)[0])[1].tobytes()

    def make_record(label):
        datum = caffe_pb2.Datum(encoded=True, data=image, label=label)
        return caffe_pb2.AnnotatedDatum(datum=datum).SerializeToString()

    write_lmdb(tmp_path / "db", [(b"%d" % i, make_record(i)) for i in range(3)])
    assert next(open_source(layer_text(tmp_path / "db")))[1].tolist() == [0, 1, 2, 0]
    assert [top.shape for top in open_source(layer_text(tmp_path / "db", tops='top: "data"')).tops] == [(4, 3, 90, 120)]
    box_source = open_source(layer_text(tmp_path / "db", annotated="anno_type: BBOX"))
    assert (next(box_source)[1] == np.full((1, 1, 1, 8), -1)).all()


def test_records_without_boxes_or_images_are_named(open_source, tmp_path, database):
    image = cv2.imencode(".png", make_image(0)[0])[1].tobytes()
    box_datum = caffe_pb2.AnnotatedDatum(
        datum=caffe_pb2.Datum(encoded=True, data=image), type=caffe_pb2.AnnotatedDatum.BBOX
    )
    typeless_datum = caffe_pb2.AnnotatedDatum(datum=caffe_pb2.Datum(encoded=True, data=image))
    for name, second_record, message in [
        ("typeless", typeless_datum.SerializeToString(), "record 'b' has annotations of type none, not BBOX"),
        ("broken", b"\xff", "record 'b' is not an AnnotatedDatum"),
        ("imageless", b"", "record 'b' contains no image"),
    ]:
        write_lmdb(tmp_path / name, [(b"a", box_datum.SerializeToString()), (b"b", second_record)])
        with pytest.raises(DataError, match=message):
            next(open_source(layer_text(tmp_path / name, SIZE)))
    assert len(strip_padding(next(open_source(layer_text(tmp_path / "broken", SIZE), skip_bad=True))[1])[0, 0]) == 0


NOISE_CHECKS = {
    "decolorize: true": lambda x: (x[:, 0] == x[:, 1]) & (x[:, 1] == x[:, 2]),
    "inverse: true": lambda x: x[:, 0] >= 0,
    "posterize: true": lambda x: np.isin(x[:, 0], [32, 96, 160, 224]),
    "hist_eq: true clahe: true erode: true gauss_blur: true jpeg: 50": lambda x: x[:, 0] >= 0,
    "convert_to_hsv: true": lambda x: x[:, 0] <= 180,
    "convert_to_lab: true": lambda x: x[:, 0] <= 100,
    "saltpepper: true saltpepper_param { fraction: 1 value: 7 }": lambda x: (x == 7).all(axis=1) | (x[:, 0] >= 0),
}


@pytest.mark.parametrize("noise", NOISE_CHECKS)
def test_noise_changes_pixels_by_its_settings(database, open_source, noise):
    data, _ = next(open_source(layer_text(database, f"{SIZE} noise_param {{ {noise} }}")))
    original, _ = next(open_source(layer_text(database, SIZE)))
    assert NOISE_CHECKS[noise](data).all()
    assert not np.array_equal(data, original)
    if noise.startswith("inverse"):
        np.testing.assert_array_equal(data, 255 - original)
    if noise.startswith("salt"):
        assert 0.5 < (data == 7).mean() < 0.75  # 1 - 1/e, drawn with repetition


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transform": "resize_param { height: 5 }"}, "resize_param has height 5 and width 0"),
        ({"transform": f"{SIZE} {SIZE}"}, "several resize_param, but their prob do not add up to 1"),
        ({"transform": "crop_h: 5"}, "only one of crop_h and crop_w"),
        ({"transform": "crop_size: 5 crop_h: 5 crop_w: 5"}, "both crop_size and crop_h"),
        ({"transform": "crop_size: 95"}, "record '00000000' is 3x90x120 .*, smaller than crop_size 95"),
        ({"transform": "expand_param { max_expand_ratio: 0.5 }"}, "max_expand_ratio must be 1 or more"),
        ({"transform": 'mean_file: "x"'}, "x: .* no such file"),
        ({"transform": 'mean_file: "x" expand_param { }'}, "both expand_param and mean_file"),
        ({"transform": "distort_param { hue_delta: -1 }"}, "hue_delta must be 0 or more, not -1"),
        ({"transform": "distort_param { brightness_delta: nan }"}, "brightness_delta must be 0 or more, not nan"),
        ({"transform": "expand_param { max_expand_ratio: 1e30 }"}, "max_expand_ratio must be .* at most 100, not 1e"),
        ({"transform": "resize_param { height: 4294967295 width: 5 }"}, "both must be positive, and at most 32767"),
        ({"annotated": "batch_sampler { max_trials: 4294967295 }"}, "batch_sampler 0: max_trials must be at most"),
        (
            {"transform": "distort_param { contrast_prob: 1 contrast_lower: 2 }"},
            "contrast_lower 2 and contrast_upper 0",
        ),
        ({"transform": "noise_param { saltpepper: true }"}, "saltpepper_param.value is not set"),
        ({"transform": "force_gray: true distort_param { }"}, "record '00000000' has 1 channels .* force_color"),
        ({"transform": "flow: true"}, "transform_param.flow is not supported"),
        ({"annotated": "anno_type: LANE"}, "anno_type must be BBOX"),
        ({"annotated": "yolo_data_type: 2"}, "yolo_data_type must be 0 or 1, not 2"),
        ({"annotated": "yolo_data_jitter: 1"}, "yolo_data_jitter must be at least 0 and below 1, not 1"),
        ({"annotated": "seg_scales: 4"}, "seg_scales is about a third top"),
        ({"annotated": "batch_sampler { sampler { min_scale: 0 } }"}, "batch_sampler 0: scales must be"),
        ({"annotated": "batch_sampler { sampler { min_aspect_ratio: 3 } }"}, "batch_sampler 0: aspect ratios must be"),
        ({}, "becomes 3x91x119 .*, but the batch's first image becomes 3x90x120"),
    ],
)
def test_invalid_settings_are_refused(database, open_source, settings, message):
    with pytest.raises(DataError, match=message):
        next(open_source(layer_text(database, **settings)))


def test_height_scale_and_width_scale_change_only_the_boxes(database, open_source):
    resize_settings = "resize_mode: FIT_SMALL_SIZE height: 60 width: 60"
    plain_batch, scaled_batch = (
        next(open_source(layer_text(database, f"crop_size: 50 resize_param {{ {resize_settings} {scales} }}")))
        for scales in ("", "height_scale: 25 width_scale: 20")
    )
    np.testing.assert_array_equal(plain_batch[0], scaled_batch[0])
    # a crop of 50 x 50 of images whose other side is not whole: by the share of the exact size
    exact_widths = [60 * (120 - i) / (90 + i) for i in range(4)]
    rounded_widths = np.floor(exact_widths)
    for plain_row, scaled_row in zip(
        strip_padding(plain_batch[1])[0, 0], strip_padding(scaled_batch[1])[0, 0], strict=True
    ):
        width = 50 / rounded_widths[int(plain_row[0])] * exact_widths[int(plain_row[0])]
        expected = plain_row[3:7] * np.array([width / 20, 50 / 25] * 2)
        np.testing.assert_allclose(scaled_row[3:7], expected, rtol=1e-5)


def test_label_map_is_checked_if_it_exists(database, open_source, tmp_path, caplog):
    items = [f'item {{ name: "{n}" label: {n} }}' for n in range(4)]
    (tmp_path / "map").write_text("\n".join(items))
    (tmp_path / "short").write_text("\n".join(items[:2]))
    (tmp_path / "junk").write_text("junk")

    def open_with_map(name):
        return open_source(layer_text(database, SIZE, f'label_map_file: "{tmp_path}/{name}"'))

    open_with_map("map")
    assert not caplog.records
    open_with_map("nowhere")
    assert "there is no label map" in caplog.text
    with pytest.raises(DataError, match=r"classes that label map .*short does not have: 2, 3"):
        open_with_map("short")
    with pytest.raises(DataError, match=r"junk: .*is not a label map"):
        open_with_map("junk")


@pytest.mark.parametrize("with_difficult", [True, False])
def test_labels_of_yolo_equal_loops(with_difficult: bool) -> None:
    """As MobileNet-YOLO does it, but that more than 300 objects are cut off."""
    random = np.random.default_rng(0)
    images = []
    for count in (0, 3, 310, 1):
        objects = random.random((count, 7)).astype(np.float32)
        objects[:, 0], objects[:, 6] = random.integers(1, 5, count), random.integers(2, size=count)
        images.append(objects)
    expected = np.zeros((4, 1, 300, 5), np.float32)
    for n, objects in enumerate(images):
        row = 0
        for label, _, x1, y1, x2, y2, difficult in objects:
            if row < 300 and (with_difficult or not difficult):
                expected[n, 0, row] = [label - 1, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]
                row += 1
    np.testing.assert_allclose(make_yolo_label(images, with_difficult=with_difficult), expected, rtol=1e-6)


def test_yolo_reads_jittered_images_of_several_sizes(database: Any, open_source: Any) -> None:
    """Colored rectangles are where the labels say, and ten batches have one size."""
    sizes = " ".join(f"resize_param {{ prob: 0.5 height: {n} width: {n} interp_mode: NEAREST }}" for n in (96, 128))
    source = open_source(layer_text(database, sizes, "yolo_data_type: 1 train_diffcult: false"), phase="TRAIN", seed=3)
    seen = []
    for _ in range(40):
        data, label = map(np.asarray, next(source))
        seen.append(data.shape[2])
        assert data.shape == (4, 3, seen[-1], seen[-1])
        assert label.shape == (4, 1, 300, 5)
        for image, rows in zip(data, label[:, 0], strict=True):
            valid = rows[rows[:, 3] > 0]
            assert not np.any(rows[len(valid) :])
            assert set(valid[:, 0]) <= {0, 1}  # the third object is difficult
            for class_index, *center_and_sides in valid:
                x, y, width, height = np.array(center_and_sides) * seen[-1]
                rows_and_columns = np.nonzero((image == COLORS[int(class_index)][:, None, None]).all(axis=0))
                found = [(indices.min(), indices.max() + 1) for indices in reversed(rows_and_columns)]
                expected = [(x - width / 2, x + width / 2), (y - height / 2, y + height / 2)]
                np.testing.assert_allclose(found, expected, atol=4)  # corners of crops are whole pixels
    assert set(seen) == {96, 128}
    assert all(len(set(seen[start : start + 10])) == 1 for start in range(0, 40, 10))


def test_the_jitter_has_the_probabilities_of_mobilenet_yolo() -> None:
    random = np.random.default_rng(0)
    windows = np.array([jitter_window(0.4, keeps_aspect=False, rng=random) for _ in range(4000)])
    sides = windows[:, 2:] - windows[:, :2]
    assert windows.min() >= 0
    assert windows.max() <= 1 + 1e-6
    assert sides.min() > 0.6 - 1e-6
    assert np.mean(np.all(sides > 1 - 1e-6, axis=1)) == pytest.approx(0.2, abs=0.03)
    # below 0.8 are sides of the whole jitter alone, half of them
    assert np.mean(sides[:, 0] < 0.8) == pytest.approx(0.6 / 2, abs=0.03)
    same = np.array([jitter_window(0.4, keeps_aspect=True, rng=random) for _ in range(50)])
    np.testing.assert_allclose(same[:, 2] - same[:, 0], same[:, 3] - same[:, 1], atol=1e-6)

"""Data: the questions of every type, and beyond the recorded batches: wrapping, settings, and invalid databases."""

from pathlib import Path

import numpy as np
import pytest

from caffejax.base.databases import write_leveldb, write_lmdb
from caffejax.base.errors import DataError
from caffejax.core.schema import caffe_pb2
from layer_suite import Case, properties

DIGITS = Path(__file__).parents[3] / "configs" / "digits" / "digits_test_lmdb"


def digits_layer(rows: int) -> str:
    param = f'data_param {{ source: "{DIGITS}" batch_size: {rows} backend: LMDB }}'
    return f'layer {{ name: "layer" type: "Data" top: "t0" top: "t1" {param} }}'


test_properties = properties(Case("Data", digits_layer, {}))


@pytest.fixture
def mean_file(tmp_path):
    """A mean of 2x6x7."""
    return write_mean(tmp_path / "mean.binaryproto", (1, 2, 6, 7))


def write_mean(path, shape, legacy_shape=True, double_data=False):
    values = np.arange(np.prod(shape)).tolist()
    blob = caffe_pb2.BlobProto(**{"double_data" if double_data else "data": values})
    if legacy_shape:
        blob.num, blob.channels, blob.height, blob.width = shape
    else:
        blob.shape.dim.extend(shape)
    path.write_bytes(blob.SerializeToString())
    return path


def read_labels(source, num_batches):
    return [next(source)[1].tolist() for _ in range(num_batches)]


def test_first_record_follows_the_last(open_source, data_layer_text, raw_db):
    source = open_source(data_layer_text(raw_db, batch_size=5))
    assert read_labels(source, 4) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 0, 1], [2, 3, 4, 5, 6]]


def test_source_may_be_relative_to_the_folder_of_the_net(open_source, data_layer_text, raw_db):
    source = open_source(data_layer_text(raw_db.name), folder=raw_db.parent)
    assert read_labels(source, 1) == [[0, 1, 2, 3]]


def test_the_seed_determines_where_rand_skip_starts(open_source, data_layer_text, raw_db):
    net = data_layer_text(raw_db, batch_size=1, data="backend: LMDB rand_skip: 6")
    starts = []
    for seed in range(40):
        first, second = read_labels(open_source(net, seed=seed), 2)
        assert second[0] == first[0] + 1
        assert read_labels(open_source(net, seed=seed), 1) == [first]
        starts.append(first[0])
    assert set(starts) == set(range(6))


def test_layers_have_different_random_crops(open_source, data_layer_text, raw_db):
    net = data_layer_text(raw_db, 13, "crop_size: 3")
    first, second = open_source(net, "TRAIN"), open_source(net.replace('name: "d"', 'name: "e"'), "TRAIN")
    assert not np.array_equal(next(first)[0], next(second)[0])


def test_test_phase_crops_the_center_and_mirrors_at_random(open_source, data_layer_text, raw_db):
    full_images = next(open_source(data_layer_text(raw_db, 13)))[0]
    center_crops = full_images[:, :, 1:5, 1:5]  # of 6x7
    num_mirrored = 0
    crops = next(open_source(data_layer_text(raw_db, 13, "crop_size: 4 mirror: true")))[0]
    for image, expected in zip(crops, center_crops, strict=True):
        if not np.array_equal(image, expected):
            np.testing.assert_array_equal(image, expected[..., ::-1])
            num_mirrored += 1
    assert 0 < num_mirrored < 13


@pytest.mark.parametrize("legacy_shape", [True, False])
@pytest.mark.parametrize("double_data", [True, False])
def test_mean_files_with_all_fields_are_subtracted(
    open_source, data_layer_text, raw_db, tmp_path, legacy_shape, double_data
):
    path = write_mean(tmp_path / "m", (1, 2, 6, 7), legacy_shape, double_data)
    plain_images = next(open_source(data_layer_text(raw_db)))[0]
    transformed_images = next(open_source(data_layer_text(raw_db, transform=f'mean_file: "{path}" scale: 0.5')))[0]
    np.testing.assert_array_equal(
        transformed_images, (plain_images - np.arange(84, dtype=np.float32).reshape(2, 6, 7)) / 2
    )


def get_error_message(open_source, net, **kwargs):
    with pytest.raises(DataError) as exc_info:
        next(open_source(net, **kwargs))
    assert "layer 'd' (Data)" in str(exc_info.value)
    return str(exc_info.value)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ('mean_file: "{mean}" mean_value: 3', "both mean_file and mean_value"),
        (
            "mean_value: 1 mean_value: 2 mean_value: 3",
            "record '000' has 2 channels, but mean_value is set 3 times",
        ),
        ("crop_size: 7", "record '000' is 2x6x7 (CxHxW), smaller than crop_size 7"),
        ("force_color: true force_gray: true", "both force_color and force_gray"),
        ('mean_file: "nowhere"', "nowhere: layer 'd' (Data): mean_file: no such file"),
        ('mean_file: "{junk}"', "mean_file: is not a .binaryproto file, or is damaged"),
        ('mean_file: "{large}" crop_size: 5', "must be equal, even with a crop_size"),
        ('mean_file: "{two}"', "mean_file has shape 2x2x6x7; it must be one image"),
        (
            'mean_file: "{blank}"',
            "mean_file: is not a .binaryproto file, or is damaged or truncated: the file is empty",
        ),
        ("pad: 3 flow: true", "transform_param.pad is not supported yet"),
        ("pad: 3 flow: true", "transform_param.flow is not supported yet"),
        ("label_mapping {{ mapping {{ original: 1 }} }}", "transform_param.label_mapping is not supported"),
    ],
)
def test_invalid_transformations_are_refused(
    open_source, data_layer_text, raw_db, mean_file, tmp_path, transform, message
):
    (tmp_path / "junk").write_bytes(b"\xff\xff\xff")
    (tmp_path / "blank").write_bytes(b"")
    files = {
        "mean": mean_file,
        "junk": tmp_path / "junk",
        "blank": tmp_path / "blank",
        "large": write_mean(tmp_path / "large", (1, 2, 7, 7)),
        "two": write_mean(tmp_path / "two", (2, 2, 6, 7)),
    }
    assert message in get_error_message(open_source, data_layer_text(raw_db, transform=transform.format(**files)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("backend: LMDB prefetch: 0", "prefetch must be 1 to 1024 batches, not 0"),
        ("", "is an LMDB, not a LevelDB, which is the default backend; set backend: LMDB"),
        ("backend: LMDB permute_every_iter: 2", "data_param.permute_every_iter is not supported yet"),
    ],
)
def test_invalid_settings_are_refused(open_source, data_layer_text, raw_db, data, message):
    assert message in get_error_message(open_source, data_layer_text(raw_db, data=data))


def test_a_batch_size_is_required(open_source, data_layer_text, raw_db):
    assert "batch_size must be 1 or more" in get_error_message(open_source, data_layer_text(raw_db, batch_size=0))


def test_a_source_is_required(open_source):
    net = 'layer { name: "d" type: "Data" top: "data" data_param { batch_size: 3 } }'
    assert "data_param has no source" in get_error_message(open_source, net)


def test_the_default_backend_is_leveldb(open_source, data_layer_text, tmp_path):
    write_leveldb(tmp_path / "db", [(b"%d" % i, make_datum(i)) for i in range(3)])
    for data in ("", "backend: LEVELDB"):
        assert read_labels(open_source(data_layer_text(tmp_path / "db", data=data)), 2) == [[0, 1, 2, 0], [1, 2, 0, 1]]
    assert "is a LevelDB, not an LMDB" in get_error_message(open_source, data_layer_text(tmp_path / "db"))
    assert "no such folder" in get_error_message(open_source, data_layer_text(tmp_path / "no", data=""))


def make_datum(label):
    return caffe_pb2.Datum(channels=1, height=1, width=2, data=b"ab", label=label).SerializeToString()


@pytest.mark.parametrize(
    ("third_record", "message"),
    [
        (b"\xff\xff", "record 'c' is not a Datum"),
        ((2, 6, 6), "record 'c' becomes 2x6x6 (CxHxW), but the batch's"),
        ((3, 6, 7), "record 'c' becomes 3x6x7 (CxHxW), but the batch's"),
    ],
)
def test_a_bad_record_is_named_when_its_batch_is_read(
    open_source, data_layer_text, make_raw_datum, tmp_path, third_record, message
):
    good_record, bad_record = (
        make_raw_datum(1),
        third_record if isinstance(third_record, bytes) else make_raw_datum(1, third_record),
    )
    write_lmdb(tmp_path / "db", [(b"a", good_record), (b"b", good_record), (b"c", bad_record), (b"d", good_record)])
    source = open_source(data_layer_text(tmp_path / "db", batch_size=2))
    assert read_labels(source, 1) == [[1, 1]]
    if isinstance(third_record, bytes):
        with pytest.raises(DataError, match="record 'c'"):
            next(source)
    net = data_layer_text(tmp_path / "db", batch_size=3)
    assert f"{tmp_path / 'db'}: layer 'd' (Data): {message}" in get_error_message(open_source, net)

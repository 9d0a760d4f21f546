"""Settings of forks for Data and ImageData: a random order of records, and other sizes of images."""

import cv2
import numpy as np
import pytest

from caffejax.base.databases import Lmdb, write_leveldb
from caffejax.base.errors import DataError


def read_labels(source, num_batches):
    return [next(source)[1].tolist() for _ in range(num_batches)]


def layer_text(source, settings, batch_size=3):
    return f"""layer {{ name: "d" type: "ImageData" top: "data" top: "label"
        image_data_param {{ source: "{source}" batch_size: {batch_size} {settings} }} }}"""


@pytest.mark.parametrize("backend", ["LMDB", "LEVELDB"])
def test_seed_determines_the_shuffled_order_of_each_epoch(open_source, data_layer_text, raw_db, tmp_path, backend):
    source = raw_db
    if backend == "LEVELDB":
        source = tmp_path / "db"
        write_leveldb(source, Lmdb(raw_db))
    net = data_layer_text(source, data=f"backend: {backend} shuffle: true rand_skip: 3")
    order = np.concatenate(read_labels(open_source(net, seed=1), 16))  # of batches of 4
    assert np.array_equal(order, np.concatenate(read_labels(open_source(net, seed=1), 16)))
    resumed_source = open_source(net, seed=1)
    resumed_source.set_state({"examples": 8})
    assert np.array_equal(np.concatenate(read_labels(resumed_source, 14)), order[8:])
    skips = [n for n in range(3) if all(len(set(order[k : k + 13])) == 13 for k in (13 - n, 26 - n, 39 - n))]
    assert skips
    epochs = [tuple(order[k : k + 13]) for k in (13 - skips[0], 26 - skips[0], 39 - skips[0])]
    assert len(set(epochs)) == 3


@pytest.mark.parametrize(
    ("settings", "shape", "expected"),
    [
        ("short_side: 6", (9, 4), (13, 6)),
        ("short_side: 6 new_height: 2 new_width: 2", (4, 9), (6, 13)),
        ("new_dim: 6 bicubic: true", (9, 4), (13, 6)),
        ("new_height: 7 new_width: 5 bicubic: true", (9, 4), (7, 5)),
        ("min_height: 6 min_width: 8", (5, 3), (13, 8)),  # of the width 5 are missing, of the height 1
        ("min_height: 9 min_width: 4", (5, 3), (9, 5)),
        ("min_height: 5 min_width: 3", (5, 3), (5, 3)),
        ("min_height: 6 min_width: 8 new_height: 4 new_width: 4", (5, 3), (4, 4)),
    ],
)
def test_images_are_resized_by_settings_of_forks(tmp_path, open_source, settings, shape, expected):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "a.png"), image)
    (tmp_path / "list.txt").write_text(f"{tmp_path}/a.png 0\n")
    data, _ = next(open_source(layer_text(tmp_path / "list.txt", settings, 1)))
    interpolation = cv2.INTER_CUBIC if "bicubic" in settings else cv2.INTER_LINEAR
    resized_image = cv2.resize(image, expected[::-1], interpolation=interpolation)
    np.testing.assert_array_equal(np.asarray(data)[0], resized_image.transpose(2, 0, 1))


def test_min_height_and_min_width_must_both_be_set(tmp_path, open_source):
    with pytest.raises(DataError, match="only one of min_height and min_width"):
        open_source(layer_text(tmp_path / "list.txt", "min_width: 8"))

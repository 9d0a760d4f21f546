"""Data, ImageData and HDF5Data equal the values recorded from Caffe."""

import json
from pathlib import Path

import numpy as np
import pytest

from caffejax.base.errors import DataError

CASES = {
    case["case"]: case
    for case in json.loads((Path(__file__).parents[2] / "golden/data/index.json").read_text())["cases"]
}
TRAIN_CASES = [name for name, case in CASES.items() if case["phase"] == "TRAIN"]
TEST_CASES = [name for name in CASES if "shapes" in CASES[name]]


def test_every_recorded_case_is_tested():
    assert set(CASES) == {*TRAIN_CASES, *TEST_CASES, "data_mixed_native_error"}


@pytest.mark.parametrize("name", TEST_CASES)
def test_three_batches_equal_caffes_batches(name, golden, open_source):
    expected = np.load(f"{name}.npz")
    source = open_source(Path(f"{name}.prototxt"))
    tops = [key.removeprefix("0/") for key in expected if key.startswith("0/")]
    assert [top.shape for top in source.tops] == [tuple(CASES[name]["shapes"][f"0/{top}"]) for top in tops]
    for n in range(CASES[name]["batches"]):
        batch = next(source)
        assert len(batch) == len(tops)
        for value, top in zip(batch, tops, strict=True):
            assert value.dtype == np.float32
            np.testing.assert_array_equal(value, expected[f"{n}/{top}"])


def test_worker_processes_read_caffes_batches(golden, open_source):
    source = open_source(golden / "data_leveldb_compacted.prototxt", workers=2)
    expected = np.load("data_leveldb_compacted.npz")
    for n in range(3):
        data, label = next(source)
        np.testing.assert_array_equal(data, expected[f"{n}/data"])
        np.testing.assert_array_equal(label, expected[f"{n}/label"])


def test_gray_and_color_images_in_one_batch_are_refused(golden, open_source):
    with pytest.raises(DataError, match=r"im_03.png' becomes 1x32x40 .* but the batch's first image becomes 3x32x40"):
        next(open_source(Path("data_mixed_native_error.prototxt")))


def find_crops(source, name, num_batches):
    """Where each image was cropped, and whether it was mirrored: by comparing with all that is allowed."""
    case, full_images = CASES[name], np.load(CASES[name]["full"])["full"]
    crop_size = case["crop"]
    crops, i = [], 0
    for _ in range(num_batches):
        for image in next(source)[0]:
            matching_crops = [
                (h, w, mirror)
                for h in range(case["h_off"][0], case["h_off"][1] + 1)
                for w in range(case["w_off"][0], case["w_off"][1] + 1)
                for mirror in case["mirror"]
                if np.array_equal(
                    image,
                    full_images[i % len(full_images)][:, h : h + crop_size, w : w + crop_size][
                        ..., :: -1 if mirror else 1
                    ],
                )
            ]
            assert len(matching_crops) == 1, f"image {i} is none of the crops that Caffe makes"
            crops += matching_crops
            i += 1
    return crops


@pytest.mark.parametrize("name", TRAIN_CASES)
def test_train_crops_are_possible_in_caffe_and_depend_on_the_seed(name, golden, open_source):
    case, net = CASES[name], Path(f"{name}.prototxt")
    crops = find_crops(open_source(net, "TRAIN", seed=1), name, 10)
    rows, columns, mirrors = map(set, zip(*crops, strict=True))
    assert rows == set(range(case["h_off"][0], case["h_off"][1] + 1))
    assert columns == set(range(case["w_off"][0], case["w_off"][1] + 1))
    assert mirrors == {0, 1}
    assert find_crops(open_source(net, "TRAIN", seed=1), name, 3) == crops[:36]
    assert find_crops(open_source(net, "TRAIN", seed=2), name, 3) != crops[:36]

"""The digits: the committed data equals the script's output and the reference set."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from caffejax.data import Lmdb
from caffejax.data.image_decoding import read_datum

ROOT = Path(__file__).parents[2]
PARTS = ["digits_train_lmdb", "digits_test_lmdb"]


@pytest.fixture(scope="module")
def databases(tmp_path_factory):
    pytest.importorskip("sklearn", reason="the script takes the digits from scikit-learn")
    folder = tmp_path_factory.mktemp("digits")
    runpy.run_path(str(ROOT / "scripts" / "make_digits_lmdb.py"))["main"](folder)
    return folder


@pytest.mark.parametrize("part", PARTS)
def test_the_script_makes_what_is_committed(databases, part):
    assert list(Lmdb(databases / part)) == list(Lmdb(ROOT / "configs" / "digits" / part))


@pytest.mark.parametrize("part", PARTS)
def test_digits_equal_the_reference(shared_folder, part):
    assert list(Lmdb(ROOT / "configs" / "digits" / part)) == list(Lmdb(shared_folder / "digits" / part))


def test_counts_and_pixels():
    train, test = (Lmdb(ROOT / "configs" / "digits" / part) for part in PARTS)
    assert (len(train), len(test)) == (1437, 360)
    images, labels = zip(*(read_datum(value) for _, value in train), strict=True)
    assert np.stack(images).shape == (1437, 1, 28, 28)
    assert np.mean(images) == pytest.approx(78.65786147444364, abs=1e-9)
    assert np.bincount(labels).tolist() == [138, 141, 143, 148, 152, 139, 150, 152, 139, 135]

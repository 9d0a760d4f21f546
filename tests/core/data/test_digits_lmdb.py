"""The digits: the committed data equals the script's output and the reference set."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from caffejax.base.databases import Lmdb
from caffejax.core.data.image_decoding import read_datum

ROOT = Path(__file__).parents[3]
DATABASE_NAMES = ["digits_train_lmdb", "digits_test_lmdb"]


@pytest.fixture(scope="module")
def database_folder(tmp_path_factory):
    pytest.importorskip("sklearn", reason="the script takes the digits from scikit-learn")
    folder = tmp_path_factory.mktemp("digits")
    runpy.run_path(str(ROOT / "scripts" / "make_digits_lmdb.py"))["main"](folder)
    return folder


@pytest.mark.parametrize("name", DATABASE_NAMES)
def test_script_reproduces_the_committed_digits(database_folder, name):
    assert list(Lmdb(database_folder / name)) == list(Lmdb(ROOT / "configs" / "digits" / name))


@pytest.mark.parametrize("name", DATABASE_NAMES)
def test_digits_equal_the_reference(shared_folder, name):
    assert list(Lmdb(ROOT / "configs" / "digits" / name)) == list(Lmdb(shared_folder / "digits" / name))


def test_counts_of_digits_and_mean_of_pixels():
    train, test = (Lmdb(ROOT / "configs" / "digits" / name) for name in DATABASE_NAMES)
    assert (len(train), len(test)) == (1437, 360)
    images, labels = zip(*(read_datum(value) for _, value in train), strict=True)
    assert np.stack(images).shape == (1437, 1, 28, 28)
    assert np.mean(images) == pytest.approx(78.65786147444364, abs=1e-9)
    assert np.bincount(labels).tolist() == [138, 141, 143, 148, 152, 139, 150, 152, 139, 135]

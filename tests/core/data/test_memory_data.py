"""Arrays as a source for MemoryData."""

import numpy as np
import pytest

from caffejax.base.errors import DataError
from caffejax.core.data import ArraySource

DATA = np.random.default_rng(0).random((6, 2, 3, 4))
LABELS = np.arange(6)


def test_first_batch_follows_the_last():
    source = ArraySource(DATA, LABELS.reshape(6, 1, 1, 1), 2)
    assert [top.shape for top in source.tops] == [(2, 2, 3, 4), (2,)]
    for n in range(7):
        data, labels = next(source)
        assert data.dtype == labels.dtype == np.float32
        rows = np.arange(2 * n, 2 * n + 2) % 6
        np.testing.assert_array_equal(data, DATA[rows].astype(np.float32))
        np.testing.assert_array_equal(labels, rows)


def test_float32_arrays_are_not_copied_but_batches_are():
    data = DATA.astype(np.float32)
    source = ArraySource(data, LABELS, 3)
    data[0] = 7
    batch, _ = next(source)
    assert (batch[0] == 7).all()
    batch[1] = 8
    np.testing.assert_array_equal(data[1], DATA[1].astype(np.float32))


def test_positions_are_restored_and_reset():
    source = ArraySource(DATA, LABELS, 2)
    next(source)
    state = source.get_state()
    expected = next(source)[1]
    source.set_state(state)
    np.testing.assert_array_equal(next(source)[1], expected)
    source.reset(DATA[:4], LABELS[2:])
    assert source.get_state() == {"examples": 0}
    np.testing.assert_array_equal(next(source)[1], [2, 3])
    with pytest.raises(DataError, match="not a multiple of batch_size"):
        source.set_state({"examples": 3})


@pytest.mark.parametrize(
    ("data", "labels", "batch_size", "message"),
    [
        (DATA, LABELS, 4, "the number of images, 6, must be a multiple of batch_size 4"),
        (DATA[:0], LABELS[:0], 4, "the number of images, 0, must be a multiple"),
        (DATA, LABELS[:5], 2, "there are 5 labels for 6 images"),
        (DATA[0], LABELS[:2], 2, r"the data is 2x3x4, but must be images \(n, C, H, W\)"),
        (np.float32(1), LABELS, 2, "the data is a number"),
        (DATA, LABELS, 0, "batch_size must be 1 or more"),
    ],
)
def test_invalid_arrays_are_refused(data, labels, batch_size, message):
    with pytest.raises(DataError, match=message):
        ArraySource(data, labels, batch_size)


def test_a_bad_reset_changes_nothing():
    source = ArraySource(DATA, LABELS, 2)
    next(source)
    with pytest.raises(DataError):
        source.reset(DATA[:3], LABELS[:3])
    np.testing.assert_array_equal(next(source)[1], [2, 3])

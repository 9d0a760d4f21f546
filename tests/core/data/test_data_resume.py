"""Restored positions: the following batches equal the batches of an uninterrupted run."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.base.errors import DataError


@pytest.fixture(scope="module")
def h5_list(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of 5 and 3 rows; each value of `a` says which row it is."""
    folder = tmp_path_factory.mktemp("h5")
    for name, rows in (("one.h5", range(5)), ("two.h5", range(5, 8))):
        with h5py.File(folder / name, "w") as file:
            file["a"] = np.array(rows)
            file["b"] = np.array([[row, -row] for row in rows], np.float64)
    (folder / "list.txt").write_text("one.h5\ntwo.h5\n")
    return folder / "list.txt"


def read_batches(source, n):
    return [[top.tolist() for top in next(source)] for _ in range(n)]


def check_resume(open_source, num_skipped, num_read):
    original_source = open_source()
    read_batches(original_source, num_skipped)
    state = original_source.get_state()
    expected = read_batches(original_source, num_read)
    resumed_source = open_source()
    resumed_source.set_state(state)
    assert resumed_source.get_state() == state
    assert read_batches(resumed_source, num_read) == expected
    original_source.set_state(state)
    assert read_batches(original_source, num_read) == expected
    for source in (original_source, resumed_source):
        source.close()


@settings(max_examples=40)  # each opens and reads four sources
@given(
    num_before=st.integers(0, 12),
    num_after=st.integers(1, 4),
    batch_size=st.integers(1, 20),
    seed=st.integers(-(2**31), 2**63),
    rand_skip=st.integers(0, 30),
    phase=st.sampled_from(["TRAIN", "TEST"]),
)
def test_data_resumes(open_source, data_layer_text, raw_db, num_before, num_after, batch_size, seed, rand_skip, phase):
    data = f"backend: LMDB rand_skip: {rand_skip} prefetch: 2"
    net = data_layer_text(raw_db, batch_size, "crop_size: 3 mirror: true", data)
    check_resume(lambda: open_source(net, phase, seed=seed), num_before, num_after)


@settings(max_examples=40)  # each opens and reads four sources
@given(
    num_before=st.integers(0, 12),
    num_after=st.integers(1, 4),
    batch_size=st.integers(1, 20),
    seed=st.integers(-(2**31), 2**63),
    shuffle=st.sampled_from(["true", "false"]),
)
def test_hdf5_resumes(open_source, hdf5_layer_text, h5_list, num_before, num_after, batch_size, seed, shuffle):
    net = hdf5_layer_text(h5_list, "b a", batch_size, f"shuffle: {shuffle}")
    check_resume(lambda: open_source(net, "TRAIN", seed=seed), num_before, num_after)


def test_hdf5_shuffle_differs_in_each_epoch_and_keeps_rows_together(open_source, hdf5_layer_text, h5_list):
    source = open_source(hdf5_layer_text(h5_list, "a b", 8, "shuffle: true"), seed=3)
    epochs = []
    for _ in range(6):
        a, b = next(source)
        np.testing.assert_array_equal(b, np.stack([a, -a], axis=1))
        assert sorted(a) == list(range(8))
        epochs.append(tuple(a))
    assert len(set(epochs)) == 6
    assert {min(r[:3]) >= 5 for r in epochs} == {True, False}, "the order of the files never changed"


@pytest.mark.parametrize("state", [{}, {"examples": -1}, {"examples": "3"}])
def test_values_that_are_not_positions_are_refused(
    open_source, h5_list, hdf5_layer_text, raw_db, data_layer_text, state
):
    for net in (hdf5_layer_text(h5_list, "a"), data_layer_text(raw_db)):
        with pytest.raises(DataError, match="is not the position"):
            open_source(net).set_state(state)

"""HDF5Data beyond the recorded cases: axes, dtypes, paths, and invalid lists and files."""

import threading

import h5py
import numpy as np
import pytest

from caffejax.base import paths
from caffejax.base.errors import DataError
from caffejax.core.data.hdf5_layers import _read_file_list


def write_hdf5(path, **data_sets):
    with h5py.File(path, "w") as file:
        for name, values in data_sets.items():
            file[name] = values
    return path


def write_list(folder, *names):
    path = folder / "list.txt"
    path.write_text("\n".join(map(str, names)))
    return path


def get_error_message(open_source, net):
    with pytest.raises(DataError) as exc_info:
        open_source(net)
    assert "layer 'd' (HDF5Data)" in str(exc_info.value)
    return str(exc_info.value)


def test_arrays_of_any_rank_and_numeric_type_are_read(open_source, hdf5_layer_text, tmp_path):
    values = np.arange(2 * 3 * 2 * 2 * 2)
    shapes = {"a": (48,), "b": (24, 2), "c": (12, 2, 2), "d": (6, 2, 2, 2), "e": (2, 3, 2, 2, 2)}
    types = {"a": np.int64, "b": np.float64, "c": np.uint8, "d": np.float16, "e": np.int32}
    for name, shape in shapes.items():
        path = write_hdf5(tmp_path / f"{name}.h5", **{name: values.reshape(shape).astype(types[name])})
        source = open_source(hdf5_layer_text(write_list(tmp_path, path), name, batch_size=shape[0] + 1))
        (batch,) = next(source)
        assert batch.dtype == np.float32
        assert source.tops[0].shape == batch.shape == (shape[0] + 1, *shape[1:])
        expected = values.reshape(shape)
        np.testing.assert_array_equal(batch, np.concatenate([expected, expected[:1]]))


@pytest.mark.parametrize(("batch_size", "uses_thread"), [(3, False), (2**15, True)])
def test_small_batches_are_read_without_a_thread(open_source, hdf5_layer_text, tmp_path, batch_size, uses_thread):
    path = write_hdf5(tmp_path / "x.h5", a=np.arange(5))
    threads_before = set(threading.enumerate())
    source = open_source(hdf5_layer_text(write_list(tmp_path, path), "a", batch_size=batch_size))
    rows = np.concatenate([next(source)[0] for _ in range(3)])
    np.testing.assert_array_equal(rows, np.arange(3 * batch_size) % 5)
    assert bool(set(threading.enumerate()) - threads_before) == uses_thread


def test_paths_are_relative_to_the_working_directory_or_to_the_list(
    open_source, hdf5_layer_text, tmp_path, monkeypatch
):
    (tmp_path / "here").mkdir()
    write_hdf5(tmp_path / "x.h5", a=[1.0])
    net = hdf5_layer_text(write_list(tmp_path, "x.h5"), "a", batch_size=1)
    monkeypatch.chdir(tmp_path / "here")
    assert next(open_source(net))[0].tolist() == [1]
    write_hdf5(tmp_path / "here" / "x.h5", a=[2.0])
    assert next(open_source(net))[0].tolist() == [2]


def test_a_file_without_rows_is_skipped(open_source, hdf5_layer_text, tmp_path):
    files = [write_hdf5(tmp_path / f"{i}.h5", a=np.arange(i, i + n)) for i, n in ((0, 2), (2, 0), (3, 1))]
    source = open_source(hdf5_layer_text(write_list(tmp_path, *files), "a", batch_size=5))
    assert next(source)[0].tolist() == [0, 1, 3, 0, 1]


def test_all_bad_files_are_reported_together(open_source, hdf5_layer_text, tmp_path):
    (tmp_path / "junk.h5").write_bytes(b"no HDF5" * 1000)
    content = write_hdf5(tmp_path / "good.h5", data=np.zeros((3, 2)), label=np.zeros(3)).read_bytes()
    (tmp_path / "short.h5").write_bytes(content[: len(content) // 2])
    write_hdf5(tmp_path / "lacks.h5", data=np.zeros((3, 2)), labels=np.zeros(3))
    write_hdf5(tmp_path / "rows.h5", data=np.zeros((3, 2)), label=np.zeros(4))
    write_hdf5(tmp_path / "shape.h5", data=np.zeros((3, 5)), label=np.zeros(3))
    write_hdf5(tmp_path / "text.h5", data=np.zeros((3, 2)), label=np.array([b"a", b"b", b"c"]))
    write_hdf5(tmp_path / "scalar.h5", data=np.zeros((3, 2)), label=1.0)
    write_hdf5(tmp_path / "group.h5", **{"data": np.zeros((3, 2)), "label/x": [1], "label/y": [2]})
    names = ["good", "missing", "junk", "short", "lacks", "rows", "shape", "text", "scalar", "group"]
    files = write_list(tmp_path, *(f"{name}.h5" for name in names))
    lines = get_error_message(open_source, hdf5_layer_text(files, "data label")).splitlines()
    expected = {
        "missing": "no such file",
        "junk": "is not an HDF5 file, or is damaged",
        "short": "is not an HDF5 file, or is damaged",
        "lacks": "has no data set 'label', only data, labels; did you mean 'labels'?",
        "rows": "different numbers of rows: 'data' 3, 'label' 4",
        "shape": "a row of 'data' is 5, but 2 in the first file",
        "text": "data set 'label' has type |S1; integers or floats are needed",
        "scalar": "data set 'label' is a single value",
        "group": "'label' is a group, not a data set; it holds x, y",
    }
    assert len(lines) == len(expected)
    for line, (name, message) in zip(lines, expected.items(), strict=True):
        assert f"{name}.h5: layer 'd' (HDF5Data): " in line
        assert message in line


def test_invalid_lists_are_refused(open_source, hdf5_layer_text, tmp_path):
    assert "the list of files cannot be read: No such file" in get_error_message(
        open_source, hdf5_layer_text(tmp_path / "no.txt", "a")
    )
    assert "the list names no files" in get_error_message(open_source, hdf5_layer_text(write_list(tmp_path), "a"))
    path = write_hdf5(tmp_path / "x.h5", a=np.zeros((0, 2)))
    assert "source must be a text file that lists HDF5 files" in get_error_message(
        open_source, hdf5_layer_text(path, "a")
    )
    assert "the files have no rows" in get_error_message(open_source, hdf5_layer_text(write_list(tmp_path, path), "a"))


def test_invalid_settings_are_refused(open_source, hdf5_layer_text, tmp_path):
    files = write_list(tmp_path, write_hdf5(tmp_path / "x.h5", a=[1.0]))
    net_with_transform = hdf5_layer_text(files, "a").replace(
        "hdf5_data_param", "transform_param { scale: 2 } hdf5_data_param"
    )
    assert "does not transform its data; remove transform_param" in get_error_message(open_source, net_with_transform)
    assert "batch_size must be 1 or more" in get_error_message(open_source, hdf5_layer_text(files, "a", 0))
    assert "has no source" in get_error_message(open_source, hdf5_layer_text("", "a"))


def test_a_file_that_vanishes_is_reported_when_it_is_read(open_source, hdf5_layer_text, tmp_path):
    path = write_hdf5(tmp_path / "x.h5", a=[1.0])
    source = open_source(hdf5_layer_text(write_list(tmp_path, path), "a"))
    path.unlink()
    with pytest.raises(DataError, match=r"x.h5: layer 'd' \(HDF5Data\): cannot be read"):
        next(source)


def test_a_batch_larger_than_memory_is_refused_before_allocation(open_source, hdf5_layer_text, tmp_path):
    path = write_hdf5(tmp_path / "x.h5", a=np.zeros((1, 10_000), np.float32))
    message = get_error_message(open_source, hdf5_layer_text(write_list(tmp_path, path), "a", batch_size=2_000_000_000))
    assert "needs 72.76 TiB for a batch, but only" in message


def test_only_the_first_of_many_bad_files_are_named(open_source, hdf5_layer_text, tmp_path):
    message = get_error_message(
        open_source, hdf5_layer_text(write_list(tmp_path, *(f"{n}.h5" for n in range(5000))), "a", batch_size=1)
    )
    assert len(message.splitlines()) == 21
    assert message.endswith("and 4980 more")


def test_a_repeated_file_of_a_list_is_searched_once(tmp_path, monkeypatch):
    path = write_hdf5(tmp_path / "x.h5", a=[1.0])
    searched_names: list[str] = []
    monkeypatch.setattr(paths, "find_file", lambda name, folder: searched_names.append(name) or path)
    assert _read_file_list(write_list(tmp_path, *["x.h5"] * 1000)) == [path] * 1000
    assert searched_names == ["x.h5"]
